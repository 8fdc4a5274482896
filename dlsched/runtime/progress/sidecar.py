"""Reads what a container writes into its metrics file, bounded, and safe against all of it.

Owns two descriptors per container start: its sidecar directory and the metrics file in it. It
must not trust the container: nothing is opened but a regular file below the container's own root,
no component of the path may be a symbolic link (the host would resolve it), and no read is longer
than 64 KiB. What a line means is `sidecar_line`'s business.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dlsched.model.facts import Report
from dlsched.report.lines import LINE_BYTES
from dlsched.runtime.progress.lines import Lines
from dlsched.runtime.progress.sidecar_line import BadLine, parse_line

READ_BYTES = 64 * 1024
"""At most so much is read of a container in one call."""
READ_LINES = 512
"""At most so many lines are parsed in one call; the rest of what was read counts as bad."""
BACKLOG_BYTES = 1024 * 1024
"""The sidecar's whole tmpfs. Who is further behind than this is not caught up with, but skipped."""
NAME_CHECK_S = 5.0
"""A rename within a clock tick of the last write leaves no trace in the file: look at the name."""

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Reading:
    """What one read brought."""

    reports: tuple[Report, ...] = ()
    bad_lines: int = 0
    """Lines refused in this read."""
    trouble: str | None = None
    """Why the file cannot be read now, in one line."""
    refused: str | None = None
    """Why the first of the bad lines was refused."""


_NOTHING = Reading()


class Untrusted(Exception):
    """Something on the way to the file, or in its place, that is not opened."""


def same_process(pid: int, proc_root: Path = Path("/proc")) -> Callable[[], bool]:
    """A check that the PID still means the process that it means now (by its start time)."""
    begun = _start_time(pid, proc_root)
    return lambda: begun is not None and _start_time(pid, proc_root) == begun


def _start_time(pid: int, proc_root: Path) -> bytes | None:
    try:
        # The name in parentheses may hold anything; field 22 counts from after it.
        return (proc_root / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[19]
    except (OSError, IndexError):
        return None


class SidecarReader:
    """Follows the metrics file of one container start. Not safe for several threads.

    `expect` says whether the PID is still that container; it is asked before and after the way to
    the directory is walked, and never again: the descriptor outlives the process, so the last
    lines stay readable after the exit. `from_end` leaves out what was written before the first
    read: an agent that was not there cannot stamp it.
    """

    def __init__(
        self,
        pid: int,
        container_path: str = "/run/dlsched/out/metrics.jsonl",
        proc_root: Path = Path("/proc"),
        expect: Callable[[], bool] | None = None,
        from_end: bool = False,
    ) -> None:
        self._root = proc_root / str(pid) / "root"
        self._path = PurePosixPath(container_path)
        self._expect = expect or same_process(pid, proc_root)
        self._from_end = from_end
        self._directory: int | None = None
        self._file: _Followed | None = None
        self._older: _Followed | None = None
        self._name_checked_s = float("-inf")
        self._missed_ns: int | None = None
        """How the directory was when there was no file in it, twice."""
        self._trouble: str | None = None

    def read(self, now_s: float) -> Reading:
        """What arrived since the read before, stamped `now_s`; never raises for a container."""
        batch = _Batch(now_s)
        try:
            if self._is_quiet(now_s):
                return _NOTHING
            self._read(batch)
        except Untrusted as refusal:
            self._trouble = str(refusal)
        except OSError as error:
            self._trouble = f"{self._path}: {error.strerror}"
        return Reading(tuple(batch.reports), batch.bad_lines, self._trouble, batch.refused)

    def close(self) -> None:
        """Let go of the descriptors; a later read would begin anew."""
        for followed in (self._file, self._older):
            if followed is not None:
                followed.close()
        if self._directory is not None:
            os.close(self._directory)
        self._directory = self._file = self._older = None

    def _is_quiet(self, now_s: float) -> bool:
        """Whether one look shows that nothing happened since the last read."""
        if (
            self._directory is None
            or self._older is not None
            or self._trouble is not None
            or now_s - self._name_checked_s >= NAME_CHECK_S
        ):
            return False
        if self._file is not None:
            return self._file.is_untouched
        return self._missed_ns == os.fstat(self._directory).st_ctime_ns

    def _read(self, batch: _Batch) -> None:
        if self._directory is None:
            self._directory = self._open_directory()
        if self._older is not None:
            # A writer that had opened the file before its rename may have written after it.
            older, self._older = self._older, None
            try:
                older.read_into(batch)
            finally:
                older.close()
        changed = self._file is not None and self._file.read_into(batch)
        due = batch.now_s - self._name_checked_s >= NAME_CHECK_S
        if self._file is None or self._trouble is not None or changed or due:
            self._follow_name(self._directory, batch)

    def _follow_name(self, directory: int, batch: _Batch) -> None:
        """See which file the name means now, and begin with it once the present one is read."""
        if self._file is not None and self._file.has_name(self._path.name, directory):
            self._trouble = None
            self._name_checked_s = batch.now_s
            return
        changed_ns = os.fstat(directory).st_ctime_ns
        opened = _open_regular(self._path.name, directory, self._path)
        self._trouble = None
        if opened is None:
            # Between a rename and the new file, or before the first: look again at the next read,
            # and then whenever the directory has changed. Twice, since what happens within one
            # tick of the kernel's clock may leave no trace.
            again = self._missed_ns == changed_ns and self._file is None
            self._missed_ns = changed_ns
            self._name_checked_s = batch.now_s if again else float("-inf")
            self._from_end = False
            return
        self._name_checked_s = batch.now_s
        if self._file is not None:
            if self._file.is_same(os.fstat(opened)):
                os.close(opened)  # it came back in between
                return
            if self._file.behind:
                # The old file is drained first, 64 KiB a read, however long that takes.
                os.close(opened)
                self._name_checked_s = float("-inf")
                return
            self._older = self._file
        self._file = _Followed(opened, self._from_end)
        self._from_end = False
        self._file.read_into(batch)

    def _open_directory(self) -> int:
        parts = self._path.parts
        if not self._path.is_absolute() or len(parts) < 2 or ".." in parts:
            raise Untrusted(f"{self._path}: an absolute path without '..' is wanted")
        self._check_expected()
        descriptor = os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for depth, part in enumerate(parts[1:-1], start=2):
                inner = _open_component(part, descriptor, PurePosixPath(*parts[:depth]))
                os.close(descriptor)
                descriptor = inner
            self._check_expected()
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check_expected(self) -> None:
        if not self._expect():
            raise Untrusted("the container's process is gone")


def _open_component(name: str, directory: int, shown: PurePosixPath) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        raise Untrusted(f"{shown}: no such directory in the container") from None
    except NotADirectoryError:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        raise Untrusted(f"{shown} is {_kind(mode)}, not a directory: not followed") from None


def _open_regular(name: str, directory: int, shown: PurePosixPath) -> int | None:
    """A descriptor to read a regular file; None where there is none yet.

    O_PATH first: to open a device means to use it (a watchdog starts, a tape rewinds), so what it
    is must be known before. What the O_PATH descriptor holds is then opened, not the name again.
    """
    try:
        held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    try:
        mode = os.fstat(held).st_mode
        if not stat.S_ISREG(mode):
            raise Untrusted(f"{shown} is {_kind(mode)}, not a regular file: not read")
        return os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(held)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a directory",
        stat.S_IFREG: "a regular file",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


class _Batch:
    """What one read gathers, and what it may still take."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s
        self.reports: list[Report] = []
        self.bad_lines = 0
        self.refused: str | None = None
        self.bytes_left = READ_BYTES
        self.lines_left = READ_LINES

    def add(self, line: bytes) -> None:
        """Take one whole line, its newline removed; an empty one says nothing."""
        if not line.strip():
            return
        if not self.lines_left:
            self.refuse(f"more than {READ_LINES} lines in one read")
            return
        self.lines_left -= 1
        try:
            self.reports.append(parse_line(line, self.now_s))
        except BadLine as why:
            self.refuse(str(why))

    def refuse(self, why: str) -> None:
        """Count a bad line."""
        self.bad_lines += 1
        self.refused = self.refused or why


class _Followed:
    """One open file, and the place up to which it is read."""

    def __init__(self, descriptor: int, from_end: bool) -> None:
        self._descriptor = descriptor
        facts = os.fstat(descriptor)
        self._place = facts.st_dev, facts.st_ino
        self._offset = facts.st_size if from_end else 0
        self._lines = Lines(LINE_BYTES)
        self._changed_ns = -1
        self.behind = False
        """Whether the last read left something in the file."""

    def close(self) -> None:
        os.close(self._descriptor)

    def is_same(self, there: os.stat_result) -> bool:
        """Whether that is this file: no other can have its inode while this one is held open."""
        return (there.st_dev, there.st_ino) == self._place

    def has_name(self, name: str, directory: int) -> bool:
        """Whether that name means this file; nothing is opened, whatever it names."""
        try:
            return self.is_same(os.stat(name, dir_fd=directory, follow_symlinks=False))
        except OSError:
            return False

    @property
    def is_untouched(self) -> bool:
        """Whether nothing became of the file since it was read."""
        facts = os.fstat(self._descriptor)
        return facts.st_size == self._offset and facts.st_ctime_ns == self._changed_ns

    def read_into(self, batch: _Batch) -> bool:
        """Read on; whether anything became of the file since the last time (a rename counts)."""
        facts = os.fstat(self._descriptor)
        if facts.st_size == self._offset and facts.st_ctime_ns == self._changed_ns:
            return False
        self._changed_ns = facts.st_ctime_ns
        if facts.st_size < self._offset:
            self._offset, self._lines = 0, Lines(LINE_BYTES)
        elif facts.st_size - self._offset > BACKLOG_BYTES:
            batch.refuse(f"more than {BACKLOG_BYTES >> 10} KiB behind: skipped to the last lines")
            self._offset = facts.st_size - READ_BYTES
            self._lines = Lines(LINE_BYTES, amid=True)
        chunk = os.pread(self._descriptor, batch.bytes_left, self._offset)
        batch.bytes_left -= len(chunk)
        self._offset += len(chunk)
        self.behind = self._offset < facts.st_size
        for line in self._lines.cut(chunk):
            if line is None:
                batch.refuse(f"a line of more than {LINE_BYTES} bytes")
            else:
                batch.add(line)
        return True
