"""A policy being asked: when, with what memory, what its failures end in; and one that looks on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from dlsched.control.decider import (
    ASKS_PER_MEASURE,
    FAILURES_UNTIL_PLAIN,
    Decider,
    NamedPolicy,
    ShadowDecider,
)
from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.updated import State
from dlsched.model.cycle import Shadow
from dlsched.model.decision import Decision, PolicyTraits
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import JobSpec, Limits
from dlsched.model.state import JobState, Snapshot
from dlsched.store.policy_memory import memory_size_check
from tests.doubles import decide, snapshot, view


@dataclass(frozen=True)
class Count:
    """What `Counting` remembers."""

    asked: int


class Counting:
    """Remembers how often it was asked, and answers what a test wrote."""

    Parameters: ClassVar[type[Any]] = object
    Memory: ClassVar[type[Any] | None] = Count
    traits: ClassVar[PolicyTraits] = PolicyTraits()

    def __init__(self, *answers: Decision | Exception) -> None:
        self.answers = list(answers)
        self.seen: list[Snapshot] = []

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        self.seen.append(snapshot)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return replace(answer, memory=Count(memory.asked + 1 if memory else 1))


class Reserving(Counting):
    traits: ClassVar[PolicyTraits] = PolicyTraits(reserves=True)


def at(passed_s: float, *jobs: Any, wakes: tuple[str, ...] = ()) -> Snapshot:
    """One job with a core, so many seconds after the first snapshot."""
    return replace(snapshot(*(jobs or (view("a"),))), now_s=100.0 + passed_s, wakes=wakes)


def decider(*answers: Decision | Exception) -> Decider:
    return Decider(NamedPolicy("counting", Counting(*answers)))


def test_it_is_asked_when_due_and_on_a_wake() -> None:
    one = decider(replace(decide(a=0.5), next_s=10.0))
    assert one.ask(at(0.0)).decision is not None
    assert one.ask(at(9.9)).decision is None
    assert one.ask(at(5.0, wakes=("b: arrived",))).decision is not None
    assert one.ask(at(14.9)).decision is None
    assert one.ask(at(15.0)).decision is not None
    assert (one.asks, one.failures) == (3, 0)


def test_its_memory_is_its_own_last_one() -> None:
    one = decider(decide(a=0.5))
    memories = [one.ask(at(now_s)).decision.memory for now_s in (1.0, 2.0)]  # type: ignore[union-attr]
    assert memories == [Count(1), Count(2)]
    one.use(NamedPolicy("counting", Counting(decide(a=0.7))))
    assert one.ask(at(3.0)).decision == replace(decide(a=0.7), memory=Count(3))
    one.use(NamedPolicy("another", Counting(decide(a=0.7))))
    assert one.ask(at(4.0)).decision == replace(decide(a=0.7), memory=Count(1))


def test_weights_hold_through_a_failure_and_what_can_be_expected_does_not() -> None:
    met = (Forecast(ForecastKind.MET, "latency"),)
    good = replace(decide(a=0.5), weights={"a": 3.0}, outlooks={"a": met})
    one = decider(good, ValueError("boom"), good, decide(a=0.5))
    answers = [one.ask(at(now_s)) for now_s in (1.0, 2.0, 3.0, 4.0)]
    assert [answer.weights for answer in answers] == [{"a": 3.0}, {"a": 3.0}, {"a": 3.0}, {}]
    assert [answer.forecasts for answer in answers] == [{"a": met}, {}, {"a": met}, {}]


@pytest.mark.parametrize(
    "bad",
    [
        ValueError("boom"),
        decide(ghost=1.0),
        decide(a=float("nan")),
        Decision(next_s=float("nan")),
        Decision(next_s=-1.0),
        Decision(why={"a": 3}),  # type: ignore[dict-item]
        Decision(why=None),  # type: ignore[arg-type]
    ],
)
def test_a_failure_is_told_and_the_third_in_a_row_ends_in_plain_docker(bad: Any) -> None:
    good = replace(decide(a=0.5), why={"a": "late"})
    policy = Reserving(good, bad, bad, good, *([bad] * FAILURES_UNTIL_PLAIN))
    one = Decider(NamedPolicy("counting", policy))
    one.ask(at(1.0))
    for now_s in (2.0, 3.0):
        answer = one.ask(at(now_s))
        assert answer.decision is None
        assert answer.failure.error is not None
        assert answer.failure.text.startswith("policy counting failed: ")
    assert (answer.why, answer.traits.reserves) == ({"a": "late"}, True)
    answer = one.ask(at(4.0))
    assert answer.decision is not None
    assert answer.failure is None

    for now_s in (5.0, 6.0, 7.0):
        answer = one.ask(at(now_s))
        assert answer.decision is None
    assert answer.failure.final
    assert answer.traits == PolicyTraits(heeds_progress=False, observes_only=True), "plain Docker"
    assert (one.asks, one.failures) == (7, 5)
    answer = one.ask(at(8.0))
    assert (answer.failure.error, answer.failure.in_a_row) == (None, FAILURES_UNTIL_PLAIN)
    plain = answer.decision
    assert plain.limits == {"a": Limits()}
    assert plain.why == {"a": f"plain Docker: {answer.failure.text}"}
    assert plain.memory == Count(2)
    assert len(policy.seen) == 7

    one.use(NamedPolicy("counting", Counting(good)))
    answer = one.ask(at(9.0))
    assert answer.decision == replace(good, memory=Count(3))
    assert answer.failure is None


# ---------------------------------------------------------------------- looking on


def onlooker(*answers: Decision | Exception, kind: type[Counting] = Counting) -> ShadowDecider:
    return ShadowDecider(NamedPolicy("counting", kind(*answers)))


def looked(one: ShadowDecider, seen: Snapshot, options: GuardOptions, *starts: JobSpec) -> Shadow:
    return one.ask(State(seen, starts=starts), options)[0]


def test_an_onlooker_keeps_its_own_limits_where_it_decides_nothing() -> None:
    one = onlooker(replace(decide(a=0.5), why={"a": "late"}, next_s=10.0))
    first = looked(one, at(1.0), GuardOptions())
    assert (first.policy, first.limits, first.trouble) == ("counting", {"a": Limits(0.5)}, None)
    # In force is 1 core all the time: the one that acts decided so.
    second = looked(one, at(2.0), GuardOptions())
    assert (second.decision, second.limits) == (None, {"a": Limits(0.5)})
    assert second.why == {"a": "late"}


def test_an_onlooker_sees_what_is_measured_and_its_own_last_wish() -> None:
    policy = Counting(decide(a=0.5))
    one = ShadowDecider(NamedPolicy("counting", policy))
    for now_s in (1.0, 2.0):
        looked(one, at(now_s, view("a", 1.0), view("b", 2.0)), GuardOptions())
    first, second = policy.seen
    assert first == at(1.0, view("a", 1.0), view("b", 2.0))
    assert [job.desired for job in second.jobs] == [Limits(0.5), Limits(2.0)]
    assert [job.actual for job in second.jobs] == [Limits(1.0), Limits(2.0)]


def test_a_container_that_starts_again_is_nobodys_decision_yet() -> None:
    one = onlooker(replace(decide(a=0.5), next_s=60.0))
    looked(one, at(1.0), GuardOptions())
    looked(one, at(2.0, replace(view("a"), state=JobState.STARTING)), GuardOptions())
    assert looked(one, at(3.0, view("a", 2.0)), GuardOptions()).limits == {"a": Limits(2.0)}


def test_another_policy_does_not_inherit_the_last_ones_wishes() -> None:
    one = onlooker(decide(a=0.5))
    looked(one, at(1.0), GuardOptions())
    one.use(NamedPolicy("another", Counting(Decision())))
    assert looked(one, at(2.0), GuardOptions()).limits == {"a": Limits(1.0)}


# ------------------------------------------------------------------ with GPUs that jobs share


class Growing(Counting):
    """Remembers more than it may from its second answer on."""

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        answer = super().decide(snapshot, None)
        return replace(answer, memory=None if len(self.seen) < 2 else tuple(range(5000)))


def test_a_memory_is_measured_when_jobs_come_or_go_and_once_in_many_asks() -> None:
    asked = Decider(NamedPolicy("growing", Growing(Decision())), check_memory=memory_size_check)
    for second in range(ASKS_PER_MEASURE):
        assert asked.ask(at(float(second))).failure is None
    failure = asked.ask(at(100.0)).failure
    assert "memory has" in failure.text
    at_once = Decider(NamedPolicy("growing", Growing(Decision())), check_memory=memory_size_check)
    assert at_once.ask(at(0.0)).failure is None
    assert at_once.ask(at(1.0, wakes=("b: arrived",))).failure is not None
