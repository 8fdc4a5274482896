"""A thread that wakes the loop when a job file changes. The loop also scans periodically, so a lost
event only costs time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from watchfiles import Change, watch

from dlsched.config.inbox.files import is_job_file

RETRY_S = 0.5
"""How soon a missing or recreated folder is found."""
STEP_S = 0.02


class FolderWatch:
    """Calls `wake(reason)` from its own thread; continues after the folder is recreated."""

    def __init__(self, folder: Path, wake: Callable[[str], None]) -> None:
        self._folder = folder
        self._wake = wake
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="folder-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread soon; does nothing when it was never started."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while not self._stopped.is_set():
            identity = self._identity()
            if identity is not None:
                try:
                    self._watch(identity)
                except (OSError, RuntimeError):
                    # No watch (folder just gone, inotify's limit): the loop's scans suffice.
                    pass
                else:
                    self._wake(f"{self._folder} was recreated")
            self._stopped.wait(RETRY_S)

    def _watch(self, identity: tuple[int, int]) -> None:
        first = True
        for changes in watch(
            self._folder,
            watch_filter=lambda _, path: is_job_file(Path(path).name),
            debounce=100,
            step=round(STEP_S * 1000),
            stop_event=self._stopped,
            rust_timeout=round(RETRY_S * 1000),
            yield_on_timeout=True,
            recursive=False,
        ):
            if changes:
                self._wake(f"job files changed: {_names(changes)}")
            elif first:
                # Changes between the loop's last scan and the watch caused no event.
                self._wake(f"watching {self._folder}")
            first = False
            if self._identity() != identity:
                return

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._folder)  # noqa: PTH116
        except OSError:
            return None
        return status.st_dev, status.st_ino


def _names(changes: set[tuple[Change, str]]) -> str:
    names = sorted({Path(path).name for _, path in changes})
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
