"""Small files that are whole or not there, also after a power cut.

Owns the one way to write such a file. It must not know what is in it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_SUFFIX = ".tmp"


def write_whole(path: Path, text: str, *, mode: int = 0o640, to_disk: bool = True) -> None:
    """Put the text at that path: on return it is on the disk; on OSError the old file is whole.

    The temporary name begins with a dot, in the same folder. Without `to_disk` a power cut may
    leave an empty file: for what can be told again.
    """
    prefix = f".{path.name}."
    descriptor, temporary = tempfile.mkstemp(prefix=prefix, suffix=_SUFFIX, dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(descriptor, mode)
            if to_disk:
                os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if to_disk:
        sync_folder(path.parent)


def clear_unfinished(folder: Path) -> None:
    """Remove what a writer that was killed has left there; nobody else may be writing to it."""
    for left in folder.glob(f".*{_SUFFIX}"):
        left.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Remove that file for good; nothing happens when it is not there."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring the folder's own entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
