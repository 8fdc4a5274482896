"""The soak, shortened: a simulated day, and 40 s of churn on an engine of its own."""

from __future__ import annotations

import os

import pytest

from benchmarks.robustness import soak
from benchmarks.robustness.soak import LEAST_SAMPLES, Sample, judged

SHORT_S = 40.0


def grown(rows: object) -> list[str]:
    """Which measures grew; a journal fills up for longer than a short run lasts."""
    return [one.measure for one in rows if not one.flat and one.measure != "journal MiB"]  # type: ignore[attr-defined]


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
