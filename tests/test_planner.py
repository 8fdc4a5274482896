"""The plan: what has to be done, in which order, and with which shares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model import (
    Bounds,
    JobState,
    JobView,
    Limits,
    OwnerCeilings,
    Remove,
    Resize,
    Start,
    Stop,
)
from dlsched.planner import DEFAULT_SHARES, may_grow, plan
from tests.doubles import job_spec, snapshot, view


def test_removals_then_shrinks_then_growths_then_starts():
    jobs = snapshot(view("a", actual=1.0), view("b", actual=2.0))
    away = Remove("c", "id-c", Stop(), None, "gone")
    actions = plan(jobs, {"a": Limits(2.0), "b": Limits(1.0)}, {}, [job_spec("new")], [away])
    kinds = [(type(action), action.job) for action in actions]
    assert kinds == [(Remove, "c"), (Resize, "b"), (Resize, "a"), (Start, "new")]


def test_nothing_changes_nothing_is_done():
    assert plan(snapshot(view("a", actual=1.0)), {"a": Limits(1.00004)}, {}) == ()


def test_a_job_with_an_operation_under_way_is_left_alone():
    busy = JobView(
        spec=job_spec("a"),
        state=JobState.RUNNING,
        container_id="id-a",
        reason="updating",
        actual=Limits(1.0),
    )
    assert plan(snapshot(busy), {"a": Limits(2.0)}, {}) == ()


def test_shares_follow_limits_with_the_engines_default_as_mean():
    jobs = snapshot(view("a", actual=2.0), view("b", actual=2.0))
    actions = plan(jobs, {"a": Limits(0.5), "b": Limits(1.5)}, {})
    shares = {action.job: action.cpu_shares for action in actions if isinstance(action, Resize)}
    assert shares == {"a": DEFAULT_SHARES // 2, "b": DEFAULT_SHARES * 3 // 2}


def test_without_ceilings_all_weigh_the_same():
    jobs = snapshot(view("a", actual=0.3), view("b", actual=2.0))
    actions = plan(jobs, {"a": Limits(None), "b": Limits(None)}, {})
    assert [a.cpu_shares for a in actions if isinstance(a, Resize)] == [1024, 1024]


def test_a_start_gets_its_ceiling_or_what_is_left():
    jobs = snapshot(view("a", actual=3.0), capacity=4.0)
    spec = job_spec("new", bounds=Bounds(0.1, 2.0))
    (free,) = plan(jobs, {"a": Limits(3.0)}, {}, [spec])
    (reserved,) = plan(jobs, {"a": Limits(3.0)}, {}, [spec], reserves=True)
    assert isinstance(free, Start)
    assert isinstance(reserved, Start)
    assert free.limits == Limits(2.0)
    assert reserved.limits == Limits(1.0)


def test_growth_must_fit_beside_what_is_in_force():
    grow = Resize("a", "id-a", Limits(1.0), Limits(2.5), 1024, "")
    assert may_grow(grow, {"a": 1.0, "b": 1.5}, 4.0) == (True, 4.0)
    assert may_grow(grow, {"a": 1.0, "b": 2.0}, 4.0) == (False, 4.5)


def test_a_start_gets_its_part_of_what_its_owner_may_have():
    owner = 1001
    theirs = view("a", actual=1.0)
    theirs = replace(theirs, spec=replace(theirs.spec, owner=owner))
    starts = [replace(job_spec(name, bounds=Bounds(0.1, 4.0)), owner=owner) for name in ("b", "c")]
    others = job_spec("d", bounds=Bounds(0.1, 4.0))
    actions = plan(
        snapshot(theirs), {"a": Limits(1.0)}, {}, [*starts, others],
        ceilings_of=lambda uid: OwnerCeilings(9, 2.0) if uid == owner else None,
    )  # fmt: skip
    begins = {one.job: one.limits.cpu_cores for one in actions if isinstance(one, Start)}
    assert begins == {"b": pytest.approx(0.5), "c": pytest.approx(0.5), "d": 4.0}


def test_a_job_with_a_latency_target_may_burst_by_a_part_of_its_ceiling():
    bare, lost = replace(view("a"), burst_cores=0.0), replace(view("b"), burst_cores=0.3)
    jobs = snapshot(bare, lost)
    first, second = plan(jobs, {"a": Limits(0.5), "b": Limits(0.5)}, {}, burst_ratio=0.3)
    assert isinstance(first, Resize) and isinstance(second, Resize)
    assert (first.burst_cores, second.burst_cores) == (0.15, 0.15)


def test_a_burst_that_was_lost_is_a_change_of_its_own():
    restarted = replace(view("a", actual=0.5), burst_cores=0.0)
    (again,) = plan(snapshot(restarted), {"a": Limits(0.5)}, {}, burst_ratio=0.3)
    assert isinstance(again, Resize)
    assert (again.burst_cores, again.why) == (0.15, "its burst follows its ceiling")
    has = replace(restarted, burst_cores=0.15)
    assert plan(snapshot(has), {"a": Limits(0.5)}, {}, burst_ratio=0.3) == ()


@pytest.mark.parametrize(
    ("change", "cores", "ratio"),
    [
        ({"burst_cores": None}, 0.5, 0.3),  # this kernel has none, or it cannot be written
        ({"spec": job_spec("a", target=None)}, 0.5, 0.3),
        ({}, None, 0.3),
        ({}, 0.5, 0.0),
    ],
)
def test_whoever_needs_no_burst_is_left_as_it_came(change, cores, ratio):
    job = replace(view("a", actual=2.0), **{"burst_cores": 0.0, **change})
    (action,) = plan(snapshot(job), {"a": Limits(cores)}, {}, burst_ratio=ratio)
    assert isinstance(action, Resize)
    assert action.burst_cores is None


def test_a_change_knows_what_its_container_goes_back_to():
    jobs = snapshot(view("a", actual=1.0, ceiling=2.0), view("b", actual=1.0))
    actions = plan(jobs, {"a": Limits(0.5), "b": Limits(0.5)}, {})
    assert {a.job: a.ceiling_cores for a in actions if isinstance(a, Resize)} == {
        "a": 2.0,
        "b": None,
    }
