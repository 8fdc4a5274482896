"""The journal's writer: every cycle, in a thread of its own. Errors of the file never raise. The
open file appends reports in transactions, and deletes what exceeds the bounds."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import deque
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from dlsched.model.cycle import CycleReport
from dlsched.store.atomic import make_folder
from dlsched.store.journal.changes import Reported, changes, events, last_reported
from dlsched.store.journal.coding import Encoder
from dlsched.store.journal.minutes import Minute, Minutes, packed
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.schema import (
    OtherVersion,
    damaged,
    open_for_writing,
    set_aside,
    transaction,
    used_bytes,
)
from dlsched.store.policy_memory import memory_text

RETENTION_CYCLES = 60
"""Cycles between two checks of the bounds."""

KEEP_MINUTE_S = 10.0
"""Time between two writes of the minute that is not over: a crash loses so much of the curves."""


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
            raise ValueError(
                "the cycle is not recorded, as its number is not above that of the journal's last "
                f"cycle, {self._last_cycle}: report this fault of dlsched"
            )
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
        self._keep_minute(self._minutes.take(report))
        now_s = report.snapshot.now_s
        if not 0.0 <= now_s - self._minute_kept_s < KEEP_MINUTE_S:
            self._keep_minute(self._minutes.current())
            self._minute_kept_s = now_s

    def _keep_minute(self, minute: Minute | None) -> None:
        """Write it, in place of an earlier part of it."""
        assert self._connection is not None
        if minute is not None:
            row = (minute.first_cycle, minute.last_cycle, minute.at_s, packed(minute))
            self._connection.execute("INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?)", row)

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


class Journal:
    """Writes reports. Every `frame_s` a frame is full. Frames past `max_bytes` or `max_age_s` go,
    oldest first. Opening never raises: see `problem`."""

    def __init__(
        self,
        path: Path,
        *,
        frame_s: float = 300.0,
        max_bytes: int = 1 << 30,
        max_age_s: float = 7 * 86_400.0,
        queue_reports: int = 120,
    ) -> None:
        self._path = path
        self._store = Store(path, frame_s=frame_s, max_bytes=max_bytes, max_age_s=max_age_s)
        self._queue: deque[CycleReport] = deque()
        self._queue_reports = queue_reports
        self._changed = threading.Condition()
        self._pending = 0
        self._gap = False
        self._closing = False
        self.lost_cycles = 0
        """Number of reports that could not be written since the start."""
        self._size_bytes: int | None = None
        self._failure: str | None = None
        self._aside: str | None = None
        self._open()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ the loop's side

    def write(self, report: CycleReport) -> None:
        """Queue the report without blocking. A full queue drops its oldest one."""
        with self._changed:
            if len(self._queue) >= self._queue_reports:
                self._queue.popleft()
                self.lost_cycles += 1
                self._gap = True
            self._queue.append(report)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until every queued report is committed or lost."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue and not self._pending)

    def close(self, within_s: float = 10.0) -> None:
        """Commit what is queued and close the file; waits at most `within_s` for a hung disk."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(within_s)

    @property
    def size_bytes(self) -> int | None:
        """Size of the file and its write-ahead log after the last commit; None: there was none."""
        return self._size_bytes

    def problem(self) -> str | None:
        """What is wrong with the journal now, in one line; None: nothing."""
        with self._changed:
            notes = [note for note in (self._aside, self._failure) if note is not None]
        return "; ".join(notes) or None

    def last_cycle(self) -> int:
        """Number of the last cycle written, in any run; 0: none."""
        with JournalReader(self._path) as reader:
            return reader.last_cycle()

    def last_now_s(self) -> float:
        with JournalReader(self._path) as reader:
            return reader.last_now_s()

    def earlier_report(self) -> CycleReport | None:
        """The last cycle of the run before, as it was when this one opened the file."""
        return self._store.earlier

    def last_memory(self, policy: str) -> object | None:
        """That policy's last memory (a shadow's by its `shadow_name`), as plain values for
        `load_memory`.
        """
        return self._store.memory(policy)

    # ------------------------------------------------------------------ the writer's side

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    break
                batch = tuple(self._queue)
                gap, self._gap = self._gap, False
                self._queue.clear()
                self._pending = len(batch)
            try:
                self._commit(batch, gap)
            finally:
                with self._changed:
                    self._pending = 0
                    self._changed.notify_all()
        self._store.close()

    def _commit(self, batch: tuple[CycleReport, ...], gap: bool) -> None:
        if gap:
            self._store.forget()
        if self._store.is_open and not self._path.exists():
            # The open descriptor still accepts rows, but they could never be read.
            self._store.close()
            with self._changed:
                self._aside = "the journal was deleted, so a new one was begun"
        if not self._store.is_open and not self._open():
            self._fail(len(batch), None)
            return
        try:
            refused = self._store.write(batch)
        except Exception as error:  # noqa: BLE001  the thread outlives whatever goes wrong
            if damaged(error):
                self._store.close()
                self._move_aside("corrupt", error)
            self._fail(len(batch), str(error))
            return
        with suppress(OSError):
            log = self._path.with_name(f"{self._path.name}-wal")
            self._size_bytes = self._path.stat().st_size + log.stat().st_size
        if refused is None:
            with self._changed:
                self._failure = None
        else:
            self._fail(*refused)

    def _open(self) -> bool:
        """Open the file; an unusable one is moved aside first. False: not open, see `problem`."""
        for _ in range(2):
            try:
                make_folder(self._path.parent)
                self._store.open()
                return True
            except OtherVersion as error:
                self._move_aside(f"version-{error.version}", error)
            except (sqlite3.Error, OSError) as error:
                if not damaged(error):
                    self._fail(0, str(error))
                    return False
                self._move_aside("corrupt", error)
        return False

    def _move_aside(self, what: str, error: Exception) -> None:
        try:
            aside = set_aside(self._path, what).name
            note = f"the journal was moved to {aside}, and a new one begun: {error}"
        except OSError as refusal:
            note = f"the journal cannot be used ({error}), and cannot be moved aside: {refusal}"
        with self._changed:
            self._aside = note

    def _fail(self, lost: int, cause: str | None) -> None:
        with self._changed:
            self.lost_cycles += lost
            if cause is not None:
                self._failure = f"the journal was not written: {cause}"
