"""Background jobs: what they leave to the others, and what they get, under every policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.ceilings import CeilingBudget
from dlsched.control.decider import Decider, NamedPolicy
from dlsched.control.guards import GuardOptions, guard
from dlsched.control.ledger.updated import State
from dlsched.control.planner import DEFAULT_SHARES, plan
from dlsched.model.actions import Action, Resize, Start
from dlsched.model.facts import Usage
from dlsched.model.spec import Bounds, JobSpec, Limits, OwnerCeilings
from dlsched.model.state import JobState, JobView, Snapshot
from dlsched.policies.registry import known, load
from tests.doubles import job_spec, snapshot, view

POLICIES = sorted(set(known()) - {"none"})
LEAST_SHARES = 2


def background(name: str = "hog", **bounds: float) -> JobView:
    """A job that comes last, and uses all that it gets."""
    spec = job_spec(name, target=None, background=True, bounds=Bounds(**bounds))
    job = replace(view(name, actual=None), spec=spec, cpu_shares=DEFAULT_SHARES)
    return replace(job, usage=Usage(cpu_cores=3.0, window_cores=3.0))


def others() -> tuple[JobView, ...]:
    return view("first", actual=1.0), view("second", actual=1.0)


def actions(
    policy: str, seen: Snapshot, starts: tuple[JobSpec, ...] = (), **options: object
) -> dict[str, Action]:
    """What one cycle does under that policy, by job."""
    state = State(seen, starts=starts)
    answer = Decider(NamedPolicy(policy, load(policy))).ask(seen)
    assert answer.failure is None, answer.failure
    guards = GuardOptions(dead_band_ratio=0.0, **options)  # type: ignore[arg-type]
    return {one.job: one for one in plan(state, answer, guard(state, answer, guards), guards)}


@pytest.mark.parametrize("policy", POLICIES)
def test_it_gets_the_least_weight_and_no_ceiling(policy: str) -> None:
    hog = background()
    limited = replace(hog, actual=Limits(0.5), desired=Limits(0.5))
    done = actions(policy, snapshot(*others(), limited))["hog"]
    assert isinstance(done, Resize)
    assert (done.limits, done.cpu_shares, done.cpu_idle) == (Limits(), LEAST_SHARES, False)
    assert done.why == "background: the CPU that no other job uses"
    settled = replace(hog, cpu_shares=LEAST_SHARES)
    assert "hog" not in actions(policy, snapshot(*others(), settled))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_other_jobs_get_what_they_would_get_without_it(policy: str) -> None:
    alone, beside = (actions(policy, snapshot(*others(), *more)) for more in ((), (background(),)))
    beside.pop("hog")
    assert beside == alone


@pytest.mark.parametrize("policy", POLICIES)
def test_it_runs_in_the_idle_class_where_there_is_one(policy: str) -> None:
    done = actions(policy, snapshot(*others(), replace(background(), can_idle=True)))["hog"]
    assert isinstance(done, Resize) and done.cpu_idle


@pytest.mark.parametrize("policy", POLICIES)
def test_a_promised_minimum_is_kept_for_it(policy: str) -> None:
    promised = replace(background(floor_cores=1.0), can_idle=True, cpu_shares=LEAST_SHARES)
    seen = snapshot(*others(), promised)
    assert seen.foreground.node.capacity_cores == 3.0
    done = actions(policy, seen)["hog"]
    assert isinstance(done, Resize)
    assert not done.cpu_idle and done.cpu_shares > LEAST_SHARES
    assert done.why == "background: 1 core as promised, and the CPU that no other job uses"
    if load(policy).traits.reserves:
        given = [one.limits.cpu_cores for one in actions(policy, seen).values()]
        assert sum(cores for cores in given if cores is not None) <= 3.0


def test_policy_none_leaves_it_as_all_others() -> None:
    answer = Decider(NamedPolicy("none", load("none"))).ask(seen := snapshot(background()))
    approved = guard(State(seen), answer, GuardOptions())
    assert plan(State(seen), answer, approved, GuardOptions()) == ()


@pytest.mark.parametrize("policy", ["fair", "adaptive"])
def test_it_starts_without_a_ceiling_of_its_own_part(policy: str) -> None:
    first, second = others()
    waiting = replace(background(), state=JobState.WAITING, container_id=None)
    done = actions(policy, snapshot(first, second, waiting), (waiting.spec,))["hog"]
    assert isinstance(done, Start)
    assert (done.limits, done.cpu_shares) == (Limits(), LEAST_SHARES)


def test_its_ceiling_needs_no_room_in_the_budget() -> None:
    lift = Resize("hog", "id", Limits(1.0), Limits(None), 2, "")
    budget = CeilingBudget({"a": 4.0}, 4.0, reserves=True, unbounded=frozenset({"hog"}))
    assert budget.why_not(lift) is None
    assert budget.next_batch([lift]) == [lift]


def test_an_owners_common_limit_also_bounds_it() -> None:
    mine = replace(background(), spec=replace(background().spec, owner=7))
    done = actions(
        "fair", snapshot(*others(), mine), ceilings_of=lambda uid: uid and OwnerCeilings(9, 1.5)
    )["hog"]
    assert isinstance(done, Resize) and done.limits == Limits(1.5)
