"""The open journal file: appending reports in transactions, and deleting what is past the bounds.

Owns what was last written, which the next row is told against. It must not know threads or queues,
and leaves it to the caller what becomes of an error.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path

from dlsched.model.cycle import CycleReport
from dlsched.store.journal.changes import Seen, changes, events, recollected
from dlsched.store.journal.coding import Encoder
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.schema import open_for_writing
from dlsched.store.memory import memory_text

RETENTION_CYCLES = 60
"""Bounds are checked so many cycles apart."""


class Store:
    """The open database, and what was last written to it. Only one thread uses it at a time, except
    for `memory`."""

    def __init__(self, path: Path, *, frame_s: float, max_bytes: int, max_age_s: float) -> None:
        self._path = path
        self._frame_s = frame_s
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._connection: sqlite3.Connection | None = None
        self._encoder: Encoder | None = None
        self._whole_at_s = 0.0
        self._last_cycle = 0
        self._states: dict[str, Seen] = {}
        self._tries: dict[str, tuple[object, ...]] = {}
        self._memories: dict[str, object] = {}
        """By policy, those of the frames since the last whole one, and of this run."""
        self._since_retention = 0

    @property
    def is_open(self) -> bool:
        """Whether there is something to write to."""
        return self._connection is not None

    def open(self) -> None:
        """Open it, and recall what its last cycle told. Raises sqlite3.Error and OtherVersion."""
        connection = open_for_writing(self._path)
        with JournalReader(self._path) as reader:
            last_cycle = reader.last_cycle()
            last, memories = reader.last()
            self._memories = {**memories, **self._memories}
        if last is not None and not self._states:
            self._states = recollected(last)
        self._last_cycle = max(self._last_cycle, last_cycle)
        self._connection = connection
        self.forget()

    def memory(self, policy: str) -> object | None:
        """What that policy (a shadow by its `shadow_name`) last remembered, as plain values."""
        if policy in self._memories:
            plain: object = json.loads(memory_text(self._memories[policy]))
            return plain
        with JournalReader(self._path) as reader:
            return reader.kept_memory(policy)

    def close(self) -> None:
        """Let go of it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def forget(self) -> None:
        """Rows before were lost: the next one is whole."""
        self._encoder = None

    def write(self, batch: tuple[CycleReport, ...]) -> tuple[int, str] | None:
        """Commit all reports that can be told, or none.

        Returns how many cannot, and why; raises sqlite3.Error.
        """
        assert self._connection is not None
        refused: tuple[int, str] | None = None
        states, tries, last_cycle = self._states, self._tries, self._last_cycle
        if self._since_retention >= RETENTION_CYCLES:
            self._retain(batch[-1].snapshot.now_s)
            self._since_retention = 0
        try:
            with _transaction(self._connection):
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
        assert self._connection is not None
        cycle, now_s = report.snapshot.cycle, report.snapshot.now_s
        if cycle <= self._last_cycle:
            raise ValueError(f"not after cycle {self._last_cycle}")
        whole = self._encoder is None or now_s - self._whole_at_s >= self._frame_s
        self._encoder = self._encoder or Encoder()
        body = self._encoder.row(report, full=whole)
        if whole:
            self._remember()
        self._memories |= self._encoder.memories()
        told, self._tries = changes(report, self._tries)
        happened, self._states = events(report, self._states)
        self._insert("frames", (cycle, whole, now_s, body))
        for change in told:
            self._insert("changes", astuple(change))
        for event in happened:
            self._insert("events", astuple(event))
        self._last_cycle = cycle
        if whole:
            self._whole_at_s = now_s

    def _insert(self, table: str, values: tuple[object, ...]) -> None:
        """One row. Text from a container may hold lone surrogates, which no SQLite text can."""
        assert self._connection is not None
        row = [
            value.encode(errors="replace").decode() if isinstance(value, str) else value
            for value in values
        ]
        marks = ", ".join("?" * len(row))
        self._connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)

    def _remember(self) -> None:
        """Keep what each policy has remembered beside the frames: the next ones tell the rest."""
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
        """Delete the oldest whole frame with all that builds on it, while there is too much."""
        assert self._connection is not None
        run = self._connection.execute
        while True:
            starts = run(
                "SELECT cycle, now_s FROM frames WHERE whole = 1 ORDER BY cycle LIMIT 2"
            ).fetchall()
            if len(starts) < 2:
                break
            next_cycle, next_s = starts[1]
            if self._bytes() <= self._max_bytes and now_s - next_s <= self._max_age_s:
                break
            with _transaction(self._connection):
                for table in ("frames", "changes", "events"):
                    run(f"DELETE FROM {table} WHERE cycle < ?", (next_cycle,))
            run("PRAGMA incremental_vacuum").fetchall()

    def _bytes(self) -> int:
        """Pages in use; those set free are given back right after."""
        assert self._connection is not None
        pages, free, size_bytes = self._connection.execute(
            "SELECT page_count, freelist_count, page_size"
            " FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        ).fetchone()
        return int((pages - free) * size_bytes)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. SQLite may have rolled back by itself, as on a full disk."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
