"""The metrics file's writing side: appended whole, turned at 256 KiB, and never in the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlsched.report import writer
from dlsched.report.writer import FILE_BYTES, OutFile

LINE = b"x" * 4095 + b"\n"


def test_a_full_file_is_renamed_and_a_new_one_begun(tmp_path: Path) -> None:
    out = OutFile(str(tmp_path / "metrics.jsonl"))
    for _ in range(FILE_BYTES // len(LINE) + 1):
        out.append(LINE)
    assert (tmp_path / "metrics.jsonl").read_bytes() == LINE
    assert (tmp_path / "metrics.jsonl.1").stat().st_size == FILE_BYTES
    assert out.dropped == 0


def test_a_second_writer_does_not_rename_the_new_file_away(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"y" * FILE_BYTES)
    late = OutFile(str(path))
    descriptor = late._open()
    OutFile(str(path)).append(LINE)
    assert late._turn(descriptor, 1), "the name is to be opened anew"
    os.close(descriptor)
    assert path.read_bytes() == LINE


@pytest.mark.parametrize("obstacle", ["missing directory", "directory", "fifo"])
def test_what_cannot_be_written_is_dropped_and_counted(tmp_path: Path, obstacle: str) -> None:
    path = tmp_path / "metrics.jsonl"
    if obstacle == "missing directory":
        path = tmp_path / "gone" / "metrics.jsonl"
    elif obstacle == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    out = OutFile(str(path))
    out.append(LINE)
    assert out.dropped == 1


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full on this host")
def test_a_full_disk_costs_the_line_and_nothing_else() -> None:
    out = OutFile("/dev/full")
    out.append(LINE)
    assert out.dropped == 1


def test_a_torn_line_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = OutFile(str(tmp_path / "metrics.jsonl"))
    write = os.write
    monkeypatch.setattr(writer.os, "write", lambda fd, data: write(fd, data[:3]))
    out.append(b'{"loss":1}\n')
    monkeypatch.undo()
    out.append(b'{"loss":2}\n')
    assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"l\n{"loss":2}\n'
    assert out.dropped == 1


def test_processes_of_other_users_may_report_too(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        OutFile(str(tmp_path / "metrics.jsonl")).append(b"{}\n")
    finally:
        os.umask(before)
    assert (tmp_path / "metrics.jsonl").stat().st_mode & 0o777 == 0o666
