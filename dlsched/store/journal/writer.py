"""The journal's writer: every cycle, in a thread of its own. Errors of the file never raise."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path

from dlsched.model.cycle import CycleReport
from dlsched.store.atomic import make_folder
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.schema import OtherVersion, damaged, set_aside
from dlsched.store.journal.store import Store


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
                self._aside = "journal was deleted: a new one begun"
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
            note = f"journal {error}: moved to {set_aside(self._path, what).name}, a new one begun"
        except OSError as refusal:
            note = f"journal {error}, and cannot be moved aside: {refusal}"
        with self._changed:
            self._aside = note

    def _fail(self, lost: int, cause: str | None) -> None:
        with self._changed:
            self.lost_cycles += lost
            if cause is not None:
                self._failure = f"journal not written: {cause}"
