"""Atomic writes of small files, complete or absent even after a power cut; and their folders."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_SUFFIX = ".tmp"


def write_whole(path: Path, text: str, *, mode: int = 0o640, to_disk: bool = True) -> None:
    """Write that file durably; on OSError the old one is intact. Its temporary name begins with a
    dot.

    Without `to_disk` a power cut may leave an empty file: only for what can be written again.
    """
    prefix = f".{path.name}."
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=prefix, suffix=_SUFFIX, dir=path.parent)
    except OSError as error:
        error.filename = str(path.parent)  # users do not know the temporary name
        raise
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


def make_folder(folder: Path) -> None:
    """Make that folder and those above it that are missing; only their owner may change them, and
    others than the group may not read them."""
    if not folder.parent.exists():
        make_folder(folder.parent)  # `parents=True` would make them readable by everybody
    folder.mkdir(exist_ok=True, mode=0o750)


def clear_unfinished(folder: Path) -> None:
    """Remove temporary files of killed writers; no other writer may be active there."""
    for left in folder.glob(f".*{_SUFFIX}"):
        left.unlink(missing_ok=True)


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
