"""What the policy `adaptive` believes can be had of a node that others use too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.spec import AccuracyTarget, Bounds
from dlsched.model.state import JobState, JobView
from dlsched.policies.adaptive.policy import believed
from tests.policies import plant
from tests.policies.plant import snapshot


def job(name: str, used: float) -> JobView:
    """A service without a ceiling."""
    return plant.job(name, cores=None, used=used)


def training(name: str, used: float) -> JobView:
    view = plant.job(name, used=used)
    return replace(view, spec=replace(view.spec, target=AccuracyTarget("accuracy", 0.8, 0.9)))


def test_a_node_of_its_own_is_believed_in_whole() -> None:
    seen = snapshot(job("a", used=1.0), job("b", used=0.9), foreign=0.0)
    assert believed(seen, None).cores == believed(seen, 2.0).cores == 2.0
    assert not believed(seen, 2.0).saturated


def test_on_a_full_host_no_more_is_divided_than_jobs_got_and_a_little() -> None:
    seen = snapshot(job("a", used=0.5), job("b", used=0.5), foreign=1.0)
    assert believed(seen, 2.0).cores == pytest.approx(1.1)
    assert believed(seen, 2.0).saturated


def test_of_a_full_host_services_under_ceilings_have_had_what_they_can_have() -> None:
    loops = [plant.job(name, cores=0.55, used=0.5) for name in "ab"]
    full = snapshot(*loops, foreign=1.0)
    assert believed(full, 1.1).cores == pytest.approx(1.0)
    alone = snapshot(plant.job("a", cores=0.55, used=0.5), foreign=1.5)
    assert believed(alone, 0.6).cores == pytest.approx(0.55)
    # Without ceilings, with ceilings of their own, or on a host that jobs fill, more may be had.
    own = [replace(one, spec=replace(one.spec, bounds=Bounds(0.01, 0.55))) for one in loops]
    for seen in (snapshot(job("a", 0.5), job("b", 0.5), foreign=1.0), snapshot(*own, foreign=1.0)):
        assert believed(seen, 1.1).cores == pytest.approx(1.1)
    filled = snapshot(*[plant.job(name, cores=1.0, used=0.97) for name in "ab"], foreign=0.05)
    assert believed(filled, 2.0).cores == pytest.approx(1.95)


def test_a_host_filled_by_jobs_alone_loses_nothing() -> None:
    assert believed(snapshot(job("a", used=2.0), foreign=0.0), 2.0).cores == 2.0


def test_what_the_system_itself_uses_is_not_divided() -> None:
    full = snapshot(job("a", used=1.93), foreign=0.06)
    assert believed(full, None).cores == pytest.approx(1.94)
    assert believed(full, 2.0).cores == pytest.approx(1.94)
    jitters = [snapshot(job("a", used=1.92), foreign=foreign) for foreign in (0.05, 0.06, 0.075)]
    assert {believed(one, 1.94).cores for one in jitters} == {1.94}
    more = snapshot(job("a", used=1.85), foreign=0.14)
    assert believed(more, 1.94).cores == pytest.approx(1.9)


def test_while_there_is_idle_cpu_what_others_use_changes_nothing() -> None:
    for foreign in (0.02, 0.06, 0.1, 0.3):
        assert believed(snapshot(job("a", used=1.0), foreign=foreign), 2.0).cores == 2.0


def test_of_what_others_use_beyond_that_jobs_may_win_their_part() -> None:
    seen = snapshot(job("a", used=1.0), foreign=1.0)
    assert believed(seen, 1.0).cores == pytest.approx(1.1)


def test_what_others_leave_is_believed_in_again_step_by_step() -> None:
    seen = snapshot(job("a", used=0.9), foreign=0.95)  # hardly anything is idle
    course = [1.0]
    while course[-1] < 1.9 and len(course) < 20:
        course.append(believed(seen, course[-1]).cores)
    assert course[1] == pytest.approx(1.1)
    assert 7 < len(course) < 10


def test_a_small_part_of_a_large_host_grows_as_well() -> None:
    seen = snapshot(job("a", used=0.5), foreign=63.0)
    seen = replace(seen, node=replace(seen.node, cores=64.0, capacity_cores=64.0))
    assert believed(seen, 0.5).cores == pytest.approx(0.55)


def test_half_of_what_is_seen_idle_is_believed_in_at_once() -> None:
    seen = snapshot(job("a", used=0.1), foreign=0.1)
    assert believed(seen, 0.05).cores == pytest.approx(0.1 + 0.9)


def test_trainings_make_way_so_a_host_that_they_fill_is_not_full_for_others() -> None:
    both = snapshot(job("a", used=0.5), training("b", used=1.5), foreign=0.0)
    assert believed(both, None).cores == 2.0
    assert not believed(both, None).saturated
    assert believed(snapshot(job("a", used=0.5), job("b", used=1.5), foreign=0.0), None).saturated


def test_others_of_whom_nothing_can_be_read_are_not_there() -> None:
    seen = snapshot(job("a", used=1.5), foreign=None)
    assert believed(seen, None).cores == 2.0
    assert not believed(seen, None).saturated
    assert believed(snapshot(job("a", used=2.0), foreign=None), None).saturated


def test_floors_stand_whatever_is_believed() -> None:
    starved = job("a", used=0.001)
    assert believed(snapshot(starved, foreign=2.0), 2.0).cores >= starved.spec.bounds.floor_cores


def test_a_job_that_is_not_decided_for_is_none_of_the_others() -> None:
    stopping = replace(job("a", used=1.0), state=JobState.STOPPING)
    assert believed(snapshot(stopping, job("b", used=1.0), foreign=0.0), 2.0).cores == 2.0
