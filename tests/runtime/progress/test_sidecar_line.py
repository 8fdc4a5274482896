"""What a line may say. Everything else is one BadLine, whatever it is."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlsched.model.facts import CheckpointAck, LatencySketch, Report, Sample
from dlsched.report.buckets import bucket_index
from dlsched.runtime.progress.sidecar_line import BadLine, parse_line

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)
KEYS = st.sampled_from(["t", "v", "w", "step", "latency", "latency_s", "checkpoint", "gpu", "loss"])
INNER = st.dictionaries(
    st.sampled_from(
        ["count", "sum", "buckets", "errors", "in_flight", "oldest_s", "step", "path", "busy_ratio"]
    ),
    JSON,
)


def read(fields: object) -> Report:
    return parse_line(json.dumps(fields).encode(), 42.0)


def refusal(fields: object) -> str:
    with pytest.raises(BadLine) as why:
        read(fields)
    return str(why.value)


def valid(report: Report) -> None:
    """What every report promises, whatever the line was."""
    assert report.received_s == 42.0
    assert report.writer.isprintable()
    if report.latency is not None:
        sketch = report.latency
        assert sketch.count >= 0
        assert sketch.errors >= 0
        assert math.isfinite(sketch.sum_s)
        assert sketch.sum_s >= 0
        assert list(sketch.buckets) == sorted(sketch.buckets)
        assert not sketch.buckets or sum(n for _, n in sketch.buckets) == sketch.count
    if report.sample is not None:
        assert report.sample.step is None or report.sample.step >= 0
        assert all(math.isfinite(value) for _, value in report.sample.metrics)
    if report.in_flight is not None:
        assert report.in_flight >= 0
    if report.oldest_s is not None:
        assert 0 <= report.oldest_s < math.inf
    if report.gpu_ratio is not None:
        assert 0 <= report.gpu_ratio <= 1


@given(st.binary(max_size=200))
@example(b"[" * 4000)
@example(b'{"a":' * 800)
@example(b'{"loss":1' + b"0" * 4000 + b"}")
@example(b'{"loss":1e999}')
@example(b'{"loss":-Infinity}')
@example('{"loss":1}'.encode("utf-16"))
@example(b'{"w":"\\ud800"}')
@example(b"\xff\xfe{}")
def test_bytes_are_a_report_or_a_bad_line(line: bytes) -> None:
    try:
        report = parse_line(line, 42.0)
    except BadLine as why:
        assert str(why).isprintable()
    else:
        valid(report)


@given(st.dictionaries(KEYS | st.text(max_size=5), JSON | INNER, max_size=6))
def test_objects_are_a_report_or_a_bad_line(fields: dict[str, Any]) -> None:
    try:
        report = read(fields)
    except BadLine as why:
        assert str(why).isprintable()
    else:
        valid(report)


def test_a_training_line_is_a_sample_with_every_number_in_it() -> None:
    report = read({"t": -1e300, "step": 1200, "loss": 0.31, "epoch": 3})
    assert report == Report(42.0, sample=Sample(42.0, 1200, (("loss", 0.31), ("epoch", 3.0))))


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("0.9", "must be a number, not the text '0.9'"),
        ("9" * 99, f"must be a number, not the text '{'9' * 39}..."),
        ("87,5 %", "must be a number, not the text '87,5 %'"),
        ([0.9], "must be a number, not a list"),
        ({"mean": 0.9}, "must be a number, not an object"),
        (True, "must be a number, not true"),
        (None, "must be a number, not null"),
    ],
)
def test_a_metric_that_is_no_number_names_key_and_type(value: object, what: str) -> None:
    assert refusal({"step": 1, "loss": 0.1, "accuracy": value}) == f"metric 'accuracy': {what}"


def test_notes_beside_metrics_are_left_out() -> None:
    report = read({"step": 3, "accuracy": 0.9, "phase": "train", "time": "2026-11-27 17:00"})
    assert report == Report(42.0, sample=Sample(42.0, 3, (("accuracy", 0.9),)))


def test_a_sum_that_is_null_is_not_left_out() -> None:
    latency = {"count": 1, "sum": None, "buckets": {"118": 1}}
    assert refusal({"latency": latency}).startswith("latency.sum: None: seconds")


def test_the_simple_form_is_a_sketch_too() -> None:
    report = read({"t": 1.0, "latency_s": [0.048, 0.051]})
    buckets = ((bucket_index(0.048), 1), (bucket_index(0.051), 1))
    assert report.latency == LatencySketch(2, 0.099, buckets)


def test_a_latency_in_another_unit_is_refused_unless_a_training_reports_it() -> None:
    why = "latency_ms: give a latency in seconds, as latency_s or latency"
    assert refusal({"t": 1.0, "latency_ms": 143}) == why
    sample = read({"accuracy": 0.9, "latency_ms": 143}).sample
    assert sample is not None and dict(sample.metrics) == {"accuracy": 0.9, "latency_ms": 143.0}


def test_the_counted_form_keeps_its_writer() -> None:
    index = bucket_index(0.04)
    latency = {"count": 240, "sum": 9.6, "buckets": {str(index): 240}, "errors": 2}
    report = read({"w": 71, "latency": {**latency, "in_flight": 3, "oldest_s": 0.4}})
    assert report == Report(
        42.0, "71", LatencySketch(240, 9.6, ((index, 240),), 2), in_flight=3, oldest_s=0.4
    )


def test_a_sketch_may_come_without_buckets_or_without_a_sum() -> None:
    assert read({"latency": {"count": 4, "sum": 2.0}}).latency == LatencySketch(4, 2.0)
    told = read({"latency": {"count": 1, "buckets": {"118": 1}}}).latency
    assert told.sum_s == pytest.approx(1e-6 * (1.01 / 0.99) ** 118, rel=0.011)


def test_a_checkpoint_is_acknowledged() -> None:
    report = read({"t": 1, "checkpoint": {"step": 1200, "path": "/ckpt/1200"}})
    assert report == Report(42.0, checkpoint=CheckpointAck(1200, "/ckpt/1200"))


def test_what_is_not_finite_is_told_apart() -> None:
    sample = read({"step": 7, "acc": 0.5, "diverged": {"loss": "nan", "x": "-inf"}}).sample
    assert sample == Sample(42.0, 7, (("acc", 0.5),), (("loss", "nan"), ("x", "-inf")))
    plain = read({"step": 7, "loss": math.nan, "x": -math.inf}).sample
    assert plain == Sample(42.0, 7, (), (("loss", "nan"), ("x", "-inf")))
    flag = read({"diverged": 0}).sample
    assert flag == Sample(42.0, None, (("diverged", 0.0),)), "a metric of that name"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([], "not a JSON object"),
        ({"v": 2, "loss": 1}, "reads version 1"),
        ({"v": True}, "reads version 1"),
        ({"t": 1, "diverged": {"loss": 1}}, "diverged.'loss': 1: must be nan, inf or -inf"),
        ({"diverged": {"loss": "NAN"}}, "diverged.'loss': 'NAN': must be nan, inf or -inf"),
        ({"diverged": {"a\x1b[31m": "nan"}}, "1 to 64 printable characters"),
        ({"diverged": {f"m{number}": "nan" for number in range(33)}}, "33 metrics, at most 32"),
        ({"loss": 10**30}, "an integer of 31 characters"),
        ({"step": -1}, "step: -1: must be an integer, 0 to"),
        ({"step": True}, "step: True"),
        ({"step": 1.5}, "step: 1.5"),
        ({"step": None}, "step: None"),
        ({f"m{number}": 1 for number in range(33)}, "33 metrics, at most 32"),
        ({"n" * 65: 1}, "1 to 64 printable characters"),
        ({"a\x1b[31m": 1}, "1 to 64 printable characters"),
        ({"": 1}, "1 to 64 printable characters"),
        ({"w": "x" * 65}, "w: "),
        ({"w": ["x"]}, "w: "),
        ({"latency": 0.5}, "latency: 0.5: must be an object"),
        ({"latency": {"count": 1}}, "neither sum nor buckets"),
        ({"latency": {"count": True, "sum": 1}}, "latency.count"),
        ({"latency": {"count": -1, "sum": 0}}, "latency.count"),
        ({"latency": {"count": 1e3, "sum": 0}}, "latency.count"),
        ({"latency": {"count": 10**10, "sum": 0}}, "latency.count"),
        ({"latency": {"count": 0, "sum": 1}}, "latency.sum"),
        ({"latency": {"count": 1, "sum": -0.1}}, "latency.sum"),
        ({"latency": {"count": 2, "sum": 1, "buckets": {"690": 1}}}, "the buckets count 1"),
        ({"latency": {"count": 1, "sum": 1.1, "buckets": {"690": 1}}}, "add up to"),
        ({"latency": {"count": 1, "buckets": {"2001": 1}}}, "index '2001'"),
        ({"latency": {"count": 1, "buckets": {"-1": 1}}}, "index '-1'"),
        ({"latency": {"count": 1, "buckets": {"²": 1}}}, "index"),
        ({"latency": {"count": 2, "buckets": {"7": 1, "07": 1}}}, "twice"),
        ({"latency": {"count": 1, "buckets": [1]}}, "latency.buckets"),
        ({"latency": {"errors": -1}}, "latency.errors"),
        ({"latency": {"in_flight": -1}}, "latency.in_flight"),
        ({"latency": {"oldest_s": -0.1}}, "latency.oldest_s"),
        ({"latency_s": 0.1}, "latency_s: must be a list"),
        ({"latency_s": [0.1] * 513}, "at most 512"),
        ({"latency_s": [-0.1]}, "latency_s: -0.1"),
        ({"latency_s": [True]}, "latency_s: True"),
        ({"latency_s": [1e300]}, "latency_s: 1e+300"),
        ({"latency_s": [], "latency": {}}, "one of them"),
        ({"checkpoint": "/ckpt"}, "with step and path"),
        ({"checkpoint": {"step": 1, "path": "/c\n"}}, "checkpoint.path"),
        ({"checkpoint": {"path": "/c"}}, "checkpoint.step"),
    ],
)
def test_each_refusal_says_what_and_the_bound(fields: object, why: str) -> None:
    with pytest.raises(BadLine) as refusal:
        read(fields)
    assert why in str(refusal.value)


def test_a_refusal_shows_little_of_a_long_value() -> None:
    with pytest.raises(BadLine) as refusal:
        read({"w": "\x1b]0;" + "x" * 4000})
    assert len(str(refusal.value)) < 120


@pytest.mark.parametrize("ratio", [0, 0.48, 1])
def test_the_part_of_the_gpus_time_is_told_beside_the_rest(ratio: float) -> None:
    report = read({"step": 3, "gpu": {"busy_ratio": ratio, "more": "words"}})
    assert report.gpu_ratio == ratio
    assert report.sample == Sample(42.0, 3, ())
    assert read({"step": 3}).gpu_ratio is None


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        (0.5, "gpu: 0.5: must be an object with busy_ratio"),
        (None, "gpu: None: must be an object with busy_ratio"),
        ({}, "gpu.busy_ratio: None: must be a number, 0 to 1"),
        ({"busy_ratio": 1.01}, "gpu.busy_ratio: 1.01: must be a number, 0 to 1"),
        ({"busy_ratio": -0.01}, "gpu.busy_ratio: -0.01: must be a number, 0 to 1"),
        ({"busy_ratio": True}, "gpu.busy_ratio: True: must be a number, 0 to 1"),
        ({"busy_ratio": "0.5"}, "gpu.busy_ratio: '0.5': must be a number, 0 to 1"),
        ({"busy_ratio": math.nan}, "gpu.busy_ratio: nan: must be a number, 0 to 1"),
    ],
)
def test_what_is_no_part_of_a_gpus_time_is_a_bad_line(gpu: object, why: str) -> None:
    with pytest.raises(BadLine) as refused:
        read({"step": 3, "gpu": gpu})
    assert str(refused.value) == why
