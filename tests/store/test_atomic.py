"""Small files that are whole or not there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dlsched.store import atomic


def test_a_write_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    atomic.write_whole(path, "one")
    atomic.write_whole(path, "two", mode=0o600)
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    atomic.write_whole(path, "one")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic.write_whole(path, "two")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_without_a_folder_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        atomic.write_whole(tmp_path / "absent" / "a.json", "one")
    assert caught.value.filename == str(tmp_path / "absent")


def test_removing_twice_is_removing_once(tmp_path: Path) -> None:
    atomic.write_whole(tmp_path / "a", "x")
    atomic.remove(tmp_path / "a")
    atomic.remove(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_and_those_above_it_are_not_for_other_users(tmp_path: Path) -> None:
    made = tmp_path / "state" / "controller"
    atomic.make_folder(made)
    atomic.make_folder(made)
    assert [stat.S_IMODE(one.stat().st_mode) & 0o027 for one in (made, made.parent)] == [0, 0]
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        atomic.make_folder(tmp_path / "file" / "state")
