"""Prometheus pages: what is taken of them, and that hostile ones cost little."""

from __future__ import annotations

import time

import pytest

from dlsched.runtime.progress.exposition import LINE_BYTES, MOST_LINES, PageDelta, Pages

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
    reader = Pages(name, from_end=from_end)
    return [reader.take(page.encode()) for page in pages][-1]


def test_vllm_is_known() -> None:
    told = taken(VLLM.format(half=1, all=2, sum=1.1), VLLM.format(half=3, all=6, sum=3.6))
    assert told.latency is not None
    assert (told.latency.count, told.latency.sum_s) == (4, pytest.approx(2.5))
    assert (told.bad_lines, told.problem) == (0, None)


def test_triton_is_known_by_its_counters() -> None:
    told = taken(
        TRITON.format(count=10, failed=0, us=1000), TRITON.format(count=30, failed=2, us=401_000)
    )
    assert told.latency is not None
    assert (told.latency.count, told.latency.errors) == (20, 2)
    assert told.latency.mean_s == pytest.approx(0.02)
    assert told.latency.buckets == ()


def test_tritons_summary_is_better_where_it_is_on() -> None:
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
    assert told.latency is not None
    assert (told.latency.count, told.latency.sum_s) == (100, pytest.approx(1.0))
    assert sum(count for _, count in told.latency.buckets) == 100
    assert told.bad_lines == 0


def test_the_first_page_counts_where_the_start_was_seen() -> None:
    page = VLLM.format(half=1, all=2, sum=1.1)
    seen, not_seen = taken(page, from_end=False).latency, taken(page, from_end=True).latency
    assert seen is not None and seen.count == 2
    assert not_seen is not None and not_seen.count == 0


def test_any_metric_by_name_in_its_unit() -> None:
    page = "rpc_ms_sum 100\nrpc_ms_count 4\nrpc_ms_other 5\n"
    told = taken(page, name="rpc_ms", from_end=False)
    assert told.latency is not None
    assert told.latency.mean_s == pytest.approx(0.025)


def test_a_gauge_is_told_when_it_changes() -> None:
    reader = Pages("accuracy", from_end=True)
    pages = (b"accuracy 0.5\n", b"accuracy 0.5\n", b'accuracy{split="val"} 0.6\n')
    assert [reader.take(page).value for page in pages] == [0.5, None, 0.6]


def test_two_gauges_of_a_name_are_not_guessed_between() -> None:
    told = taken('loss{split="a"} 1\nloss{split="b"} 2\n', name="loss")
    assert (told.value, told.problem) == (None, "2 series of that metric, and one is wanted")


def test_several_processes_with_the_same_value_are_one_gauge() -> None:
    pages = Pages("loss", from_end=False)
    assert pages.take(b'loss{pid="1"} 0.5\nloss{pid="2"} 0.5\n').value == 0.5
    assert pages.take(b'loss{pid="1"} 0.5\nloss{pid="2"} 0.5\n').value is None


def test_a_gauge_that_is_not_finite_counts_after_a_finite_one() -> None:
    pages = Pages("loss", from_end=False)
    values = ["NaN", "NaN", "0.5", "NaN", "NaN", "+Inf", "0.4"]
    told = [pages.take(f"loss {value}\n".encode()) for value in values]
    assert all((one.bad_lines, one.problem) == (0, None) for one in told)
    assert [str(one.value) for one in told] == ["None", "None", "0.5", "nan", "None", "inf", "0.4"]


def test_a_page_without_the_metric_is_said() -> None:
    assert taken("up 1\n", name="accuracy").problem == "there is no accuracy among its metrics"
    trouble = taken("nv_inference_request_failure 1\n").problem
    assert trouble is not None and "vllm:e2e_request_latency_seconds or nv_" in trouble


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
        "m_count",
        "m_count one",
        'm_count{a="\ud800"} 1',
    ],
)
def test_a_bad_line_is_counted_and_the_rest_is_read(line: str) -> None:
    page = f'{line}\nm_count{{ok="1"}} 2\nm_sum{{ok="1"}} 1\n'.encode("utf-8", "surrogatepass")
    told = Pages("m", from_end=False).take(page)
    if line != "m_count":  # without a blank it is no wanted line at all
        assert told.bad_lines == 1 and told.refused is not None and told.refused.isprintable()
    assert told.latency is not None and told.latency.count == 2


def test_counts_that_contradict_themselves_are_counted_as_bad() -> None:
    page = 'm_bucket{le="1"} 5\nm_bucket{le="2"} 3\nm_bucket{le="+Inf"} 5\nm_sum 2\n'
    told = taken(page, name="m", from_end=False)
    assert (told.latency and told.latency.count, told.bad_lines) == (0, 1)


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
def test_a_hostile_page_costs_bounded_cpu(page: bytes) -> None:
    began_s = time.process_time()
    told = Pages("m", from_end=False).take(page[: 256 * 1024])
    assert time.process_time() - began_s < 0.5
    assert told.bad_lines <= MOST_LINES + 1
