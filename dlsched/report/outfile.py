"""The metrics file: whole lines are appended, and a full file is renamed.

It never raises, blocks, or keeps a descriptor: in a job that closes all its descriptors the
reporter would write into whatever file got the number next.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

FILE_BYTES = 256 * 1024
"""Size at which the file is renamed."""


class OutFile:
    """Appends lines to a path. What cannot be written is dropped and counted in `dropped`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.dropped = 0
        self._torn = False

    def append(self, line: bytes) -> None:
        """Append one line in a single write."""
        try:
            if self._torn:
                line = b"\n" + line
            descriptor = self._open()
            try:
                if self._turn(descriptor, len(line)):
                    os.close(descriptor)
                    descriptor = self._open()
                written = os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError:
            self.dropped += 1
        else:
            # A full disk may take part of a line: then the next one begins with a newline.
            self._torn = written < len(line)
            self.dropped += self._torn

    def _open(self) -> int:
        # Without O_CREAT first: in a world-writable sticky directory the kernel refuses O_CREAT on
        # another user's file. O_NONBLOCK: a FIFO in its place must not block the job.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            return os.open(self.path, flags)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
        descriptor = os.open(self.path, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):
            # Other users' processes in the same container report here, too, whatever the umask.
            os.fchmod(descriptor, 0o666)
        return descriptor

    def _turn(self, descriptor: int, more: int) -> bool:
        """Rename a full file; returns whether the name must be opened again."""
        here = os.fstat(descriptor)
        if here.st_size + more <= FILE_BYTES:
            return False
        try:
            # Only one writer renames; the others notice that the name refers to another file.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            named = os.stat(self.path)  # noqa: PTH116 - imports few modules into a job
            if (named.st_dev, named.st_ino) == (here.st_dev, here.st_ino):
                os.rename(self.path, self.path + ".1")  # noqa: PTH104
        except OSError as error:
            return error.errno == errno.ENOENT
        return True
