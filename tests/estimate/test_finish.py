"""When a job may be done: from its pace, never earlier than a flattening curve can be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dlsched.estimate.finish import finish_forecast, time_to
from dlsched.model.facts import Sample
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.model.state import JobState, JobView, Progress, Reached, Tiers
from tests.doubles import job_spec

RISES = AccuracyTarget("accuracy", 0.9, 0.97)


def line(*values: float, every_s: float = 10.0):
    return tuple((every_s * index, value) for index, value in enumerate(values))


def job(*values: float, target: object = RISES, **more: object) -> JobView:
    samples = tuple(Sample(10.0 * n, n, (("accuracy", value),)) for n, value in enumerate(values))
    view = JobView(
        job_spec("a", target=target), JobState.RUNNING, progress=Progress(samples=samples),
        started_at_s=0.0,
    )  # fmt: skip
    return replace(view, **more)  # type: ignore[arg-type]


def test_a_steady_pace_is_carried_on():
    assert time_to(line(0.1, 0.2, 0.3), 0.8, 20.0, falls=False) == pytest.approx(50.0)
    assert time_to(line(0.1, 0.2, 0.3), 0.8, 45.0, falls=False) == pytest.approx(25.0)


def test_lower_may_be_better():
    assert time_to(line(3.0, 2.0, 1.0), 0.5, 20.0, falls=True) == pytest.approx(5.0)
    assert time_to(line(3.0, 2.0, 1.0), 0.5, 20.0, falls=False) is None


def test_only_the_latest_points_show_the_pace():
    fast, slow = [float(n) for n in range(50)], [50.0 + 0.01 * n for n in range(16)]
    in_s = time_to(line(*fast, *slow), 51.0, 650.0, falls=False)
    assert in_s == pytest.approx(850.0, rel=0.01)


@pytest.mark.parametrize("given", [
    (), line(0.1, 0.2), line(0.3, 0.3, 0.3), line(0.3, 0.2, 0.1), ((5.0, 0.1), (5.0, 0.2)) * 2,
    line(0.1, 0.1 + 1e-12, 0.1 + 2e-12),
])  # fmt: skip
def test_without_a_pace_towards_it_there_is_no_estimate(given):
    assert time_to(given, 0.97, 20.0, falls=False) is None


def test_what_is_passed_already_takes_no_time():
    assert time_to(line(0.1, 0.5, 0.99), 0.6, 20.0, falls=False) == 0.0


@pytest.mark.parametrize("seen_s", range(30, 600, 30))
def test_a_flattening_curve_is_never_done_before_the_estimate(seen_s):
    done_s = 600.0 * math.log(1 / 0.03)
    points = [(float(at_s), 1 - math.exp(-at_s / 600)) for at_s in range(0, seen_s + 1, 10)]
    in_s = time_to(points, 0.97, float(seen_s), falls=False)
    assert 0 < in_s <= done_s - seen_s


TOO_FEW = "a has reported too few values to say when it reaches accuracy 0.97"
UNTIL_DEADLINE = "a is expected to run until its deadline"


@pytest.mark.parametrize(("view", "in_s", "why"), [
    (job(0.1, 0.2, 0.3), 67.0, "a reaches accuracy 0.97 if it learns on at its present pace"),
    (job(0.1, 0.2, tiers=Tiers(finished=Reached(5.0, 0.98))), -15.0, "a has reached accuracy 0.97"),
    (job(0.1, 0.2), None, TOO_FEW),
    (job(0.3, 0.2, 0.1), None, "a does not come nearer to accuracy 0.97"),
    (job(target=LatencyTarget(0.05)), None, "a serves until it is stopped"),
    (job(target=None), None, "a has no target"),
    (job(target=replace(RISES, deadline_s=120.0)), 100.0, UNTIL_DEADLINE),
    (job(target=replace(RISES, deadline_s=10.0)), None, TOO_FEW),
])  # fmt: skip
def test_what_tells_when_a_job_is_done_is_said(view, in_s, why):
    seen = finish_forecast(view, 20.0)
    assert (seen.tier, seen.why) == ("finish", why)
    assert seen.at_s == (None if in_s is None else pytest.approx(20.0 + in_s))


def test_what_the_policy_expects_goes_before_the_present_pace():
    view, soon = job(0.1, 0.2, 0.3), Forecast(ForecastKind.EXPECTED, "finish", 400.0, 300.0, 900.0)
    told = (Forecast(ForecastKind.EXPECTED, "deliver", 50.0), soon)
    found = finish_forecast(view, 20.0, told)
    assert found == replace(soon, why="a is expected to reach accuracy 0.97")
    unlikely = (Forecast(ForecastKind.UNLIKELY, "finish", best=0.95),)
    assert finish_forecast(view, 20.0, unlikely) == finish_forecast(view, 20.0)
