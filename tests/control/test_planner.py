"""The plan: what has to be done, in which order, and with which shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dlsched.control.gpus.rebalance import Wanted
from dlsched.control.guards import Approved, GuardOptions
from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.updated import State
from dlsched.control.planner import DEFAULT_SHARES, plan
from dlsched.model.actions import Action, Move, Remove, Resize, Start
from dlsched.model.decision import Answer, Failure, PolicyTraits
from dlsched.model.facts import Operation, OperationKind
from dlsched.model.spec import (
    AccuracyTarget,
    Bounds,
    Checkpoint,
    JobSpec,
    Limits,
    OwnerCeilings,
    Stop,
)
from dlsched.model.state import JobState, JobView, Snapshot
from tests.doubles import job_spec, snapshot, view


def planned(
    seen: Snapshot,
    limits: Mapping[str, Limits],
    why: Mapping[str, str],
    starts: Sequence[JobSpec] = (),
    removals: Sequence[Remove] = (),
    *,
    reserves: bool = False,
    observes_only: bool = False,
    sources: Mapping[str, str] | None = None,
    placements: Mapping[str, tuple[str, ...]] | None = None,
    move: Wanted | None = None,
    weights: Mapping[str, float] | None = None,
    **options: Any,
) -> tuple[Action, ...]:
    """The plan for these parts of a cycle."""
    return plan(
        State(
            seen,
            Desired(sources=sources or {}),
            starts=tuple(starts),
            placements=placements or {},
            removals=tuple(removals),
        ),
        Answer(
            why=why,
            weights=weights or {},
            traits=PolicyTraits(reserves=reserves, observes_only=observes_only),
        ),
        Approved(limits, move=move),
        GuardOptions(**options),
    )


def test_removals_then_shrinks_then_growths_then_starts():
    jobs = snapshot(view("a", actual=1.0), view("b", actual=2.0))
    away = Remove("c", "id-c", Stop(), None, "gone")
    actions = planned(jobs, {"a": Limits(2.0), "b": Limits(1.0)}, {}, [job_spec("new")], [away])
    kinds = [(type(action), action.job) for action in actions]
    assert kinds == [(Remove, "c"), (Resize, "b"), (Resize, "a"), (Start, "new")]


def test_a_start_takes_the_gpus_that_it_was_placed_on_along():
    starts = [job_spec("a"), job_spec("b")]
    found = planned(snapshot(), {}, {}, starts, placements={"b": ("GPU-1", "GPU-2")})
    assert [(one.job, one.gpus) for one in found] == [("a", ()), ("b", ("GPU-1", "GPU-2"))]


def test_an_adopted_container_that_is_only_observed_is_changed_by_nothing_but_giving_back():
    jobs = [view("altered", actual=0.5), view("limited", actual=0.2), view("ours", actual=0.5)]
    theirs = [replace(job, adopted=True, cpu_shares=77) for job in jobs[:2]]
    seen = snapshot(replace(theirs[0], altered=True), theirs[1], jobs[2])
    limits = dict.fromkeys(("altered", "limited", "ours"), Limits(None))
    done = planned(seen, limits, {}, observes_only=True)
    assert done[1].cpu_shares == DEFAULT_SHARES, "weighed against jobs of ours alone"
    assert [(one.job, one.gives_back) for one in done if isinstance(one, Resize)] == [
        ("altered", True),
        ("ours", False),
    ]
    assert {one.job for one in planned(seen, limits, {})} == {"altered", "limited", "ours"}


def test_what_a_failed_policy_changed_is_given_back_for_that_reason():
    seen = snapshot(replace(view("a", actual=0.5), adopted=True, altered=True))
    failure = Failure("policy p failed: KeyError: 'a'", 3, final=True)
    answer = Answer("p", None, traits=PolicyTraits(observes_only=True), failure=failure)
    approved = Approved({"a": Limits(None)})
    (back,) = plan(State(seen, Desired()), answer, approved, GuardOptions())
    assert isinstance(back, Resize) and back.why == f"given back: {failure.text}"


def test_nothing_changes_nothing_is_done():
    assert planned(snapshot(view("a", actual=1.0)), {"a": Limits(1.00004)}, {}) == ()


def test_a_job_with_an_operation_under_way_is_left_alone():
    busy = JobView(
        spec=job_spec("a"),
        state=JobState.RUNNING,
        container_id="id-a",
        operation=Operation(OperationKind.UPDATING, "updating"),
        actual=Limits(1.0),
    )
    assert planned(snapshot(busy), {"a": Limits(2.0)}, {}) == ()


def test_shares_follow_limits_with_the_engines_default_as_mean():
    jobs = snapshot(view("a", actual=2.0), view("b", actual=2.0))
    actions = planned(jobs, {"a": Limits(0.5), "b": Limits(1.5)}, {})
    shares = {action.job: action.cpu_shares for action in actions if isinstance(action, Resize)}
    assert shares == {"a": DEFAULT_SHARES // 2, "b": DEFAULT_SHARES * 3 // 2}


def test_weights_that_were_decided_come_before_ceilings():
    jobs = snapshot(view("a", actual=2.0), view("b", actual=2.0), view("c", actual=2.0))
    wanted = {"a": Limits(None), "b": Limits(None), "c": Limits(4.0)}
    actions = planned(jobs, wanted, {}, weights={"a": 9.0, "b": 1.0})
    shares = {action.job: action.cpu_shares for action in actions if isinstance(action, Resize)}
    assert shares == {name: 1024 * part // 4 for name, part in (("a", 9), ("b", 1), ("c", 4))}


def test_a_start_gets_its_ceiling_or_what_is_left():
    jobs = snapshot(view("a", actual=3.0), capacity=4.0)
    spec = job_spec("new", bounds=Bounds(0.1, 2.0))
    (free,) = planned(jobs, {"a": Limits(3.0)}, {}, [spec])
    (reserved,) = planned(jobs, {"a": Limits(3.0)}, {}, [spec], reserves=True)
    assert free.limits == Limits(2.0)
    assert reserved.limits == Limits(1.0)


def test_what_starts_begin_with_lies_on_the_grain_so_that_together_they_fit():
    specs = [job_spec(f"j{index}", bounds=Bounds(0.01, None)) for index in range(6)]
    actions = planned(snapshot(capacity=1.0), {}, {}, specs, reserves=True)
    assert {action.limits for action in actions} == {Limits(0.166)}


def test_a_start_gets_its_part_of_what_its_owner_may_have():
    owner = 1001
    theirs = view("a", actual=1.0)
    theirs = replace(theirs, spec=replace(theirs.spec, owner=owner))
    starts = [replace(job_spec(name, bounds=Bounds(0.1, 4.0)), owner=owner) for name in ("b", "c")]
    others = job_spec("d", bounds=Bounds(0.1, 4.0))
    actions = planned(
        snapshot(theirs), {"a": Limits(1.0)}, {}, [*starts, others],
        ceilings_of=lambda uid: OwnerCeilings(9, 2.0) if uid == owner else None,
    )  # fmt: skip
    begins = {one.job: one.limits.cpu_cores for one in actions if isinstance(one, Start)}
    assert begins == {"b": pytest.approx(0.5), "c": pytest.approx(0.5), "d": 4.0}


def test_a_job_with_a_latency_target_may_burst_by_a_part_of_its_ceiling():
    bare, lost = replace(view("a"), burst_cores=0.0), replace(view("b"), burst_cores=0.3)
    jobs = snapshot(bare, lost)
    first, second = planned(jobs, {"a": Limits(0.5), "b": Limits(0.5)}, {}, burst_ratio=0.3)
    assert (first.burst_cores, second.burst_cores) == (0.15, 0.15)


def test_a_burst_that_was_lost_is_a_change_of_its_own():
    restarted = replace(view("a", actual=0.5), burst_cores=0.0)
    (again,) = planned(snapshot(restarted), {"a": Limits(0.5)}, {}, burst_ratio=0.3)
    assert (again.burst_before, again.burst_cores) == (0.0, 0.15)
    has = replace(restarted, burst_cores=0.15)
    assert planned(snapshot(has), {"a": Limits(0.5)}, {}, burst_ratio=0.3) == ()


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
    (action,) = planned(snapshot(job), {"a": Limits(cores)}, {}, burst_ratio=ratio)
    assert action.burst_cores is None


TRAINING = AccuracyTarget("accuracy", 0.9, 0.95)


def test_one_weight_that_changes_does_not_change_all_shares():
    jobs = [replace(view(name, actual=None), cpu_shares=1024) for name in ("a", "b", "c", "d")]
    weights = dict.fromkeys(("a", "b", "c"), 1.0)
    limits = {job.name: Limits(None) for job in jobs}

    def changed(last):
        actions = planned(snapshot(*jobs), limits, {}, weights={**weights, "d": last})
        return {one.job: one.cpu_shares for one in actions if isinstance(one, Resize)}

    assert changed(4.0) == {"d": 4096}
    assert changed(64.0) == {"d": 65536}
    # Where those that weighed the same weigh more, the scale follows.
    weights |= {"b": 8.0, "c": 8.0}
    assert changed(8.0) == {"a": 128}


def test_trainings_do_not_move_the_scale_of_what_is_asked():
    service = replace(view("service", actual=None), cpu_shares=1024)
    trainings = [training(name, actual=Limits(None)) for name in ("t", "u", "v")]
    limits = {job.name: Limits(None) for job in (service, *trainings)}
    weights = {"service": 10.0, "t": 1.0, "u": 1.0, "v": 1.0}
    actions = planned(snapshot(service, *trainings), limits, {}, weights=weights)
    found = {one.job: one.cpu_shares for one in actions if isinstance(one, Resize)}
    assert found == dict.fromkeys("tuv", 102)


def training(name, *, idle=False, shares=1024, **changes):
    job = replace(view(name), cpu_idle=idle, can_idle=True, cpu_shares=shares)
    return replace(job, **{"spec": job_spec(name, target=TRAINING), **changes})


def shares_of(*jobs, weights):
    limits = {job.name: job.actual for job in jobs}
    actions = planned(snapshot(*jobs), limits, {}, weights=weights)
    return {one.job: (one.cpu_idle, one.cpu_shares) for one in actions if isinstance(one, Resize)}


def test_who_weighs_next_to_nothing_goes_to_the_idle_class():
    weights = {"first": 100.0, "next": 1.1, "last": 0.9}
    found = shares_of(*map(training, weights), weights=weights)
    assert {name: idle for name, (idle, _) in found.items()} == {
        "first": False,
        "next": False,
        "last": True,
    }


def test_one_in_the_idle_class_stays_whatever_its_shares_and_comes_back_with_them():
    first = training("first", shares=2048)
    there = training("last", idle=True, shares=3)
    for light in (0.0001, 1.9):
        weights = {"first": 100.0, "last": light}
        assert shares_of(first, there, weights=weights) == {}
    found = shares_of(first, there, weights={"first": 100.0, "last": 2.1})
    assert found == {"last": (False, round(2048 * 2.1 / 102.1))}
    # The same where nobody decides weights any more.
    assert shares_of(there, weights={}) == {"last": (False, 1024)}
    unwanted = replace(there, can_idle=False)
    assert shares_of(first, unwanted, weights={"first": 100.0, "last": 1.0}) == {
        "last": (False, round(2048 / 101))
    }


@pytest.mark.parametrize(
    "change",
    [
        {"can_idle": False},  # this kernel has none, it is not ours, or nobody is wanted there
        {"spec": job_spec("last")},  # it waits for requests
        {"spec": job_spec("last", target=None)},
        {"spec": job_spec("last", target=TRAINING, bounds=Bounds(0.2))},  # it was promised a part
        {"spec": job_spec("last", target=TRAINING, bounds=Bounds(0.01, promised=True))},
        {"gpus": ("GPU-1",)},
    ],
)
def test_who_does_not_belong_there_never_goes_to_the_idle_class(change):
    last = training("last", **change)
    found = shares_of(training("first"), last, weights={"first": 100.0, "last": 0.1})
    assert {"first", "last"} & set(found)
    assert not any(idle for idle, _ in found.values())


@pytest.mark.parametrize(
    ("job", "weight", "before", "after"),
    [
        (training("job", shares=512), 1.0, (512, False), (1024, False)),
        (training("job"), 0.01, (1024, False), (10, True)),
        (training("job", idle=True, shares=None), 1.0, (None, True), (1024, False)),
    ],
)
def test_a_change_of_the_weight_has_the_one_before(job, weight, before, after):
    weights = {"first": 1.0, "other": 1.0, "job": weight}
    jobs = snapshot(training("first"), job, training("other"))
    limits = {one.name: one.actual for one in jobs.jobs}
    found = {one.job: one for one in planned(jobs, limits, {"job": "late"}, weights=weights)}["job"]
    assert (found.shares_before, found.idle_before) == before
    assert (found.cpu_shares, found.cpu_idle, found.why) == (*after, "late")


def test_where_ceilings_are_reserved_one_leaves_the_idle_class_before_it_grows():
    there = training("there", idle=True, actual=Limits(0.5))
    wanted = {"there": Limits(1.0)}
    leaves, grows = planned(snapshot(there), wanted, {"there": "late"}, reserves=True)
    assert (leaves.limits, leaves.cpu_idle, leaves.grows) == (Limits(0.5), False, False)
    assert (grows.limits, grows.grows) == (Limits(1.0), True)
    assert (leaves.idle_before, grows.idle_before) == (True, False)
    assert grows.shares_before == grows.cpu_shares
    assert len(planned(snapshot(there), wanted, {})) == 1


def test_trainings_are_put_behind_each_other_and_not_behind_services():
    service = training("service", spec=job_spec("service"), shares=2)
    weights = {"service": 1000.0, "first": 1.0, "next": 0.5, "last": 0.001}
    found = shares_of(service, *map(training, ("first", "next", "last")), weights=weights)
    assert [found[name][0] for name in weights] == [False, False, False, True]


def test_a_change_knows_what_its_container_goes_back_to():
    jobs = snapshot(view("a", actual=1.0, ceiling=2.0), view("b", actual=1.0))
    actions = planned(jobs, {"a": Limits(0.5), "b": Limits(0.5)}, {})
    assert {a.job: a.ceiling_cores for a in actions if isinstance(a, Resize)} == {
        "a": 2.0,
        "b": None,
    }


# ------------------------------------------------------------------ shares of GPUs' time


def sharer(name: str, share: float | None, *gpus: str) -> JobView:
    job = view(name, actual=1.0)
    return replace(
        job,
        spec=replace(job.spec, bounds=Bounds(0.1, None, 0.1, 0.8)),
        gpus=gpus or ("GPU-0",),
        desired=Limits(1.0, share),
        actual=Limits(1.0, share),
        cpu_shares=DEFAULT_SHARES,
    )


def test_another_share_is_a_resize_that_only_tells_the_job():
    jobs = snapshot(sharer("a", 0.3), sharer("b", 0.6))
    actions = planned(jobs, {"a": Limits(1.0, 0.5), "b": Limits(1.0, 0.5)}, {"a": "late"})
    resizes = [action for action in actions if isinstance(action, Resize)]
    assert [(one.job, one.grows, one.only_notifies) for one in resizes] == [
        ("b", False, True),
        ("a", True, True),
    ]
    assert resizes[1].limits == Limits(1.0, 0.5)
    assert resizes[1].why == "late"


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        (Limits(0.5, 0.2), [(Limits(0.5, 0.2), False)]),
        (Limits(2.0, 0.5), [(Limits(2.0, 0.5), True)]),
        (Limits(2.0, 0.2), [(Limits(1.0, 0.2), False), (Limits(2.0, 0.2), True)]),
        (Limits(0.5, 0.5), [(Limits(0.5, 0.3), False)]),
    ],
)
def test_what_shrinks_of_cores_and_share_comes_before_all_growth(limits, steps):
    """And a share that grows while cores shrink waits for the next cycle."""
    actions = planned(snapshot(sharer("a", 0.3)), {"a": limits}, {})
    resizes = [action for action in actions if isinstance(action, Resize)]
    assert [(one.limits, one.grows) for one in resizes] == steps
    assert [one.before for one in resizes[1:]] == [one.limits for one in resizes[:-1]]


def test_a_share_that_is_no_longer_divided_is_told():
    whole = replace(sharer("a", 0.3), spec=view("a").spec)
    (action,) = planned(snapshot(whole), {"a": Limits(1.0, None)}, {})
    assert action.only_notifies
    assert action.limits.gpu_share is None


def starts(*jobs: JobView, limits: dict[str, Limits] | None = None, **gpus: tuple[str, ...]):
    """The shares with which jobs on these GPUs start, a fifth of each promised."""
    specs = [job_spec(name, bounds=Bounds(0.1, None, 0.2, 0.7)) for name in gpus]
    given = limits or {job.name: job.actual for job in jobs}
    actions = planned(snapshot(*jobs), given, {}, specs, placements=gpus)
    return {one.job: one.limits.gpu_share for one in actions if isinstance(one, Start)}


def test_a_start_gets_what_it_is_promised_and_an_even_part_of_what_is_left():
    assert starts(new=("GPU-0",)) == {"new": 0.7}
    assert starts(sharer("a", 0.5), new=("GPU-0",)) == {"new": pytest.approx(0.5)}
    assert starts(sharer("a", 0.5), one=("GPU-0",), two=("GPU-0",)) == {"one": 0.25, "two": 0.25}
    assert starts(sharer("a", 0.8), new=("GPU-0",)) == {"new": 0.2}


def test_a_start_beside_jobs_that_shrink_in_the_same_cycle_gets_what_they_give():
    jobs = [sharer("a", 0.8)]
    assert starts(*jobs, limits={"a": Limits(1.0, 0.4)}, new=("GPU-0",)) == {
        "new": pytest.approx(0.6)
    }


def test_a_start_on_two_gpus_gets_the_least_of_what_they_leave():
    busy = sharer("a", 0.7, "GPU-1")
    assert starts(busy, new=("GPU-0", "GPU-1")) == {"new": pytest.approx(0.3)}


def test_a_job_with_its_gpus_alone_or_none_starts_without_a_share():
    spec = job_spec("whole")
    (action,) = planned(snapshot(), {}, {}, [spec], placements={"whole": ("GPU-0",)})
    assert action.limits.gpu_share is None
    (action,) = planned(snapshot(), {}, {}, [job_spec("none", bounds=Bounds(0.1, None, 0.2, 1.0))])
    assert action.limits.gpu_share is None


@pytest.mark.parametrize(("busy", "share"), [(0.3, 0.5), (0.8, 0.2)])
def test_a_move_takes_its_share_along_as_far_as_there_is_room(busy: float, share: float):
    mover = sharer("m", 0.5)
    spec = replace(mover.spec, checkpoint=Checkpoint("SIGUSR1", 30.0, "/ckpt"))
    jobs = snapshot(replace(mover, spec=spec), sharer("a", busy, "GPU-1"))
    given = {"m": Limits(1.0, 0.5), "a": Limits(1.0, busy)}
    actions = planned(jobs, given, {}, move=Wanted("m", ("GPU-1",), "to make room"))
    (move,) = [action for action in actions if isinstance(action, Move)]
    assert move.start.limits == Limits(1.0, pytest.approx(share))
