"""Job files on disk: which names count, who owns them, when one changed, and its text.

Reading is safe in folders that others write to: it never blocks on a FIFO, never follows a link out
of the folder, and is bounded. Users have a subfolder each: `a.yaml`, `alice/b.yaml`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from dlsched.config.text import SIZE_MAX_BYTES, read_regular, utf8_text
from dlsched.model.errors import SpecError

Stamp = tuple[int, int, int, int]
"""inode, size, mtime and ctime: equal means unchanged."""

USER_ENTRIES_MAX = 100
"""A user's subfolder with more entries is not read: it would delay all jobs."""

_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = 0o022


class Moved(Exception):
    """The file changed or vanished while it was read."""


@dataclass(frozen=True, slots=True)
class FolderListing:
    stamps: dict[str, Stamp] = field(default_factory=dict)
    """Job files by name."""
    users: frozenset[str] = frozenset()
    """Subfolders that were read."""
    closed: dict[str, str] = field(default_factory=dict)
    """Subfolders that cannot be read, and why: their files count as unknown, not as removed."""


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job file's text, and its owner's uid."""

    text: str
    owner: int


def is_job_file(name: str) -> bool:
    """Whether a file of that name is a job file, not an editor's temporary file."""
    return name.endswith((".yaml", ".yml")) and not name.startswith((".", "#", "~"))


def is_operator(uid: int) -> bool:
    """Whether that uid is the operator's: root, or this process's user."""
    return uid in (0, os.geteuid())


def is_operators_alone(status: os.stat_result) -> bool:
    """Whether only the operator can change that file or folder."""
    return is_operator(status.st_uid) and not status.st_mode & _OTHERS_WRITE


def list_files(folder: Path, *, users: bool = False) -> FolderListing:
    """The folder's job files, and with `users` those in users' subfolders. Raises OSError when the
    folder itself cannot be listed, but not for a subfolder."""
    listing = FolderListing()
    read: set[str] = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_job_file(entry.name):
                _note(listing, entry.name, entry)
            elif users and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                try:
                    if _list_user(folder, entry.name, listing):
                        read.add(entry.name)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    why = error.strerror or str(error)
                    listing.closed[entry.name] = f"{folder / entry.name} cannot be listed: {why}"
    return FolderListing(listing.stamps, frozenset(read), listing.closed)


def stamp_at(path: Path, *, through_links: bool) -> Stamp | None:
    try:
        return _stamp(path.stat(follow_symlinks=through_links))
    except OSError:
        return None


def read_job_file(folder: Path, name: str, stamp: Stamp) -> JobFile:
    """The content of the job file that has this stamp. Raises Moved when its stamp has changed,
    ValueError when it is no job file, its name is not UTF-8 or it may be another user's, SpecError
    when its text is not UTF-8, and OSError."""
    try:
        name.encode()
    except UnicodeEncodeError:  # the record of who owns the job's name could not be read again
        raise ValueError("has a name that is not UTF-8: rename it") from None
    with _opened(folder, name) as (descriptor, owned_by):
        status = os.fstat(descriptor)
        _check_owner(status, owned_by)
        content = read_regular(descriptor, SIZE_MAX_BYTES)
        if _stamp(os.fstat(descriptor)) != stamp:
            raise Moved
    return JobFile(utf8_text(content, name, SpecError), status.st_uid)


def beside_reader(folder: Path, owner: int, most_bytes: int) -> Callable[[str], str]:
    """A function that reads a user's env_files: regular files of their own, beside the job file
    only, since the agent may read more than the user. It raises OSError, or ValueError with one
    line."""

    def read(name: str) -> str:
        if "/" in name or "\0" in name or name in (".", ".."):
            raise ValueError("must be in the folder of the job file, as it is a user's file")
        try:
            with _opened(folder, name) as (descriptor, _):
                status = os.fstat(descriptor)
                if status.st_uid != owner:
                    raise ValueError(
                        f"belongs to uid {status.st_uid}, but the job file to uid {owner}"
                    )
                if status.st_nlink != 1:
                    raise ValueError("has several names (hard links): copy the file instead")
                return read_regular(descriptor, most_bytes).decode()
        except Moved:
            raise ValueError("does not exist") from None

    return read


# ------------------------------------------------------------------ reading


def _list_user(folder: Path, name: str, listing: FolderListing) -> bool:
    """List a user's subfolder; False when it is the operator's, which is none."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder / name, flags)
    try:
        status = os.fstat(descriptor)
        if is_operator(status.st_uid):
            return False
        if status.st_mode & _OTHERS_WRITE:
            mode = stat.S_IMODE(status.st_mode)
            listing.closed[name] = (
                f"{folder / name} may be changed by others than its owner (mode {mode:04o}): "
                "`chmod 755` the folder"
            )
            return False
        with os.scandir(descriptor) as entries:
            found = list(islice(entries, USER_ENTRIES_MAX + 1))
            if len(found) > USER_ENTRIES_MAX:
                listing.closed[name] = (
                    f"{folder / name} is not read: it holds more than {USER_ENTRIES_MAX} entries"
                )
                return False
            for entry in found:
                if is_job_file(entry.name):
                    _note(listing, f"{name}/{entry.name}", entry)
    finally:
        os.close(descriptor)
    return True


def _note(listing: FolderListing, name: str, entry: os.DirEntry[str]) -> None:
    try:
        listing.stamps[name] = _stamp(entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[tuple[int, os.stat_result]]:
    """The regular file of that name, and its folder's status; neither may be a link."""
    user, _, base = name.rpartition("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if user else 0)
    try:
        within = os.open(folder / user, flags)
    except FileNotFoundError:
        raise Moved from None
    try:
        try:
            _check_kind(os.stat(base, dir_fd=within, follow_symlinks=False))
            descriptor = os.open(base, _READING, dir_fd=within)
        except FileNotFoundError:
            raise Moved from None
        try:
            _check_kind(os.fstat(descriptor))
            yield descriptor, os.fstat(within)
        finally:
            os.close(descriptor)
    finally:
        os.close(within)


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _check_kind(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise ValueError(f"is {kind}: put the job file itself into the folder")


def _check_owner(status: os.stat_result, folder: os.stat_result) -> None:
    """Refuse a file that another than its owner may have written or put there."""
    theirs = not is_operator(folder.st_uid)
    if theirs and status.st_uid != folder.st_uid:
        raise ValueError(f"belongs to uid {status.st_uid}, but the folder to uid {folder.st_uid}")
    if status.st_mode & stat.S_IWOTH:
        raise ValueError("may be written by everybody: `chmod o-w` the file")
    if status.st_nlink != 1 and (theirs or folder.st_mode & _OTHERS_WRITE):
        raise ValueError("has several names (hard links): copy the file instead")
