"""Prometheus pages: what is taken of them, and that hostile ones cost little."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from string import ascii_letters
from typing import Any

import pytest

from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import package_presets
from dlsched.estimate.sketch import bounds_of, merge
from dlsched.model.sources import LabelFilter, Metric, MetricsEndpoint
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Target
from dlsched.runtime.progress.exposition import PageDelta, Pages
from dlsched.runtime.progress.page_lines import LABELS_MAX, LINE_BYTES, MOST_LINES, MOST_NAMED
from dlsched.runtime.progress.scrape import named

VLLM = """# HELP vllm:e2e_request_latency_seconds Histogram of e2e request latency.
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{{le="0.5",model_name="m"}} {half}.0
vllm:e2e_request_latency_seconds_bucket{{le="1.0",model_name="m"}} {all}.0
vllm:e2e_request_latency_seconds_bucket{{le="+Inf",model_name="m"}} {all}.0
vllm:e2e_request_latency_seconds_count{{model_name="m"}} {all}.0
vllm:e2e_request_latency_seconds_sum{{model_name="m"}} {sum}
vllm:time_to_first_token_seconds_count{{model_name="m"}} 99.0
"""

TRITON = """nv_inference_request_success{{model="a",version="1"}} {count}
nv_inference_request_success{{model="b",version="1"}} 0
nv_inference_request_failure{{model="a",version="1"}} {failed}
nv_inference_request_duration_us{{model="a",version="1"}} {us}
nv_inference_request_duration_us{{model="b",version="1"}} 0
nv_inference_queue_duration_us{{model="a",version="1"}} 77
"""


def taken(*pages: str, name: str | None = None, from_end: bool = True) -> PageDelta:
    metrics = () if name is None else (Metric(name=name),)
    reader = Pages(named(MetricsEndpoint((1,), metrics=metrics), None), from_end=from_end)
    return [reader.take(page.encode()) for page in pages][-1]


def test_of_tritons_summary_only_the_mean_is_read() -> None:
    summary = """nv_inference_request_summary_us_count{{model="a"}} {count}
nv_inference_request_summary_us_sum{{model="a"}} {us}
nv_inference_request_summary_us{{model="a",quantile="0.5"}} 9000
nv_inference_request_summary_us{{model="a",quantile="0.99"}} 50000
nv_inference_request_summary_us{{model="b",quantile="0.99"}} NaN
"""
    pages = [
        TRITON.format(count=n, failed=0, us=n) + summary.format(count=n, us=n * 10_000)
        for n in (10, 110)
    ]
    told = taken(*pages)
    assert (told.latency.count, told.latency.sum_s) == (100, pytest.approx(1.0))
    assert (told.latency.buckets, told.latency.spans) == ((), ())
    assert told.bad_lines == 0


def test_time_that_a_page_shows_before_its_request_is_of_that_request() -> None:
    reader = Pages(named(MetricsEndpoint((1,), metrics=(Metric(name="m"),)), None), from_end=True)
    counts = ((0, 0), (0, 100), (1, 100), (1, 200), (2, 200))
    pages = [f"m_count {count}\nm_sum {total}\n".encode() for count, total in counts]
    found = [reader.take(page).latency for page in pages]
    assert [(one.count, one.sum_s) for one in found if one.count] == [(1, 100.0)] * 2


def test_the_first_page_counts_where_the_start_was_seen() -> None:
    page = VLLM.format(half=1, all=2, sum=1.1)
    seen, not_seen = taken(page, from_end=False).latency, taken(page, from_end=True).latency
    assert seen is not None and seen.count == 2
    assert not_seen is not None and not_seen.count == 0


def test_a_gauge_is_told_when_it_changes() -> None:
    reader = Pages((Metric(name="accuracy"),), from_end=True)
    pages = (b"accuracy 0.5\n", b"accuracy 0.5\n", b'accuracy{split="val"} 0.6\n')
    assert [reader.take(page).value for page in pages] == [0.5, None, 0.6]


def test_two_gauges_of_a_name_are_not_guessed_between() -> None:
    told = taken('loss{split="a"} 1\nloss{split="b"} 2\n', name="loss")
    assert (told.value, told.problem) == (None, "the metric has 2 series that differ, must be one")


@pytest.mark.parametrize(("first", "second"), [("0", "-0.0"), ("0.5", "0.5")])
def test_several_processes_with_the_same_value_are_one_gauge(first: str, second: str) -> None:
    pages = Pages((Metric(name="loss"),), from_end=False)
    page = f'loss{{pid="1"}} {first}\nloss{{pid="2"}} {second}\n'.encode()
    pages.take(b"loss 1\n")
    assert pages.take(page).value == float(first)
    assert pages.take(page).value is None


def test_a_gauge_that_is_not_finite_counts_after_a_finite_one() -> None:
    pages = Pages((Metric(name="loss"),), from_end=False)
    values = ["NaN", "NaN", "0.5", "NaN", "NaN", "+Inf", "0.4"]
    told = [pages.take(f"loss {value}\n".encode()) for value in values]
    assert all((one.bad_lines, one.problem) == (0, None) for one in told)
    assert [str(one.value) for one in told] == ["None", "None", "0.5", "nan", "None", "inf", "0.4"]


def test_a_gauge_that_no_evaluation_has_set_counts_after_another_value() -> None:
    pages = Pages((Metric(name="loss"),), from_end=False)
    told = [pages.take(f"loss {value}\n".encode()).value for value in ("0.0", "0", "0.5", "0.0")]
    assert told == [None, None, 0.5, 0.0]


def test_a_page_without_the_metric_is_said() -> None:
    assert taken("up 1\n", name="accuracy").problem == "the page has no metric accuracy"
    trouble = taken("nv_inference_request_failure 1\n").problem
    assert trouble == "none of the page's metrics is one that a preset reads"


@pytest.mark.parametrize(
    "line",
    [
        "m_sum NaN",
        "m_count -1",
        "m_count +Inf",
        "m_count " + "9" * 400,
        'm_bucket{le="x"} 1',
        'm_bucket{le="NaN"} 1',
        'm_bucket{le="-1"} 1',
        "m_bucket 1",
        'm_count{a="' + "x" * LINE_BYTES + '"} 1',
        'm_count{a="b} 1',
        "m_count one",
        'm_count{a="\ud800"} 1',
    ],
)
def test_a_line_that_cannot_be_read_refuses_its_page(line: str) -> None:
    whole = 'm_count{ok="1"} 2\nm_sum{ok="1"} 1\n'
    page = f"{line}\n{whole}".encode("utf-8", "surrogatepass")
    reader = Pages((Metric(name="m"),), from_end=False)
    told = reader.take(page)
    assert (told.latency, told.bad_lines) == (None, 1)
    assert told.refused is not None and told.refused.isprintable()
    assert (
        told.problem
        == f"{told.refused}: none of the metric's numbers is read: choose series by `where`"
    )
    after = reader.take(whole.encode())
    assert after.latency is not None and after.latency.count == 2, "nothing is lost"


def test_a_series_without_its_count_line_is_read_by_buckets() -> None:
    pages = [
        f'm_bucket{{le="1"}} {n}\nm_bucket{{le="+Inf"}} {n}\nm_sum {n}\n{line}'
        for n, line in ((4, "m_count 4\n"), (6, ""))
    ]
    assert taken(*pages, name="m").latency.count == 2


def test_a_series_that_contradicts_itself_refuses_its_page() -> None:
    page = 'm_bucket{le="1"} 5\nm_bucket{le="2"} 3\nm_bucket{le="+Inf"} 5\nm_sum 2\n'
    told = taken(page + 'm_count{a="1"} 9\nm_sum{a="1"} 9\n', name="m", from_end=False)
    assert told.latency is None and "fall from one bound to the next" in told.problem


LE = (0.5, 1, 1.5, 2, 5, 10, 30, 60, *range(61, 93), math.inf)


def keyed(keys: int, times: int, before: str = "", behind: str = "") -> str:
    """A page of one histogram with a series of 43 lines a key: each has so many requests of 1.2 s,
    the second half also as many of 9.5 s."""
    lines = []
    for key in range(keys):
        slow = times if key >= keys // 2 else 0
        for edge in LE:
            count = times * (edge >= 1.5) + slow * (edge >= 10)
            lines.append(f'm_bucket{{{before}le="{edge:g}",key="k{key}"{behind}}} {count}')
        lines.append(f'm_count{{{before}key="k{key}"{behind}}} {times + slow}')
        lines.append(f'm_sum{{{before}key="k{key}"{behind}}} {1.2 * times + 9.5 * slow}')
    return "\n".join(lines).replace('"inf"', '"+Inf"') + "\n"


def filtered(pages: Sequence[str], keys: str) -> PageDelta:
    filters = (LabelFilter("key", keys),)
    reader = Pages((Metric(name="m", where=filters),), from_end=True)
    return [reader.take(page.encode()) for page in pages][-1]


def test_wanted_series_of_a_large_page_are_read_whole() -> None:
    """2 MB in series, of which 40 are wanted."""
    pages = [keyed(700, times, behind=f',user="{"u" * 40}"') for times in (1, 2)]
    assert len(pages[0]) > 2_000_000
    told = filtered(pages, "k[0-9]|k[1-3][0-9]")
    assert (told.problem, told.bad_lines) == (None, 0)
    assert (told.latency.count, told.latency.mean_s) == (40, pytest.approx(1.2))


def test_bounds_are_read_wherever_le_stands() -> None:
    for before, behind in (
        ("", ""),
        ('a="x",', ""),
        ('role="7",', ',title="5"'),
        ('a="\\"le=",', ""),
    ):
        told = taken(keyed(2, 1, before, behind), keyed(2, 2, before, behind), name="m")
        assert told.problem is None, (before, told.problem)
        assert told.latency.spans == ((1.0, 1.5, 2), (5.0, 10.0, 1))


@pytest.mark.parametrize(
    "page",
    [
        b'm_count{a="1"} 1\n' * 15_000,
        b"".join(b'm_bucket{a="%d",le="1"} 1\n' % n for n in range(9_000)),
        b"\n" * 262_144,
        b"m_count{" + b'\\"' * 131_000,
        b"m_count" * 37_000,
        (b"m_count{" + b'a="",' * 400 + b"} 1\n") * 125,
        (b"m_count{" + b"\\" * 2000 + b"} 1\n") * 130,
        (b"m_count{" + b'"\\' * 1000 + b"} 1\n") * 130,
        (b"m_count " + b"1 " * 1000 + b"\n") * 130,
    ],
    ids=["lines", "series", "empty", "quotes", "long", "labels", "slashes", "escapes", "values"],
)
@pytest.mark.timed
def test_a_hostile_page_costs_bounded_cpu(page: bytes) -> None:
    def cost_s() -> float:
        began_s = time.process_time()
        Pages((Metric(name="m"),), from_end=False).take(page[: 256 * 1024])
        return time.process_time() - began_s

    assert any(cost_s() < 0.5 for _ in range(5)), "about 0.05 s; others may disturb a try"
    told = Pages((Metric(name="m"),), from_end=False).take(page[: 256 * 1024])
    assert told.bad_lines <= 1


def preset(name: str, *pages: str, target: Target | None = None, **more: Any) -> PageDelta:
    """What the last of these pages adds, read by that packaged preset."""
    presets = package_presets()
    (source,) = presets.sources(MetricsKeys(base=name, **more))
    assert isinstance(source, MetricsEndpoint)
    reader = Pages(named(source, None), from_end=True, target=target, hint=source.hint)
    return [reader.take(page.encode(), at_s) for at_s, page in enumerate(pages, 1000)][-1]


def histogram(name: str, labels: str, count: float, sum_: float, *bounds: str) -> str:
    """A histogram all of whose requests lie below each of these bounds."""
    lines = [f'{name}_bucket{{{labels},le="{bound}"}} {count}' for bound in (*bounds, "+Inf")]
    lines += [f"{name}_count{{{labels}}} {count}", f"{name}_sum{{{labels}}} {sum_}"]
    return "\n".join(lines) + "\n"


def fastapi(requests: int, scrapes: int) -> str:
    return "".join(
        histogram("http_request_duration_seconds", f'handler="{path}",method="GET"', count, sum_)
        for path, count, sum_ in (
            ("/predict", requests, 0.4 * requests),
            ("/metrics", scrapes, 0.001 * scrapes),
            ("/healthz", scrapes, 0.001 * scrapes),
        )
    )


def test_own_scrapes_and_health_checks_are_no_requests() -> None:
    told = preset("fastapi", fastapi(10, 1), fastapi(20, 16))
    assert (told.latency.count, told.latency.mean_s) == (10, pytest.approx(0.4))
    unnamed = taken(fastapi(10, 1), fastapi(20, 16), name="http_request_duration_seconds")
    assert unnamed.latency == told.latency, "without a preset either"


@pytest.mark.parametrize(
    ("path", "requests"),
    [
        ("/actuator/health", 0),
        ("/actuator/health/liveness", 0),
        ("/v1/health/ready", 0),
        ("/v2/health/ready", 0),
        ("/service/v1/health/live", 0),
        ("/api/health", 0),
        ("/-/healthy", 0),
        ("/-/healthz", 0),
        ("/healthz?x=1", 0),
        ("/ping/", 0),
        ("/predict", 3),
        ("/v1/models/ready", 3),
        ("/stream/live", 3),
        ("/chat/ping", 3),
        ("/patients/health/predict", 3),
        ("/healthy/eating", 3),
    ],
)
def test_health_checks_under_a_prefix_are_no_requests(path: str, requests: int) -> None:
    pages = (histogram("m", f'uri="{path}"', count, 0.4 * count) for count in (0, 3))
    assert taken(*pages, name="m").latency.count == requests


def test_before_the_first_request_there_is_none_and_it_then_counts() -> None:
    only_scrapes = histogram("http_request_duration_seconds", 'handler="/metrics"', 1, 0.001)
    told = preset("fastapi", only_scrapes, fastapi(1, 2))
    assert (told.latency and told.latency.count, told.problem) == (1, None)


def test_series_are_chosen_by_their_labels() -> None:
    page = histogram("m_seconds", 'model="a"', 4, 4.0) + histogram("m_seconds", 'model="b"', 4, 8.0)
    for where, mean_s in (("a", 1.0), ("!a", 2.0), ("a|b", 1.5)):
        (source,) = package_presets().sources(
            MetricsKeys(port="1", name="m_seconds", where={"model": where})  # type: ignore[arg-type]
        )
        assert isinstance(source, MetricsEndpoint)
        told = Pages(named(source, None), from_end=False).take(page.encode())
        assert told.latency is not None and told.latency.mean_s == pytest.approx(mean_s)


def test_a_filter_that_nothing_passes_is_said_with_what_there_is() -> None:
    page = histogram("vllm:e2e_request_latency_seconds", 'model_name="llama"', 4, 4.0)
    told = preset("vllm", page, where={"model_name": "lama"})
    assert (
        told.problem.endswith("has model_name: lama; the page has llama") and told.latency is None
    )


def test_several_models_are_never_read_as_one() -> None:
    name = "vllm:e2e_request_latency_seconds"
    both = histogram(name, 'model_name="a"', 9, 4.5) + histogram(name, 'model_name="b"', 1, 90.0)
    told = preset("vllm", both, both)
    assert told.latency is None and told.problem is not None
    assert "several model_name: a, b: choose by where.model_name" in told.problem
    one = preset("vllm", both, both, where={"model_name": "a"})
    assert one.problem is None and one.latency is not None
    idle = histogram(name, 'model_name="a"', 9, 4.5) + histogram(name, 'model_name="b"', 0, 0.0)
    assert preset("vllm", idle, idle).problem is None, "a model without requests changes nothing"


def test_an_ensemble_is_named_by_the_hint() -> None:
    page = TRITON.format(count=9, failed=0, us=900).replace(
        '{model="b",version="1"} 0', '{model="b",version="1"} 9'
    )
    told = preset("triton", page)
    assert told.problem is not None and told.problem.endswith("ensemble's own name)")


def test_a_unit_that_cannot_be_is_said() -> None:
    name = ":tensorflow:serving:request_latency"
    page = histogram(name, 'a="b"', 10, 5e5).encode()
    told = Pages((Metric(name=name),), from_end=True).take(page)
    why = "the mean latency would be 13.9 h: give the metric's `unit` (s, ms or us)"
    assert (told.latency, told.problem) == (None, f"{name}: {why}")


def test_one_number_is_no_latency() -> None:
    target = LatencyTarget(0.1)
    told = Pages((Metric(name="m"),), from_end=True, target=target).take(b"m 9136028\n")
    assert (
        told.problem
        == "m is one number, not a histogram, summary or ratio of latencies: name another metric"
    )


def test_a_page_in_pieces_is_the_same_page() -> None:
    page = (VLLM.format(half=1, all=2, sum=1.1) + "x" * 5000 + "\n" + "y 1\n" * 100).encode()
    whole = Pages(named(MetricsEndpoint((1,)), None), from_end=False).take(page)
    for size in (1, 7, 64, 4096):
        reader = Pages(named(MetricsEndpoint((1,)), None), from_end=False)
        reading = reader.begin()
        for start in range(0, len(page), size):
            reading.feed(page[start : start + size])
        assert reader.end(reading, 0.0) == whole


def test_of_a_large_page_only_what_is_wanted_is_kept() -> None:
    reader = Pages((Metric(name="m"),), from_end=False)
    reading = reader.begin()
    rest = b'other_metric_of_no_interest{a="b",c="d"} 12345.678\n' * 1000
    for _ in range(200):
        reading.feed(rest)
    reading.feed(b"m_count 2\nm_sum 1\n" + b"z" * 10_000)
    reading.end()
    assert len(reading.by_name) == 2
    told = reader.end(reading, 0.0)
    assert told.latency is not None and told.latency.count == 2


def test_pages_of_lines_with_hundreds_of_labels_take_little_memory_and_time() -> None:
    """Short labels take twenty times their bytes once parsed."""
    keys = [f"{a}{b}" for a in ascii_letters for b in ascii_letters][:330]
    many = ",".join(f'{key}=""' for key in keys)

    def page(turn: int) -> bytes:
        lines = (f'hostile_count{{z="{turn}-{i}",{many}}} 1' for i in range(MOST_LINES))
        return "\n".join(lines).encode()

    reader = Pages([Metric(name="hostile")], from_end=True)
    tracemalloc.start()
    try:
        for turn in range(2):
            told = reader.take(page(turn))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told.bad_lines == 1
    assert told.refused.startswith(f"a line has more than {LABELS_MAX} labels: 'hostile_count")
    assert kept < 8 << 20


def statuses(name: str, label: str, counts: Mapping[str, int], seconds: float = 0.4) -> str:
    """A histogram a status, with so many requests of that time each."""
    return "".join(
        histogram(name, f'{label}="{status}",method="POST"', count, seconds * count, "1.0")
        for status, count in counts.items()
    )


def test_answers_that_a_client_caused_are_no_failures() -> None:
    before, after = ({"200": 1, "404": 1}, {"200": 3, "404": 2})
    pages = [statuses("m_seconds", "code", one) for one in (before, after)]
    told = taken(*pages, name="m_seconds")
    assert (told.latency.count, told.latency.errors) == (3, 0)


@pytest.mark.parametrize("exact", [False, True], ids=["six digits", "all digits"])
def test_a_sum_of_six_digits_does_not_make_a_service_fast(exact: bool) -> None:
    """Five million requests of 20 ms before, then 30 of 13.7 ms."""
    name = ":tensorflow:serving:request_latency"

    def page(count: int) -> bytes:
        sum_us = 5_312_345 * 20_321.7 + 13_700.0 * count
        edges = {"11569": 0, "20824": count, "+Inf": count}
        lines = [f'{name}_bucket{{le="{le}"}} {5_312_345 + n}' for le, n in edges.items()]
        total = f"{sum_us:.12e}" if exact else f"{sum_us:.6g}"
        lines += [f"{name}_sum {total}", f"{name}_count {5_312_345 + count}", ""]
        return "\n".join(lines).encode()

    reader = Pages((Metric(name=name, unit_s=1e-6),), from_end=True)
    latency = merge(*(reader.take(page(n), float(n)).latency for n in range(31)))
    mean, p95 = bounds_of(latency, None), bounds_of(latency, 0.95)
    assert latency.count == 30 and mean is not None and p95 is not None
    if exact:
        assert mean.highest_s == pytest.approx(0.0137)
    else:
        assert mean == p95 == pytest.approx((0.011569, 0.020824))


BEGAN = "process_start_time_seconds "


@pytest.mark.parametrize(
    ("pages", "errors"),
    [
        ((f"fails 5\n{BEGAN}900", f"fails 9\n{BEGAN}1000.5"), 9),
        (('fails{r="a"} 100\nfails{r="b"} 2', 'fails{r="b"} 2', 'fails{r="a"} 100'), 0),
        (("fails 100", "", "fails 101"), 1),
        (("fails 100", "fails 3", "fails 100"), 0),
        (("", "fails 1"), 1),
    ],
    ids=["a restart", "a series that returns", "a page without", "two in turn", "the first one"],
)
def test_a_counter_of_failures_goes_back_and_lacks_series(
    pages: Sequence[str], errors: int
) -> None:
    reader = Pages((Metric(name="m", errors="fails"),), from_end=True)
    for at_s, page in enumerate(pages, 1000):
        told = reader.take(f"m_count 5\nm_sum 1\n{page}\n".encode(), float(at_s))
    assert told.latency is not None and told.latency.errors == errors


def test_a_page_that_tells_no_failures_says_so() -> None:
    page = histogram("m_seconds", 'path="/p"', 4, 1.6, "1.0")
    assert taken(page, page, name="m_seconds").hides_failures
    assert not taken(TRITON.format(count=1, failed=0, us=9)).hides_failures
    assert not preset("tgi", histogram("tgi_request_duration", "", 4, 8.0)).hides_failures
    vllm = VLLM.format(half=0, all=1, sum=0.8)
    assert preset("vllm", vllm).hides_failures
    stopped = 'vllm:request_success_total{finished_reason="stop",model_name="m"} 1\n'
    assert not preset("vllm", vllm + stopped).hides_failures


def test_failures_that_are_timed_make_no_service_fast() -> None:
    """Of ten requests five failed at once; which ones, only another counter says."""

    def page(quick: int, slow: int, failed: int) -> str:
        labels = 'handler="/p",method="POST"'
        name = "http_request_duration_seconds"
        return (
            f'{name}_bucket{{{labels},le="0.1"}} {quick}\n'
            f'{name}_bucket{{{labels},le="1.0"}} {quick + slow}\n'
            f'{name}_bucket{{{labels},le="+Inf"}} {quick + slow}\n'
            f"{name}_count{{{labels}}} {quick + slow}\n"
            f"{name}_sum{{{labels}}} {0.01 * quick + 0.5 * slow}\n"
            f'http_requests_total{{{labels},status="2xx"}} {quick + slow - failed}\n'
            f'http_requests_total{{{labels},status="5xx"}} {failed}\n'
            f'http_requests_total{{handler="/health",status="5xx"}} {77 * quick}\n'
        )

    told = preset("fastapi", page(0, 0, 0), page(5, 5, 5))
    assert (told.latency.count, told.latency.errors) == (5, 5)
    assert told.latency.spans == ((0.1, 1.0, 5),)


def test_tfserving_counts_failures_by_their_status() -> None:
    def page(count: int) -> str:
        name = ":tensorflow:serving:request"
        return histogram(f"{name}_latency", 'model_name="m"', count, 9e3 * count, "1e4") + "".join(
            f'{name}_count{{model_name="m",status="{status}"}} {count}\n'
            for status in ("OK", "DEADLINE_EXCEEDED", "UNAVAILABLE", "INVALID_ARGUMENT")
        )

    told = preset("tfserving", page(1), page(4))
    assert (told.latency.count, told.latency.errors) == (3, 6)


ACCURACY = AccuracyTarget("accuracy", 0.9, 0.97)
OTHERS = """# TYPE python_gc gauge
python_gc 1
# TYPE val_acc gauge
val_acc 0.88
# TYPE train_loss gauge
train_loss 0.3
# TYPE steps counter
steps 4
# TYPE request_seconds histogram
request_seconds_count 3
"""


@pytest.mark.parametrize(
    ("target", "seen"),
    [
        (
            AccuracyTarget("accuracy", 0.9, 0.97),
            "; found: val_acc, train_loss: choose one by `name`",
        ),
        (LatencyTarget(0.05), "; found: request_seconds: choose one by `name`"),
        (None, ""),
    ],
)
def test_a_page_without_the_metric_names_what_it_has(target: Target | None, seen: str) -> None:
    reader = Pages([Metric(name="accuracy")], from_end=True, target=target)
    assert reader.take(OTHERS.encode()).problem == f"the page has no metric accuracy{seen}"


def test_names_of_a_hostile_page_are_bounded() -> None:
    reader = Pages([Metric(name="accuracy")], from_end=True, target=ACCURACY)
    page = "".join(f"# TYPE m{number}_{'x' * 50} gauge\n" for number in range(10_000))
    reading = reader.begin()
    reading.feed(page.encode())
    assert len(reading.named) == MOST_NAMED
    assert len(reader.end(reading, 0.0).problem or "") < 400
