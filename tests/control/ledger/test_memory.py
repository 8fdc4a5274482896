"""A job's memory over its starts: kills are counted once, and who fills up has an alarm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ledger.ledger_options import LedgerOptions
from dlsched.control.ledger.memory import MemoryTracker
from dlsched.control.ledger.updated import State
from dlsched.model.alarms import AlarmKey
from dlsched.model.facts import ContainerFact, ContainerState, MemoryFact, NodeFact, Observation
from dlsched.model.state import MemoryUse
from tests.doubles import job_spec, running

GIB = 1 << 30
LIMIT = 8 * GIB


def fact(kills: int | None = None, starts: int = 1, **changes: object) -> ContainerFact:
    return replace(running("a"), memory=MemoryFact(oom_kills=kills), starts=starts, **changes)  # type: ignore[arg-type]


ENDED = {"state": ContainerState.EXITED, "oom_killed": True}
RESTARTS = {"state": ContainerState.RESTARTING, "oom_killed": True}


@pytest.mark.parametrize(("facts", "counts"), [
    ((fact(None), fact(None)), (None, None)),
    ((fact(0), fact(2), fact(2)), (0, 2, 2)),
    ((fact(3), fact(3, 2), fact(4, 2)), (3, 6, 7)),  # another start counts on
    ((fact(1), fact(None, started_at_s=9.0), fact(1, started_at_s=9.0)), (1, 1, 2)),  # by hand
    ((fact(0), fact(None, **ENDED)), (0, 1)),  # the engine alone knows of the last kill
    ((fact(1), fact(None, **ENDED), fact(0, 2)), (1, 1, 1)),
    ((fact(0), fact(None, 2, **RESTARTS), fact(0, 2), fact(1, 2)), (0, 1, 1, 2)),
    ((fact(2), None, fact(0, 2)), (2, 2, 2)),
    ((fact(2), fact(None)), (2, 2)),  # unreadable for a moment
    ((fact(None, **ENDED), fact(0, 2)), (1, 1)),
])  # fmt: skip
def test_kills_over_all_starts(
    facts: tuple[ContainerFact | None, ...], counts: tuple[int | None, ...]
) -> None:
    tracker, found = MemoryTracker(), []
    for at, one in enumerate(facts):
        tracker.update(one, float(at))
        found.append(tracker.use.oom_kills)
    assert tuple(found) == counts


def test_what_does_not_change_is_the_same_object() -> None:
    tracker, one = MemoryTracker(), fact(0)
    tracker.update(one, 0.0)
    before = tracker.use
    tracker.update(one, 1.0)
    tracker.update(replace(one), 2.0)
    tracker.update(one, 100.0)
    assert tracker.use is before


def test_a_container_that_has_ended_holds_nothing_and_keeps_its_limit() -> None:
    tracker = MemoryTracker()
    full = MemoryFact(7 * GIB, 6 * GIB, LIMIT, LIMIT, 0, limit_reached=True)
    tracker.update(replace(fact(), memory=full), 0.0)
    alive = MemoryUse(7 * GIB, LIMIT, LIMIT, 0, limit_reached=True, held_bytes=6 * GIB)
    assert tracker.use == alive
    tracker.update(fact(None, **ENDED), 1.0)
    assert tracker.use == MemoryUse(None, LIMIT, LIMIT, 1, limit_reached=True)


class Node:
    """A node whose job `a` grows by so many MiB a minute, beside two others."""

    def __init__(self, available_bytes: int | None = 12 * GIB) -> None:
        self.ledger, self.now_s = Ledger(LedgerOptions()), 0.0
        self.node = NodeFact(4.0, 64 * GIB, memory_available_bytes=available_bytes)
        self.kills = 0

    def minutes(self, first: int, last: int, growth_mib: int = 150, starts: int = 1) -> State:
        for minute in range(first, last):
            self.now_s = minute * 60.0
            held = min(GIB + minute * growth_mib * (1 << 20), LIMIT)
            memory = MemoryFact(held + GIB, held, LIMIT, held, self.kills)
            others = [
                replace(running(name), memory=MemoryFact(working_set_bytes=size))
                for name, size in (("big", 20 * GIB), ("small", 3 * GIB), ("tiny", 1000))
            ]
            grows = replace(running("a"), memory=memory, starts=starts)
            observed = Observation(
                self.now_s,
                engine_ok=True,
                containers=(grows, *others),
                node=self.node,
                container_names={running("a").container_id: "dlsched-a"},
            )
            specs = {one.job: job_spec(one.job) for one in observed.containers}
            state = self.ledger.update(observed, Desired(specs=specs), {})
        return state


def test_the_alarm_says_what_helps_and_who_else_holds_memory() -> None:
    state = Node().minutes(0, 46)
    (alarm,) = state.alarms
    assert (alarm.source, alarm.key) == ("a", AlarmKey.MEMORY_FILLS)
    assert alarm.text == (
        "a: memory in use grew by 4.25 GiB in the last 30 min; the limit of 8 GiB is reached in "
        "about 4 min if the growth goes on; to raise it: `docker update --memory 12288m "
        "--memory-swap 12288m dlsched-a`; the host has 12 GiB to spare; other jobs use 20 GiB "
        "(big), 3 GiB (small)"
    )
    (job, *_) = state.snapshot.jobs
    assert job.memory.filling is not None
    assert job.memory.working_set_bytes == 2 * GIB + 45 * 150 * (1 << 20)


@pytest.mark.parametrize(("available", "said"), [
    (GIB, "the host has 1 GiB to spare, too little for that; other"), (None, "dlsched-a`; other"),
])  # fmt: skip
def test_a_host_without_room(available: int | None, said: str) -> None:
    (alarm,) = Node(available).minutes(0, 46).alarms
    assert said in alarm.text


def test_the_text_stays_while_only_the_host_changes() -> None:
    node = Node()
    (before,) = node.minutes(0, 46).alarms
    node.node = replace(node.node, memory_available_bytes=GIB)
    assert node.minutes(45, 46).alarms == (before,)
    (after,) = node.minutes(46, 47).alarms
    assert "1 GiB to spare" in after.text


@pytest.mark.parametrize("change", ["start", "kill"])
def test_another_start_or_a_kill_of_a_child_is_judged_anew(change: str) -> None:
    node = Node()
    assert node.minutes(0, 46).alarms
    node.kills = 1 if change == "kill" else 0
    assert node.minutes(46, 47, starts=2 if change == "start" else 1).alarms == ()
