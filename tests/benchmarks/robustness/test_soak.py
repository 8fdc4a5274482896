"""The soak, shortened: a simulated day, and 40 s of churn on an engine of its own."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from benchmarks.robustness import soak
from benchmarks.robustness.soak import ALLOWED, LEAST_SAMPLES, Sample, held, judged

SHORT_S = 40.0


def grown(rows: object) -> list[str]:
    """Which measures grew; a journal fills up for longer than a short run lasts."""
    return [one.measure for one in rows if not one.flat and one.measure != "journal MiB"]  # type: ignore[attr-defined]


def test_days_follow_each_other_each_with_jobs_of_its_own():
    trace = soak.trace_of(2)
    assert len(trace.jobs) == 2 * soak.JOBS_A_DAY == len({job.name for job in trace.jobs})
    for job in trace.jobs:
        day = int(job.name[3:5])
        assert job.leaves_s is not None
        assert day * 86_400 <= job.arrives_s < job.leaves_s <= (day + 1) * 86_400
    assert trace.duration_s == 2 * 86_400


@pytest.mark.long
@pytest.mark.slow
def test_a_simulated_day_leaves_nothing_behind():
    samples, facts = soak.simulated(1, lambda _: None, jobs_a_day=12)
    assert facts["jobs"] == 12
    assert facts["cycles"] > 2000
    assert len(samples) >= soak.SAMPLES_A_DAY // 2
    assert grown(judged(samples)) == []
    assert samples[-1].values["journal MiB"] < 16


@pytest.mark.slow
@pytest.mark.engine
def test_churn_with_an_engine_restart_leaves_nothing_behind(docker_host: str):
    if os.geteuid() != 0:
        pytest.skip("a private engine needs root")
    samples, facts = soak.real(SHORT_S, lambda _: None)
    assert facts["engine restarts"] == 1
    assert grown(judged(samples)) == []


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


@pytest.mark.parametrize(
    ("measure", "values", "flat"),
    [
        pytest.param("RSS MiB", [*[10.0] * 99, 500.0], True, id="one high sample"),
        pytest.param("RSS MiB", [100.0 - index for index in range(100)], True, id="it shrinks"),
        # A round of the real soak ends two containers, so a leak has two more after each.
        pytest.param("descriptors", [96.0 + 2 * n for n in range(LEAST_SAMPLES)], False, id="leak"),
    ],
)
def test_what_is_flat_is_told_by_the_fewest_samples(
    measure: str, values: list[float], flat: bool
) -> None:
    (one,) = judged(samples(*values, measure=measure))
    assert one.flat is flat


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
