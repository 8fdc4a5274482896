"""A range of the journal as curves: the minutes' rows by step. In whatever thread asks, and
cancelled from another."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import add
from pathlib import Path

from dlsched.model.errors import DlschedError, NoJournal
from dlsched.store.journal.changes import Change, Event
from dlsched.store.journal.minutes import (
    MINUTE_S,
    JobMinute,
    Minute,
    NodeMinute,
    short,
    wall_text,
)
from dlsched.store.journal.reader import JournalReader

POINTS_MAX = 1000
"""Limit of steps in one answer."""
STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
"""Steps that are taken by default, and the shortest: the first of at most `DEFAULT_POINTS`."""
DEFAULT_POINTS = 300
VALUES_MAX = 200_000
"""Limit of steps times jobs in one answer: 36 MiB while it is made."""
CHANGES_MAX = 500
EVENTS_MAX = 500
"""Limits of changes and events in one answer, the last ones of the range."""


class Cancelled(DlschedError):
    """The asker has gone."""


class TooMuch(DlschedError):
    """The curves that are asked for would not fit into the daemon's memory."""


@dataclass(frozen=True, slots=True)
class Range:
    """What is asked: from `from_s` until before `to_s`, in unix seconds, in steps."""

    from_s: float
    to_s: float
    step_s: float
    jobs: tuple[str, ...] | None = None
    """None: all."""

    @property
    def times(self) -> tuple[float, ...]:
        """Start of each step."""
        return tuple(self.from_s + i * self.step_s for i in range(self.points))

    @property
    def points(self) -> int:
        return max(1, -int(-(self.to_s - self.from_s) // self.step_s))


def default_step_s(from_s: float, to_s: float, jobs: int = 0) -> float:
    """The shortest of the steps with which the range has few points, for so many jobs: half of
    `VALUES_MAX`, as others may have left in the range."""
    length_s = to_s - from_s
    points = min(DEFAULT_POINTS, VALUES_MAX / 2 / max(jobs, 1))
    fitting = (step for step in STEPS_S if length_s / step <= points)
    return float(next(fitting, STEPS_S[-1]))


Curve = tuple[float | None, ...]


class _Column:
    """One value by step: a mean, the least, the greatest or the last, of those that are known."""

    __slots__ = ("_counts", "_join", "_values")

    def __init__(self, points: int, join: Callable[[float, float], float]) -> None:
        self._values = array("d", bytes(8 * points))
        self._counts = array("I", bytes(4 * points))
        self._join = join

    def add(self, step: int, value: float | None) -> None:
        if value is not None:
            count = self._counts[step]
            self._values[step] = self._join(self._values[step], value) if count else value
            self._counts[step] = count + 1

    def curve(self) -> Curve:
        mean = self._join is add
        return tuple(
            None if not count else short(value / count if mean else value)
            for value, count in zip(self._values, self._counts, strict=True)
        )


def _last(_before: float, value: float) -> float:
    return value


_JOB_COLUMNS = (add, min, max, add, _last, add, add)
"""How minutes are joined: ratio, its least and greatest, latency, metric, limit, usage."""
_FIRST = JobMinute._fields.index("ratio")


class JobSteps:
    """One job's curves: fields of `JobMinute` from `ratio` to `usage_cores`."""

    def __init__(self, points: int) -> None:
        self._columns = [_Column(points, join) for join in _JOB_COLUMNS]

    def add(self, step: int, minute: JobMinute) -> None:
        for column, value in zip(self._columns, minute[_FIRST:], strict=False):
            column.add(step, value)

    def curves(self) -> Mapping[str, Curve]:
        """By name of the field."""
        names = JobMinute._fields[_FIRST:]
        return {name: one.curve() for name, one in zip(names, self._columns, strict=False)}


class NodeSteps:
    """The node's curves: fields of `NodeMinute` from `capacity_cores` to `memory_bytes`, and
    `shadow_cores`."""

    _NAMES = (*NodeMinute._fields[1:6], "shadow_cores")

    def __init__(self, points: int) -> None:
        self._columns = [_Column(points, add) for _ in self._NAMES]

    def add(self, step: int, minute: NodeMinute) -> None:
        for column, value in zip(self._columns, (*minute[1:6], minute.shadow_cores), strict=True):
            column.add(step, value)

    def curves(self) -> Mapping[str, Curve]:
        """By name of the field."""
        return {name: one.curve() for name, one in zip(self._NAMES, self._columns, strict=True)}


@dataclass(frozen=True, slots=True)
class Curves:
    """What a range of the journal holds."""

    node: NodeSteps
    jobs: Mapping[str, JobSteps]
    changes: tuple[Change, ...]
    changes_left_out: int
    events: tuple[Event, ...]
    events_left_out: int
    notes: tuple[str, ...]
    known: tuple[str, ...]
    """All jobs of the range, asked for or not."""


def read_curves(path: Path, asked: Range, cancelled: Callable[[], bool]) -> Curves:
    """The range. Raises NoJournal, and Cancelled soon after `cancelled` is true."""
    with open_journal(path) as reader:
        wanted = None if asked.jobs is None else frozenset(asked.jobs)
        node = NodeSteps(asked.points)
        jobs: dict[str, JobSteps] = {}
        known: set[str] = set()
        back_s, at_s = 0.0, 0.0
        for minute in read_minutes(reader, asked.from_s, asked.to_s, cancelled):
            back_s, at_s = max(back_s, at_s - minute.at_s), minute.at_s
            step = min(int((minute.at_s - asked.from_s) // asked.step_s), asked.points - 1)
            node.add(step, minute.node)
            known.update(minute.jobs)
            for name in minute.jobs if wanted is None else wanted & minute.jobs.keys():
                if name not in jobs:
                    _check(len(jobs) + 1, asked)
                    jobs[name] = JobSteps(asked.points)
                jobs[name].add(step, minute.jobs[name])
        span = wall_text(asked.from_s), wall_text(asked.to_s)
        changes, changed = reader.changes_within(*span, asked.jobs, CHANGES_MAX)
        events, happened = reader.events_within(*span, asked.jobs, EVENTS_MAX)
        notes = []
        if back_s >= MINUTE_S:
            notes.append(f"the clock was set back by {back_s:.0f} s in this range")
        if reader.problem is not None:
            notes.append(reader.problem)
        return Curves(
            node=node,
            jobs={name: jobs[name] for name in sorted(jobs)},
            changes=changes,
            changes_left_out=changed - len(changes),
            events=events,
            events_left_out=happened - len(events),
            notes=tuple(notes),
            known=tuple(sorted(known)),
        )


def _check(jobs: int, asked: Range) -> None:
    """Raises TooMuch."""
    if jobs * asked.points > VALUES_MAX:
        raise TooMuch(
            f"{asked.points} steps of {jobs} jobs or more are over {VALUES_MAX} values: ask for a "
            "longer step, or name jobs"
        )


def open_journal(path: Path) -> JournalReader:
    """Raises NoJournal if nothing in it can be read."""
    reader = JournalReader(path)
    if reader.problem is not None and not reader.cycles():
        reader.close()
        raise NoJournal(reader.problem)
    return reader


def read_minutes(
    reader: JournalReader, from_s: float, to_s: float, cancelled: Callable[[], bool]
) -> Iterator[Minute]:
    """The minutes that begin in a range, in the order of their cycles. Raises Cancelled soon after
    `cancelled` is true."""
    for minute in reader.minutes(from_s, to_s):
        if cancelled():
            raise Cancelled("the asker has gone")
        yield minute
