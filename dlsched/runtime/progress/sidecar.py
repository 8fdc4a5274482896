"""Reads a container's metrics file, with bounds, without trusting the container.

Only a regular file below the container's root is opened, and no component of its path may be a
symbolic link, which the host would resolve, nor on a file system that may hang. `sidecar_line`
parses the lines.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from dlsched.model.facts import LogFact, Report
from dlsched.report.lines import LINE_BYTES
from dlsched.runtime.progress.mounts import may_hang, mount_of
from dlsched.runtime.progress.samples import Repeats, Writers
from dlsched.runtime.progress.sidecar_line import BadLine, parse_line

READ_BYTES = 64 * 1024
"""Bytes read of a container in one call at most."""
READ_LINES = 512
"""Lines parsed in one call at most; further ones count as bad."""
BACKLOG_BYTES = 1024 * 1024
"""Size of the sidecar's tmpfs. A longer backlog is skipped."""
NAME_CHECK_S = 5.0
"""How often the file's name is checked, since a rename in the clock tick of the last write leaves
no trace in the file."""

TAIL_BYTES = 256
"""Bytes before the offset that are compared with what was read there: about a line."""

_HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SourceReading:
    reports: tuple[Report, ...] = ()
    bad_lines: int = 0
    problem: str | None = None
    """Why the source cannot be read now, in one line."""
    refused: str | None = None
    """Why the first of the bad lines was refused."""
    log: LogFact | None = None
    """What a pattern found so far."""
    hides_failures: bool = False
    """Whether it gives latencies, and cannot tell which requests failed."""


_NOTHING = SourceReading()


class Untrusted(Exception):
    """The file, or a component of its path, is not safe to open."""


class Missing(Untrusted):
    """The path leads nowhere yet."""


class ReadBudget:
    """How much one read may still take, and the lines that it refused."""

    def __init__(self) -> None:
        self.bytes_left = READ_BYTES
        self.lines_left = READ_LINES
        self.bad_lines = 0
        self.refused: str | None = None
        """Why the first of the bad lines was refused."""

    def refuse(self, why: str) -> None:
        self.bad_lines += 1
        self.refused = self.refused or why


class Lines:
    """Cuts one stream of bytes into lines."""

    def __init__(self, most_bytes: int, *, amid: bool = False) -> None:
        """A line of `most_bytes` or more is dropped. `amid`: the stream begins within a line, which
        is dropped, too."""
        self._most_bytes = most_bytes
        self._partial = b""
        self._left_out = amid

    def cut(self, chunk: bytes) -> Iterator[bytes | None]:
        """The lines that end in this chunk, without newline; None for each that was too long."""
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            if self._left_out:
                self._left_out = False
            elif len(self._partial) + len(line) >= self._most_bytes:
                yield None
            else:
                yield self._partial + line
            self._partial = b""
        if self._left_out:
            return
        self._partial += rest
        if len(self._partial) >= self._most_bytes:
            yield None
            self._partial, self._left_out = b"", True


class SidecarReader:
    """Follows the metrics file of one container start; for one thread.

    `expect` checks that the PID is still that container, before and after the directory is opened;
    the descriptor outlives the process, so that the last lines stay readable. `from_end` skips what
    was written before the first read; `history` reads the last lines of it, none of which is bad.
    """

    def __init__(
        self,
        pid: int,
        container_path: str = "/run/dlsched/out/metrics.jsonl",
        proc_root: Path = Path("/proc"),
        *,
        expect: Callable[[], bool],
        from_end: bool = False,
        history: bool = False,
    ) -> None:
        self._pid, self._proc = pid, proc_root
        self._path = PurePosixPath(container_path)
        self._expect = expect
        self._from_end = from_end
        self._history = history
        self._root: int | None = None
        """The container's root, known to answer, until the file's directory is there. While it is
        held no other mount has its number: so it is not looked up again in each cycle."""
        self._directory: int | None = None
        self._file: _Followed | None = None
        self._older: _Followed | None = None
        self._name_checked_s = float("-inf")
        self._problem: str | None = None
        self._repeats = Repeats()
        self._writers = Writers()

    def read(self, now_s: float) -> SourceReading:
        """What was written since the previous read, stamped `now_s`; never raises."""
        batch = _ReadBatch(now_s, self._repeats, self._writers)
        try:
            if self._is_quiet(now_s):
                return _NOTHING
            self._read(batch)
        except Untrusted as refusal:
            self._problem = str(refusal)
            if not isinstance(refusal, Missing):
                self._trust(None)
        except OSError as error:
            self._problem = f"{self._path}: {error.strerror}"
        return SourceReading(tuple(batch.reports), batch.bad_lines, self._problem, batch.refused)

    def close(self) -> None:
        """Close the descriptors; a later read starts over."""
        for followed in (self._file, self._older):
            if followed is not None:
                followed.close()
        if self._directory is not None:
            os.close(self._directory)
        self._trust(None)
        self._directory = self._file = self._older = None

    def _is_quiet(self, now_s: float) -> bool:
        """Whether one fstat shows that the file has not changed since the last read."""
        if (
            self._file is None
            or self._older is not None
            or self._problem is not None
            or now_s - self._name_checked_s >= NAME_CHECK_S
        ):
            return False
        return self._file.is_untouched

    def _read(self, batch: _ReadBatch) -> None:
        if self._directory is None:
            self._directory = self._open_directory()
            self._trust(None)
        if self._older is not None:
            # A writer that had opened the file before its rename may have written after it.
            older, self._older = self._older, None
            try:
                older.read_into(batch)
            finally:
                older.close()
        changed = self._file is not None and self._file.read_into(batch)
        due = batch.now_s - self._name_checked_s >= NAME_CHECK_S
        if self._file is None or self._problem is not None or changed or due:
            self._follow_name(self._directory, batch)

    def _follow_name(self, directory: int, batch: _ReadBatch) -> None:
        """Check which file has the name now, and switch to it once the present one is read."""
        held = self._hold(self._path.name, directory, self._path)
        try:
            if held is not None and self._file is not None and self._file.is_same(os.fstat(held)):
                self._problem = None
                self._name_checked_s = batch.now_s
                return
            opened = None if held is None else _open_regular(held, self._path)
        finally:
            if held is not None:
                os.close(held)
        self._problem = None
        if opened is None:
            # Between a rename and the new file, or before the first.
            self._name_checked_s = float("-inf")
            self._from_end = self._history = False
            return
        self._name_checked_s = batch.now_s
        if self._file is not None:
            if self._file.behind:
                # The old file is read to its end first, 64 KiB a read.
                os.close(opened)
                self._name_checked_s = float("-inf")
                return
            older, self._file = self._file, _Followed(opened, from_end=False)
            if self._file.goes_on_behind(older):
                older.close()
            else:
                self._older = older
        else:
            self._file = _Followed(opened, self._from_end)
        if self._history:
            self._file.read_history(batch)
        else:
            self._file.read_into(batch)
        self._from_end = self._history = False

    def _open_directory(self) -> int:
        parts = self._path.parts
        if not self._path.is_absolute() or len(parts) < 2 or ".." in parts:
            raise Untrusted(f"{self._path}: must be an absolute path without '..'")
        self._check_expected()
        root = self._proc / str(self._pid) / "root"
        descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if self._root is None or mount_of(descriptor) != mount_of(self._root):
                self._check_answers(descriptor, PurePosixPath("/"))
                self._trust(os.dup(descriptor))
            for depth, part in enumerate(parts[1:-1], start=2):
                inner = self._hold_directory(part, descriptor, PurePosixPath(*parts[:depth]))
                os.close(descriptor)
                descriptor = inner
            self._check_expected()
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _hold_directory(self, name: str, directory: int, shown: PurePosixPath) -> int:
        held = self._hold(name, directory, shown)
        if held is None:
            raise Missing(f"the container has no directory {shown}")
        if not stat.S_ISDIR(mode := os.fstat(held).st_mode):
            os.close(held)
            raise Untrusted(f"{shown} is {_kind(mode)}, not a directory: not followed")
        return held

    def _hold(self, name: str, directory: int, shown: PurePosixPath) -> int | None:
        """A descriptor of what has that name, which must be closed and cannot be read; None:
        nothing has. Opening a device has effects (it may start a watchdog); this has none."""
        try:
            held = os.open(name, _HOLD, dir_fd=directory)
        except FileNotFoundError:
            return None
        try:
            if mount_of(held) != mount_of(directory):
                self._check_answers(held, shown)
        except BaseException:
            os.close(held)
            raise
        return held

    def _check_answers(self, descriptor: int, shown: PurePosixPath) -> None:
        if may_hang(descriptor, self._pid, self._proc):
            raise Untrusted(f"{shown} is on a file system that may never answer: not read")

    def _trust(self, root: int | None) -> None:
        """Hold that root from now on, and no other."""
        if self._root is not None:
            os.close(self._root)
        self._root = root

    def _check_expected(self) -> None:
        if not self._expect():
            raise Untrusted("the container's process is gone")


def _open_regular(held: int, shown: PurePosixPath) -> int:
    """A descriptor to read what is held there, if it is a regular file."""
    mode = os.fstat(held).st_mode
    if not stat.S_ISREG(mode):
        raise Untrusted(f"{shown} is {_kind(mode)}, not a regular file: not read")
    return os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a directory",
        stat.S_IFREG: "a regular file",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


class _ReadBatch(ReadBudget):
    """The reports of one read."""

    def __init__(self, now_s: float, repeats: Repeats, writers: Writers) -> None:
        super().__init__()
        self.now_s = now_s
        self._repeats = repeats
        self._writers = writers
        self.reports: list[Report] = []

    def add(self, line: bytes) -> None:
        """Add one line without its newline; empty lines are ignored."""
        if not line.strip():
            return
        if not self.lines_left:
            self.refuse(f"more than {READ_LINES} lines came in one read: the others are not read")
            return
        self.lines_left -= 1
        try:
            report = parse_line(line, self.now_s)
        except BadLine as why:
            self.refuse(str(why))
            return
        if report.sample is not None:
            # Also without anything new it is a sign of life.
            sample = self._writers.compared(report.sample, report.writer)
            report = replace(report, sample=self._repeats.without(sample))
        self.reports.append(report)


class _Followed:
    """One open file, and the offset up to which it is read."""

    def __init__(self, descriptor: int, from_end: bool) -> None:
        self._descriptor = descriptor
        facts = os.fstat(descriptor)
        self._place = facts.st_dev, facts.st_ino
        self._offset = facts.st_size if from_end else 0
        self._lines = Lines(LINE_BYTES)
        self._tail = b""
        """The last bytes read before the offset."""
        self._changed_ns = -1
        self.behind = False
        """Whether the last read did not reach the end of the file."""

    def close(self) -> None:
        os.close(self._descriptor)

    def is_same(self, there: os.stat_result) -> bool:
        """Whether that is this file: its inode is not reused while it is held open."""
        return (there.st_dev, there.st_ino) == self._place

    def goes_on_behind(self, other: _Followed) -> bool:
        """Go on where the other file is read to, if this one was written whole in its place, so
        that it begins with the same lines; returns whether it was."""
        read = other._offset
        if os.fstat(other._descriptor).st_nlink or not 0 < read <= BACKLOG_BYTES:
            return False
        if os.pread(self._descriptor, read, 0) != os.pread(other._descriptor, read, 0):
            return False
        self._offset, self._lines, self._tail = read, other._lines, other._tail
        return True

    @property
    def is_untouched(self) -> bool:
        """Whether the file has not changed since it was read."""
        facts = os.fstat(self._descriptor)
        return facts.st_size == self._offset and facts.st_ctime_ns == self._changed_ns

    def read_history(self, batch: _ReadBatch) -> None:
        """Read the last lines of what was written before the first read: none of them is bad, and
        no latency or load in them is of the present."""
        size = os.fstat(self._descriptor).st_size
        self._offset = max(0, size - READ_BYTES)
        self._lines = Lines(LINE_BYTES, amid=self._offset > 0)
        chunk = os.pread(self._descriptor, READ_BYTES, self._offset)
        self._offset, self._tail = self._offset + len(chunk), chunk[-TAIL_BYTES:]
        for line in list(self._lines.cut(chunk))[-READ_LINES:]:
            if line is not None:
                batch.add(line)
        batch.bad_lines, batch.refused = 0, None
        batch.reports = [
            replace(one, latency=None, in_flight=None, oldest_s=None, gpu_ratio=None)
            for one in batch.reports
        ]

    def read_into(self, batch: _ReadBatch) -> bool:
        """Read on; returns whether the file has changed since the last time (a rename counts)."""
        facts = os.fstat(self._descriptor)
        if facts.st_size == self._offset and facts.st_ctime_ns == self._changed_ns:
            return False
        self._changed_ns = facts.st_ctime_ns
        if facts.st_size < self._offset or not self._has_tail():
            self._offset, self._lines, self._tail = 0, Lines(LINE_BYTES), b""
        if facts.st_size - self._offset > BACKLOG_BYTES:
            unread = f"{BACKLOG_BYTES >> 10} KiB"
            batch.refuse(f"more than {unread} of the file were unread: only its end is read")
            self._offset = facts.st_size - READ_BYTES
            self._lines, self._tail = Lines(LINE_BYTES, amid=True), b""
        chunk = os.pread(self._descriptor, batch.bytes_left, self._offset)
        batch.bytes_left -= len(chunk)
        self._offset += len(chunk)
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        self.behind = self._offset < facts.st_size
        for line in self._lines.cut(chunk):
            if line is None:
                batch.refuse(f"a line has more than {LINE_BYTES} bytes, so it is not read")
            else:
                batch.add(line)
        return True

    def _has_tail(self) -> bool:
        """Whether what was read last is still there, which it is not in a file begun again."""
        length = len(self._tail)
        return os.pread(self._descriptor, length, self._offset - length) == self._tail
