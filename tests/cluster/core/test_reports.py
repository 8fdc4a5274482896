"""What an agent reports of a job, by its node's view."""

from __future__ import annotations

import pytest

from dlsched.cluster.core.reports import job_report
from dlsched.estimate.learning import TOTAL_STEPS
from dlsched.model.facts import Sample, Usage
from dlsched.model.spec import AccuracyTarget, ContainerSpec, JobSpec
from dlsched.model.state import JobState, JobView, Progress

SPEC = JobSpec("job", ContainerSpec("image"), target=AccuracyTarget("accuracy", 0.5, 0.9))


def view(*samples: Sample, used: float = 0.0, cores: float = 2.0) -> JobView:
    return JobView(
        SPEC,
        JobState.RUNNING,
        attained_core_s=used,
        usage=Usage(cpu_cores=cores, window_cores=1.5),
        progress=Progress(samples=samples),
    )


def sample(at_s: float, step: int, accuracy: float, total: float | None = 1000.0) -> Sample:
    more = () if total is None else ((TOTAL_STEPS, total),)
    return Sample(at_s, step, (("accuracy", accuracy), *more))


EARLIER = (sample(80.0, 10, 0.1), sample(90.0, 20, 0.2))


def test_a_pace_counts_after_three_reports() -> None:
    for count, pace in ((2, None), (3, 2.0)):
        samples = [sample(10.0 * one, 20 * one, 0.1) for one in range(1, count + 1)]
        report = job_report(view(*samples, used=10.0 * count), 10.0 * count, 10.0 * count)
        assert report.left is not None
        assert report.steps_per_core_s == pace


def test_a_job_that_has_not_reported_has_only_its_cpu_time() -> None:
    report = job_report(view(used=7.0), 10.0, 11.0)
    assert (report.used_core_s, report.granted_cores, report.reports) == (7.0, 1.5, 0)
    assert (report.step, report.left, report.steps_per_core_s) == (None, None, None)


def test_work_is_what_its_steps_have_taken_until_its_last_sample() -> None:
    # 100 steps in 50 core-seconds until 100 s; seen at 105 s, reported at 110 s, on 2 cores.
    there = view(*EARLIER, sample(100.0, 100, 0.4), used=60.0)
    report = job_report(there, 105.0, 110.0)
    assert report.steps_per_core_s == pytest.approx(2.0)
    assert report.left is not None
    assert report.left.mid_core_s == pytest.approx(900 * 0.5 - 20.0)
    assert report.left.low_core_s < report.left.mid_core_s < report.left.high_core_s
    assert report.step == 100


def test_steps_before_it_came_to_this_node_do_not_count() -> None:
    there = view(*EARLIER, sample(100.0, 500, 0.4), used=50.0)
    report = job_report(there, 100.0, 100.0, began_step=400)
    assert report.steps_per_core_s == pytest.approx(2.0)
    assert report.left is not None and report.left.mid_core_s == pytest.approx(250.0)


def test_the_interval_narrows_with_the_reports() -> None:
    def width(count: int) -> float:
        samples = [sample(10.0 * one, 10 * one, 0.1) for one in range(1, count + 1)]
        left = job_report(view(*samples, used=5.0 * count), 10.0 * count, 10.0 * count).left
        assert left is not None
        return (left.high_core_s - left.low_core_s) / left.mid_core_s

    assert width(16) == pytest.approx(width(1) / 4.0)


def test_without_a_total_nothing_is_known_of_what_is_left() -> None:
    last = sample(100.0, 100, 0.4, total=None)
    report = job_report(view(*EARLIER, last, used=50.0), 100.0, 100.0)
    assert (report.left, report.steps_per_core_s) == (None, pytest.approx(2.0))


def test_evaluations_are_those_of_its_target() -> None:
    samples = (sample(1.0, 10, 0.1), Sample(2.0, 20, (("loss", 3.0),)), sample(3.0, 30, 0.2))
    report = job_report(view(*samples, used=9.0), 3.0, 3.0)
    assert report.evaluations == ((1.0, 0.1), (3.0, 0.2))
