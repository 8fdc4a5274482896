"""What the play calls left behind: a file that a writer removes in time is not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.torture.unfinished import staying

pytestmark = pytest.mark.timed


def test_files_that_stay_are_left_behind(tmp_path: Path):
    for name in (".ended.json.x1.tmp", "ended.json.broken", "journal.db.corrupt-1", "a.new-1"):
        (tmp_path / name).touch()
    (tmp_path / "ended.json").touch()
    assert [path.name for path in staying([tmp_path], 0.0)] == [
        ".ended.json.x1.tmp",
        "a.new-1",
        "ended.json.broken",
        "journal.db.corrupt-1",
    ]


def test_a_file_that_is_being_written_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first, second = tmp_path / ".ended.json.x1.tmp", tmp_path / ".ended.json.x2.tmp"
    first.touch()

    def writes_on(_: float) -> None:
        first.unlink(missing_ok=True)
        second.touch()  # the next record's: another file

    monkeypatch.setattr(time, "sleep", writes_on)
    assert staying([tmp_path]) == []
