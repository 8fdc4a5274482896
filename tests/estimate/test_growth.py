from __future__ import annotations

import pytest

from dlsched.estimate.growth import (
    Levels,
    efficiency,
    levels,
    points,
    usage_ratio,
)
from dlsched.model.facts import Sample, Usage
from dlsched.model.spec import ContainerSpec, JobSpec
from dlsched.model.state import JobState, JobView, Progress


def job(*samples: Sample, started_at_s: float | None = 0.0, usage: Usage | None = None) -> JobView:
    return JobView(
        JobSpec("a", ContainerSpec(image="trainer")),
        JobState.RUNNING,
        usage=usage or Usage(),
        progress=Progress(samples=samples),
        started_at_s=started_at_s,
    )


def loss(at_s: float, value: float, step: int | None = None) -> Sample:
    return Sample(at_s, step, (("loss", value), ("lr", 0.1)))


def test_points_are_one_metric_of_this_start() -> None:
    seen = job(loss(1, 0.9), loss(5, 0.5), loss(6, 1e300), loss(7, 0.4), started_at_s=5)
    assert points(seen, "loss") == ((5, 0.5), (7, 0.4))
    assert points(seen, "accuracy") == ()


def test_a_step_that_goes_back_begins_a_new_attempt() -> None:
    seen = job(loss(1, 0.9, 10), loss(2, 0.8, 20), loss(3, 0.7), loss(4, 1.0, 5), loss(5, 0.9, 5))
    assert points(seen, "loss") == ((4, 1.0), (5, 0.9))


def test_each_window_has_its_mean_and_its_edges() -> None:
    given = [(40.0, 9.0), (40.1, 4.0), (70.0, 2.0), (70.1, 1.0), (100.0, 3.0), (100.1, 9.0)]
    assert levels(given, 100.0, 30.0) == Levels(last=2.0, before=3.0)


@pytest.mark.parametrize("given", [[], [(90.0, 1.0)], [(50.0, 1.0)]])
def test_a_window_without_a_report_is_unknown(given: list[tuple[float, float]]) -> None:
    assert levels(given, 100.0, 30.0) is None


def test_usage_is_that_under_the_present_limit_and_unread_is_not_zero() -> None:
    assert usage_ratio(job(usage=Usage(cpu_cores=4.0, window_cores=2.0)), 8.0) == 0.25
    assert usage_ratio(job(usage=Usage(cpu_cores=4.0)), 8.0) == 0.5
    assert usage_ratio(job(), 8.0) is None


def test_efficiency_of_a_job_that_uses_nothing_is_zero_not_infinite() -> None:
    assert efficiency(0.01, 0.25) == 0.04
    assert efficiency(0.01, 0.0) == 0.0
