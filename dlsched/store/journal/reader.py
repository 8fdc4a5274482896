"""Questions to the journal, asked beside the running daemon.

Owns reading. It must not write, also not lock the writer out: it reads group by group, so that no
long transaction keeps the write-ahead log from being folded in.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dlsched.model.cycle import CycleReport
from dlsched.store.journal.changes import Change, Event
from dlsched.store.journal.coding import Decoder
from dlsched.store.journal.schema import foreign, newer, open_for_reading

Told = TypeVar("Told")

_DAY_S = 86_400.0
_LAST = (1 << 63) - 1
_RATE_ROWS = 3600
"""The present rate is that of the last hour at one cycle a second."""
_FILE_RATIO = 1.2
"""What the file takes for a byte of a row: page ends, the tables of changes and events."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How the journal grows; None where there is too little to tell."""

    bytes: int
    bytes_per_day: float | None
    lasts_s: float | None
    """How much time its bound holds at the present rate."""


class JournalReader:
    """A journal opened read-only; used by the thread that opened it.

    Never raises for a missing, cut-off, damaged or newer file: it answers what it can, and
    `trouble` says what could not be read.
    """

    def __init__(self, path: Path) -> None:
        self.trouble: str | None = None
        self._path = path
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = open_for_reading(path)
            # Schemas are only ever added to, so most of it can be read all the same.
            if (other := newer(self._connection)) is not None:
                self.trouble = f"{path}: {other}"
            if foreign(self._connection):
                self.close()
                self.trouble = f"{path}: not a journal of dlsched's"
        except sqlite3.Error as error:
            self.trouble = f"{path}: {error}" if path.exists() else f"{path}: no such journal"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------ cycles

    def cycles(self) -> range:
        """From the first cycle kept to the last; a cycle between may have been lost."""
        found = self._one("SELECT min(cycle), max(cycle) FROM frames WHERE cycle > 0")
        first, last = found or (None, None)
        return range(0) if first is None else range(first, last + 1)

    def last_cycle(self) -> int:
        """Number of the last cycle kept; 0: none."""
        found = self._one("SELECT max(cycle) FROM frames")
        return int(found[0]) if found and found[0] is not None else 0

    def last_now_s(self) -> float:
        """Time of the last cycle kept; 0: none."""
        found = self._one("SELECT now_s FROM frames ORDER BY cycle DESC LIMIT 1")
        return float(found[0]) if found else 0.0

    def cycle(self, number: int) -> CycleReport | None:
        """That cycle, exactly as written; None when it is not kept or cannot be read."""
        return next(self.reports(number, number), None)

    def reports(self, first: int = 0, last: int = _LAST) -> Iterator[CycleReport]:
        """Every cycle kept from `first` to `last`, each exactly as written.

        A group that cannot be read is left out from there on, and `trouble` says why.
        """
        at = self._one(
            "SELECT max(cycle) FROM frames WHERE whole = 1 AND cycle <= ?"
            " UNION ALL SELECT min(cycle) FROM frames WHERE whole = 1 ORDER BY 1 DESC LIMIT 1",
            first,
        )
        start = at[0] if at else None
        while start is not None and start <= last:
            after = self._one("SELECT min(cycle) FROM frames WHERE whole = 1 AND cycle > ?", start)
            end = after[0] if after and after[0] is not None else None
            upto = last if end is None else min(last, end - 1)
            yield from self._group(start, first, upto, lambda _, decoder: decoder.report())
            start = end

    def last(self) -> tuple[CycleReport | None, dict[str, object]]:
        """The last cycle, as `cycle` has it, and what the policies that have decided since the last
        whole frame remember, as plain values."""
        start = self._one("SELECT max(cycle) FROM frames WHERE whole = 1")
        memories: dict[str, object] = {}
        if start is None or start[0] is None:
            return None, memories
        end = self.last_cycle()

        def told(cycle: int, decoder: Decoder) -> CycleReport | None:
            memories.update(decoder.memories())
            return decoder.report() if cycle == end else None

        rows = list(self._group(start[0], start[0], end, told))
        return rows[-1] if rows else None, memories

    def _group(
        self, start: int, first: int, last: int, told: Callable[[int, Decoder], Told]
    ) -> Iterator[Told]:
        """What is `told` by each row from `first` on."""
        decoder = Decoder()
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
                    yield told(cycle, decoder)
        except ValueError as error:
            cause = str(error).partition("\n")[0]
            self._tell(f"cycle {cycle} cannot be read: {cause}")

    # ------------------------------------------------------------------ quick questions

    def last_changes(self, job: str | None, limit: int) -> tuple[Change, ...]:
        """The last changes of that job, or of all; newest first."""
        known = len(fields(Change))  # fewer are in an older file, more in a newer one
        return tuple(Change(*row[:known]) for row in self._newest("changes", job, limit))

    def events(self, job: str | None, limit: int) -> tuple[Event, ...]:
        """The last events of that job, or of all; newest first."""
        return tuple(Event(*row) for row in self._newest("events", job, limit))

    def kept_memory(self, policy: str) -> object | None:
        """What that policy (a shadow by its `shadow_name`) remembered before the last whole frame,
        as plain values."""
        found = self._one("SELECT memory FROM memories WHERE policy = ?", policy)
        try:
            return json.loads(found[0]) if found else None
        except ValueError as error:
            self._tell(f"memory of {policy} cannot be read: {error}")
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

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        rows = self._all(query, *values)
        return rows[0] if rows else None

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows up to where the file can no longer be read."""
        rows: list[tuple[Any, ...]] = []
        if self._connection is not None:
            try:
                rows.extend(self._connection.execute(query, values))
            except sqlite3.Error as error:
                self._tell(str(error))
        return rows

    def _tell(self, words: str) -> None:
        """The first trouble is kept: others come of it."""
        self.trouble = self.trouble or f"{self._path}: {words}"
