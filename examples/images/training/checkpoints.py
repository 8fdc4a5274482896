"""Checkpoint files: written whole or not at all, found again newest first.

Owns names, digests and durability of the files in one folder; what is in them is the caller's
bytes. A file begins with the SHA-256 of the rest, so one that was cut off or changed is known.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

KEPT = 2
DIGEST_BYTES = hashlib.sha256().digest_size
NAME = re.compile(r"step-(\d{1,12})\.ckpt", re.ASCII)


def save(folder: Path, step: int, content: bytes) -> Path:
    """Store the content as the checkpoint of that step. Raises OSError.

    It and the newest of the others are kept: one of a later step can only be a damaged one.
    """
    path = folder / f"step-{step}.ckpt"
    # One name: what a killed container leaves is replaced by the next, which has the same PID.
    partial = folder / f".partial.{os.getpid()}"
    try:
        with partial.open("wb") as file:
            file.write(hashlib.sha256(content).digest())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    _sync(folder)
    others = [other for _, other in _stored(folder) if other != path]
    for old in others[KEPT - 1 :]:
        with suppress(OSError):
            old.unlink()
    return path


def newest_first(folder: Path, tell: Callable[[str], None]) -> Iterator[tuple[Path, bytes]]:
    """The whole checkpoints of a folder, the one of the latest step first.

    One that cannot be read, or is damaged, is told of and left out.
    """
    for _, path in _stored(folder):
        try:
            stored = path.read_bytes()
        except OSError as error:
            tell(f"checkpoint {path}: {error.strerror}: leaving it out")
            continue
        content = stored[DIGEST_BYTES:]
        if hashlib.sha256(content).digest() == stored[:DIGEST_BYTES]:
            yield path, content
        else:
            tell(f"checkpoint {path}: damaged: leaving it out")


def _stored(folder: Path) -> list[tuple[int, Path]]:
    """Steps and paths, the latest step first."""
    names = [(NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted(((int(name[1]), path) for name, path in names if name), reverse=True)


def _sync(folder: Path) -> None:
    """See to it that a rename in the folder outlasts a crash of the host."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
