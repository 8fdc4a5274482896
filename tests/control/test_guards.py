"""The guards: nonsense refused, bounds, capacity, dead-band, cool-down, the engine's grain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.control.guards import Approved, GuardOptions, guard_limits, refuse_nonsense
from dlsched.control.ledger.updated import State
from dlsched.model.decision import Answer, Decision, PolicyTraits
from dlsched.model.errors import PolicyError
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import Bounds, JobSpec, Limits, OwnerCeilings
from dlsched.model.state import Idle, JobState, JobView, NodeView, Snapshot
from tests.doubles import decide, job_spec, snapshot, view

STEADY = GuardOptions(dead_band_ratio=0.02, cooldown_s=0.0)


def guarded_by(
    seen: Snapshot,
    decision: Decision,
    options: GuardOptions,
    *,
    reserves: bool = False,
    heeds_progress: bool = True,
    observes_only: bool = False,
    starts: Sequence[JobSpec] = (),
    placements: Mapping[str, tuple[str, ...]] | None = None,
) -> Approved:
    """What the guards make of that decision."""
    state = State(seen, starts=tuple(starts), placements=placements or {})
    answer = Answer(decision=decision, traits=PolicyTraits(reserves, heeds_progress, observes_only))
    return guard_limits(state, answer, options)


def test_what_is_only_observed_keeps_its_limits_and_a_job_of_ours_its_bounds():
    jobs = [view("own", ceiling=0.5), view("theirs", ceiling=0.5)]
    seen = snapshot(jobs[0], replace(jobs[1], adopted=True))
    guarded = guarded_by(seen, decide(own=None, theirs=None), STEADY, observes_only=True)
    assert {name: one.cpu_cores for name, one in guarded.limits.items()} == {
        "own": 0.5,
        "theirs": 1.0,
    }
    assert "theirs" not in guarded.notes


@pytest.mark.parametrize(
    ("decisions", "why"),
    [
        ([decide(a=value) for value in (math.nan, math.inf, -1.0, 1e308)], "decided cpu_cores"),
        (
            [Decision(weights={"a": weight}) for weight in (-1.0, math.nan, math.inf, 1e12)],
            "decided weight .* for a; must be 0 or more",
        ),
        (
            [Decision(expected_s={"a": one_s}) for one_s in (0.0, -0.1, math.nan, math.inf)],
            "expects a latency of .* s for a; must be above 0",
        ),
        (
            [Decision(gpus={"a": gpus}) for gpus in ("GPU-0", (0,))],  # type: ignore[dict-item]
            "`gpus` of a must be a tuple of UUIDs",
        ),
    ],
)
def test_what_no_policy_may_answer_is_refused(decisions, why):
    for decision in decisions:
        with pytest.raises(PolicyError, match=why):
            refuse_nonsense(decision, {"a"})


@pytest.mark.parametrize(
    "decision",
    [
        decide(ghost=1.0),
        Decision(gpus={"ghost": ("GPU-0",)}),
        Decision(weights={"ghost": 1.0}),
        Decision(outlooks={"ghost": ()}),
        Decision(expected_s={"ghost": 0.1}),
    ],
)
def test_what_is_told_of_an_unknown_job_is_refused(decision):
    with pytest.raises(PolicyError, match="for a job that does not exist: 'ghost'"):
        refuse_nonsense(decision, {"a"})


@pytest.mark.parametrize(
    "outlooks",
    [
        ("soon",),
        [Forecast(ForecastKind.MET, "latency")],
        (Forecast(ForecastKind.EXPECTED, "deliver", math.nan),),
        (Forecast(ForecastKind.EXPECTED, "deliver", 1.0, latest_s=math.inf),),
        (Forecast(ForecastKind.IMPOSSIBLE, "latency", best=math.inf),),
        (Forecast(ForecastKind.CROWDED, "latency", lacks=(("b", math.nan),)),),
        (Forecast(ForecastKind.MET, "latency", why=None),),  # type: ignore[arg-type]
        (Forecast("met", "latency"),),  # type: ignore[arg-type]
        (Forecast(ForecastKind.MET, "soon"),),  # type: ignore[arg-type]
    ],
)
def test_an_outlook_that_cannot_be_told_is_refused(outlooks):
    with pytest.raises(PolicyError, match="`outlooks` of a must be a tuple of Forecasts, not "):
        refuse_nonsense(Decision(outlooks={"a": outlooks}), {"a"})


def test_bounds_hold_and_are_told():
    guarded = guarded_by(snapshot(view("a", ceiling=2.0), view("b")), decide(a=3.0, b=0.01), STEADY)
    assert guarded.limits == {"a": Limits(2.0), "b": Limits(0.1)}
    assert guarded.notes["a"] == "bounds: 3.000 cores becomes 2.000 cores"


def test_no_ceiling_means_the_specs_ceiling():
    guarded = guarded_by(
        snapshot(view("a", ceiling=2.0), view("b")), decide(a=None, b=None), STEADY
    )
    assert guarded.limits == {"a": Limits(2.0), "b": Limits(None)}
    assert guarded.notes == {}


def test_a_job_that_the_policy_leaves_out_keeps_what_it_has():
    guarded = guarded_by(snapshot(view("a", actual=0.7)), decide(), STEADY)
    assert guarded.limits == {"a": Limits(0.7)}


def test_small_steps_are_held_back_until_they_add_up():
    held = guarded_by(snapshot(view("a", actual=1.0)), decide(a=1.015), STEADY)
    assert held.limits == {"a": Limits(1.0)}
    assert "dead-band" in held.notes["a"]
    assert guarded_by(snapshot(view("a", actual=1.0)), decide(a=1.03), STEADY).limits[
        "a"
    ] == Limits(1.03)


@pytest.mark.parametrize(("grain", "kept"), [(0.001, 0.061), (0.01, 0.06)])
def test_limits_lie_on_the_engines_grain_so_that_they_are_read_back_as_written(grain, kept):
    node = NodeView(4.0, 4.0, 2**33, grain_cores=grain)
    jobs = Snapshot(1, 100.0, node, (view("a", floor=0.01),))
    assert guarded_by(jobs, decide(a=0.0619), STEADY).limits["a"] == Limits(kept)


def test_the_floor_is_rounded_up_to_the_grain():
    node = NodeView(4.0, 4.0, 2**33, grain_cores=0.01)
    jobs = Snapshot(1, 100.0, node, (view("a", floor=0.055),))
    assert guarded_by(jobs, decide(a=0.0), STEADY).limits["a"] == Limits(0.06)


def test_floors_that_are_rounded_up_leave_the_sum_within_capacity():
    node = NodeView(4.5, 8.0, 2**33, grain_cores=0.01)
    jobs = (*(view(name, floor=1.125) for name in "abc"), view("d"))
    guarded = guarded_by(
        Snapshot(1, 100.0, node, jobs), decide(a=0.0, b=0.0, c=0.0, d=4.0), STEADY, reserves=True
    )
    given = {name: limits.cpu_cores for name, limits in guarded.limits.items()}
    assert given == {"a": 1.13, "b": 1.13, "c": 1.13, "d": 1.11}


def test_a_ceiling_between_two_steps_is_never_exceeded():
    node = NodeView(4.0, 4.0, 2**33, grain_cores=0.01)
    jobs = Snapshot(1, 100.0, node, (view("a", floor=0.125, ceiling=0.125),))
    assert guarded_by(jobs, decide(a=0.125), STEADY).limits["a"] == Limits(0.12)


def test_cool_down_holds_until_it_is_over():
    job = snapshot(view("a", actual=1.0))
    assert guarded_by(job, decide(a=2.0), GuardOptions(0.02, 10.0)).limits["a"] == Limits(1.0)
    assert guarded_by(job, decide(a=2.0), GuardOptions(0.02, 5.0)).limits["a"] == Limits(2.0)


def test_cool_down_never_keeps_a_limit_outside_changed_bounds():
    job = snapshot(view("a", actual=3.0, ceiling=2.0))
    assert guarded_by(job, decide(a=2.0), GuardOptions(0.02, 60.0)).limits["a"] == Limits(2.0)


@given(
    asked=st.lists(st.one_of(st.none(), st.floats(0, 20)), min_size=1, max_size=8),
    capacity=st.floats(1, 16),
)
def test_a_policy_that_reserves_never_sums_above_capacity(asked, capacity):
    jobs = [view(f"j{index}", actual=None, floor=0.05) for index in range(len(asked))]
    decision = Decision(
        limits={job.name: Limits(value) for job, value in zip(jobs, asked, strict=True)}
    )
    guarded = guarded_by(snapshot(*jobs, capacity=capacity), decision, STEADY, reserves=True)
    total = sum(limits.cpu_cores or 0.0 for limits in guarded.limits.values())
    assert total <= capacity + 1e-6
    assert all((limits.cpu_cores or 0.0) >= 0.05 - 1e-9 for limits in guarded.limits.values())


def test_room_is_kept_for_what_is_about_to_start():
    spec = job_spec("new", bounds=Bounds(0.5))
    guarded = guarded_by(
        snapshot(view("a", actual=1.0), capacity=4.0),
        decide(a=4.0),
        STEADY,
        reserves=True,
        starts=[spec],
    )
    assert guarded.limits["a"].cpu_cores == pytest.approx(3.5)


def test_the_dead_band_does_not_keep_a_start_out_for_ever():
    spec = job_spec("new", bounds=Bounds(0.01))
    guarded = guarded_by(
        snapshot(view("a", actual=4.0)), decide(a=4.0), STEADY, reserves=True, starts=[spec]
    )
    assert guarded.limits["a"].cpu_cores == pytest.approx(3.99)
    assert guarded.notes["a"] == "capacity: no room to keep the limit of 4.000 cores"


def test_growth_takes_the_room_that_shrinks_within_the_dead_band_leave():
    jobs = snapshot(view("a", actual=3.0), view("b", actual=0.8), capacity=4.0)
    guarded = guarded_by(jobs, decide(a=2.95, b=1.05), STEADY, reserves=True)
    assert guarded.limits["a"] == Limits(3.0)
    assert guarded.limits["b"].cpu_cores == pytest.approx(1.0)
    assert "others keep theirs" in guarded.notes["b"]


@given(
    jobs=st.lists(st.tuples(st.floats(0.1, 4), st.floats(0.1, 4)), min_size=1, max_size=6),
    cooldown_s=st.sampled_from([0.0, 60.0]),
)
def test_limits_kept_by_a_guard_count_against_capacity_too(jobs, cooldown_s):
    views = [view(f"j{index}", actual=actual) for index, (actual, _) in enumerate(jobs)]
    decision = decide(**{f"j{index}": asked for index, (_, asked) in enumerate(jobs)})
    guarded = guarded_by(
        snapshot(*views, capacity=4.0), decision, GuardOptions(0.02, cooldown_s), reserves=True
    )
    total = math.fsum(limits.cpu_cores or 0.0 for limits in guarded.limits.values())
    # Limits that are equal but for rounding stay as they are.
    assert total <= 4.0 + 1e-4 * len(jobs)


# ---------------------------------------------------------------------- the blind


def blinded(name: str, **bounds: float | None) -> JobView:
    return replace(view(name, **bounds), blind="no report for 1 min")


def test_a_blind_job_gets_an_even_share_by_weight_whatever_was_decided():
    heavy = view("heavy")
    heavy = replace(heavy, spec=replace(heavy.spec, weight=2.0))
    guarded = guarded_by(snapshot(blinded("a"), heavy), decide(a=0.2, heavy=1.0), STEADY)
    assert guarded.limits["a"].cpu_cores == pytest.approx(4 / 3, abs=1e-3)
    assert guarded.limits["heavy"] == Limits(1.0)
    assert guarded.notes["a"] == (
        "blind, no report for 1 min: an even share by weight instead, 1.333 of 4.000 cores"
    )


def test_idle_by_silence_keeps_the_share_of_a_blind_job():
    quiet = replace(view("a"), idle=Idle(0.0, certain=False))
    guarded = guarded_by(snapshot(quiet, view("b")), decide(a=0.2, b=1.0), STEADY)
    assert guarded.limits["a"] == Limits(2.0)
    assert guarded.notes["a"] == "idle: an even share by weight instead, 2.000 of 4.000 cores"
    certain = replace(quiet, idle=Idle(0.0))
    assert guarded_by(snapshot(certain), decide(a=0.2), STEADY).limits["a"] == Limits(0.2)


def test_a_blind_job_keeps_its_share_while_nothing_is_decided():
    held = guarded_by(snapshot(blinded("a", actual=4.0)), decide(), STEADY)
    assert held.limits["a"] == Limits(4.0)
    assert guarded_by(snapshot(blinded("a", ceiling=1.5)), decide(), STEADY).limits["a"] == Limits(
        1.5
    )


def test_a_policy_that_heeds_no_progress_is_not_overruled():
    guarded = guarded_by(snapshot(blinded("a")), decide(a=0.2), STEADY, heeds_progress=False)
    assert (guarded.limits["a"], guarded.notes) == (Limits(0.2), {})


# ------------------------------------------------------------------------------- owners

ALICE = 1001


def owned(name: str, **more: float | None) -> JobView:
    one = view(name, **more)  # type: ignore[arg-type]
    return replace(one, spec=replace(one.spec, owner=ALICE))


def bounded(cpu_cores: float | None, **more: float) -> GuardOptions:
    ceilings = OwnerCeilings(jobs=9, cpu_cores=cpu_cores)
    return GuardOptions(
        **{"dead_band_ratio": 0.02, "cooldown_s": 0.0, **more},
        ceilings_of=lambda owner: ceilings if owner == ALICE else None,
    )


def test_an_owners_jobs_share_its_ceiling_above_their_floors():
    jobs = snapshot(owned("a"), owned("b"), view("c"))
    guarded = guarded_by(jobs, decide(a=2.0, b=None, c=3.0), bounded(1.2))
    assert guarded.limits["c"] == Limits(3.0)
    assert guarded.limits["a"].cpu_cores + guarded.limits["b"].cpu_cores == pytest.approx(
        1.2, abs=0.01
    )
    assert guarded.notes["a"] == (
        "owner uid 1001: 2.000 becomes 0.733 cores, all jobs asked for 3.200 of 1.200 cores"
    )


def test_neither_dead_band_nor_cool_down_holds_an_owner_above_its_ceiling():
    jobs = snapshot(owned("a", actual=1.01), owned("b", actual=1.0))
    guarded = guarded_by(jobs, decide(a=1.0, b=1.0), bounded(2.0, dead_band_ratio=0.05))
    assert sum(limits.cpu_cores for limits in guarded.limits.values()) <= 2.0
    guarded = guarded_by(jobs, decide(a=1.0, b=1.0), bounded(1.0, cooldown_s=1e6))
    assert sum(limits.cpu_cores for limits in guarded.limits.values()) <= 1.0
    assert guarded.notes["a"] == "owner uid 1001: no room to keep the limit of 1.010 cores"


def test_room_is_kept_for_an_owners_starts_and_for_what_does_not_run_yet():
    starting = replace(owned("b", actual=0.5), state=JobState.STARTING)
    spec = replace(job_spec("c", bounds=Bounds(0.3)), owner=ALICE)
    guarded = guarded_by(snapshot(owned("a"), starting), decide(a=2.0), bounded(1.5), starts=[spec])
    assert guarded.limits == {"a": Limits(0.7)}


def test_an_owner_without_a_ceiling_of_cores_is_not_bounded():
    assert guarded_by(snapshot(owned("a")), decide(a=3.0), bounded(None)).limits == {
        "a": Limits(3.0)
    }


# ------------------------------------------------------------------ shares of GPUs' time


def sharer(name: str, share: float | None, promised: float = 0.1, *gpus: str) -> JobView:
    """A running job that shares GPU-0, or these."""
    job = view(name)
    return replace(
        job,
        spec=replace(job.spec, bounds=Bounds(0.1, None, promised, 0.9)),
        gpus=gpus or ("GPU-0",),
        desired=Limits(1.0, share),
        actual=Limits(1.0, share),
    )


def share_out(*jobs: JobView, options: GuardOptions = STEADY, **shares: float | None):
    decision = Decision({name: Limits(1.0, share) for name, share in shares.items()})
    guarded = guarded_by(snapshot(*jobs), decision, options)
    return {name: limits.gpu_share for name, limits in guarded.limits.items()}, guarded.notes


def test_shares_keep_within_promise_and_ceiling():
    shares, notes = share_out(sharer("a", 0.3, 0.2), sharer("b", 0.3), a=0.01, b=0.7)
    assert shares == {"a": 0.2, "b": 0.7}
    assert notes == {"a": "bounds: 0.010 of GPU-0's time becomes 0.200 of GPU-0's time"}
    assert share_out(sharer("a", 0.3), a=0.95)[0] == {"a": 0.9}


def test_a_gpu_is_given_out_once_under_any_policy():
    shares, notes = share_out(sharer("a", 0.3), sharer("b", 0.3), a=0.8, b=0.8)
    assert shares == {"a": 0.5, "b": 0.5}
    assert notes["a"] == (
        "capacity: 0.800 becomes 0.500 of GPU-0's time, "
        "all jobs asked for 1.600 of 1.000 of GPU-0's time"
    )


def test_no_ceiling_on_a_gpu_is_the_specs_ceiling_as_far_as_all_fit():
    shares, _ = share_out(sharer("a", None), a=None)
    assert shares == {"a": 0.9}
    shares, _ = share_out(sharer("a", None), sharer("b", None), a=None, b=None)
    assert shares == {"a": 0.5, "b": 0.5}


def test_who_holds_several_gpus_has_the_least_of_what_they_allow():
    both = sharer("x", 0.3, 0.1, "GPU-0", "GPU-1")
    shares, _ = share_out(both, sharer("a", 0.6), sharer("b", 0.2, 0.1, "GPU-1"), x=0.8, a=0.8)
    assert shares["x"] == pytest.approx(0.5)
    assert shares["a"] == pytest.approx(0.5)
    assert shares["b"] == 0.2


def test_small_steps_of_a_share_are_held_back_and_steps_are_hundredths():
    held, notes = share_out(sharer("a", 0.5), a=0.508)
    assert held == {"a": 0.5}
    assert "dead-band" in notes["a"]
    assert share_out(sharer("a", 0.5), a=0.537)[0] == {"a": 0.53}


def test_the_cool_down_holds_for_shares_too():
    job = sharer("a", 0.5)  # changed 5 s ago
    assert share_out(job, options=GuardOptions(0.02, 10.0), a=0.7)[0] == {"a": 0.5}
    assert share_out(job, options=GuardOptions(0.02, 5.0), a=0.7)[0] == {"a": 0.7}


def test_a_blind_job_gets_an_even_share():
    blind = replace(sharer("a", 0.1), blind="no report for 1 min")
    shares, notes = share_out(blind, sharer("b", 0.2), a=0.9, b=0.3)
    assert shares == {"a": 0.5, "b": 0.3}
    assert "an even share by weight instead, 0.500 of 1.000 of GPU-0's time" in notes["a"]


def test_whole_gpus_adopted_containers_and_others_have_no_share():
    whole = replace(sharer("w", None), spec=view("w").spec)
    adopted = replace(sharer("x", 0.5), adopted=True)
    shares, _ = share_out(whole, adopted, view("n"), w=0.5, x=0.5, n=0.5)
    assert shares == {"w": None, "x": None, "n": None}


def test_files_that_were_changed_do_not_promise_a_gpu_twice():
    shares, _ = share_out(sharer("a", 0.5, 0.9), sharer("b", 0.5, 0.5), a=0.9, b=0.5)
    assert shares["a"] == pytest.approx(0.9 / 1.4)
    assert shares["b"] == pytest.approx(0.5 / 1.4)
    alone = replace(sharer("a", 0.5), spec=view("a").spec)
    shares, _ = share_out(alone, sharer("b", 0.5, 0.5), a=None, b=0.5)
    assert shares["a"] == pytest.approx(2 / 3)
    assert shares["b"] == pytest.approx(1 / 3)


def test_who_does_not_run_holds_its_share_and_a_start_its_promise():
    paused = replace(sharer("p", 0.2), state=JobState.PAUSED)
    spec = job_spec("new", bounds=Bounds(0.1, None, 0.3, 1.0))
    guarded = guarded_by(
        snapshot(paused, sharer("a", 0.3)),
        Decision({"a": Limits(1.0, 0.9)}),
        STEADY,
        starts=[spec],
        placements={"new": ("GPU-0",)},
    )
    assert guarded.limits["a"].gpu_share == pytest.approx(0.5)
    elsewhere = guarded_by(
        snapshot(paused, sharer("a", 0.3)),
        Decision({"a": Limits(1.0, 0.9)}),
        STEADY,
        starts=[spec],
        placements={"new": ("GPU-1",)},
    )
    assert elsewhere.limits["a"].gpu_share == pytest.approx(0.8)


@given(
    jobs=st.lists(
        st.tuples(
            st.none() | st.floats(0, 2),
            st.none() | st.floats(0.05, 0.9),
            st.sampled_from([("GPU-0",), ("GPU-1",), ("GPU-0", "GPU-1")]),
        ),
        min_size=1,
        max_size=6,
    ),
    cooldown_s=st.sampled_from([0.0, 60.0]),
)
def test_shares_never_sum_above_one_gpu_nor_fall_below_what_is_promised(jobs, cooldown_s):
    """Also beside shares that the cool-down keeps, whatever was in force before."""
    views = [sharer(f"j{i}", actual, 0.14, *gpus) for i, (_, actual, gpus) in enumerate(jobs)]
    asked = {f"j{index}": one for index, (one, _, _) in enumerate(jobs)}
    shares, _ = share_out(*views, options=GuardOptions(0.02, cooldown_s), **asked)
    for uuid in ("GPU-0", "GPU-1"):
        assert sum(shares[job.name] for job in views if uuid in job.gpus) <= 1.0 + 1e-9
    assert all(0.14 <= share <= 0.9 for share in shares.values())
