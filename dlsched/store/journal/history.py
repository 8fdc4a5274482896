"""A range of the journal, from the minutes' rows: as curves by step, and as the CPU-seconds asked
for, given, used, lent and borrowed by owner and job. In whatever thread asks, and cancelled from
another."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import add
from pathlib import Path

from dlsched.control.cpu_account import CpuAccount
from dlsched.model.errors import DlschedError, NoJournal
from dlsched.store.journal.minutes import (
    MINUTE_S,
    JobMinute,
    Minute,
    NodeMinute,
    short,
    wall_text,
)
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.rows import Change, Event

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


Joins = Mapping[str, Callable[[float, float], float]]
"""By field of a minute's row: how the minutes of a step are joined."""

JOB_JOINS: Joins = {
    "ratio": add,
    "ratio_low": min,
    "ratio_high": max,
    "measured_s": add,
    "metric": _last,
    "limit_cores": add,
    "usage_cores": add,
}
NODE_JOINS: Joins = {
    "capacity_cores": add,
    "given_cores": add,
    "used_cores": add,
    "foreign_cores": add,
    "memory_bytes": add,
    "shadow_cores": add,
}


class Steps:
    """The curves of the node or of a job, by name of the field."""

    def __init__(self, points: int, joins: Joins) -> None:
        self._columns = {name: _Column(points, join) for name, join in joins.items()}

    def add(self, step: int, minute: JobMinute | NodeMinute) -> None:
        for name, column in self._columns.items():
            column.add(step, getattr(minute, name))

    def curves(self) -> Mapping[str, Curve]:
        return {name: column.curve() for name, column in self._columns.items()}


@dataclass(frozen=True, slots=True)
class Curves:
    """What a range of the journal holds."""

    node: Steps
    jobs: Mapping[str, Steps]
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
        node = Steps(asked.points, NODE_JOINS)
        jobs: dict[str, Steps] = {}
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
                    jobs[name] = Steps(asked.points, JOB_JOINS)
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
            f"{asked.points} steps of at least {jobs} jobs are more than {VALUES_MAX} values: ask "
            "for a longer step, or for fewer jobs"
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
            raise Cancelled("the client has closed the connection")
        yield minute


# ---------------------------------------------------------------------- use of the CPU

Payer = tuple[int | None, str]
"""uid of the owner (None: the job has no file), and the job."""


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """What a range of the journal holds, in CPU-seconds."""

    accounts: Mapping[Payer, CpuAccount]
    recorded_s: float
    """Time of the range in which the daemon ran."""
    capacity_core_s: float
    """What the node had in that time."""
    used_core_s: float
    """What all jobs used, summed up apart from the accounts."""
    notes: tuple[str, ...] = ()


def read_usage(
    path: Path, from_s: float, to_s: float, cancelled: Callable[[], bool] = lambda: False
) -> CpuUsage:
    """The minutes that begin in this range of unix seconds. Raises NoJournal, and Cancelled soon
    after `cancelled` is true."""
    accounts: dict[Payer, CpuAccount] = {}
    recorded_s = capacity_core_s = used_core_s = 0.0
    with open_journal(path) as reader:
        for minute in read_minutes(reader, from_s, to_s, cancelled):
            node = minute.node
            seconds = node.seconds or 0.0  # null: it was not finite
            recorded_s += seconds
            capacity_core_s += (node.capacity_cores or 0.0) * seconds
            used_core_s += node.used_core_s or 0.0
            for name, job in minute.jobs.items():
                payer = (job.owner, name)
                known = accounts.get(payer)
                accounts[payer] = job.account if known is None else known.plus(job.account)
        notes = () if reader.problem is None else (reader.problem,)
    return CpuUsage(accounts, recorded_s, capacity_core_s, used_core_s, notes)


def by_owner(accounts: Mapping[Payer, CpuAccount]) -> dict[int | None, CpuAccount]:
    """The sums over each owner's jobs."""
    sums: dict[int | None, CpuAccount] = {}
    for (owner, _), account in accounts.items():
        sums[owner] = sums.get(owner, CpuAccount()).plus(account)
    return sums
