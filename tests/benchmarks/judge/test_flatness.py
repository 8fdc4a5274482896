"""What counts as flat: medians after the warm-up, and a slope."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from benchmarks.judge.flatness import ALLOWED, Sample, held, judged
from benchmarks.robustness.soak_real import LEAST_SAMPLES


def samples(*values: float, measure: str = "RSS MiB") -> list[Sample]:
    return [Sample(36.0 * index, {measure: value}) for index, value in enumerate(values)]


def test_growth_in_the_warm_up_is_none():
    (one,) = judged(samples(*range(20), *[20.0] * 80))
    assert (one.first, one.last, one.slope_per_h, one.flat) == (20.0, 20.0, 0.0, True)


def test_a_steady_leak_is_told_with_its_slope():
    (one,) = judged(samples(*(0.5 * index for index in range(100))))
    assert abs(one.slope_per_h - 50.0) < 1e-9
    assert one.last - one.first > 30
    assert not one.flat
    assert one.row()["flat"] == "NO"


def test_one_high_sample_is_no_growth():
    (one,) = judged(samples(*[10.0] * 99, 500.0))
    assert one.flat


def test_a_descriptor_for_each_container_is_told_by_the_fewest_samples():
    """A round of the real soak ends two containers, so a leak has two more after each."""
    leaks = [96.0 + 2 * round_ for round_ in range(LEAST_SAMPLES)]
    (one,) = judged(samples(*leaks, measure="descriptors"))
    assert not one.flat


def test_what_shrinks_is_flat():
    (one,) = judged(samples(*(100.0 - index for index in range(100))))
    assert one.flat


def test_a_process_and_its_state_are_measured(tmp_path: Path):
    (tmp_path / "journal.db").write_bytes(b"x" * 2**20)
    (tmp_path / "journal.db-wal").write_bytes(b"x" * 2**20)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "allotment.json").write_bytes(b"{}")
    before = held(psutil.Process(), tmp_path, 1.0)
    descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
    after = held(psutil.Process(), tmp_path, 2.0)
    for descriptor in descriptors:
        os.close(descriptor)
    assert before.values.keys() == ALLOWED.keys()
    assert before.values["journal MiB"] == 2.0
    assert before.values["state files"] == 3
    opened = after.values["descriptors"] - before.values["descriptors"]
    assert 40 <= opened <= 60, "beside a few of whatever ran in this process before"
    assert after.values["RSS MiB"] > 5
