"""One container under whatever comes: what is begun with it is consistent, and ends."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from dlsched.model.actions import Remove, Resize
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import ContainerState
from dlsched.model.spec import Limits, Restart, Stop
from dlsched.runtime.machine.calls import Ended, GiveBack, Remember, SetLimits
from dlsched.runtime.machine.container import Unwanted
from dlsched.runtime.machine.limits import AGAIN_S, SWEEP_S
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


def resize(table: Table) -> None:
    table.post(SetLimits("c", RESIZE, RUNNING))


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
    table.end(100.0, Untouchable("left as it is: no record"))
    assert table.operation == "left as it is: no record"
    again = replace(RUNNING, started_at="later")
    assert table.machine.of("c").operation(again, 100.0) is None
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
    table.see(None, 101.0 + SWEEP_S, managed=False, original=RECORD)
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
    assert refused is not None and refused.why == "not given back: busy"
    table.see(theirs, original=replace(record, given_back=True))
    assert not table.machine.busy


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_it_is_consistent_and_comes_to_rest(table: Table, seed: int) -> None:
    draw = random.Random(seed)
    strays = replace(RUNNING, restart=Restart("always"), restart_strays=True)
    removing = replace(EXITED, state=ContainerState.REMOVING)
    for _ in range(200):
        one = table.machine.of("c")
        table.now_s += draw.choice((0.1, 1.0, 12.0))
        match draw.randrange(5):
            case 0:
                described = draw.choice((RUNNING, strays, EXITED, removing, None))
                seen = {"moves": draw.random() < 0.1, "held": draw.random() < 0.1}
                record = draw.choice((None, RECORD))
                answers, managed = draw.random() < 0.9, described is not None
                table.see(described, original=record, answers=answers, managed=managed, **seen)
            case 1 if one.bars(table.now_s) is None:
                resize(table)
            case 2 if not one.updating:
                table.post(Unwanted(REMOVE, draw.choice((RUNNING, EXITED))))
            case _ if one.calls:
                errors = (None, EngineUnavailable("no answer"), Untouchable("no"))
                table.end(error=draw.choice(errors))
    while table.machine.of("c").calls:
        table.end()
    table.see(None, table.now_s + 1.0)
    while table.machine.of("c").calls:
        table.end()
    assert not table.machine.busy
