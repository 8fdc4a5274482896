from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.decision import Decision
from dlsched.model.spec import Bounds
from dlsched.model.state import JobState, JobView, Snapshot
from dlsched.policies.dqoes.policy import DqoesJob, DqoesMemory
from dlsched.policies.registry import load
from tests.policies.plant import job, snapshot


def cores(decision: Decision, name: str = "a") -> float:
    return decision.limits[name].cpu_cores  # type: ignore[return-value]


def after_first(seen: Snapshot, **wanted: float) -> Decision:
    """A decision that is not the first: these jobs have held these wants."""
    held = tuple(
        DqoesJob(view.name, view.spec.target.seconds, wanted[view.name])  # type: ignore[union-attr]
        for view in seen.running
    )
    return load("dqoes").decide(seen, DqoesMemory(held, 2.0, seen.node.capacity_cores))


def late(count: int = 40, **changes: object) -> JobView:
    """A job at 1.4 of its target, with its quota in full use."""
    options = {name: changes.pop(name) for name in ("cores", "in_flight") if name in changes}
    return replace(job("a", 0.05, [0.07] * count, **options), **changes)  # type: ignore[arg-type]


# ------------------------------------------------------------------- one job: give, take, stay


def test_a_slow_job_takes_what_is_idle_though_nobody_gives() -> None:
    decision = after_first(snapshot(late()), a=0.25)
    assert cores(decision) == pytest.approx(0.25 * 1.4**0.7)
    assert decision.why["a"] == (
        "mean is about 70 ms, over the target, 50 ms (class B, 40 requests): 0.250 -> 0.316 cores"
    )


def test_a_fast_job_gives() -> None:
    seen = snapshot(job("a", 0.05, [0.03] * 40))
    assert cores(after_first(seen, a=0.25)) == pytest.approx(0.25 * 0.6**0.7)


def test_a_job_near_its_aim_stays_and_one_at_the_border_is_nudged() -> None:
    assert cores(after_first(snapshot(job("a", 0.05, [0.052] * 40)), a=0.25)) == 0.25
    assert cores(after_first(snapshot(job("a", 0.05, [0.0545] * 40)), a=0.25)) > 0.25


def test_a_step_is_bounded() -> None:
    seen = snapshot(job("a", 0.05, [5.0] * 4))
    assert cores(after_first(seen, a=0.25)) == pytest.approx(0.5)


def test_error_is_relative_so_a_slow_service_does_not_take_the_whole_step() -> None:
    seen = snapshot(job("a", 0.05, [0.07] * 40), job("b", 5.0, [7.0] * 4))
    decision = after_first(seen, a=0.25, b=0.25)
    assert cores(decision, "a") == pytest.approx(cores(decision, "b"))


# ------------------------------------------------------------------- what may be judged


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(late(2), id="two requests"),
        pytest.param(late(changed_at_s=9.5), id="half a second under this limit"),
        pytest.param(job("a", 0.05, []), id="no request"),
        pytest.param(job("a", 0.05, [0.02, 0.04, 0.11], quantile=None), id="within noise"),
        pytest.param(job("a", 0.05, [0.07] * 9, quantile=0.95), id="too few for p95"),
    ],
)
def test_nothing_moves_without_enough_evidence(view: JobView) -> None:
    assert cores(after_first(snapshot(view), a=0.25)) == 0.25


def test_a_hung_service_is_slow_not_silent() -> None:
    hung = job("a", 0.05, [], oldest_s=8.0)
    assert cores(after_first(snapshot(hung), a=0.25)) == pytest.approx(0.5)


def test_what_hung_under_an_older_limit_does_not_count() -> None:
    hung = job("a", 1.0, [], oldest_s=8.0, changed_at_s=8.5)
    assert cores(after_first(snapshot(hung), a=0.25)) == 0.25


# ------------------------------------------------------------------- a quota that does not bind


def test_a_fast_job_with_an_idle_quota_falls_back_to_what_it_uses() -> None:
    # Back to back for ten seconds at 0.1 cores: its limit of 0.8 has nothing to do with 50 ms.
    seen = snapshot(job("a", 0.1, [0.05] * 200, cores=0.8, used=0.1, throttled=0.0))
    assert cores(load("dqoes").decide(seen, None)) < 0.25


def test_a_slow_job_with_an_idle_quota_is_hopeless_until_it_is_tried_again() -> None:
    view = job("a", 0.02, [0.05] * 200, cores=0.8, used=0.1, throttled=0.0)
    first = after_first(snapshot(view), a=0.8)
    assert cores(first) == pytest.approx(0.11)
    assert "more CPU does not help the job" in first.why["a"]
    held = replace(view, actual=first.limits["a"])
    policy = load("dqoes")
    assert cores(policy.decide(snapshot(held, now_s=60.0), first.memory)) == pytest.approx(0.11)
    assert cores(policy.decide(snapshot(held, now_s=140.0), first.memory)) > 0.11


def test_a_changed_target_is_a_new_chance() -> None:
    view = job("a", 0.02, [0.05] * 200, cores=0.8, used=0.1, throttled=0.0)
    memory = after_first(snapshot(view), a=0.8).memory
    asked = snapshot(job("a", 0.05, [0.05] * 200, cores=0.11), now_s=20.0)
    decision = load("dqoes").decide(asked, memory)
    assert "more CPU does not help" not in decision.why["a"]


def test_a_job_that_restarts_comes_back_to_what_it_needs() -> None:
    memory = after_first(snapshot(job("a", 0.05, [0.05] * 40)), a=0.25).memory
    away = replace(job("a"), state=JobState.RESTARTING)
    memory = load("dqoes").decide(snapshot(away), memory).memory
    assert cores(load("dqoes").decide(snapshot(job("a", 0.05, [])), memory)) == 0.25


# ------------------------------------------------------------------- when not all fit


def test_the_cheapest_are_satisfied_and_the_dear_one_gets_the_rest() -> None:
    wants = {"a": 0.3, "b": 0.9, "c": 0.4}
    held = (job(name, 0.05, [0.05] * 40, cores=one) for name, one in wants.items())
    decision = after_first(snapshot(*held, capacity=1.0), **wants)
    assert (cores(decision, "a"), cores(decision, "c")) == pytest.approx((0.3, 0.4))
    assert cores(decision, "b") == pytest.approx(0.3)
    assert " cores, too much while CPU is short" in decision.why["b"]


def test_weight_makes_a_job_cheap() -> None:
    seen = snapshot(
        job("a", 0.05, [0.05] * 40, cores=0.6),
        job("b", 0.05, [0.05] * 40, cores=0.9, weight=4),
        capacity=1.0,
    )
    assert cores(after_first(seen, a=0.6, b=0.9), "b") == pytest.approx(0.9)


def test_two_of_like_price_do_not_take_turns() -> None:
    seen = snapshot(job("a", 0.05, []), job("b", 0.05, []), capacity=1.0)
    held = (DqoesJob("a", 0.05, 0.70, kept=False), DqoesJob("b", 0.05, 0.75, kept=True))
    decision = load("dqoes").decide(seen, DqoesMemory(held, 2.0, 1.0))
    assert cores(decision, "b") == pytest.approx(0.75)


def test_a_job_at_its_own_ceiling_and_slow_leaves_the_cpu_to_others() -> None:
    bounded = job("a", 0.05, [0.2] * 40, cores=0.5, bounds=Bounds(0.02, 0.5))
    seen = snapshot(bounded, job("b", 0.05, [0.05] * 40, cores=0.97), capacity=1.0)
    decision = after_first(seen, a=0.5, b=0.97)
    assert cores(decision, "b") == pytest.approx(0.97)
    assert cores(decision, "a") == pytest.approx(0.03)


def test_jobs_without_a_latency_target_get_their_fair_share_and_what_is_idle() -> None:
    seen = snapshot(job("a", 0.05, [0.05] * 40, cores=0.4), job("b", None), capacity=2.0)
    held = DqoesMemory((DqoesJob("a", 0.05, 0.4),), 2.0, 2.0)
    decision = load("dqoes").decide(seen, held)
    assert cores(decision, "b") == pytest.approx(1.6)
    assert "fair share of 1.000" in decision.why["b"]
    greedy = DqoesMemory((DqoesJob("a", 0.05, 1.9),), 2.0, 2.0)
    assert cores(load("dqoes").decide(seen, greedy), "b") >= 1.0 - 1e-9


def test_the_interval_backs_off_while_all_are_satisfied_and_a_wake_ends_it() -> None:
    policy, near = load("dqoes"), job("a", 0.05, [0.05] * 40)
    memory, intervals = None, []
    for _ in range(4):
        decision = policy.decide(snapshot(near), memory)
        memory = decision.memory
        intervals.append(decision.next_s)
    assert intervals == [2, 4, 8, 8]
    assert policy.decide(snapshot(near, wakes=("b arrived",)), memory).next_s == 2
    assert policy.decide(snapshot(late()), memory).next_s == 2


@pytest.mark.parametrize(
    ("latency_s", "power"),
    [pytest.param(0.2, 0.05, id="cheaper"), pytest.param(2.0, 0.7, id="dearer")],
)
def test_a_starved_job_becomes_dear_at_once_and_cheap_slowly(
    latency_s: float, power: float
) -> None:
    seen = snapshot(job("a", 0.05, [latency_s] * 40, cores=0.05), job("b", 0.05, []), capacity=4.0)
    held = (DqoesJob("a", 0.05, 1.0, kept=False), DqoesJob("b", 0.05, 0.9))
    memory = load("dqoes").decide(seen, DqoesMemory(held, 2.0, 4.0)).memory
    evidence = 0.05 * latency_s / 0.05  # limit times measured over target
    assert memory.jobs[0].wanted_cores == pytest.approx(evidence**power)


def test_the_hopeless_come_after_those_that_are_short() -> None:
    seen = snapshot(*(job(name, 0.05, []) for name in "abc"), capacity=1.0)
    held = (
        DqoesJob("a", 0.05, 0.5, hopeless_until_s=99.0),
        DqoesJob("b", 0.05, 0.6),
        DqoesJob("c", 0.05, 0.9),
    )
    decision = load("dqoes").decide(seen, DqoesMemory(held, 2.0, 1.0))
    floor = 0.05 / 3
    assert cores(decision, "a") == pytest.approx(floor)
    assert cores(decision, "b") == pytest.approx(0.6)
    assert cores(decision, "c") == pytest.approx(1 - 0.6 - floor)


def test_on_a_full_host_a_late_job_is_judged_by_what_it_got() -> None:
    view = job("a", 0.05, [0.0625] * 160, cores=0.4, used=0.3, throttled=0.0)
    idle = after_first(snapshot(view, foreign=0.5), a=0.4)
    full = after_first(snapshot(view, foreign=1.7), a=0.4)
    assert cores(idle) == pytest.approx(0.4 * 1.25**0.7)
    assert full.memory.capacity_cores == pytest.approx(0.3)
    assert full.memory.jobs[0].wanted_cores == pytest.approx(0.4 * (0.75 * 1.25) ** 0.7)


# ------------------------------------------------------------------- closed loop


@pytest.mark.parametrize(("in_flight", "open_loop"), [(1, False), (0, True), (7, True)])
def test_an_open_loop_is_told_what_to_expect(in_flight: int, open_loop: bool) -> None:
    why = after_first(snapshot(late(in_flight=in_flight)), a=0.25).why["a"]
    assert ("(an open loop)" in why and "mode slo" in why) is open_loop


def held(now_s: float, *, in_flight: int = 0) -> float:
    """The ceiling of a fast job that was late under 0.2 cores at 10 s, and now has 0.3."""
    first = after_first(snapshot(late(in_flight=in_flight, cores=0.2)), a=0.2)
    fast = job("a", 0.05, [0.02] * 40, cores=0.3, in_flight=in_flight)
    return cores(load("dqoes").decide(snapshot(fast, now_s=now_s), first.memory))


def test_an_open_loop_gives_nothing_near_what_it_was_late_with_until_it_is_tried_again() -> None:
    assert held(20.0) == pytest.approx(0.2 * 1.4**0.7)
    assert held(131.0) < 0.2
    assert held(20.0, in_flight=1) < 0.2  # a closed loop gives at once
