"""`Progress`: a training's steps, metrics and checkpoints."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Optional

from dlsched.report.lines import (
    LAST_STEP,
    METRICS_PER_LINE,
    NAME_CHARACTERS,
    PATH_CHARACTERS,
    RESERVED,
)
from dlsched.report.writer import Writer, current


class Progress:
    """Reports a training's progress, at most once a second: the last value of each metric.

    In a distributed job only rank 0 reports: `rank`, or the environment's RANK, is this process's.
    Without DLSCHED_METRICS_FILE it does nothing.
    """

    def __init__(self, rank: Optional[int] = None) -> None:
        self._step = 0
        rank_text = os.environ.get("RANK", "") if rank is None else str(rank)
        self._silent = rank_text.strip() not in ("", "0")

    def step(self, step: Optional[int] = None, **metrics: Any) -> None:
        """Report a step (None: the next one) and its metrics by name. A value is anything that
        `float()` takes; `nan` or `inf` says that the training diverged."""
        with contextlib.suppress(Exception):
            self._step = self._step + 1 if step is None else int(step)
            writer = None if self._silent else current()
            if writer is None:
                return
            if 0 <= self._step <= LAST_STEP:
                writer.stepped(self._step, _numbers(writer, metrics))
            else:
                writer.drop()

    def checkpoint(self, step: int, path: Any) -> None:
        """Report that the job has saved itself at that step, in that place."""
        with contextlib.suppress(Exception):
            writer = None if self._silent else current()
            if writer is None:
                return
            text = os.fsdecode(path)
            short = text.isprintable() and len(text) <= PATH_CHARACTERS
            if short and 0 <= int(step) <= LAST_STEP:
                writer.saved(int(step), text)
            else:
                writer.drop()


def _numbers(writer: Writer, metrics: Dict[str, Any]) -> Dict[str, float]:
    kept: Dict[str, float] = {}
    for name, given in metrics.items():
        value = None
        with contextlib.suppress(Exception):
            value = float(given)
        fits = len(kept) < METRICS_PER_LINE and 0 < len(name) <= NAME_CHARACTERS
        if value is not None and fits and name.isprintable() and name not in RESERVED:
            kept[name] = value
        else:
            writer.drop()
    return kept
