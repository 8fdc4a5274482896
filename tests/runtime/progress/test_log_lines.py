"""Numbers in lines that programs print: read whole, or refused."""

from __future__ import annotations

import pytest

from dlsched.config.metrics.keys import MetricsKeys
from dlsched.config.metrics.loading import package_presets
from dlsched.model.sources import LogPattern
from dlsched.runtime.progress.log_lines import Pattern


@pytest.mark.parametrize(
    ("pattern", "line", "part"),
    [
        ("value: (?P<lm>[0-9.]+)", "lm loss value: 1.187654E+01 | PPL", "1.187654"),
        ("acc: (?P<acc>[0-9.]+)", "acc: 9.8e-04 -", "9.8"),
        ("acc: (?P<acc>[0-9]+)", "acc: 0.98", "0"),
        ("acc: (?P<acc>[0-9.]+)", "acc: 0,98 - loss", "0"),
        ("acc: [0-9],(?P<acc>[0-9]+)", "acc: 0,98", "98"),
        ("step (?P<step>[0-9]+)", "step 1,200 of", "1"),
        (",(?P<step>[0-9]+) of", "step 1,234,567 of", "567"),
        ("step (?P<step>[0-9]+)", "step 1_200", "1"),
        ("step (?P<step>[0-9]+)", "step 1'200", "1"),
        ("step (?P<step>[0-9]+)", "step 12k of", "12"),
        ("loss (?P<loss>[-+0-9.eE]+)", "loss 140.5M", "140.5"),
        ("step (?P<step>[0-9]{2})", "step 1200", "12"),
        ("(?P<loss>[0-9.]+)$", "loss=-0.5", "0.5"),
        ("loss[ :=-]+(?P<loss>[0-9.]+)", "loss: -0.3", "0.3"),
        (r"loss=\.(?P<loss>[0-9]+)", "loss=.5", "5"),
        ("e(?P<loss>[-0-9]+)", "1e-5", "-5"),
        ("(?P<latency>[0-9.]+s)", "took 1m2s", "2s"),
        ("m(?P<latency_s>[0-9.]+)s", "took 1m2s", "2"),
        ("(?P<latency>[0-9]+m)", "took 1m2s", "1m"),
        ("took (?P<latency>[^ ]+)", "took 1m 2s", "1m"),
        ("took (?P<latency>[^ ]+)", "took 1h 2m 3s", "1h"),
        ("took (?P<latency>[^ ,]+)", "took 2m, 3s", "2m"),
        ("took (?P<latency>[^ ]+)", "took 1s 143ms", "1s"),
        ("(?P<latency>[0-9]+s)", "took 1m 2s", "2s"),
        ("minute (?P<latency_s>[0-9]+) s", "took 1 minute 2 s", "2"),
    ],
)
def test_part_of_a_number_is_refused(pattern: str, line: str, part: str) -> None:
    with pytest.raises(ValueError, match=f"'{part}' is only a part of the number in "):
        Pattern(pattern).read(line.encode())


@pytest.mark.parametrize(
    ("pattern", "line", "values"),
    [
        ("value: (?P<lm>[-+0-9.eE]+)", "value: 1.187654E+01 |", {"lm": 11.87654}),
        ("acc: (?P<acc>[0-9.]+)", "acc: 0.98,loss: 3", {"acc": 0.98}),
        ("acc: (?P<acc>[0-9.]+)%", "acc: 98.5%", {"acc": 98.5}),
        ("(?P<step>[0-9]+)/10", "at 3/10", {"step": 3}),
        ("ckpt-(?P<step>[0-9]+)", "ckpt-100", {"step": 100}),
        (r"loss\.*(?P<loss>[0-9]\.[0-9]+)", "loss......0.3", {"loss": 0.3}),
        ("^(?P<step>[0-9]+),", "3,0.51,0.62", {"step": 3}),
        ("^(?P<step>[0-9]+),", "3,17,0.5", {"step": 3}),
        ("^(?P<step>[0-9]+),(?P<loss>[0-9]+)$", "3,517", {"step": 3, "loss": 517}),
        ("loss=(?P<loss>[-0-9.]+)", "loss=-0.5", {"loss": -0.5}),
        ("took (?P<latency_ms>[0-9]+)", "took 5ms", {"latency_ms": 0.005}),
        ("took (?P<latency>[0-9a-z.]+)", "took 1m2.5s", {"latency": 62.5}),
        ("took (?P<latency>[0-9a-z.]+)", "took 1.5s 20ms waiting", {"latency": 1.5}),
        ("took (?P<latency>[0-9a-z.]+)", "took 15ms 20ms 3s", {"latency": 0.015}),
        ("took (?P<latency>[0-9a-z.]+)", "took 2s, 15ms of it waiting", {"latency": 2.0}),
    ],
)
def test_whole_number_is_read(pattern: str, line: str, values: dict[str, float]) -> None:
    assert Pattern(pattern).read(line.encode()) == pytest.approx(values)


def test_keras_reads_no_training_value() -> None:
    (source,) = package_presets().sources(MetricsKeys(base="keras"))
    assert isinstance(source, LogPattern)
    line = b"- accuracy: 0.85 - head_val_accuracy_x: 1 - val_top_k_categorical_accuracy: 0.9"
    assert Pattern(source.pattern).read(line) is None
