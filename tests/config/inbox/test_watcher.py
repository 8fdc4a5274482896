"""The thread that wakes the loop: on what, how soon, and through a folder made anew."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.config.inbox.watcher import FolderWatch

pytestmark = pytest.mark.timed

DEADLINE_S = 30.0


class Wakes:
    """Collects reasons; waits for one with a deadline."""

    def __init__(self) -> None:
        self._reasons: queue.Queue[str] = queue.Queue()

    def __call__(self, reason: str) -> None:
        self._reasons.put(reason)

    def expect(self, part: str) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while True:
            left_s = until_s - time.monotonic()
            if part in self._reasons.get(timeout=max(0.0, left_s)):
                return

    def seen(self) -> list[str]:
        return list(self._reasons.queue)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.d").mkdir()
    return tmp_path / "jobs.d"


@pytest.fixture
def wakes(folder: Path) -> Iterator[Wakes]:
    collected = Wakes()
    watch = FolderWatch(folder, collected)
    watch.start()
    try:
        collected.expect("watching")
        yield collected
    finally:
        watch.stop()


def test_job_files_wake_and_editors_files_do_not(folder: Path, wakes: Wakes) -> None:
    (folder / ".a.yaml.swp").write_text("x")
    (folder / "note.txt").write_text("x")
    (folder / "a.yaml").write_text("x")
    wakes.expect("job files changed: a.yaml")
    (folder / "a.yaml").rename(folder / "b.yaml")
    wakes.expect("b.yaml")
    (folder / "b.yaml").unlink()
    wakes.expect("b.yaml")
    assert not any("swp" in reason or "note" in reason for reason in wakes.seen())


@pytest.mark.long
def test_a_folder_made_anew_is_watched_again(folder: Path, wakes: Wakes) -> None:
    folder.rename(folder.with_name("away"))
    folder.mkdir()
    wakes.expect("recreated")
    wakes.expect("watching")
    (folder / "a.yaml").write_text("x")
    wakes.expect("a.yaml")


def test_a_folder_that_comes_later_is_found(tmp_path: Path) -> None:
    collected = Wakes()
    watch = FolderWatch(tmp_path / "later", collected)
    watch.start()
    try:
        (tmp_path / "later").mkdir()
        collected.expect("watching")
    finally:
        watch.stop()


def test_stop_ends_the_thread(folder: Path) -> None:
    collected = Wakes()
    watch = FolderWatch(folder, collected)
    watch.stop()
    watch = FolderWatch(folder, collected)
    watch.start()
    collected.expect("watching")
    watch.stop()
    watch._thread.join(DEADLINE_S)
    assert not watch._thread.is_alive()
