"""One container under whatever comes: what is begun with it is consistent, and ends."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dlsched.model.actions import Memory, Remove, Resize
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import ContainerState
from dlsched.model.spec import Limits, Restart, Stop
from dlsched.runtime.machine.calls import (
    AskToEnd,
    Call,
    Ended,
    Examine,
    GiveBack,
    Kill,
    ReleaseContainer,
    Remember,
    RemoveContainer,
    SetLimits,
    SetMemory,
    SetRestart,
    Tidy,
)
from dlsched.runtime.machine.container import (
    BARRED_BY,
    SWEEP_S,
    Busy,
    Container,
    Event,
    Listed,
    Unwanted,
)
from dlsched.runtime.machine.inspected import RUNS, Inspected
from dlsched.runtime.machine.limits import AGAIN_S
from dlsched.runtime.machine.outcomes import GivenBack, Own, Untouchable
from dlsched.runtime.originals import Original
from tests.runtime.machine.described import EXITED, RUNNING
from tests.runtime.machine.machine import Table

RESIZE = Resize("job", "c", Limits(1.0), Limits(0.5), 512, "a test")
REMOVE = Remove("job", "c", Stop("SIGTERM", 10.0), None, "a test")
RECORD = Original("c", "job", adopted=False, ceiling_cores=1.0)


@pytest.fixture
def table() -> Table:
    return Table()


def resize(table: Table) -> Container:
    return table.post(SetLimits("c", RESIZE, RUNNING))


def test_one_that_dies_in_the_middle_of_a_change_while_the_engine_hangs(table: Table) -> None:
    resize(table)
    assert table.operation == "updating"
    # The last listing is an old one, as the engine does not answer.
    table.see(RUNNING, 101.0, answers=False, original=RECORD)
    assert table.operation == "updating", "no second change is begun beside it"
    table.end(110.0, EngineUnavailable("no answer"))
    assert not table.machine.busy
    table.see(EXITED, 120.0, original=RECORD)
    assert not table.machine.busy, "its record stays, and its next start gets limits again"
    table.see(None, 121.0, managed=False, original=RECORD)
    table.see(None, 122.0, managed=False, original=RECORD)
    assert table.calls == ["SetLimits", "Tidy"], "gone for good: the record is dropped"


def test_one_that_must_not_be_changed_shows_why_until_its_next_start(table: Table) -> None:
    resize(table)
    table.end(100.0, Untouchable("limits not changed: no record"))
    assert table.operation == "limits not changed: no record"
    again = replace(RUNNING, started_at="later")
    for described in (again, replace(RUNNING, state=ContainerState.EXITED)):
        assert table.machine.of("c").operation(described, 100.0) is None
    table.see(again, 101.0)
    assert not table.machine.busy


def test_own_one_is_tried_again_and_another_programs_is_examined_first(table: Table) -> None:
    theirs: Any = replace(RUNNING, adopted=object())
    for described in (RUNNING, theirs):
        table.post(SetLimits("c", RESIZE, described))
        table.end(None, Untouchable("no"))
        table.see(described, table.now_s + AGAIN_S + 0.1)
    assert table.calls == ["SetLimits", "SetLimits", "Examine"]
    assert table.machine.of("c").operation(theirs, table.now_s) is not None
    table.end()
    assert table.machine.of("c").operation(theirs, table.now_s) is None


def test_record_is_settled_once_a_while(table: Table) -> None:
    for at_s in (100.0, 101.0):
        table.see(None, at_s, managed=False, original=RECORD)
    table.end(error=EngineUnavailable("no answer"))
    for at_s in (102.0, 101.0 + SWEEP_S):
        table.see(None, at_s, managed=False, original=RECORD)
    assert table.calls == ["Tidy"]
    table.see(None, 102.0 + SWEEP_S, managed=False, original=RECORD)
    assert table.calls == ["Tidy", "Tidy"]


def test_a_listing_of_an_engine_that_does_not_answer_settles_nothing(table: Table) -> None:
    resize(table)
    table.end(100.0, Untouchable("no"))
    for at_s in (100.0, 101.0, 130.0):
        table.see(None, at_s, managed=False, original=RECORD, answers=False)
    assert table.calls == ["SetLimits"]
    assert table.machine.of("c").refused is not None


def test_one_that_is_not_managed_any_more_is_not_left_alone(table: Table) -> None:
    resize(table)
    table.end(100.0, Untouchable("no"))
    table.see(RUNNING, 101.0, managed=False)
    assert not table.machine.busy


def test_restart_policies_are_left_while_everything_is_held(table: Table) -> None:
    strays = replace(RUNNING, restart=Restart("always"), restart_strays=True)
    for at_s in (100.0, 200.0):
        table.see(strays, at_s, held=True)
    assert table.made == []


def test_a_call_under_way_is_shown_before_a_refusal(table: Table) -> None:
    resize(table)
    table.end(100.0, Untouchable("no"))
    table.post(Remember("c", Own("job", 2.0)))
    assert table.operation == "updating"
    table.end()
    assert table.operation == "no"


def test_what_was_not_given_back_is_tried_again_by_the_plan_alone(table: Table) -> None:
    theirs: Any = replace(RUNNING, adopted=object())
    record = replace(RECORD, adopted=True)
    table.post(GiveBack("c", theirs, record))
    (call,) = table.made
    failed = GivenBack("job", "c", adopted=True, now="", failure="busy")
    table.post(Ended(call, 100.0, None, failed))
    for at_s in (101.0, 101.0 + AGAIN_S):
        table.see(theirs, at_s, original=record)
    assert table.calls == ["GiveBack"]
    table.post(SetLimits("c", RESIZE, theirs))
    table.end(error=EngineUnavailable("no answer"))
    refused = table.machine.of("c").refused
    assert refused is not None and refused.why == "limits not given back: busy"
    table.see(theirs, original=replace(record, given_back=True))
    assert not table.machine.busy


BEGUN: Mapping[type, Call | Unwanted] = {
    type(one): one
    for one in (
        SetLimits("c", RESIZE, RUNNING),
        SetMemory("c", Memory("job", "c", 1 << 30, 2 << 30, "grows"), RUNNING),
        GiveBack("c", RUNNING, RECORD),
        SetRestart("c", Restart("always")),
        Remember("c", Own("job", 2.0)),
        Unwanted(REMOVE, RUNNING),
        Examine("c", RUNNING),
        Tidy("c", RECORD),
        ReleaseContainer("c", RECORD),
    )
}


@pytest.mark.parametrize("busy", Busy)
@pytest.mark.parametrize("what", BARRED_BY)
def test_what_is_barred_changes_nothing(what: type, busy: Busy, table: Table) -> None:
    before = resize(table) if busy is Busy.UPDATE else table.post(Unwanted(REMOVE, RUNNING))
    first = list(table.calls)
    after = table.post(BEGUN[what])
    if busy in BARRED_BY[what] or what is Unwanted:
        assert (after, table.calls) == (before, first)
    else:
        assert table.calls == [*first, what.__name__]


class Life:
    """Listings, wishes and ends of calls in any order, with what may be asked for on each."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.table = draw, Table()
        self.signalled_s: float | None = None
        """When the stop under way sent its signal."""

    @property
    def one(self) -> Container:
        return self.table.machine.of("c")

    def post(self, event: Event, shown: Inspected | None = None) -> None:
        before, count = self.one, len(self.table.made)
        self.table.post(event)
        for call in self.table.made[count:]:
            if call is not event:
                self.may(call, event, shown, before)

    def may(self, call: Call, event: Event, shown: Inspected | None, before: Container) -> None:
        """Whether that event, which shows that, may lead to that call."""
        runs, now_s = shown is not None and shown.state in RUNS, self.table.now_s
        match call:
            case AskToEnd():
                assert runs and isinstance(event, Unwanted)
                self.signalled_s = None
            case Kill():
                grace_s = REMOVE.stop.grace_s
                assert runs and self.signalled_s is not None
                assert now_s >= self.signalled_s + grace_s
            case RemoveContainer():
                assert shown is not None and not runs
            case SetRestart():
                assert runs and before.bars(now_s) is None
            case Tidy():
                assert isinstance(event, Listed) and (event.held or not event.managed)
                assert sum(isinstance(call, Tidy) for call in self.one.calls) == 1
            case _:
                assert isinstance(call, Examine) and runs

    def listed(self) -> None:
        strays = replace(RUNNING, restart=Restart("always"), restart_strays=True)
        removing = replace(EXITED, state=ContainerState.REMOVING)
        theirs: Any = replace(RUNNING, adopted=object())
        again = replace(RUNNING, started_at="later")
        shown = self.draw.choice((RUNNING, strays, strays, theirs, again, EXITED, removing, None))
        listed_s = self.draw.choice((100.0, self.table.now_s))
        flags = {name: self.draw.random() < 0.1 for name in ("moves", "held")}
        flags |= {name: self.draw.random() < 0.8 for name in ("managed", "answers")}
        record = self.draw.choice((None, RECORD, replace(RECORD, given_back=True)))
        self.post(Listed(shown, listed_s, original=record, **flags), shown)

    def wished(self) -> None:
        theirs: Any = replace(RUNNING, adopted=object())
        described = self.draw.choice((RUNNING, theirs))
        match self.draw.randrange(5):
            case 0:
                shown = self.draw.choice((RUNNING, EXITED))
                self.post(Unwanted(REMOVE, shown), shown)
            case 1:
                self.post(SetLimits("c", RESIZE, described))
            case 2:
                self.post(GiveBack("c", described, RECORD))
            case 3:
                self.post(Remember("c", Own("job", 2.0)))
            case 4 if self.draw.random() < 0.2:
                self.post(ReleaseContainer("c", RECORD))

    def ended(self, error: Exception | None = None, result: object = None) -> None:
        """One of the calls under way, not always the oldest."""
        call = self.draw.choice(self.one.calls)
        asks = self.one.stop is not None and self.one.stop.call is call
        if asks and error is None and isinstance(call, AskToEnd):
            self.signalled_s = self.table.now_s
        self.post(Ended(call, self.table.now_s, error, None if error else result))


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_it_is_consistent_and_comes_to_rest(seed: int) -> None:
    life = Life(draw := random.Random(seed))
    busy = GivenBack("job", "c", adopted=True, now="", failure="busy")
    for _ in range(200):
        life.table.now_s += draw.choice((0.1, 1.0, 3.0, 12.0))
        match draw.randrange(5):
            case 0 | 1:
                life.listed()
            case 2:
                life.wished()
            case _ if life.one.calls:
                errors = (None, None, EngineUnavailable("no answer"), Untouchable("no"))
                life.ended(draw.choice(errors), draw.choice((None, "why", busy)))
    for _ in range(2):  # with every call over and the container gone, nothing is kept
        while life.one.calls:
            life.ended()
        life.table.now_s += 1.0
        life.post(Listed(None, life.table.now_s))
    assert not life.table.machine.busy
