"""Read-only queries of the journal, also while the daemon writes it. It reads group by group, since
a long transaction would keep the write-ahead log from checkpoints."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dlsched.estimate.effect import CycleLatency
from dlsched.model.cycle import CycleReport
from dlsched.store.journal.coding import Decoder, OutlineDecoder
from dlsched.store.journal.minutes import Minute, unpacked
from dlsched.store.journal.rows import Change, Event
from dlsched.store.journal.schema import foreign, newer, open_for_reading

Result = TypeVar("Result")

_DAY_S = 86_400.0
_LAST = (1 << 63) - 1
_RATE_ROWS = 3600
"""The present rate is that of the last hour at one cycle a second."""
_MINUTE_ROWS = 120
"""Rows of one short transaction."""
_FILE_RATIO = 1.2
"""File bytes for each byte of a row: page ends, the tables of changes and events."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How the journal grows; None where too little is known."""

    bytes: int
    bytes_per_day: float | None
    lasts_s: float | None
    """Span of time that fits within its bound at the present rate."""


class JournalReader(AbstractContextManager["JournalReader"]):
    """A journal opened read-only, for use by one thread. A missing, truncated, damaged or newer
    file raises nothing: `problem` says what could not be read."""

    def __init__(self, path: Path) -> None:
        self.problem: str | None = None
        self.path = path
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = open_for_reading(path)
            # Schemas are only ever added to, so most of it can be read all the same.
            if (other := newer(self._connection)) is not None:
                self.problem = f"{path}: {other}"
            if foreign(self._connection):
                self.close()
                self.problem = f"{path}: not a dlsched journal"
        except sqlite3.Error as error:
            self.problem = f"{path}: {error}" if path.exists() else f"{path}: no such journal"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------ cycles

    def cycles(self) -> range:
        """From the first cycle kept to the last; some between may be missing."""
        found = self._one("SELECT min(cycle), max(cycle) FROM frames WHERE cycle > 0")
        first, last = found or (None, None)
        return range(0) if first is None else range(first, last + 1)

    def last_cycle(self) -> int:
        return int(self._number("SELECT max(cycle) FROM frames"))

    def last_now_s(self) -> float:
        """Time of the last cycle kept; 0: none."""
        return self._number("SELECT now_s FROM frames ORDER BY cycle DESC LIMIT 1")

    def first_now_s(self) -> float:
        """Time of the first cycle kept; 0: none."""
        return self._number("SELECT now_s FROM frames ORDER BY cycle LIMIT 1")

    def reports(self, first: int = 0, last: int = _LAST) -> Iterator[CycleReport]:
        """Every cycle kept from `first` to `last`; a group ends where it cannot be read."""
        return self._each(first, last, Decoder)

    def outlines(self, first: int = 0, last: int = _LAST) -> Iterator[CycleReport]:
        """As `reports`, only with what `OutlineDecoder` keeps, in a third of the time."""
        return self._each(first, last, OutlineDecoder)

    def latencies(self, job: str, first: int, last: int) -> Iterator[CycleLatency]:
        """The requests that the job reported in each of these cycles."""
        for report in self._each(first, last, partial(OutlineDecoder, job)):
            for view in report.snapshot.jobs:
                yield CycleLatency(report.snapshot.now_s, view.progress.fresh)

    def _each(
        self, first: int, last: int, decoding: Callable[[], Decoder]
    ) -> Iterator[CycleReport]:
        start = self.whole_before(first)
        while start is not None and start <= last:
            after = self._one("SELECT min(cycle) FROM frames WHERE whole = 1 AND cycle > ?", start)
            end = after[0] if after and after[0] is not None else None
            upto = last if end is None else min(last, end - 1)
            yield from self._group(start, first, upto, decoding(), _whole)
            start = end

    def whole_before(self, cycle: int) -> int | None:
        """The full frame from which that cycle is read: the last one up to it, or the first."""
        at = self._one(
            "SELECT max(cycle) FROM frames WHERE whole = 1 AND cycle <= ?"
            " UNION ALL SELECT min(cycle) FROM frames WHERE whole = 1 ORDER BY 1 DESC LIMIT 1",
            cycle,
        )
        return at[0] if at else None

    def cycles_about(self, cycle: int, since_s: float, until_s: float) -> tuple[int, int]:
        """The first cycle after `since_s` and the last one up to `until_s`; `cycle` is between."""
        before = self._one(
            "SELECT cycle FROM frames WHERE cycle <= ? AND now_s <= ? ORDER BY cycle DESC LIMIT 1",
            cycle,
            since_s,
        )
        after = self._one(
            "SELECT cycle FROM frames WHERE cycle >= ? AND now_s > ? ORDER BY cycle LIMIT 1",
            cycle,
            until_s,
        )
        return before[0] + 1 if before else 0, after[0] - 1 if after else self.last_cycle()

    def last(self) -> tuple[CycleReport | None, dict[str, object]]:
        """The last cycle, and as plain values the memories changed since the last full frame."""
        start = self._one("SELECT max(cycle) FROM frames WHERE whole = 1")
        memories: dict[str, object] = {}
        if start is None or start[0] is None:
            return None, memories
        end = self.last_cycle()

        def read(cycle: int, decoder: Decoder) -> CycleReport | None:
            memories.update(decoder.memories())
            return decoder.report() if cycle == end else None

        rows = list(self._group(start[0], start[0], end, Decoder(), read))
        return rows[-1] if rows else None, memories

    def _group(
        self,
        start: int,
        first: int,
        last: int,
        decoder: Decoder,
        read: Callable[[int, Decoder], Result],
    ) -> Iterator[Result]:
        """The result of `read` for each row from `first` on."""
        cycle = start
        rows = self._all(
            "SELECT cycle, whole, body FROM frames WHERE cycle BETWEEN ? AND ? ORDER BY cycle",
            start,
            last,
        )
        try:
            for cycle, whole, body in rows:
                decoder.take(body, full=bool(whole))
                if cycle >= first:
                    yield read(cycle, decoder)
        except ValueError as error:
            cause = str(error).partition("\n")[0]
            self._note(f"cycle {cycle} cannot be read: {cause}")

    # ------------------------------------------------------------------ quick questions

    def last_changes(self, job: str | None, limit: int) -> tuple[Change, ...]:
        """The last changes of that job, or of all; newest first."""
        return tuple(map(_change, self._newest("changes", job, limit)))

    def changes_between(self, first: int, last: int, limit: int) -> tuple[Change, ...]:
        """The changes in these cycles, in order; of more than `limit`, the last ones."""
        rows = self._all(
            "SELECT * FROM (SELECT rowid AS row, * FROM changes WHERE cycle BETWEEN ? AND ?"
            " ORDER BY cycle DESC, row DESC LIMIT ?) ORDER BY cycle, row",
            first,
            last,
            limit,
        )
        return tuple(_change(row[1:]) for row in rows)

    def count_changes(self, first: int, last: int) -> int:
        query = "SELECT count(*) FROM changes WHERE cycle BETWEEN ? AND ?"
        return int(self._number(query, first, last))

    def whole_at(self, moment_s: float) -> int:
        """The last full frame up to that time of the daemon's clock; the first, where none is."""
        query = "SELECT max(cycle) FROM frames WHERE whole = 1 AND now_s <= ?"
        return int(self._number(query, moment_s))

    def carried_out(self, first: int, last: int) -> tuple[tuple[int, float, str, str], ...]:
        """Cycle, time, job and kind of the changes in these cycles that did not fail, in order."""
        return tuple(
            self._all(
                "SELECT cycle, now_s, job, kind FROM changes WHERE cycle BETWEEN ? AND ?"
                " AND status IN ('done', 'begun') ORDER BY cycle, rowid",
                first,
                last,
            )
        )

    def events(self, job: str | None, limit: int) -> tuple[Event, ...]:
        """The last events of that job, or of all; newest first."""
        return tuple(Event(*row) for row in self._newest("events", job, limit))

    # ------------------------------------------------------------------ by wall time

    def minutes(self, from_s: float, to_s: float) -> Iterator[Minute]:
        """Those that begin in this range of unix seconds, in the order of their cycles."""
        after = -1
        while True:
            rows = self._all(
                "SELECT * FROM minutes WHERE at_s >= ? AND at_s < ? AND first_cycle > ?"
                " ORDER BY first_cycle LIMIT ?",
                from_s,
                to_s,
                after,
                _MINUTE_ROWS,
            )
            for row in rows:
                try:
                    yield unpacked(*row[:4])
                except ValueError as error:
                    self._note(f"the minute of cycle {row[0]} cannot be read: {error}")
            if len(rows) < _MINUTE_ROWS:
                return
            after = rows[-1][0]

    def changes_within(
        self, since: str, until: str, jobs: Collection[str] | None, limit: int
    ) -> tuple[tuple[Change, ...], int]:
        """The last changes between two wall times, oldest first, and how many there are in all."""
        rows, count = self._within("changes", since, until, jobs, limit)
        return tuple(map(_change, rows)), count

    def events_within(
        self, since: str, until: str, jobs: Collection[str] | None, limit: int
    ) -> tuple[tuple[Event, ...], int]:
        """As `changes_within`."""
        rows, count = self._within("events", since, until, jobs, limit)
        return tuple(Event(*row) for row in rows), count

    def _within(
        self, table: str, since: str, until: str, jobs: Collection[str] | None, limit: int
    ) -> tuple[list[tuple[Any, ...]], int]:
        names = () if jobs is None else tuple(jobs)
        of = "" if jobs is None else f" AND job IN ({', '.join('?' * len(names))})"
        where = f"FROM {table} WHERE wall_time >= ? AND wall_time < ?{of}"
        values = (since, until, *names)
        found = self._one(f"SELECT count(*) {where}", *values)
        rows = self._all(f"SELECT * {where} ORDER BY rowid DESC LIMIT ?", *values, limit)
        return rows[::-1], found[0] if found else 0

    def kept_memory(self, policy: str) -> object | None:
        """A policy's memory (a shadow's by its `shadow_name`) at the last full frame, as plain
        values."""
        found = self._one("SELECT memory FROM memories WHERE policy = ?", policy)
        try:
            return json.loads(found[0]) if found else None
        except ValueError as error:
            self._note(f"the kept memory of the policy {policy} cannot be read: {error}")
            return None

    def growth(self, max_bytes: int) -> Growth:
        """Size, and how long `max_bytes` lasts at the present rate."""
        pages = self._one("SELECT page_count, page_size FROM pragma_page_count, pragma_page_size")
        size_bytes = pages[0] * pages[1] if pages else 0
        found = self._one(
            "SELECT sum(size), max(now_s) - min(now_s) FROM (SELECT length(body) AS size, now_s"
            " FROM frames ORDER BY cycle DESC LIMIT ?)",
            _RATE_ROWS,
        )
        if not found or not found[1]:
            return Growth(size_bytes, None, None)
        per_day = found[0] * _FILE_RATIO / found[1] * _DAY_S
        return Growth(size_bytes, per_day, max_bytes / per_day * _DAY_S)

    # ------------------------------------------------------------------ asking

    def _newest(self, table: str, job: str | None, limit: int) -> list[tuple[Any, ...]]:
        if job is None:
            return self._all(f"SELECT * FROM {table} ORDER BY rowid DESC LIMIT ?", limit)
        query = f"SELECT * FROM {table} WHERE job = ? ORDER BY rowid DESC LIMIT ?"
        return self._all(query, job, limit)

    def _number(self, query: str, *values: object) -> float:
        """The first value found; 0: none."""
        found = self._one(query, *values)
        return float((found and found[0]) or 0)

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._all(query, *values)
        return rows[0] if rows else None

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        if self._connection is not None:
            try:
                rows.extend(self._connection.execute(query, values))
            except sqlite3.Error as error:
                self._note(str(error))
        return rows

    def _note(self, problem: str) -> None:
        """Keep the first problem: later ones follow from it."""
        self.problem = self.problem or f"{self.path}: {problem}"


def _whole(_cycle: int, decoder: Decoder) -> CycleReport:
    return decoder.report()


def _change(row: tuple[Any, ...]) -> Change:
    """An older file has fewer columns, a newer one more."""
    return Change(*row[: len(fields(Change))])
