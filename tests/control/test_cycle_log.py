"""The log of the cycles: what is new, once."""

from __future__ import annotations

import pytest

from dlsched.control.cycle_log import CycleLog
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.cycle import CycleReport
from dlsched.model.state import NodeView, Snapshot


def test_an_alarm_is_logged_when_it_begins_and_ends_whatever_its_text_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    log = CycleLog()
    for text in ("a is late by 1 s", "a is late by 2 s", None):
        raised = () if text is None else (Alarm("a", AlarmKey.MOVE_FAILED, text),)
        log.report(CycleReport(Snapshot(1, 1.0, NodeView(1.0, 1.0, 1)), "none", raised=raised))
    told = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert told == [("WARNING", "a is late by 1 s"), ("INFO", "over: a is late by 2 s")]


def test_another_text_of_the_same_alarm_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = CycleLog()
    aside, full = "journal moved aside", "journal moved aside; not written: no space left"
    for texts in ((aside,), (full,), (aside,), (full,), ()):
        raised = tuple(Alarm("journal", AlarmKey.JOURNAL_FAILED, text) for text in texts)
        log.report(CycleReport(Snapshot(1, 1.0, NodeView(1.0, 1.0, 1)), "none", raised=raised))
    told = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert told == [
        ("WARNING", aside),
        ("WARNING", full),
        ("INFO", f"over: {aside}"),
        ("INFO", f"over: {full}"),
    ]
