"""`dlsched.report` where there is one, silence where there is none.

The daemon lays the reporter into the containers that it starts. An image that somebody runs by
hand lacks it, and must work all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Reports(Protocol):
    """What a training tells."""

    def step(self, step: int, **metrics: float) -> None:
        """That many steps are made; this is known of the last."""

    def checkpoint(self, step: int, path: Path) -> None:
        """It has saved itself at that step, there."""


class Silence:
    """Reports to nobody."""

    def step(self, step: int, **metrics: float) -> None:
        """Nothing."""

    def checkpoint(self, step: int, path: Path) -> None:
        """Nothing."""


def progress() -> Reports:
    """The reporter's Progress, or one that keeps silent."""
    try:
        from dlsched.report import Progress
    except ImportError:
        print("dlsched.report is not here: running without reports", file=sys.stderr, flush=True)
        return Silence()
    return Progress()


def saving() -> Callable[[], bool]:
    """What to call between steps: whether the daemon wants the training to save itself now."""
    try:
        from dlsched.report import allotment
    except ImportError:
        return lambda: False

    def wanted() -> bool:
        told = allotment()
        return told is not None and told.checkpoint_wanted

    return wanted


def pacer() -> Callable[[], object]:
    """What to call after each step, to use no more of a shared GPU's time than is allotted."""
    try:
        from dlsched.report import pace
    except ImportError:
        return lambda: None
    return pace


def fitter() -> Callable[[], object]:
    """What to call between steps, so that torch's threads follow what the daemon allots."""
    try:
        from dlsched.report import fit_to_allotment
    except ImportError:
        return lambda: None
    return fit_to_allotment
