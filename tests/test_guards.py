"""The guards: nonsense refused, bounds, capacity, dead-band, cool-down, the engine's grain."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.errors import PolicyError
from dlsched.guards import GuardOptions, guard, refuse_nonsense
from dlsched.model import (
    Bounds,
    Decision,
    Limits,
    NodeView,
    Snapshot,
)
from tests.doubles import decide, job_spec, snapshot, view

STEADY = GuardOptions(dead_band_ratio=0.02, cooldown_s=0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e308])
def test_what_no_policy_may_answer_is_refused(value):
    with pytest.raises(PolicyError, match="decided cpu_cores"):
        refuse_nonsense(decide(a=value), {"a"})


def test_an_unknown_job_is_refused():
    with pytest.raises(PolicyError, match="does not exist: 'ghost'"):
        refuse_nonsense(decide(ghost=1.0), {"a"})


def test_bounds_hold_and_are_told():
    guarded = guard(snapshot(view("a", ceiling=2.0), view("b")), decide(a=3.0, b=0.01), STEADY)
    assert guarded.limits == {"a": Limits(2.0), "b": Limits(0.1)}
    assert guarded.notes["a"] == "bounds: 3.000 cores becomes 2.000 cores"


def test_no_ceiling_means_the_specs_ceiling():
    guarded = guard(snapshot(view("a", ceiling=2.0), view("b")), decide(a=None, b=None), STEADY)
    assert guarded.limits == {"a": Limits(2.0), "b": Limits(None)}


def test_a_job_that_the_policy_leaves_out_keeps_what_it_has():
    guarded = guard(snapshot(view("a", actual=0.7)), decide(), STEADY)
    assert guarded.limits == {"a": Limits(0.7)}


def test_small_steps_are_held_back_until_they_add_up():
    held = guard(snapshot(view("a", actual=1.0)), decide(a=1.015), STEADY)
    assert held.limits == {"a": Limits(1.0)}
    assert "dead-band" in held.notes["a"]
    assert guard(snapshot(view("a", actual=1.0)), decide(a=1.03), STEADY).limits["a"] == Limits(
        1.03
    )


@pytest.mark.parametrize(("grain", "kept"), [(0.001, 0.061), (0.01, 0.06)])
def test_limits_lie_on_the_engines_grain_so_that_they_are_read_back_as_written(grain, kept):
    node = NodeView(4.0, 4.0, 2**33, grain_cores=grain)
    jobs = Snapshot(1, 100.0, node, (view("a", floor=0.01),))
    assert guard(jobs, decide(a=0.0619), STEADY).limits["a"] == Limits(kept)


def test_the_floor_is_rounded_up_to_the_grain():
    node = NodeView(4.0, 4.0, 2**33, grain_cores=0.01)
    jobs = Snapshot(1, 100.0, node, (view("a", floor=0.055),))
    assert guard(jobs, decide(a=0.0), STEADY).limits["a"] == Limits(0.06)


def test_cool_down_holds_until_it_is_over():
    job = snapshot(view("a", actual=1.0))
    assert guard(job, decide(a=2.0), GuardOptions(0.02, 10.0)).limits["a"] == Limits(1.0)
    assert guard(job, decide(a=2.0), GuardOptions(0.02, 5.0)).limits["a"] == Limits(2.0)


def test_cool_down_never_keeps_a_limit_outside_changed_bounds():
    job = snapshot(view("a", actual=3.0, ceiling=2.0))
    assert guard(job, decide(a=2.0), GuardOptions(0.02, 60.0)).limits["a"] == Limits(2.0)


@given(
    asked=st.lists(st.one_of(st.none(), st.floats(0, 20)), min_size=1, max_size=8),
    capacity=st.floats(1, 16),
)
def test_a_policy_that_reserves_never_sums_above_capacity(asked, capacity):
    jobs = [view(f"j{index}", actual=None, floor=0.05) for index in range(len(asked))]
    decision = Decision(
        limits={job.name: Limits(value) for job, value in zip(jobs, asked, strict=True)}
    )
    guarded = guard(snapshot(*jobs, capacity=capacity), decision, STEADY, reserves=True)
    total = sum(limits.cpu_cores or 0.0 for limits in guarded.limits.values())
    assert total <= capacity + 1e-6
    assert all((limits.cpu_cores or 0.0) >= 0.05 - 1e-9 for limits in guarded.limits.values())


def test_room_is_kept_for_what_is_about_to_start():
    spec = job_spec("new", bounds=Bounds(0.5))
    guarded = guard(
        snapshot(view("a", actual=1.0), capacity=4.0),
        decide(a=4.0),
        STEADY,
        reserves=True,
        starts=[spec],
    )
    assert guarded.limits["a"].cpu_cores == pytest.approx(3.5)


def test_the_dead_band_does_not_keep_a_start_out_for_ever():
    spec = job_spec("new", bounds=Bounds(0.01))
    guarded = guard(
        snapshot(view("a", actual=4.0)), decide(a=4.0), STEADY, reserves=True, starts=[spec]
    )
    assert guarded.limits["a"].cpu_cores == pytest.approx(3.99)
    assert guarded.notes["a"] == "capacity: no room to keep 4.000 cores"


def test_growth_takes_the_room_that_shrinks_within_the_dead_band_leave():
    jobs = snapshot(view("a", actual=3.0), view("b", actual=0.8), capacity=4.0)
    guarded = guard(jobs, decide(a=2.95, b=1.05), STEADY, reserves=True)
    assert guarded.limits["a"] == Limits(3.0)
    assert guarded.limits["b"].cpu_cores == pytest.approx(1.0)
    assert "others keep theirs" in guarded.notes["b"]


def test_growth_that_has_no_room_beside_kept_limits_is_not_asked_for():
    jobs = snapshot(view("a", actual=3.0), view("b", actual=1.0), capacity=4.0)
    guarded = guard(jobs, decide(a=2.95, b=1.05), STEADY, reserves=True)
    assert guarded.limits == {"a": Limits(3.0), "b": Limits(1.0)}


@given(
    jobs=st.lists(st.tuples(st.floats(0.1, 4), st.floats(0.1, 4)), min_size=1, max_size=6),
    cooldown_s=st.sampled_from([0.0, 60.0]),
)
def test_limits_kept_by_a_guard_count_against_capacity_too(jobs, cooldown_s):
    views = [view(f"j{index}", actual=actual) for index, (actual, _) in enumerate(jobs)]
    decision = decide(**{f"j{index}": asked for index, (_, asked) in enumerate(jobs)})
    guarded = guard(
        snapshot(*views, capacity=4.0), decision, GuardOptions(0.02, cooldown_s), reserves=True
    )
    total = math.fsum(limits.cpu_cores or 0.0 for limits in guarded.limits.values())
    # Limits that are equal but for rounding stay as they are.
    assert total <= 4.0 + 1e-4 * len(jobs)
