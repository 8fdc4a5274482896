"""Log lines of each cycle, only for changes. No other module of the core logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence

from dlsched.model.actions import Outcome
from dlsched.model.alarms import AlarmKey
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Answer
from dlsched.model.errors import PolicyError
from dlsched.model.forecast import TargetStates, in_full, turned
from dlsched.model.state import Snapshot

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class CycleLog:
    """Remembers what was logged, so that only changes are logged."""

    def __init__(self) -> None:
        self._failing: dict[tuple[str, str], str] = {}
        """By kind of action and job, the last failure."""
        self._alarms: Mapping[tuple[str, AlarmKey], Mapping[str, str]] = {}
        """By source and key, the logged texts while it is raised, by the text without numbers."""
        self._target_states: Mapping[str, TargetStates] = {}

    def answer(self, answer: Answer) -> None:
        """Log the policy's failure in this cycle."""
        failure = answer.failure
        if failure is None or failure.error is None:
            return
        level = logging.ERROR if isinstance(failure.error, PolicyError) else logging.CRITICAL
        log.log(level, "%s (%d in a row)", failure.text, failure.in_a_row, exc_info=failure.error)

    def outcomes(self, outcomes: Sequence[Outcome], snapshot: Snapshot) -> None:
        """Log the outcomes: a repeated failure once, withheld actions as info."""
        names = {job.name for job in snapshot.jobs}
        self._failing = {key: why for key, why in self._failing.items() if key[1] in names}
        for outcome in outcomes:
            action = outcome.action
            kind = type(action).__name__.lower()
            known = self._failing.pop((kind, action.job), None)
            level = logging.INFO
            if outcome.status == "failed":
                level = logging.DEBUG if known == outcome.detail else logging.WARNING
                self._failing[kind, action.job] = outcome.detail
            elif kind == "resize" and outcome.status == "done":
                level = logging.DEBUG
            log.log(level, "%s %s: %s %s", kind, action.job, outcome.status, outcome.detail)

    def report(self, report: CycleReport) -> None:
        """Log alarms that began or ended, and targets whose forecast changed."""
        alarms: dict[tuple[str, AlarmKey], dict[str, str]] = {}
        for alarm in report.raised:
            which = (alarm.source, alarm.key)
            logged = alarms.setdefault(which, dict(self._alarms.get(which, {})))
            form = _NUMBER.sub("#", alarm.text)
            if form not in logged:
                log.warning("%s", alarm.text)
            logged[form] = alarm.text
        for which, before in self._alarms.items():
            if which not in alarms:
                for text in before.values():
                    log.info("over: %s", text)
        self._alarms = alarms
        self._target_states = _log_turns(report, self._target_states)


_REACH = {
    "possible": "%s: the target (%s) can be met again: %s",
    "crowded": "%s: the target (%s) %s",
    "impossible": "%s: the target (%s) %s",
}


def _log_turns(report: CycleReport, before: Mapping[str, TargetStates]) -> dict[str, TargetStates]:
    """Log targets that went out of reach or came back; returns the new states."""
    after: dict[str, TargetStates] = {}
    for name, outlooks in report.outlooks.items():
        after[name], turns = turned(outlooks, before.get(name, ()), report.snapshot.now_s)
        for reach, outlook in turns:
            level = logging.INFO if reach == "possible" else logging.WARNING
            text = in_full(outlook, report.snapshot.now_s)
            log.log(level, _REACH[reach], name, outlook.tier, text)
    return after
