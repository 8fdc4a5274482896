"""What came of moves: whether they were completed, and how much earlier a job ends by its measured
speed than it would have by that before.

Counts and rows begin with the controller; all of it can be lost.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dlsched.api.cluster_schema import ClusterTotals, MoveRow
from dlsched.cluster.core.records import Record, RecordState
from dlsched.cluster.core.reports import JobReport
from dlsched.cluster.round_report import RoundReport
from dlsched.model.units import SECONDS_MAX

MEASURED_S = 60.0
"""A speed counts when it was measured for so long, and over so many changes of the step."""
CHANGES_MIN = 3
STILL_STEPS = 3.0
"""A job that reports rarely stands still after the time of so many of its reports."""


class _Mark(NamedTuple):
    at_s: float
    step: int
    changes: int


class StepRate:
    """Steps a second on one node over the last one or two minutes, or longer where a job reports
    more rarely."""

    __slots__ = ("_first", "_heard_s", "_last", "_next")

    def __init__(self) -> None:
        self._first = self._next = self._last = _Mark(0.0, -1, 0)
        self._heard_s = 0.0

    def take(self, at_s: float, step: int) -> None:
        """A step that was reported at that time."""
        last, self._heard_s = self._last, max(at_s, self._heard_s)
        if step < last.step or last.step < 0:  # it began, maybe again
            self._first = self._next = self._last = _Mark(at_s, step, 0)
        elif step > last.step and at_s > last.at_s:
            self._last = _Mark(at_s, step, last.changes + 1)
            if _is_enough(self._next, self._last):
                self._first, self._next = self._next, self._last

    def per_s(self) -> float | None:
        """None: not measured for long enough, or it stands still: for longer than a minute, and
        than its steps took."""
        first, last = self._first, self._last
        if not _is_enough(first, last):
            return None
        step_s = (last.at_s - first.at_s) / (last.changes - first.changes)
        if self._heard_s - last.at_s > max(MEASURED_S, STILL_STEPS * step_s):
            return None
        return (last.step - first.step) / (last.at_s - first.at_s)


def _is_enough(first: _Mark, last: _Mark) -> bool:
    return last.at_s - first.at_s >= MEASURED_S and last.changes - first.changes >= CHANGES_MIN


MOVES_MAX = 5
"""Of each job that are remembered."""


class Outcome(StrEnum):
    """What became of a move."""

    OPEN = "under way"
    COMPLETED = "completed"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"
    """The job ended, or was no longer desired, before it had moved."""
    UNDONE = "undone"
    """Completed, and taken back as the job was slower."""


@dataclass(slots=True)
class _Pace:
    """One job on its present node."""

    node: str
    rate: StepRate
    report: JobReport

    def ends_in_s(self) -> float | None:
        """Seconds until its last step at its measured speed; None: that is not known."""
        report, per_s = self.report, self.rate.per_s()
        if report.left is None or report.steps_per_core_s is None or per_s is None:
            return None
        found = report.left.mid_core_s * report.steps_per_core_s / per_s
        return found if found <= SECONDS_MAX else None


@dataclass(slots=True)
class _Moved:
    """One move of a job, or one that was decided, until its job leaves."""

    target: str
    at: str = ""
    source: str = ""
    undo: bool = False
    why: str = ""
    forecast_s: float | None = None
    stays_until_s: float | None = None
    """When the job would have ended by its speed before; None: not known, or no longer of use."""
    outcome: Outcome = Outcome.OPEN
    problem: str = ""
    measured_s: float | None = None
    """So far, while the job runs on the target."""

    @property
    def is_open(self) -> bool:
        return self.outcome is Outcome.OPEN


def _measured(moves: Sequence[_Moved]) -> _Moved | None:
    """The move whose gain is still measured, also while the next one is under way."""
    known = (one for one in reversed(moves) if not one.is_open and one.stays_until_s is not None)
    return next(known, None)


class MoveJudge:
    """The last moves of each job, and counts of all."""

    def __init__(self) -> None:
        self._paces: dict[str, _Pace] = {}
        self._intents: dict[str, _Moved] = {}
        self._moves: dict[str, deque[_Moved]] = {}
        self._outcomes: Counter[Outcome] = Counter()

    def take(self, report: RoundReport, wall_time: str) -> None:
        """Take a round into account, in which this controller led."""
        facts = report.facts
        if facts is None:
            return
        self._measure(report)
        if report.snapshot is not None:
            self._intend(report)
        for record, before in report.changes():
            self._follow(record, before, report, wall_time)
        for job, moves in self._moves.items():
            pace, measured = self._paces.get(job), _measured(moves)
            if pace is not None and measured is not None and pace.node == measured.target:
                self._measure_move(measured, facts.now_s, pace.ends_in_s())
        if report.records:  # none, if the store did not answer to the end
            self._forget(report.records)

    def rows(self, job: str, named: Callable[[str], str] = str) -> tuple[MoveRow, ...]:
        """The newest last. `named` names the nodes in a reason as people know them."""
        return tuple(
            MoveRow(
                at=one.at,
                source=one.source,
                target=one.target,
                outcome=one.outcome.value,
                why=named(one.why),
                problem=named(one.problem),
                forecast_s=one.forecast_s,
                measured_s=one.measured_s,
                pending=one.stays_until_s is not None,
            )
            for one in self._moves.get(job, ())
        )

    def totals(self) -> ClusterTotals:
        count = self._outcomes
        return ClusterTotals(
            completed=count[Outcome.COMPLETED],
            failed=count[Outcome.FAILED],
            undone=count[Outcome.UNDONE],
        )

    # ------------------------------------------------------------------ steps of a round

    def _measure(self, report: RoundReport) -> None:
        assert report.facts is not None
        for node, answer in report.facts.reports.items():
            at_s = report.facts.now_s - answer.age_s
            for one in answer.jobs:
                record = report.facts.records.get(one.name)
                if record is None or record.on != node:
                    continue
                pace = self._paces.get(one.name)
                if pace is None or pace.node != node:
                    pace = self._paces[one.name] = _Pace(node, StepRate(), one)
                pace.report = one
                if one.step is not None:
                    pace.rate.take(at_s, one.step)

    def _intend(self, report: RoundReport) -> None:
        """Keep what was decided of moves until their jobs leave."""
        moving = report.snapshot.moving if report.snapshot else ()
        answer, prepared = report.answer, {one.job for one in moving}
        for job in self._intents.keys() - prepared:
            del self._intents[job]
        for move in answer.approved.moves:
            self._intents[move.job] = _Moved(
                move.target,
                undo=move.undo,
                why=answer.decision.why.get(move.job, ""),
                forecast_s=answer.decision.forecasts_s.get(move.job),
            )

    def _follow(
        self, record: Record, before: Record | None, report: RoundReport, wall_time: str
    ) -> None:
        assert report.facts is not None
        job, now_s = record.job, report.facts.now_s
        moves = self._moves.get(job)
        was = None if before is None else before.state
        if record.state is RecordState.LEAVING:
            if moves is None:
                moves = self._moves[job] = deque(maxlen=MOVES_MAX)
            elif moves[-1].is_open:
                moves.pop()  # another controller has ended it
            moves.append(self._begun(record, now_s, wall_time))
            return
        if before is not None and (record.state, record.epoch) == (was, before.epoch):
            return
        self._paces.pop(job, None)  # it begins there, maybe again
        if moves is None:
            return
        last, measured = moves[-1], _measured(moves)
        was_open = last.is_open
        if was_open:
            last.problem = last.problem or report.failed.get(job, "")
            if record.state is RecordState.PLACED and was is RecordState.MOVING:
                if measured is not None:
                    measured.stays_until_s = None
                self._end(last, Outcome.COMPLETED)
                self._undo(job, last)
            elif record.state in (RecordState.PLACED, RecordState.ENDED):
                self._end(last, Outcome.FAILED if last.problem else Outcome.WITHDRAWN)
        if measured is None:
            return
        if record.state is RecordState.ENDED and record.exit_code == 0:
            self._measure_move(measured, now_s, 0.0)
            measured.stays_until_s = None
        elif record.state is RecordState.ENDED or not was_open:
            # Another file or run: what was left counts no more.
            measured.stays_until_s = measured.measured_s = None

    def _begun(self, record: Record, now_s: float, wall_time: str) -> _Moved:
        moved, pace = self._intents.pop(record.job, None), self._paces.get(record.job)
        if moved is None or moved.target != record.target:
            moved = _Moved(record.target or "")
        moved.at, moved.source = wall_time, record.on
        ends_in_s = pace.ends_in_s() if pace is not None and pace.node == moved.source else None
        moved.stays_until_s = None if ends_in_s is None else now_s + ends_in_s
        return moved

    def _end(self, moved: _Moved, outcome: Outcome) -> None:
        moved.outcome = outcome
        if outcome is not Outcome.COMPLETED:
            moved.stays_until_s = None
        self._outcomes[outcome] += 1

    def _undo(self, job: str, back: _Moved) -> None:
        """The move before is undone, if this one took it back."""
        moves = self._moves[job]
        if not back.undo or len(moves) < 2:
            return
        undone = moves[-2]
        if undone.outcome is Outcome.COMPLETED and undone.target == back.source:
            undone.problem = back.why
            self._end(undone, Outcome.UNDONE)

    def _measure_move(self, moved: _Moved, now_s: float, ends_in_s: float | None) -> None:
        if ends_in_s is not None and moved.stays_until_s is not None:
            moved.measured_s = now_s + ends_in_s - moved.stays_until_s

    def _forget(self, records: Mapping[str, Record]) -> None:
        """Jobs that are gone, and moves that another controller has ended meanwhile."""
        for job in self._paces.keys() - records.keys():
            del self._paces[job]
        settled = (RecordState.PLACED, RecordState.ENDED)
        for job, moves in list(self._moves.items()):
            record = records.get(job)
            if record is not None and moves[-1].is_open and record.state in settled:
                moves.pop()
            if record is None or not moves:
                del self._moves[job]
