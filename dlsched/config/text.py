"""The text of a user's file, bounded, or the one line that says why it cannot be read."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlsched.model.errors import DlschedError, FileError, Problem, unexpected
from dlsched.model.units import render_bytes

log = logging.getLogger(__name__)

SIZE_MAX_BYTES = 256 * 1024


@contextmanager
def judged_alone(file: str, wrong: type[FileError]) -> Iterator[None]:
    """Makes an unexpected error a problem of this file, so that one file never stops the
    others. Deliberate errors and OSError pass."""
    try:
        yield
    except (DlschedError, OSError):
        raise
    except Exception as error:
        log.debug("%s: reading it failed", file, exc_info=True)
        what = f"cannot be read, by a fault of dlsched ({unexpected(error)}): please report this"
        raise wrong((Problem(file, 0, 0, "", what),)) from error


def read_regular(descriptor: int, most_bytes: int) -> bytes:
    """The content of this open file. Raises ValueError, in one line, where it is no regular file or
    longer."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ValueError("is not a regular file")
    with open(descriptor, "rb", closefd=False) as stream:
        # None: a file as those of /proc, on which one would wait.
        content = stream.read(most_bytes + 1) or b""
    if len(content) > most_bytes:
        raise ValueError(f"has more than {most_bytes // 1024} KiB")
    return content


def too_long(file: str, size_max_bytes: int) -> Problem:
    """The one problem of such a file."""
    return Problem(file, 0, 0, "", f"the file has more than {render_bytes(size_max_bytes)}")


def read_text(file: Path, wrong: type[FileError], *, size_max_bytes: int = SIZE_MAX_BYTES) -> str:
    """The text of a user's file. Raises `wrong` where it cannot be read, or is too long.

    A named FIFO is refused, as to open it may wait for ever; a pipe that a shell has opened for
    `<(command)` has no name in a folder, and is read to its end.
    """
    try:
        if file.is_fifo() and file.resolve().exists():
            raise wrong((Problem(str(file), 0, 0, "", "is a FIFO, not a regular file"),))
        with file.open("rb") as stream:
            content = stream.read(size_max_bytes + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise wrong((Problem(str(file), 0, 0, "", f"cannot be read: {why}"),)) from error
    return utf8_text(content, str(file), wrong, size_max_bytes=size_max_bytes)


def utf8_text(
    content: bytes, file: str, wrong: type[FileError], *, size_max_bytes: int = SIZE_MAX_BYTES
) -> str:
    """The content as text; raises `wrong` where it is too long, or with line and column of a byte
    that is not UTF-8."""
    if len(content) > size_max_bytes:
        raise wrong((too_long(file, size_max_bytes),))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, start = before.count(b"\n") + 1, before.rfind(b"\n") + 1
        column = len(before[start:].decode()) + 1
        what = f"the byte 0x{error.object[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise wrong((Problem(file, line, column, "", what),)) from error
