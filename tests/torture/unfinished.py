"""Unfinished and broken files: which ones stay, and which one a living agent is about to finish."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

UNFINISHED_S = 10.0
"""A living agent has an unfinished file while it writes: milliseconds, and more on a slow disk."""


def staying(folders: Sequence[Path], within_s: float = UNFINISHED_S) -> list[Path]:
    """Unfinished and broken files that are still there after that time."""
    until_s = time.monotonic() + within_s
    left = _unfinished(folders)
    while left and time.monotonic() < until_s:
        time.sleep(0.05)
        left &= _unfinished(folders)
    return sorted(left)


def _unfinished(folders: Sequence[Path]) -> set[Path]:
    # Unlike a glob, a walk passes over folders that a living agent removes meanwhile.
    return {
        Path(parent) / name
        for folder in folders
        for parent, inner, files in os.walk(folder)
        for name in (*inner, *files)
        if name.endswith((".tmp", ".broken")) or ".new-" in name or ".corrupt-" in name
    }
