"""What labels may ask for as a source of progress."""

from __future__ import annotations

import pytest

from dlsched.model.sources import LabelFilter, LogPattern, Metric, MetricsEndpoint, MetricsFile
from dlsched.model.spec import LatencyTarget
from dlsched.runtime.progress.sources import check_target, read_sources


def test_every_source_by_its_label() -> None:
    labels = {
        "dlsched.metrics.path": "/data/metrics.jsonl",
        "dlsched.metrics.port": "8002",
        "dlsched.metrics.http_path": "/v2/metrics?x=1",
        "dlsched.metrics.name": "vllm:e2e_request_latency_seconds",
        "dlsched.metrics.pattern": "took (?P<latency_ms>[0-9.]+)",
    }
    assert read_sources(labels) == (
        MetricsFile("/data/metrics.jsonl"),
        MetricsEndpoint(
            (8002,), "/v2/metrics?x=1", (Metric(name="vllm:e2e_request_latency_seconds"),)
        ),
        LogPattern("took (?P<latency_ms>[0-9.]+)"),
    )
    assert read_sources({"dlsched.metrics.port": "80"}) == (MetricsEndpoint((80,)),)
    assert read_sources({"other": "label"}) == ()


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("path", "metrics.jsonl"),
        ("path", "/data/../etc/shadow"),
        ("path", "/"),
        ("path", "/a\nb"),
        ("path", "/" + "a" * 300),
        ("port", "0"),
        ("port", "65536"),
        ("port", "-1"),
        ("port", "80 "),
        ("port", "٣"),
        ("port", "9" * 5000),
        ("pattern", "no group"),
        ("http_path", "/metrics"),
        ("name", "m"),
    ],
)
def test_a_bad_value_is_one_line_with_its_label(label: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^dlsched.metrics.{label}: ") as raised:
        read_sources({f"dlsched.metrics.{label}": value})
    assert str(raised.value).isprintable() and len(str(raised.value)) < 250


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("http_path", "metrics"),
        ("http_path", "http://example.com/"),
        ("http_path", "/a b"),
        ("http_path", "/a\r\nX: y"),
        ("http_path", "/@" + "a" * 300),
        ("name", "a b"),
        ("name", "a{b}"),
        ("name", ""),
        ("name", "a" * 200),
    ],
)
def test_nothing_of_a_request_can_be_smuggled_in(label: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^dlsched.metrics.{label}: "):
        read_sources({"dlsched.metrics.port": "80", f"dlsched.metrics.{label}": value})


def test_a_preset_is_one_word_and_labels_replace_its_fields() -> None:
    (known,) = read_sources({"dlsched.metrics": "vllm"})
    assert isinstance(known, MetricsEndpoint) and known.ports == (8000,)
    assert known.metrics[0].name == "vllm:e2e_request_latency_seconds"
    labels = {
        "dlsched.metrics": "vllm",
        "dlsched.metrics.port": "9000",
        "dlsched.metrics.name": "vllm:time_to_first_token_seconds",
        "dlsched.metrics.where.model_name": "llama-.*",
    }
    assert read_sources(labels) == (
        MetricsEndpoint(
            (9000,),
            metrics=(
                Metric(
                    name="vllm:time_to_first_token_seconds",
                    errors="vllm:request_success_total",
                    errors_timed=True,
                    failed=(LabelFilter("finished_reason", "abort|error"),),
                    where=(LabelFilter("model_name", "llama-.*"),),
                    per="model_name",
                ),
            ),
        ),
    )


def test_labels_say_which_requests_failed() -> None:
    labels = {
        "dlsched.metrics.pattern": r"(?P<status>[0-9]+) (?P<latency_ms>[0-9.]+)",
        "dlsched.metrics.failed.status": "5..",
    }
    (source,) = read_sources(labels)
    assert isinstance(source, LogPattern)
    assert source.failed == (LabelFilter("status", "5.."),)
    with pytest.raises(ValueError, match=r"^dlsched.metrics.failed: the pattern has no group"):
        read_sources({**labels, "dlsched.metrics.failed.code": "5.."})


def test_an_unknown_preset_is_one_line_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"^dlsched.metrics: 'vlm' is not a preset; did you mean"):
        read_sources({"dlsched.metrics": "vlm"})


def test_a_percentile_of_two_counters_is_refused_by_label() -> None:
    ratio = read_sources({"dlsched.metrics": "torchserve"})
    check_target(ratio, LatencyTarget(0.1))
    with pytest.raises(ValueError, match=r"^dlsched.target.quantile: p95 cannot be read: a ratio"):
        check_target(ratio, LatencyTarget(0.1, 0.95))
