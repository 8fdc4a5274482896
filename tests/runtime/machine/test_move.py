"""What a job's move may become, by its table; how it does is in docker/moves/test_moves."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.machine.calls import Act, Ended
from dlsched.runtime.machine.move import TABLE, Job, Move, Step, Turn
from tests.runtime.machine.described import RUNNING


@pytest.mark.parametrize("after", Step)
@pytest.mark.parametrize("before", Step)
def test_no_other_step_follows_than_the_tables(before: Step, after: Step) -> None:
    turn: Any = Turn(Job("job", Move(RUNNING, before, 100.0)), 101.0)
    if after in TABLE[before]:
        turn._enter(after)
        assert (turn.job.move.step, turn.job.move.since_s) == (after, 101.0)
        return
    with pytest.raises(ValueError, match="does not follow"):
        turn._enter(after)


def test_a_second_end_of_a_call_changes_nothing() -> None:
    call = Act("c", "job", "end_old")
    turn = Turn(Job("job", Move(RUNNING, Step.ENDING, 100.0, call=call)), 101.0)
    turn.end(Ended(call, 101.0))
    before = turn.job
    turn.end(Ended(call, 102.0, EngineUnavailable("no answer")))
    assert turn.job is before


def test_every_step_but_the_first_ones_is_reached() -> None:
    reached = {step for row in TABLE.values() for step in row}
    assert set(Step) - reached == {Step.FOUND, Step.ASKED}
