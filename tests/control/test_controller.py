"""Whole cycles over stand-ins: what happens when, and what happens when it goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dlsched.control.controller import Controller
from dlsched.control.decider import FAILURES_UNTIL_PLAIN, Decider, NamedPolicy, ShadowDecider
from dlsched.control.guards import GuardOptions
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.control.ledger.updated import State
from dlsched.control.ports import Ports
from dlsched.model.actions import Action, Memory, Outcome, Remove, Resize, Start
from dlsched.model.alarms import AlarmKey
from dlsched.model.cycle import HookRun
from dlsched.model.decision import Decision
from dlsched.model.facts import Begun, ContainerState, MemoryFact
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import Bounds, Limits
from dlsched.model.state import Delivered, Ended, JobState, Reached, Snapshot, Tiers
from dlsched.simulation.clock import VirtualClock
from tests.control.test_decider import Counting as Scripted
from tests.control.test_decider import Reserving
from tests.doubles import (
    FakeInbox,
    FakeRecords,
    FakeRuntime,
    job_spec,
    running,
)


class World:
    """A controller with everything around it, and a second that passes when told to."""

    def __init__(
        self,
        policy: Scripted,
        *names: str,
        shadow: Scripted | None = None,
        delivered: Mapping[str, Delivered] | None = None,
        before_actions: Callable[[State, Sequence[Action]], None] = lambda *_: None,
        **options: Any,
    ):
        self.clock = VirtualClock(1000.0)
        self.runtime = FakeRuntime(cores=4.0)
        self.inbox = FakeInbox(*(job_spec(name) for name in names))
        self.records = FakeRecords()
        self.policy = policy
        self.controller = Controller(
            Ports(
                self.runtime,
                self.clock,
                self.inbox,
                self.records,
                before_actions=before_actions,
            ),
            Ledger(LedgerOptions(**options), delivered=delivered or {}),
            Decider(NamedPolicy("scripted", policy)),
            GuardOptions(),
            ShadowDecider(NamedPolicy("shade", shadow)) if shadow else None,
        )

    def cycle(self, count: int = 1):
        for _ in range(count):
            report = self.controller.run_once()
            self.clock.advance(1.0)
        return report

    def state(self, name: str) -> JobState:
        report = self.controller.last_report
        return {job.name: job.state for job in report.snapshot.jobs}[name]


def limits(**cores: float | None) -> Decision:
    return Decision(limits={name: Limits(value) for name, value in cores.items()})


def test_a_file_becomes_a_running_job_and_its_limits_are_decided():
    world = World(Scripted(limits(a=0.5)), "a")
    world.policy.answers = [Decision(), limits(a=0.5)]
    world.cycle()
    assert [type(action) for action in world.runtime.applied] == [Start]
    world.cycle()
    assert world.runtime.containers["a"].actual == Limits(0.5)
    assert world.policy.seen[-1].wakes == ("a: arrived",)


def test_a_removed_file_stops_the_job():
    world = World(Scripted(Decision()), "a")
    world.cycle(2)
    world.inbox.specs.clear()
    world.cycle()
    assert isinstance(world.runtime.applied[-1], Remove)
    world.cycle()
    assert world.controller.last_report.snapshot.jobs == ()


def test_a_container_spared_by_the_inbox_is_left_exactly_as_it_is():
    world = World(Scripted(limits()))
    world.runtime.containers["a"] = running("a", actual=Limits(1.0))
    world.inbox.spares = lambda fact: "its file is bad"
    report = world.cycle(3)
    assert world.runtime.applied == []
    assert world.state("a") is JobState.UNMANAGED
    assert "a: left alone: its file is bad" in report.alarms


def test_a_finished_job_is_recorded_and_not_run_again_also_when_pruned():
    world = World(Scripted(Decision()), "a")
    world.cycle(2)
    done = replace(world.runtime.containers["a"], state=ContainerState.EXITED, exit_code=0)
    world.runtime.containers["a"] = done
    world.cycle()
    assert world.records.jobs["a"].kind == "finished"
    world.runtime.containers.clear()
    world.cycle(3)
    assert world.state("a") is JobState.FINISHED
    assert [type(action) for action in world.runtime.applied] == [Start]


@pytest.mark.parametrize("state", [ContainerState.RESTARTING, ContainerState.PAUSED])
def test_a_job_that_does_not_run_keeps_no_other_from_starting(state: ContainerState):
    world = World(Reserving(Decision()), "loop")
    world.cycle()
    (start,) = world.runtime.applied
    assert start.limits == Limits(4.0), "alone, it starts with all there is"
    world.runtime.containers["loop"] = replace(world.runtime.containers["loop"], state=state)
    world.inbox.specs["svc"] = job_spec("svc")
    world.cycle()
    assert world.runtime.containers["svc"].actual == Limits(2.0)
    world.runtime.containers["loop"] = replace(
        world.runtime.containers["loop"], state=ContainerState.RUNNING
    )
    world.cycle()
    assert world.runtime.sum_of_ceilings() <= 4.0


@pytest.mark.parametrize("by_file", [True, False])
def test_a_job_whose_ended_container_is_still_there_runs_again_when_asked(by_file: bool):
    world = World(Scripted(Decision()), "a")
    world.cycle(2)
    done = replace(world.runtime.containers["a"], state=ContainerState.EXITED, exit_code=0)
    world.runtime.containers["a"] = done
    world.cycle(2)
    assert world.state("a") is JobState.FINISHED
    if by_file:
        world.inbox.specs["a"] = job_spec("a", weight=2.0)
    else:
        world.records.jobs["a"] = replace(world.records.jobs["a"], digest="")
    world.cycle(3)
    assert [type(action) for action in world.runtime.applied] == [Start, Remove, Start]
    assert world.state("a") is JobState.RUNNING
    assert world.records.jobs == {}


def test_a_retryable_failure_to_start_is_tried_again_with_back_off():
    world = World(Scripted(Decision()), "a")
    world.runtime.fails[Start] = "registry down"
    spec = world.inbox.specs["a"]
    world.cycle()
    world.runtime.begun = (Begun("a", "failed", "registry down", spec.digest, retryable=True),)
    world.cycle(4)
    assert len(world.runtime.applied) == 1
    world.cycle(3)
    assert len(world.runtime.applied) == 2
    world.cycle(8)
    assert len(world.runtime.applied) == 2
    world.cycle()
    assert len(world.runtime.applied) == 3


def test_a_file_dropped_again_is_tried_again():
    world = World(Scripted(Decision()), "a")
    world.runtime.fails[Start] = "no such program"
    spec = world.inbox.specs["a"]
    world.cycle()
    world.runtime.begun = (Begun("a", "failed", "no such program", spec.digest),)
    world.cycle(3)
    assert world.state("a") is JobState.FAILED
    assert len(world.runtime.applied) == 1
    world.inbox.specs.clear()
    world.cycle()
    world.inbox.specs["a"] = spec
    world.cycle(3)
    assert len(world.runtime.applied) == 2


def test_a_start_that_failed_holds_back_nobody_until_it_is_tried_again():
    world = World(Scripted(Decision()), "a", "b", max_jobs=1)
    world.runtime.fails[Start] = "registry down"
    world.cycle()
    spec = world.inbox.specs["a"]
    world.runtime.begun = (Begun("a", "failed", "registry down", spec.digest, retryable=True),)
    world.runtime.fails.clear()
    world.cycle(2)
    assert world.state("a") is JobState.WAITING
    assert world.state("b") is JobState.RUNNING


def test_a_container_that_runs_again_lifts_the_record_of_its_end():
    world = World(Scripted(Decision()), "a")
    world.records.jobs["a"] = Ended("a", world.inbox.specs["a"].digest, "failed", "exit code 143")
    digest = world.inbox.specs["a"].container_digest
    world.runtime.containers["a"] = running("a", container_digest=digest)
    world.cycle()
    assert world.state("a") is JobState.RUNNING
    assert world.records.jobs == {}


@pytest.mark.parametrize(
    "bad",
    [
        ValueError("boom"),
        limits(ghost=1.0),
        limits(a=float("nan")),
        Decision(next_s=float("nan")),
        Decision(next_s=None),  # type: ignore[arg-type]
        Decision(why=None),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_fails_leaves_limits_and_then_gives_ceilings_back(bad):
    world = World(Scripted(limits(a=0.5)), "a")
    world.inbox.specs["a"] = job_spec("a", bounds=Bounds(0.1, 2.0))
    world.policy.answers = [Decision(), limits(a=0.5)]
    world.cycle(3)
    world.policy.answers = [bad]
    report = world.cycle(FAILURES_UNTIL_PLAIN - 1)
    assert world.runtime.containers["a"].actual == Limits(0.5)
    assert any("limits stay as they are" in alarm for alarm in report.alarms)
    report = world.cycle(2)
    assert world.runtime.containers["a"].actual == Limits(2.0)
    assert any(
        "all limits are given back until a reload (SIGHUP)" in alarm for alarm in report.alarms
    )
    world.controller.use(NamedPolicy("scripted", Scripted(limits(a=0.7))), GuardOptions())
    world.cycle()
    assert world.runtime.containers["a"].actual == Limits(0.7)


def test_what_fails_in_the_same_way_again_is_told_once(caplog: pytest.LogCaptureFixture):
    def warnings() -> list[str]:
        found = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        caplog.clear()
        return found

    world = World(Scripted(limits(a=1.0)), "a")
    world.cycle(2)
    world.policy.answers = [limits(a=2.0)]
    warnings()
    world.runtime.fails[Resize] = "busy"
    world.cycle(5)
    assert warnings() == ["resize a: failed busy"]
    world.runtime.fails.clear()
    world.cycle()
    world.policy.answers = [limits(a=3.0)]
    world.runtime.fails[Resize] = "busy"
    world.cycle(3)
    assert warnings() == ["resize a: failed busy"], "it had gone well in between"


def test_a_target_out_of_reach_is_told_once_and_so_is_its_way_back(
    caplog: pytest.LogCaptureFixture,
):
    def said(kind: ForecastKind) -> Decision:
        return Decision(outlooks={"a": (Forecast(kind, "latency", best=0.064),)})

    caplog.set_level("INFO")
    world = World(Scripted(said(ForecastKind.IMPOSSIBLE)), "a")
    report = world.cycle(90)
    assert report.outlooks["a"][0].kind is ForecastKind.IMPOSSIBLE
    assert world.controller._ledger._forecasts == report.outlooks
    world.policy.answers = [said(ForecastKind.MET)]
    world.cycle(90)
    told = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert [one for one in told if "target" in one[1]] == [
        (
            "WARNING",
            "a: the target (latency) cannot be met on this node, at best 64 ms",
        ),
        ("INFO", "a: the target (latency) can be met again: met"),
    ]


def test_neither_a_dead_container_nor_a_pull_holds_cores_but_a_begun_start_does():
    world = World(Reserving(Decision()), "a")
    spec = world.inbox.specs["a"]
    world.runtime.containers["a"] = running(
        "a",
        container_digest=spec.container_digest,
        actual=Limits(4.0),
        state=ContainerState.EXITED,
        exit_code=1,
    )
    world.inbox.specs["b"] = job_spec("b")
    world.runtime.begins.add(Start)
    world.cycle()
    (start,) = world.runtime.applied
    assert start.limits == Limits(4.0)
    world.runtime.begun = (Begun("b", "pulling", "1 %", world.inbox.specs["b"].digest),)
    world.inbox.specs["c"] = job_spec("c")
    world.cycle()
    assert world.runtime.applied[-1].limits == Limits(4.0)
    world.runtime.begun = (
        Begun("b", "pulled", "", world.inbox.specs["b"].digest),
        Begun("c", "starting", "", world.inbox.specs["c"].digest),
    )
    report = world.cycle()
    assert [(o.action.job, o.status) for o in report.outcomes] == [("b", "withheld")]
    assert report.outcomes[0].detail == "CPU limits would add up to 4.01 of 4.00 cores"


@pytest.mark.parametrize("seed", range(20))
def test_ceilings_fit_after_every_single_action_and_nobody_is_kept_out(seed):
    chance = random.Random(seed)

    class Restless(Reserving):
        def decide(self, snapshot: Snapshot, memory: object) -> Decision:
            wants = {job.name: chance.choice([None, chance.uniform(0, 5)]) for job in snapshot.jobs}
            return replace(limits(**wants), next_s=chance.choice([0.0, 2.0]))

    world = World(Restless(Decision()))
    apply, sums = world.runtime.apply, [0.0]

    def watched(action: Action, now_s: float) -> Outcome:
        outcome = apply(action, now_s)
        sums.append(world.runtime.sum_of_ceilings())
        return outcome

    world.runtime.apply = watched  # type: ignore[method-assign]
    for _ in range(30):
        name = chance.choice("abcdef")
        if chance.random() < 0.3:
            bounds = Bounds(0.05, chance.choice([None, 1.0, 3.0]))
            world.inbox.specs[name] = job_spec(name, bounds=bounds)
        elif chance.random() < 0.1:
            world.inbox.specs.pop(name, None)
        world.runtime.fails = {Resize: "engine error"} if chance.random() < 0.2 else {}
        world.cycle()
    world.runtime.fails = {}
    report = world.cycle(4)
    assert max(sums) <= 4.0 + 1e-6
    assert {job.name for job in report.snapshot.running} == set(world.inbox.specs)


def test_while_it_is_held_nothing_is_done_and_it_is_told_when_it_was_decided():
    world = World(Scripted(Decision(), limits(a=0.5), limits(a=0.7)), "a")
    world.cycle(2)
    applied = len(world.runtime.applied)
    world.runtime.held = "released: so"
    report = world.cycle()
    assert len(world.runtime.applied) == applied
    assert [(o.status, o.detail) for o in report.outcomes] == [("withheld", "released: so")]
    world.runtime.held = None
    world.cycle()
    assert len(world.runtime.applied) > applied


def test_without_an_engine_nothing_starts_and_it_says_so():
    world = World(Scripted(Decision()), "a")
    world.runtime.engine_ok = False
    report = world.cycle(2)
    assert world.runtime.applied == []
    assert report.snapshot.jobs[0].reason == "the job waits until the Docker Engine answers"
    assert "engine: does not answer" in report.alarms


# ---------------------------------------------------------------------- a shadow


def twins(shadow: Scripted, **options: Any) -> tuple[World, World]:
    """The same world twice, a few cycles long: beside that shadow, and alone."""
    answers = [Decision(), limits(a=0.5, b=0.7), limits(a=1.5), limits(a=1.0, b=0.25)]
    return (
        World(Scripted(*answers), "a", "b", shadow=shadow, **options),
        World(Scripted(*answers), "a", "b", **options),
    )


@pytest.mark.parametrize(
    "answer",
    [
        limits(a=0.1, b=3.0),
        Decision(next_s=1000.0),
        ValueError("boom"),
        limits(ghost=1.0),
        limits(a=float("nan")),
        Decision(next_s=float("nan")),
        Decision(why={"a": object()}),  # type: ignore[dict-item]
    ],
)
def test_whatever_a_shadow_does_the_jobs_get_what_they_would_without_it(answer):
    beside, alone = twins(Scripted(answer))
    for _ in range(8):
        seen, alone_seen = beside.cycle(), alone.cycle()
        seen, alone_seen = (replace(one, alarms=(), raised=()) for one in (seen, alone_seen))
        assert replace(seen, shadow=None) == alone_seen
    assert beside.runtime.applied == alone.runtime.applied
    assert beside.runtime.containers == alone.runtime.containers
    assert seen.shadow.policy == "shade"


def test_a_failing_shadow_is_an_alarm_and_asked_no_more_until_it_is_set_anew():
    shadow = Scripted(ValueError("boom"))
    world = World(Scripted(limits(a=0.5)), "a", shadow=shadow)
    world.policy.answers = [Decision(), limits(a=0.5)]
    assert world.cycle().alarms == ("shadow: policy shade failed: ValueError: boom",)
    for _ in range(4):
        report = world.cycle()
    told = "policy shade failed: ValueError: boom; it is not asked any more"
    assert (report.alarms, report.shadow.trouble) == ((f"shadow: {told}",), told)
    assert len(shadow.seen) == FAILURES_UNTIL_PLAIN
    assert world.runtime.containers["a"].actual == Limits(0.5)

    calm = NamedPolicy("shade", Scripted(limits(a=0.3)))
    acting = NamedPolicy("scripted", world.policy)
    world.controller.use(acting, GuardOptions(), calm)
    report = world.cycle()
    assert (report.alarms, report.shadow.limits) == ((), {"a": Limits(0.3)})
    world.controller.use(acting, GuardOptions())
    assert world.cycle().shadow is None
    world.controller.use(acting, GuardOptions(), calm)
    assert world.cycle().shadow.limits == {"a": Limits(0.3)}


def test_the_time_of_a_slow_shadow_is_told_apart_and_comes_after_what_is_done():
    world = World(Scripted(limits(a=0.5)), "a")
    spent_s, applied_then = 0.0, []
    world.clock.cpu_s = lambda: spent_s

    class Slow(Scripted):
        def decide(self, snapshot, memory):
            nonlocal spent_s
            spent_s += 0.75
            applied_then.append(list(world.runtime.applied))
            return super().decide(snapshot, memory)

    shadow = NamedPolicy("shade", Slow(Decision()))
    world.controller.use(NamedPolicy("scripted", world.policy), GuardOptions(), shadow)
    world.policy.answers = [Decision(), limits(a=0.5)]
    world.cycle()
    report = world.cycle()
    assert report.phase_s["shadow"] == pytest.approx(0.75)
    assert sum(report.phase_s.values()) == pytest.approx(0.75)
    assert [type(action) for action in applied_then[-1]] == [Start, Resize]


# ---------------------------------------------------------------------- deliveries


def test_deliveries_are_kept_with_the_records_and_runs_of_the_hook_are_reported():
    word = Delivered("a", "id-a", "accuracy", 0.9, 0.97, Tiers(Reached(5.0, 0.93)))
    world = World(Scripted(Decision()), "a", delivered={"b": word})
    world.records.runs = (HookRun(word, "done", "exit code 0"),)
    assert world.cycle().hooks == world.records.runs
    (state,) = world.records.kept
    assert state.undelivered == ("b",)


def test_what_is_about_to_be_done_can_be_told_before_it_is():
    told: list[tuple[list[type], int]] = []
    world = World(
        Scripted(limits(a=0.5)),
        "a",
        before_actions=lambda _, actions: told.append(
            ([type(action) for action in actions], len(world.runtime.applied))
        ),
    )
    world.cycle()
    assert (told, len(world.runtime.applied)) == ([([Start], 0)], 1)


def test_what_was_begun_goes_on_after_the_records_are_kept_and_before_the_report():
    world = World(Scripted(limits(a=0.5)), "a")
    seen: list[tuple[int, int]] = []
    advance = world.runtime.advance

    def watched(now_s: float) -> None:
        advance(now_s)
        seen.append((len(world.records.kept), len(world.runtime.applied)))
        assert world.controller.last_report is None

    world.runtime.advance = watched  # type: ignore[method-assign]
    world.controller = Controller(
        Ports(world.runtime, world.clock, world.inbox, world.records),
        Ledger(LedgerOptions()),
        Decider(NamedPolicy("scripted", world.policy)),
        GuardOptions(),
    )
    world.cycle()
    assert (seen, world.runtime.advanced_s) == ([(1, 1)], [1000.0])


@pytest.mark.parametrize("policy", [Scripted, Reserving])
def test_changes_go_at_once_but_no_growth_before_the_shrinks_are_over(policy: type[Scripted]):
    before = {"a": 1.5, "b": 1.5, "c": 0.25, "d": 0.25, "e": 0.5}
    after = {"a": 0.5, "b": 0.5, "c": 1.25, "d": 1.25, "e": 0.5}
    world = World(policy(limits(**after)), *before)
    for name, cores in before.items():
        spec = world.inbox.specs[name]
        world.runtime.containers[name] = running(
            name, container_digest=spec.container_digest, actual=Limits(cores), cpu_shares=1024
        )
    world.cycle()
    changed = [action.job for action in world.runtime.applied if action.job != "e"]
    assert changed == ["a", "b", "c", "d"]
    assert [count for count in world.runtime.together if count > 1] == world.runtime.together
    assert len(world.runtime.together) == 2, "what gives, then what takes"
    assert {name: one.actual.cpu_cores for name, one in world.runtime.containers.items()} == after


def leaking(world: World, name: str, minutes: int) -> dict[AlarmKey, str]:
    """The alarms after a leak of 150 MiB a minute below 8 GiB."""
    gib = 1 << 30
    spec = replace(world.inbox.specs[name], memory_max_bytes=32 * gib)
    world.inbox.specs[name] = replace(spec, container=replace(spec.container, memory_bytes=8 * gib))
    world.runtime.node = replace(world.runtime.node, memory_bytes=64 * gib)
    world.cycle(2)
    for minute in range(minutes):
        held, fact = gib + minute * 150 * (1 << 20), world.runtime.containers[name]
        limit = fact.memory.own_bytes or 8 * gib
        memory = MemoryFact(held, held, limit, own_bytes=limit)
        world.runtime.containers[name] = replace(fact, memory=memory)
        world.clock.advance(59.0)
        report = world.cycle()
    return {one.key: one.text for one in report.raised if one.source == name}


def test_raise_that_fails_is_an_alarm_with_the_reason() -> None:
    world = World(Scripted(Decision()), "a")
    world.runtime.fails[Memory] = "memory limit not changed: read-only"
    alarms = leaking(world, "a", 48)
    assert alarms.keys() == {AlarmKey.MEMORY_NOT_RAISED}
    assert (
        "its limit of 8 GiB cannot be raised: memory limit not changed: read-only"
        in (alarms[AlarmKey.MEMORY_NOT_RAISED])
    )
    world.runtime.fails.clear()
    assert leaking(world, "a", 1).keys() == set()


def test_leak_of_a_job_with_a_bound_has_its_alarm_where_nothing_is_changed() -> None:
    world = World(Scripted(Decision()), "a")
    world.cycle(2)
    world.runtime.held = "dry run"
    assert AlarmKey.MEMORY_FILLS in leaking(world, "a", 48)
