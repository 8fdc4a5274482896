"""What a start becomes, by its table."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.model.actions import Start
from dlsched.model.errors import EngineUnavailable
from dlsched.model.spec import Limits
from dlsched.runtime.machine.calls import Ended, Pulls, StartJob
from dlsched.runtime.machine.start import TABLE, Attempt, after, begin, begun
from tests.doubles import job_spec

CALL = StartJob("", Start(job_spec("job"), Limits(), 1024), "missing")
EVENTS: dict[str, Any] = {
    "pulls": Pulls(CALL, lambda: "7 %"),
    "done": Ended(CALL, 1.0),
    "failed": Ended(CALL, 1.0, EngineUnavailable("no answer")),
}


@pytest.mark.parametrize("stage", ["starting", "pulling", "pulled", "started", "failed"])
@pytest.mark.parametrize("name", EVENTS)
def test_each_stage_takes_what_its_call_can_report(stage: Any, name: Any) -> None:
    one = Attempt(CALL, stage)
    if (stage, name) not in TABLE:
        with pytest.raises(KeyError):
            after(one, EVENTS[name])
        return
    later = after(one, EVENTS[name])
    assert later.stage == TABLE[stage, name]
    shown = begun(later)
    assert shown.stage == ("starting" if later.stage == "started" else later.stage)
    assert (shown.detail, shown.retryable) == {
        "pulls": ("7 %", False),
        "done": ("", False),
        "failed": ("no answer", True),
    }[name]


@pytest.mark.parametrize("name", EVENTS)
def test_a_call_that_has_ended_changes_nothing(name: str) -> None:
    ended = after(Attempt(CALL), EVENTS["done"])
    assert after(ended, EVENTS[name]) is ended


def test_an_earlier_attempts_call_changes_nothing() -> None:
    one = begin(None, CALL.action)
    assert isinstance(one, Attempt)
    assert after(one, EVENTS["done"]) is one
