"""Reads and writes the tar archives in which checkpoints travel, as streams.

Whatever is in one may be hostile: it came from a container, or from another host. Nothing of
unbounded size is kept in memory, and what is let through lies below one folder, wherever it is
unpacked. It must not know engines, files or jobs.
"""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Iterable, Iterator
from tarfile import BLOCKSIZE, TarInfo

from dlsched.model.errors import DlschedError
from dlsched.model.units import render_bytes, shown

MOST_ENTRIES = 100_000
MOST_NAMES_BYTES = 16 * 1024 * 1024
"""Of all names together: they are kept, to refuse a second entry of the same name."""
MOST_NAME_BYTES = 4096
MOST_PART_BYTES = 255
MOST_EXTRA_BYTES = 64 * 1024
"""Of what stands before an entry: a long name, or extended attributes."""
MOST_ID = 0xFFFFFFFE
TOP = "checkpoint"
"""The name of the top folder, below which all else is, in an archive that travels."""

_CODING = ("utf-8", "surrogateescape")
_END = b"\0" * BLOCKSIZE
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_FOLDER_BITS = 0o1777
"""Of a folder's mode. That new files in it belong to its group is not carried."""
_RUNS_AS_OWNER = 0o6000
_MTIME_MAX = 0xFFFFFFFF
_EXTRA_NUMBERS = ("size", "uid", "gid", "mtime")
_KINDS = {
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


class Unfit(DlschedError):
    """The archive, or something in it, is not carried; one line says why."""


def carried(chunks: Iterable[bytes], top: str, most_bytes: int) -> Iterator[bytes]:
    """The archive of one folder, checked and written again as it is read; `top` is its name there,
    `.` for none. Raises Unfit where something is wrong, also after parts of it."""
    tree, left = _Tree(), most_bytes
    source = _Source(chunks)
    for entry in _entries(source):
        name = tree.admit(entry)
        left -= _room(entry.size)
        if left < 0:
            raise Unfit(f"the archive is larger than {render_bytes(most_bytes)}")
        yield _header(entry, posixpath.normpath(posixpath.join(top, name)), top)
        yield from source.data(entry.size)
    if tree.empty:
        raise Unfit("the archive is empty")
    yield _END * 2


class _Source:
    """Bytes of a stream, as many as are wanted."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._kept = b""

    def take(self, size: int) -> bytes:
        """Exactly so many, which fit into memory."""
        parts = b"".join(self._parts(size))
        if len(parts) != size:
            raise Unfit("the archive ends in the middle of an entry")
        return parts

    def data(self, size: int) -> Iterator[bytes]:
        """So many, in parts, with the padding to a whole block in zeros."""
        passed = 0
        for part in self._parts(size):
            passed += len(part)
            yield part
        padding = _room(size) - BLOCKSIZE - size
        if passed != size:
            raise Unfit("the archive ends in the middle of an entry")
        self.take(padding)
        yield b"\0" * padding

    def _parts(self, size: int) -> Iterator[bytes]:
        while size > 0:
            part = self._kept or next(self._chunks, None)
            if part is None:
                return
            self._kept, part = part[size:], part[:size]
            size -= len(part)
            yield part


def _room(size: int) -> int:
    """What an entry with so much in it takes, with its header."""
    return BLOCKSIZE + -(-size // BLOCKSIZE) * BLOCKSIZE


def _entries(source: _Source) -> Iterator[TarInfo]:
    """All entries up to the archive's end. The data of one is to be read before the next one."""
    extra: dict[str, str] = {}
    for _ in range(3 * MOST_ENTRIES):  # a long name and its link's stand before an entry
        block = source.take(BLOCKSIZE)
        if block == _END:
            if extra or source.take(BLOCKSIZE) != _END:
                raise Unfit("the archive has no end mark")
            return
        try:
            entry = TarInfo.frombuf(block, *_CODING)
        except (tarfile.HeaderError, ValueError) as error:
            raise Unfit(
                f"a header of the archive is not understood: {shown(str(error))}"
            ) from error
        if entry.size < 0:
            raise Unfit(f"{shown(entry.name)} has a size below zero")
        if (key := _LONG.get(entry.type)) is not None:
            text, nul, _ = _extra_of(source, entry).partition(b"\0")
            extra[key] = (text if nul else text[: entry.size]).decode(*_CODING)
        elif entry.type == tarfile.XHDTYPE:
            extra.update(_attributes(_extra_of(source, entry)))
        else:
            _apply(extra, entry)
            extra = {}
            yield entry
    raise Unfit(f"the archive has more than {MOST_ENTRIES} entries")


_LONG = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}


def _extra_of(source: _Source, entry: TarInfo) -> bytes:
    if entry.size > MOST_EXTRA_BYTES:
        raise Unfit(f"a name or attribute in the archive is longer than {MOST_EXTRA_BYTES} bytes")
    return source.take(_room(entry.size) - BLOCKSIZE)[: entry.size]


def _attributes(text: bytes) -> dict[str, str]:
    """Extended attributes: `LENGTH KEY=VALUE` lines, each as long as it says."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        digits = text[at : at + 6].split(b" ")[0]
        end = at + int(digits) if digits.isdigit() and len(digits) < 6 else 0
        line = text[at + len(digits) + 1 : end]
        if end > len(text) or not line.endswith(b"\n") or b"=" not in line:
            raise Unfit("the archive's extended attributes are not understood")
        key, _, value = line[:-1].decode(*_CODING).partition("=")
        if key.startswith("GNU.sparse"):
            raise Unfit("the archive has a sparse file, which a move cannot carry")
        found[key] = value
        at = end
    return found


def _apply(extra: dict[str, str], entry: TarInfo) -> None:
    """Give an entry what stood before it; attributes that are not carried are left out."""
    entry.name = extra.get("path", entry.name)
    entry.linkname = extra.get("linkpath", entry.linkname)
    for key in _EXTRA_NUMBERS:
        if key not in extra:
            continue
        whole, _, fraction = extra[key].lstrip("-" if key == "mtime" else "").partition(".")
        if not (whole.isascii() and whole.isdigit() and len(whole) <= 19):
            raise Unfit(f"{shown(entry.name)} has the {key} {shown(extra[key])}")
        if fraction and key != "mtime":
            raise Unfit(f"{shown(entry.name)} has the {key} {shown(extra[key])}")
        setattr(entry, key, 0 if extra[key].startswith("-") else int(whole))


class _Tree:
    """The entries that were let through, by their names below the top folder.

    Each comes after its folder, and once, so that none lies behind a link. A link leads up only at
    its beginning, and not above the top: so it cannot lead out, over whatever other links it goes.
    """

    def __init__(self) -> None:
        self._top: str | None = None
        self._folders: set[str] = set()
        self._files: set[str] = set()
        self._links: set[str] = set()
        self._names_bytes = 0

    @property
    def empty(self) -> bool:
        return self._top is None

    def admit(self, entry: TarInfo) -> str:
        """The entry's name below the top folder, `.` for that itself. Raises Unfit."""
        name = self._below(entry.name, entry.isdir())
        self._check_name(name, entry)
        if entry.isdir():
            self._folders.add(name)
            entry.mode &= _FOLDER_BITS
        elif entry.type in _FILES:
            self._files.add(name)
            if entry.mode & _RUNS_AS_OWNER:
                raise Unfit(f"{shown(name)} is a program with setuid or setgid")
            entry.mode &= 0o777
        elif entry.issym():
            self._links.add(name)
            self._check_link(name, entry.linkname)
        elif entry.islnk():
            entry.linkname = self._below(entry.linkname, folder=False)
            if entry.linkname not in self._files:
                raise Unfit(f"the link {shown(name)} leads to no earlier file of the archive")
            self._links.add(name)
        else:
            kind = _KINDS.get(entry.type, "an entry of an unknown kind")
            raise Unfit(f"{shown(name)} is {kind}, which a move cannot carry")
        if entry.type not in _FILES and entry.size:
            raise Unfit(f"{shown(name)} is not a file, but has content")
        if not (0 <= entry.uid <= MOST_ID and 0 <= entry.gid <= MOST_ID):
            ids = f"user {entry.uid}, group {entry.gid}"
            raise Unfit(f"{shown(name)} belongs to {ids}; both must be 0 to {MOST_ID}")
        entry.mtime = min(max(int(entry.mtime), 0), _MTIME_MAX)
        return name

    def _below(self, name: str, folder: bool) -> str:
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/"):
            raise Unfit(f"{shown(name)} is an absolute path")
        if ".." in parts:
            raise Unfit(f"{shown(name)} leads upwards")
        if "\0" in name or not parts:
            raise Unfit(f"{shown(name)} is not a valid file name")
        if self._top is None:
            if not folder or len(parts) != 1:
                raise Unfit(f"the archive begins with {shown(name)}, must begin with a folder")
            self._top = parts[0]
        if parts[0] != self._top:
            raise Unfit(f"{shown(name)} is outside the archive's folder, {shown(self._top)}")
        return "/".join(parts[1:]) or "."

    def _check_name(self, name: str, entry: TarInfo) -> None:
        names = [part.encode(*_CODING) for part in name.split("/")]
        if any(len(part) > MOST_PART_BYTES for part in names):
            raise Unfit(f"{shown(name)} is longer than {MOST_PART_BYTES} bytes")
        length = sum(len(part) + 1 for part in names)
        linked = len(entry.linkname.encode(*_CODING))
        if max(length, linked) > MOST_NAME_BYTES:
            raise Unfit(f"{shown(name)} is longer than {MOST_NAME_BYTES} bytes")
        self._names_bytes += length
        if self._names_bytes > MOST_NAMES_BYTES:
            raise Unfit(
                f"the archive's names are longer than {render_bytes(MOST_NAMES_BYTES)} together"
            )
        if name in self._folders or name in self._files or name in self._links:
            raise Unfit(f"{shown(name)} is in the archive twice")
        if len(self._folders) + len(self._files) + len(self._links) >= MOST_ENTRIES:
            raise Unfit(f"the archive has more than {MOST_ENTRIES} entries")
        folder = posixpath.dirname(name) or "."
        if name != "." and folder not in self._folders:
            raise Unfit(f"{shown(name)} is in the archive before its folder")

    def _check_link(self, name: str, to: str) -> None:
        parts = [part for part in to.split("/") if part not in ("", ".")]
        up = next((count for count, part in enumerate(parts) if part != ".."), len(parts))
        if to.startswith("/") or ".." in parts[up:] or up > name.count("/") or not to or "\0" in to:
            raise Unfit(
                f"the link {shown(name)} leads to {shown(to)}, which may be outside the archive's "
                "folder"
            )


def _header(entry: TarInfo, name: str, top: str) -> bytes:
    written = TarInfo(name)
    written.type = tarfile.REGTYPE if entry.type in _FILES else entry.type
    written.size, written.mode = entry.size, entry.mode & 0o1777
    written.uid, written.gid, written.mtime = entry.uid, entry.gid, entry.mtime
    written.linkname = entry.linkname
    if entry.islnk():
        written.linkname = posixpath.normpath(posixpath.join(top, entry.linkname))
    return written.tobuf(tarfile.GNU_FORMAT, *_CODING)
