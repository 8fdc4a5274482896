"""The open journal file: appends reports in transactions, and deletes what exceeds the bounds."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from dlsched.model.cycle import CycleReport
from dlsched.store.journal.changes import Reported, changes, events, last_reported
from dlsched.store.journal.coding import Encoder
from dlsched.store.journal.minutes import Minute, Minutes, packed
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.schema import open_for_writing, transaction, used_bytes
from dlsched.store.memory import memory_text

log = logging.getLogger(__name__)

RETENTION_CYCLES = 60
"""Cycles between two checks of the bounds."""

KEEP_MINUTE_S = 10.0
"""Time between two writes of the minute that is not over: a crash loses so much of the curves."""

_REFUSALS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError)
"""SQLite's errors of a row's values, after which the transaction goes on."""


class Store:
    """The open database and the state of its delta coding, for one thread (`memory` for any)."""

    def __init__(self, path: Path, *, frame_s: float, max_bytes: int, max_age_s: float) -> None:
        self._path = path
        self._frame_s = frame_s
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._connection: sqlite3.Connection | None = None
        self._encoder: Encoder | None = None
        self._whole_at_s = 0.0
        self._last_cycle = 0
        self._states: dict[str, Reported] = {}
        self._tries: dict[str, tuple[object, ...]] = {}
        self._memories: dict[str, object] = {}
        """By policy: those of frames since the last full one, and of this run."""
        self._since_retention = 0
        self._minutes = Minutes()
        self._minute_kept_s = 0.0
        self._minute_refused: int | None = None
        """First cycle of the last minute whose row was refused."""
        self.earlier: CycleReport | None = None
        """The last cycle of the run before; None: there was none."""

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def open(self) -> None:
        """Open it, and load what its last cycle recorded. Raises sqlite3.Error, OSError and
        OtherVersion."""
        connection = open_for_writing(self._path)
        with JournalReader(self._path) as reader:
            last_cycle = reader.last_cycle()
            last, memories = reader.last()
            self._memories = {**memories, **self._memories}
        if last is not None and not self._states:
            self._states = last_reported(last)
            self.earlier = last
        self._last_cycle = max(self._last_cycle, last_cycle)
        self._connection = connection
        self.forget()

    def memory(self, policy: str) -> object | None:
        """That policy's last memory (a shadow's by its `shadow_name`), as plain values."""
        if policy in self._memories:
            plain: object = json.loads(memory_text(self._memories[policy]))
            return plain
        with JournalReader(self._path) as reader:
            return reader.kept_memory(policy)

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._keep_minute(self._minutes.current())
            self._connection.close()
            self._connection = None

    def forget(self) -> None:
        """Make the next row a full frame, since rows before it were lost."""
        self._encoder = None

    def write(self, batch: tuple[CycleReport, ...]) -> tuple[int, str] | None:
        """Commit the batch; returns how many reports cannot be encoded, and why. Raises
        sqlite3.Error."""
        assert self._connection is not None
        refused: tuple[int, str] | None = None
        states, tries, last_cycle = self._states, self._tries, self._last_cycle
        if self._since_retention >= RETENTION_CYCLES:
            self._retain(batch[-1].snapshot.now_s)
            self._since_retention = 0
        try:
            with transaction(self._connection):
                for report in batch:
                    try:
                        self._append(report)
                    except (TypeError, ValueError, RecursionError) as error:
                        self.forget()
                        count = refused[0] if refused else 0
                        refused = (count + 1, f"cycle {report.snapshot.cycle}: {error}")
        except BaseException:
            self._states, self._tries, self._last_cycle = states, tries, last_cycle
            self.forget()
            raise
        self._since_retention += len(batch)
        return refused

    def _append(self, report: CycleReport) -> None:
        cycle, now_s = report.snapshot.cycle, report.snapshot.now_s
        if cycle <= self._last_cycle:
            raise ValueError(f"not after cycle {self._last_cycle}")
        whole = self._encoder is None or now_s - self._whole_at_s >= self._frame_s
        self._encoder = self._encoder or Encoder()
        body = self._encoder.row(report, full=whole)
        if whole:
            self._remember()
        self._memories |= self._encoder.memories()
        changed, self._tries = changes(report, self._tries)
        happened, self._states = events(report, self._states)
        self._insert("frames", (cycle, whole, now_s, body))
        for change in changed:
            self._insert("changes", astuple(change))
        for event in happened:
            self._insert("events", astuple(event))
        self._add_to_minute(report)
        self._last_cycle = cycle
        if whole:
            self._whole_at_s = now_s

    def _add_to_minute(self, report: CycleReport) -> None:
        """Add the cycle to its minute, and keep what is due of it."""
        try:
            done = self._minutes.take(report)
        except (ArithmeticError, ValueError):  # senseless numbers: no daemon has them
            return
        self._keep_minute(done)
        now_s = report.snapshot.now_s
        if not 0.0 <= now_s - self._minute_kept_s < KEEP_MINUTE_S:
            self._keep_minute(self._minutes.current())
            self._minute_kept_s = now_s

    def _keep_minute(self, minute: Minute | None) -> None:
        """Write it, in place of an earlier part of it. A row that SQLite refuses for its values is
        lost alone, logged once; errors of the file are raised."""
        assert self._connection is not None
        if minute is None:
            return
        first = minute.first_cycle
        try:
            row = (first, minute.last_cycle, minute.at_s, packed(minute))
            self._connection.execute("INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?)", row)
        except (ArithmeticError, TypeError, ValueError, *_REFUSALS) as error:
            if self._minute_refused != first:
                self._minute_refused = first
                log.warning("journal: the minute from cycle %d on is not written: %s", first, error)

    def _insert(self, table: str, values: tuple[object, ...]) -> None:
        """Insert one row. Lone surrogates in a container's text, which SQLite refuses, are
        replaced."""
        assert self._connection is not None
        row = [
            value.encode(errors="replace").decode() if isinstance(value, str) else value
            for value in values
        ]
        marks = ", ".join("?" * len(row))
        self._connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)

    def _remember(self) -> None:
        """Store the policies' memories of earlier frames; the frames from here on hold the later
        ones."""
        assert self._connection is not None
        for policy, memory in self._memories.items():
            if memory is None:
                self._connection.execute("DELETE FROM memories WHERE policy = ?", (policy,))
            else:
                self._connection.execute(
                    "INSERT INTO memories VALUES (?1, ?2) ON CONFLICT (policy)"
                    " DO UPDATE SET memory = ?2 WHERE memory <> ?2",
                    (policy, memory_text(memory)),
                )

    def _retain(self, now_s: float) -> None:
        """Delete the oldest groups of frames until size and age are within their bounds."""
        assert self._connection is not None
        run = self._connection.execute
        while True:
            starts = run(
                "SELECT cycle, now_s FROM frames WHERE whole = 1 ORDER BY cycle LIMIT 2"
            ).fetchall()
            if len(starts) < 2:
                break
            next_cycle, next_s = starts[1]
            if (
                used_bytes(self._connection) <= self._max_bytes
                and now_s - next_s <= self._max_age_s
            ):
                break
            with transaction(self._connection):
                for table in ("frames", "changes", "events"):
                    run(f"DELETE FROM {table} WHERE cycle < ?", (next_cycle,))
                run("DELETE FROM minutes WHERE last_cycle < ?", (next_cycle,))
            run("PRAGMA incremental_vacuum").fetchall()
