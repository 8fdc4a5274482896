"""Looking into a folder that others write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlsched.config.inbox import files
from dlsched.config.inbox.files import JobFile, Moved, list_files, read_job_file, stamp_at


def test_a_file_is_read_under_its_stamp_only(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("one")
    stamp = list_files(tmp_path).stamps["a.yaml"]
    assert read_job_file(tmp_path, "a.yaml", stamp) == JobFile("one", os.geteuid())
    path.write_text("two!")
    with pytest.raises(Moved):
        read_job_file(tmp_path, "a.yaml", stamp)
    path.unlink()
    with pytest.raises(Moved):
        read_job_file(tmp_path, "a.yaml", stamp)
    assert stamp_at(path, through_links=True) is None


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfname")
    stamp = list_files(tmp_path).stamps["a.yaml"]
    assert read_job_file(tmp_path, "a.yaml", stamp).text == "name"


def test_what_was_swapped_for_a_fifo_or_a_link_after_the_look_is_still_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regular = tmp_path / "regular.yaml"
    regular.write_text("x")
    status = regular.lstat()
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "link.yaml").symlink_to(regular)
    monkeypatch.setattr(files.os, "stat", lambda *_, **__: status)
    with pytest.raises(ValueError, match="not a regular file"):
        read_job_file(tmp_path, "fifo.yaml", (0, 0, 0, 0))
    with pytest.raises(OSError, match="symbolic links"):
        read_job_file(tmp_path, "link.yaml", (0, 0, 0, 0))


def test_a_file_that_goes_while_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.yaml").write_text("x")

    class Gone:
        name = "b.yaml"

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            raise FileNotFoundError

    class Entries(list[object]):
        def __enter__(self) -> Entries:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    with os.scandir(tmp_path) as entries:
        there = list(entries)
    monkeypatch.setattr(files.os, "scandir", lambda _: Entries([Gone(), *there]))
    assert list(list_files(tmp_path).stamps) == ["a.yaml"]
