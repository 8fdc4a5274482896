"""Job files as files: which names count, when one was touched, and what is in it.

Owns the safe way to look into a folder that others write to: it never waits for a FIFO, never
follows a link out of the folder, and reads no more than a job file may hold.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dlsched.document import SIZE_MAX_BYTES

Stamp = tuple[int, int, int, int]
"""inode, size, times of the last change to content and to anything: equal means untouched."""


class Moved(Exception):
    """The file changed, or went, while it was looked at."""


def is_job_file(name: str) -> bool:
    """Whether a file of that name is meant as a job, and not an editor's own."""
    return name.endswith((".yaml", ".yml")) and not name.startswith((".", "#", "~"))


def list_stamps(folder: Path) -> dict[str, Stamp]:
    """The folder's job files; OSError when it cannot be listed."""
    listing: dict[str, Stamp] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_job_file(entry.name):
                try:
                    listing[entry.name] = _stamp(entry.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue
    return listing


def stamp_at(path: Path) -> Stamp | None:
    """The stamp of what is there, through links; None when nothing can be seen."""
    try:
        return _stamp(path.stat())
    except OSError:
        return None


def read_job_file(path: Path, stamp: Stamp) -> str:
    """The file's text. Never waits for a FIFO and never follows a link.

    Raises Moved when the stamp is no longer the file's, ValueError for what is no job file.
    """
    try:
        _check_kind(path.lstat())
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Moved from None
    with os.fdopen(descriptor, "rb") as stream:
        _check_kind(os.fstat(descriptor))
        content = stream.read(SIZE_MAX_BYTES + 1)
        if _stamp(os.fstat(descriptor)) != stamp:
            raise Moved
    if len(content) > SIZE_MAX_BYTES:
        raise ValueError(f"more than {SIZE_MAX_BYTES // 1024} KiB, the most that a job file may be")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 text: byte {error.start}") from error


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _check_kind(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no regular file"
        raise ValueError(f"is {kind}: a job file is a regular file in the folder itself")
