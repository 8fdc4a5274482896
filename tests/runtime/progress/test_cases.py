"""Lines and pages as programs print them, with the right values worked out by hand.

One table for each kind of fault: exponents, metrics that never come, failures, cut pages, coarse
buckets. What cannot be read rightly is refused, in words that name the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from dlsched.estimate.measured import lacking_in_full, unclear
from dlsched.estimate.sketch import quantile_bounds
from dlsched.model.facts import LatencySketch, Sample
from dlsched.model.sources import LogPattern, MetricsEndpoint
from dlsched.model.spec import AccuracyTarget, LatencyTarget, Target
from dlsched.model.state import Lacks, Progress
from dlsched.runtime.progress.exposition import PageDelta, Pages
from dlsched.runtime.progress.log_lines import LogBatch, LogLines
from dlsched.runtime.progress.scrape import named
from dlsched.runtime.progress.sidecar_line import BadLine, parse_line
from dlsched.runtime.progress.sources import METRICS, check_target, read_sources

P95 = LatencyTarget(0.05, 0.95)
MEAN = LatencyTarget(0.05, None)

Labels = Mapping[str, str]


def labels(preset: str | None, given: Labels) -> dict[str, str]:
    named_by = {} if preset is None else {METRICS: preset}
    return named_by | {f"{METRICS}.{name}": value for name, value in given.items()}


class Read:
    """What a log's lines say."""

    def __init__(self, text: str, preset: str | None = None, **given: str) -> None:
        (source,) = read_sources(labels(preset, given))
        assert isinstance(source, LogPattern)
        lines = LogLines(source.pattern, source.step, source.when, failed=source.failed)
        self.batch = LogBatch()
        lines.begin()
        lines.take(text.encode(), lines.parsed(text.encode()), 0.0, self.batch)
        self.refused = self.batch.refused
        self.hides_failures, self.named = lines.hides_failures, lines.fact.named

    def curve(self, metric: str) -> list[tuple[int | None, float]]:
        found = [(one.step, dict(one.metrics)) for one in self.batch.samples]
        return [(step, metrics[metric]) for step, metrics in found if metric in metrics]

    @property
    def requests(self) -> tuple[list[float], int]:
        return [round(one, 9) for one in self.batch.latencies_s], self.batch.errors


def read(
    pages: Sequence[str], preset: str | None = None, target: Target = P95, **given: str
) -> PageDelta:
    """What the last of these pages adds to the one before."""
    (source,) = read_sources(labels(preset, given))
    assert isinstance(source, MetricsEndpoint)
    check_target([source], target)
    metric = target.metric if isinstance(target, AccuracyTarget) else None
    reader = Pages(named(source, metric), from_end=True, target=target, hint=source.hint)
    taken = [reader.take(one.encode(), at_s) for at_s, one in enumerate(pages)]
    return taken[-1]


def counted(delta: PageDelta) -> tuple[int, float, int]:
    """Answers, their mean in seconds, and failures."""
    assert (delta.problem, delta.refused) == (None, None)
    assert delta.latency is not None
    return delta.latency.count, delta.latency.mean_s or 0.0, delta.latency.errors


def histogram(name: str, series: str, counts: Mapping[str, int], total: float) -> str:
    """One histogram of a page: cumulative counts by bound, and the sum."""
    comma = "," if series else ""
    lines = [f'{name}_bucket{{{series}{comma}le="{le}"}} {n}' for le, n in counts.items()]
    lines += [f"{name}_count{{{series}}} {counts['+Inf']}", f"{name}_sum{{{series}}} {total}"]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------- numbers with exponents and the like

TIMM = (
    "Test: [  4/4]  Time: 0.1 (0.2)  Loss:  6.9 (6.9)  Acc@1:   0.0000 (  1.0e-03)  Acc@5: 1 (2)\n"
)
YOLO = """\
      1/3      2.1G      1.2      3.4      1.5        12        640: 100% 4/4
                   all          4         17    1.2e-05   0.000123   4.5e-05    9.8e-06
"""
SB3 = """\
|    ep_rew_mean     | -1.2e-05 |
|    total_timesteps | 2048     |
"""
NANOGPT = "step 250: train loss 1.2e-05, val loss 9.8e-05\n"
LIGHTNING = """\
Epoch 0: 100%|##| 10/10 [val_acc=9.8e-5]
Epoch 1:   0%|  | 0/10 [v_num=0, val_acc=9.8e-5]
"""


@pytest.mark.parametrize(
    ("preset", "text", "metric", "value"),
    [
        pytest.param("timm", TIMM, "acc1", 0.001, id="timm's mean of all batches"),
        pytest.param("yolo", YOLO, "map", 9.8e-6, id="YOLO's table"),
        pytest.param("sb3", SB3, "reward", -1.2e-5, id="a small negative reward of SB3"),
        pytest.param("nanogpt", NANOGPT, "val_loss", 9.8e-5, id="nanoGPT's two losses"),
        pytest.param(
            "keras",
            "Epoch 1/3\n9/9 - 1s - interval_acc: 0.3 - val_acc: 9.8e-04\n",
            "accuracy",
            9.8e-4,
            id="Keras beside a metric whose name ends alike",
        ),
        pytest.param("lightning", LIGHTNING, "accuracy", 9.8e-5, id="Lightning's bar"),
        pytest.param(
            "deit", '{"test_acc1": 1e-03, "epoch": 12}\n', "acc1", 0.001, id="DeiT's JSON"
        ),
        pytest.param(
            "xgboost", "[0]\ttrain-auc:0.9\teval-auc:1.2e-05\n", "auc", 1.2e-5, id="XGBoost"
        ),
        pytest.param(
            "hf-trainer",
            "{'eval_loss': '9.8e-05', 'eval_accuracy': '1e-03', 'epoch': '1.0'}\n",
            "accuracy",
            0.001,
            id="quoted numbers of the Hugging Face Trainer",
        ),
        pytest.param(
            "fairseq",
            '{"epoch": 1, "valid_loss": "8.1e-05", "valid_num_updates": "100"}\n',
            "valid_loss",
            8.1e-5,
            id="fairseq's JSON",
        ),
    ],
)
def test_a_small_value_keeps_its_exponent(
    preset: str, text: str, metric: str, value: float
) -> None:
    found = Read(text, preset)
    assert found.refused is None
    assert [one for _, one in found.curve(metric)] == [value]


@pytest.mark.parametrize(
    "printed",
    [
        pytest.param("1\u202f234,5", id="thousands by a narrow blank"),
        pytest.param("1\u00a0234.5", id="thousands by a blank without break"),
        pytest.param("1'234.5", id="thousands by an apostrophe"),
        pytest.param("1,234,567", id="thousands by commas"),
        pytest.param("1_234", id="thousands by an underscore"),
        pytest.param("0,5;", id="a decimal comma"),
        pytest.param("1.2k", id="a prefix for thousands"),
        pytest.param("3.4M", id="a prefix for millions"),
        pytest.param("3.4M: best", id="a prefix before a colon"),
        pytest.param("1.5D-03", id="an exponent of Fortran"),
        pytest.param("1.5e\u22125", id="an exponent with a typesetter's minus"),
        pytest.param("1.5\u00d710^-3", id="a power of ten as typeset"),
        pytest.param("1.5*10^-3", id="a power of ten as a product"),
        pytest.param("9.8 * 10^-4", id="a power of ten as a product with blanks"),
        pytest.param("9.8\u00b710^-4", id="a power of ten with a raised dot"),
        pytest.param("9.8\u22c510^-4", id="a power of ten with the operator's dot"),
        pytest.param("9.8e -04", id="an exponent with a blank"),
        pytest.param("9.8\x1b[0me-04", id="an exponent in another colour"),
        pytest.param("2^-3", id="a power"),
        pytest.param("1\u2019234.5", id="thousands by a typesetter's apostrophe"),
        pytest.param("1\u2009234.5", id="thousands by a thin blank"),
        pytest.param("0\u066b93", id="the decimal point of Arabic"),
        pytest.param("0\u00b793", id="a raised decimal point"),
        pytest.param("0x1f", id="a hexadecimal number"),
        pytest.param("1.5Ki", id="a prefix of powers of two"),
        pytest.param("1.5B", id="a letter for billions"),
        pytest.param("1.5 k", id="a prefix for thousands apart"),
        pytest.param("1.2MB", id="a prefix before a unit"),
        pytest.param("\u22120.5", id="a typesetter's minus"),
        pytest.param("1.#INF", id="an infinity of Microsoft's library"),
    ],
)
def test_a_part_of_a_number_is_refused(printed: str) -> None:
    pattern = r"loss.*?(?P<loss>[0-9.]+)"
    found = Read(f"loss={printed}\n", kind="log", pattern=pattern, step="evaluations")
    assert found.curve("loss") == []
    assert found.refused is not None
    assert "only a part of the number" in found.refused
    assert found.refused.endswith("match the whole number, as [-+0-9.eE]+ does")


@pytest.mark.parametrize(
    "behind",
    [" * 10 epochs", " \u00b7 10 items", " k=5", " M: 3", " x 32", " Batch", "\x1b[0m epoch 3"],
)
def test_what_is_no_part_of_the_number_stands_behind_it(behind: str) -> None:
    pattern = r"loss.*?(?P<loss>[0-9.]+)"
    found = Read(f"loss=0.5{behind}\n", kind="log", pattern=pattern, step="evaluations")
    assert (found.curve("loss"), found.refused) == ([(1, 0.5)], None)


@pytest.mark.parametrize(
    ("group", "printed"),
    [
        pytest.param("latency_ms", "1.5s", id="seconds in a group of milliseconds"),
        pytest.param("latency_ms", "800\u00b5s", id="microseconds in a group of milliseconds"),
        pytest.param("latency_s", "800 ms", id="milliseconds in a group of seconds"),
        pytest.param("latency_us", "2ms", id="milliseconds in a group of microseconds"),
        pytest.param("latency_ms", "1.2 seconds", id="seconds as a word"),
        pytest.param("latency_ms", "1.2sec", id="seconds abbreviated"),
        pytest.param("latency_ms", "1.2 S", id="seconds as a capital"),
        pytest.param("latency_ms", "3 mins", id="minutes abbreviated"),
        pytest.param("latency_ms", "12 microseconds", id="microseconds as a word"),
        pytest.param("latency_ms", "12 \u00b5sec", id="microseconds by letter and word"),
        pytest.param("latency_s", "143 millis", id="milliseconds as a word"),
        pytest.param("latency_s", "143 MS", id="milliseconds as capitals"),
        pytest.param("latency_s", "1 minute 2 s", id="a minute as a word"),
        pytest.param("latency_us", "143 msec", id="milliseconds abbreviated"),
        pytest.param("latency_s", "1m30.5s", id="minutes before the seconds"),
        pytest.param("latency_s", "00:01:30", id="hours, minutes and seconds"),
    ],
)
def test_a_latency_in_another_unit_is_refused(group: str, printed: str) -> None:
    found = Read(f"took {printed}\n", kind="log", pattern=f"took (?P<{group}>[0-9.]+)")
    assert found.requests == ([], 0)
    assert found.refused is not None
    assert found.refused.endswith("match the unit, too, in a group named latency")


@pytest.mark.parametrize(
    ("group", "printed", "seconds"),
    [
        pytest.param("latency_ms", "15ms", 0.015, id="milliseconds"),
        pytest.param("latency_ms", "15 ms, 3 tokens", 0.015, id="milliseconds apart"),
        pytest.param("latency_us", "15\u00b5s", 15e-6, id="microseconds"),
        pytest.param("latency_us", "15 usec", 15e-6, id="microseconds abbreviated"),
        pytest.param("latency_ms", "15 milliseconds", 0.015, id="milliseconds as a word"),
        pytest.param("latency_s", "1.5 Seconds", 1.5, id="seconds as a word"),
        pytest.param("latency_s", "1.5s", 1.5, id="seconds"),
        pytest.param("latency_s", "by id5:0.25", 0.25, id="a colon behind a name"),
        pytest.param("latency_s", "1.5 sent", 1.5, id="a word that begins as a unit"),
        pytest.param("latency_s", "1.5 miles", 1.5, id="a word that begins as minutes"),
    ],
)
def test_a_latency_in_its_own_unit_is_read(group: str, printed: str, seconds: float) -> None:
    found = Read(f"took {printed}\n", kind="log", pattern=f"took (?:by id5:)?(?P<{group}>[0-9.]+)")
    assert (found.requests, found.refused) == (([seconds], 0), None)


@pytest.mark.parametrize(
    ("total", "per_request", "seconds"),
    [
        pytest.param("lat_ms_total", 250.0, 0.25, id="milliseconds before _total"),
        pytest.param("lat_us_sum", 250.0, 250e-6, id="microseconds before _sum"),
        pytest.param("lat_nanoseconds", 7e6, 0.007, id="nanoseconds"),
        pytest.param("lat_minutes", 0.1, 6.0, id="minutes"),
        pytest.param("lat_hours", 0.001, 3.6, id="hours"),
        pytest.param("lat_millis", 250.0, 0.25, id="milliseconds as millis"),
        pytest.param("lat_msecs_total", 250.0, 0.25, id="milliseconds as msecs"),
        pytest.param("lat_usec", 250.0, 250e-6, id="microseconds as usec"),
        pytest.param("lat_micros", 250.0, 250e-6, id="microseconds as micros"),
        pytest.param("lat_nanos", 7e6, 0.007, id="nanoseconds as nanos"),
        pytest.param("lat_ms_histogram", 250.0, 0.25, id="milliseconds before _histogram"),
        pytest.param("lat_seconds_total", 0.25, 0.25, id="seconds"),
    ],
)
def test_a_counter_has_the_unit_in_its_name(total: str, per_request: float, seconds: float) -> None:
    pages = [f"{total} {n * per_request:e}\nreq_total {n}\n" for n in (0, 12)]
    found = read(pages, target=MEAN, port="1", kind="ratio", total=total, count="req_total")
    assert counted(found) == (12, pytest.approx(seconds), 0)


def test_a_gauge_keeps_its_exponent() -> None:
    target = AccuracyTarget("val_acc", 0.5, 0.6)
    pages = ["val_acc 9.8e-04\n", "val_acc 1.2E-05\n"]
    assert read(pages, target=target, port="1", name="val_acc").value == 1.2e-5


# ---------------------------------------------------------------------- metrics that never come


@pytest.mark.parametrize(
    ("preset", "text", "metric", "instead"),
    [
        pytest.param(
            "lightning",
            LIGHTNING.replace("val_acc", "val_accuracy"),
            "accuracy",
            "val_accuracy",
            id="Lightning with val_accuracy",
        ),
        pytest.param(
            "keras",
            "Epoch 1/3\n9/9 - 1s - val_loss: 0.3 - val_out_a_accuracy: 0.88\n",
            "accuracy",
            "val_out_a_accuracy",
            id="Keras with two heads",
        ),
        pytest.param(
            "pytorch-mnist",
            "Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.3\nAcc = 98.1\n",
            "accuracy",
            "Acc",
            id="a changed example of PyTorch",
        ),
    ],
)
def test_a_log_without_the_metric_names_what_it_has(
    preset: str, text: str, metric: str, instead: str
) -> None:
    found = Read(text, preset)
    assert found.curve(metric) == []
    assert instead in found.named


@pytest.mark.parametrize(
    ("names", "end"),
    [
        (
            ("top1_acc", "loss"),
            "; found: top1_acc, loss: name one of them as the target's `metric`",
        ),
        ((), "; no other metric is reported either: report it"),
    ],
    ids=["other metrics come", "steps alone come"],
)
def test_a_sidecar_without_the_metric_names_what_it_has(names: tuple[str, ...], end: str) -> None:
    progress = Progress(as_of_s=1.0, lacks=Lacks(1.0, 3, names), samples=(Sample(1.0, 5, ()),))
    said = lacking_in_full(AccuracyTarget("top1", 0.5, 0.6), progress)
    assert said == f"the job reports steps, but never `top1`{end}"


# ------------------------------------------------------------------------------------ failures

NGINX = """\
1.1.1.1 - - [x] "POST /p HTTP/1.1" 200 12 "-" "curl" rt=5.000 urt=0.010
1.1.1.1 - - [x] "POST /p HTTP/1.1" 504 12 "-" "curl" rt=60.000 urt=60.000
1.1.1.1 - - [x] "POST /p HTTP/2.0" 499 0 "-" "curl" rt=30.000 urt=-
"""
GUNICORN = """\
1.1.1.1 "POST /p HTTP/1.1" 200 12 20000
1.1.1.1 "POST /p HTTP/1.1" 503 12 30000000
[2026-01-01 10:00:00 +0000] [7] [CRITICAL] WORKER TIMEOUT (pid:12)
"""
LLAMA = """\
      total time =    2000.00 ms /   100 tokens
srv  stop: cancel task, id_task = 1
"""
NGINX_TO_A_LIAR = """\
1.1.1.1 - - [x] "POST /p HTTP/1.1" 200 12 rt=0.250 "-" "curl rt=0.001"
1.1.1.1 - - [x] "POST /p HTTP/1.1" 200 12 "-" "curl rt=0.001" rt=0.250
"""
OLLAMA = """\
[GIN] 2026/12/11 - 09:28:58 | 499 |         1m30s |      10.0.0.5 | POST     "/v1/chat/completions"
[GIN] 2026/12/11 - 09:28:58 | 200 |  1h2m3s |      10.0.0.5 | POST     "/api/embed"
[GIN] 2026/12/11 - 09:28:58 | 503 |  54.21ms |      10.0.0.5 | POST     "/api/generate"
"""


@pytest.mark.parametrize(
    ("preset", "text", "latencies_s", "failed"),
    [
        pytest.param("nginx", NGINX, [5.0], 2, id="nginx with the backend's time too"),
        pytest.param(
            "nginx", NGINX_TO_A_LIAR, [0.25, 0.25], 0, id="nginx with a client's own time"
        ),
        pytest.param("gunicorn", GUNICORN, [0.02], 2, id="gunicorn with a killed worker"),
        pytest.param("llama.cpp", LLAMA, [2.0], 1, id="llama.cpp with a client that left"),
        pytest.param("ollama", OLLAMA, [3723.0], 2, id="Ollama with hours"),
    ],
)
def test_a_failed_request_in_a_log_is_no_answer(
    preset: str, text: str, latencies_s: list[float], failed: int
) -> None:
    found = Read(text, preset)
    assert (found.requests, found.refused) == ((latencies_s, failed), None)
    assert not found.hides_failures


SECONDS = "rpc_seconds"


def halves(name: str, answered: str, failed: str, unit_s: float = 1.0) -> list[str]:
    """Two pages: between them 8 answers of 50 ms, and 12 failures that took 30 s each."""
    bound = f"{10 / unit_s:g}"
    none = dict.fromkeys((bound, "+Inf"), 0)
    before = histogram(name, answered, none, 0) + histogram(name, failed, none, 0)
    answers = histogram(name, answered, {bound: 8, "+Inf": 8}, 0.4 / unit_s)
    return [before, answers + histogram(name, failed, {bound: 0, "+Inf": 12}, 360.0 / unit_s)]


@pytest.mark.parametrize(
    ("name", "answered", "failed"),
    [
        pytest.param(SECONDS, 'status="ok"', 'status="error"', id="a status in words"),
        pytest.param(SECONDS, 'status="success"', 'status="timeout"', id="a timeout in words"),
        pytest.param(SECONDS, 'status="OK"', 'status="DEADLINE_EXCEEDED"', id="gRPC's words"),
        pytest.param(SECONDS, 'code="OK"', 'code="Internal"', id="an internal error of gRPC"),
        pytest.param(SECONDS, 'code="NotFound"', 'code="Unknown"', id="an unknown error of gRPC"),
        pytest.param(SECONDS, 'code="OK"', 'code="DATA_LOSS"', id="a loss of data in gRPC"),
        pytest.param(SECONDS, 'code="0"', 'code="500"', id="gRPC's status of zero"),
        pytest.param(SECONDS, 'code="2xx"', 'code="5XX"', id="classes of statuses"),
        pytest.param(SECONDS, 'code="200"', 'code="000"', id="no status at all"),
        pytest.param(
            SECONDS, 'code="200 OK"', 'code="503 Service Unavailable"', id="a status and its phrase"
        ),
        pytest.param(
            "http_server_requests_seconds",
            'status="200",outcome="SUCCESS"',
            'status="504",outcome="SERVER_ERROR"',
            id="Spring Boot",
        ),
        pytest.param(
            "http_server_request_duration_seconds",
            'http_response_status_code="200"',
            'http_response_status_code="504",error_type="timeout"',
            id="OpenTelemetry",
        ),
    ],
)
def test_a_failed_request_on_a_page_is_no_answer(name: str, answered: str, failed: str) -> None:
    found = read(halves(name, answered, failed), port="1", name=name)
    assert counted(found) == (8, pytest.approx(0.05), 12)
    assert not found.hides_failures


def test_a_client_of_istio_that_left_is_a_failure() -> None:
    name = "istio_request_duration_milliseconds"
    pages = halves(name, 'response_code="200"', 'response_code="0",response_flags="DC"', 1e-3)
    assert counted(read(pages, port="1", name=name)) == (8, pytest.approx(0.05), 12)


@pytest.mark.parametrize(
    ("preset", "name", "series", "label", "status"),
    [
        ("flask", "flask_http_request_duration_seconds", 'path="/p"', "status", 504),
        ("starlette", "starlette_request_duration_seconds", 'path="/p"', "status_code", 499),
        (
            "bentoml",
            "bentoml_service_request_duration_seconds",
            'endpoint="/p"',
            "http_response_code",
            503,
        ),
        (
            "mlserver-rest",
            "rest_server_request_duration_seconds",
            'path="/v2/models/{m}/infer"',
            "status_code",
            500,
        ),
    ],
    ids=["Flask times out", "clients of Starlette leave", "BentoML is full", "MLServer fails"],
)
def test_a_preset_counts_failures_apart(
    preset: str, name: str, series: str, label: str, status: int
) -> None:
    pages = halves(name, f'{series},{label}="200"', f'{series},{label}="{status}"')
    assert counted(read(pages, preset)) == (8, pytest.approx(0.05), 12)


@pytest.mark.parametrize(
    ("answered", "failed"),
    [
        ('success="true"', 'success="false"'),
        ('error=""', 'error="timeout"'),
        ('code=""', 'code=""'),
        ('status="200"', 'status="overloaded"'),
        ('status="ok"', 'status="ko"'),
        ('code="0"', 'code="13"'),
    ],
    ids=[
        "a flag of its own",
        "an error of its own",
        "an empty status",
        "a word",
        "a short word",
        "a number of gRPC",
    ],
)
def test_unknown_signs_of_failure_are_said_to_be_hidden(answered: str, failed: str) -> None:
    pages = halves(SECONDS, f'{answered},a="1"', f'{failed},a="2"')
    found = read(pages, port="1", name=SECONDS)
    assert found.hides_failures
    assert counted(found) == (20, pytest.approx(18.02), 0)


def test_triton_counts_rejected_and_timed_out_requests() -> None:
    one = 'model="m",version="1"'
    pages = [
        f"nv_inference_request_success{{{one}}} {10 * n}\n"
        f'nv_inference_request_failure{{{one},reason="TIMEOUT"}} {5 * n}\n'
        f'nv_inference_request_failure{{{one},reason="REJECTED"}} {2 * n}\n'
        f"nv_inference_request_duration_us{{{one}}} {100_000 * n}\n"
        for n in (0, 1)
    ]
    assert counted(read(pages, "triton", MEAN)) == (10, pytest.approx(0.01), 7)


def test_aborted_requests_of_vllm_make_it_no_faster() -> None:
    # 8 of 20 took up to 1 s, the others up to 360.4 s in all: which ones were aborted is unknown.
    name, ended = "vllm:e2e_request_latency_seconds", "vllm:request_success_total"
    pages = [
        histogram(name, 'model_name="m"', {"1": 8 * n, "+Inf": 20 * n}, 360.4 * n)
        + f'{ended}{{finished_reason="stop",model_name="m"}} {8 * n}\n'
        + f'{ended}{{finished_reason="abort",model_name="m"}} {12 * n}\n'
        for n in (0, 1)
    ]
    found = read(pages, "vllm")
    assert found.latency is not None
    assert (found.latency.count, found.latency.errors) == (8, 12)
    bounds = quantile_bounds(found.latency, 0.95)
    assert bounds is not None and bounds.lowest_s == 1.0


def test_errors_beside_simple_latencies_are_a_bad_line() -> None:
    with pytest.raises(BadLine, match="give count, sum and errors in latency"):
        parse_line(b'{"latency_s":[0.01],"errors":5}', 0.0)


# ------------------------------------------------------------------- pages that are not read whole


def two(body: str) -> list[str]:
    """The page with all counts zero, and then as it is; `@` stands for the factor."""
    return [body.replace("@", "0"), body.replace("@", "10")]


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        pytest.param(
            two('m_count{a="1"} @\nm_sum{a="1"} @\nm_count{a="1"} @\nm_sum{a="1"} @\n'),
            "m_sum: one of the metric's series is on the page twice",
            id="pages of two workers one after the other",
        ),
        pytest.param(
            two('m_bucket{le="1"} @\nm_bucket{le="1.0"} @\nm_count @\nm_sum @\n'),
            "m_bucket: one of the metric's series is on the page twice",
            id="one bound in two spellings",
        ),
        pytest.param(
            ["m_count 5\nm_sum 3\n", "m_count 20\n"],
            "m_count: the page has a count without a sum",
            id="a sum that went",
        ),
        pytest.param(
            ['m_count{a="1"} 5\nm_sum{a="1"} 3\n', 'm_count{a="1"} 9\nm_sum{a="1"} 4\nm_sum 1\n'],
            "m_count: the page has a sum without a count",
            id="a sum alone",
        ),
        pytest.param(
            two('m_bucket{le="1"} @\nm_bucket{le="+Inf"} @\nm_count @0\nm_sum @\n'),
            "m_count: the count is not the sum of the histogram's buckets",
            id="a count of other requests than the buckets",
        ),
        pytest.param(
            two("m_count 1_000\nm_sum @\n"), "not a sample: 'm_count 1_000'", id="an underscore"
        ),
        pytest.param(two("m_count @\nm_sum 1,5\n"), "not a sample: 'm_sum 1,5'", id="a comma"),
        pytest.param(
            two("m_count @\nm_sum NaN\n"),
            "a line has no finite number: 'm_sum NaN'",
            id="a sum of nothing",
        ),
        pytest.param(
            ["".join(f'm_count{{k="{k}"}} 1\nm_sum{{k="{k}"}} 1\n' for k in range(9000))],
            "the page has more than 16384 lines of one metric",
            id="nine thousand keys",
        ),
    ],
)
def test_a_page_that_is_not_whole_gives_no_number(pages: list[str], why: str) -> None:
    found = read(pages, target=MEAN, port="1", name="m")
    assert (found.latency, found.refused) == (None, why)
    assert found.problem == f"{why}: none of the metric's numbers is read: choose series by `where`"


@pytest.mark.parametrize(
    "tail",
    ["", " 1700000000", ' # {trace_id="a b"} 0.04 1700000000.1'],
    ids=["bare lines", "lines with time stamps", "lines with exemplars"],
)
def test_whatever_stands_behind_a_value_is_left_out(tail: str) -> None:
    lines = ['m_bucket{le="1"} @', 'm_bucket{le="+Inf"} @', "m_count @", "m_sum @"]
    stamp = tail if "#" not in tail else ""
    ends = [tail, tail, stamp, stamp]
    body = "".join(f"{line}{end}\n" for line, end in zip(lines, ends, strict=True))
    assert counted(read(two(body), port="1", name="m")) == (10, 1.0, 0)


def test_eight_thousand_series_are_read_whole() -> None:
    pages = [
        "".join(f'm_count{{k="{k}"}} {n}\nm_sum{{k="{k}"}} {2 * n}\n' for k in range(8000))
        for n in (1, 3)
    ]
    assert counted(read(pages, target=MEAN, port="1", name="m")) == (16_000, 2.0, 0)


# --------------------------------------------------------------------------------- coarse buckets


@pytest.mark.parametrize(
    ("preset", "name", "series", "bound", "unit_s", "asked_s", "between"),
    [
        pytest.param(
            "ray-serve",
            "ray_serve_http_request_latency_ms",
            'route="/p",application="a",status_code="200"',
            "100",
            1e-3,
            0.05,
            "0 s and 100 ms",
            id="Ray Serve in milliseconds",
        ),
        pytest.param(
            "tfserving",
            ":tensorflow:serving:request_latency",
            'model_name="m",API="predict"',
            "18000",
            1e-6,
            0.01,
            "0 s and 18 ms",
            id="TensorFlow Serving in microseconds",
        ),
        pytest.param(
            "starlette",
            "starlette_request_duration_seconds",
            'path="/p",status_code="200"',
            "0.1",
            1.0,
            0.05,
            "0 s and 100 ms",
            id="Starlette in seconds",
        ),
    ],
)
def test_a_target_within_a_bucket_is_not_judged(
    preset: str, name: str, series: str, bound: str, unit_s: float, asked_s: float, between: str
) -> None:
    pages = [histogram(name, series, {bound: n, "+Inf": n}, n * 0.007 / unit_s) for n in (100, 700)]
    found = read(pages, preset)
    assert counted(found) == (600, pytest.approx(0.007), 0)
    assert found.latency is not None
    target = LatencyTarget(asked_s, 0.95)
    said = unclear(target, found.latency)
    asked = f"{1e3 * asked_s:g} ms"
    wanted = f"the buckets are too coarse for {asked}; give them a bound at {asked}"
    assert said == f"p95 is between {between}: {wanted}"


@pytest.mark.parametrize(
    ("spans", "is_judged"),
    [
        (((0.0, 0.05, 600),), True),
        (((0.05, 0.1, 600),), True),
        (((0.0, 0.04, 580), (0.04, 0.1, 20)), True),
        (((0.0, 0.04, 560), (0.04, 0.1, 40)), False),
    ],
    ids=["below a bound at the target", "above it", "slow ones are few", "slow ones are many"],
)
def test_only_the_bucket_of_the_quantile_matters(
    spans: tuple[tuple[float, float, int], ...], is_judged: bool
) -> None:
    sketch = LatencySketch(600, 600 * 0.03, spans=spans)
    if spans[0][0]:
        sketch = LatencySketch(600, 600 * 0.07, spans=spans)
    assert (unclear(P95, sketch) is None) == is_judged


def test_a_summary_gives_the_mean_alone() -> None:
    found = read(two('m{quantile="0.95"} 0.2\nm_count @\nm_sum 0.@\n'), port="1", name="m")
    assert counted(found) == (10, pytest.approx(0.01), 0)
    assert found.latency is not None and found.latency.spans == ()


def test_quantiles_alone_are_refused() -> None:
    found = read(two('m{quantile="0.95"} 0.2\n'), port="1", name="m")
    assert found.latency is None
    wanted = "m has only quantiles, over a time that the program chose, and neither sum nor count"
    assert found.problem == f"{wanted}: name another metric"
