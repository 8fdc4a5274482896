"""`dlsched.report` where there is one, silence where there is none.

The daemon lays the reporter into the containers that it starts. An image that somebody runs by
hand lacks it, and must work all the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    from dlsched.report import Progress, allotment, fit_to_allotment, pace
except ImportError:
    print("dlsched.report is not here: running without reports", file=sys.stderr, flush=True)

    class Progress:  # type: ignore[no-redef]
        """Reports to nobody."""

        def step(self, step: int, **metrics: float) -> None:
            """Nothing."""

        def checkpoint(self, step: int, path: Path) -> None:
            """Nothing."""

    def allotment() -> None:  # type: ignore[misc]
        """None: nothing is granted."""

    fit_to_allotment = pace = allotment  # type: ignore[assignment]


def checkpoint_wanted() -> bool:
    """Whether the daemon wants the training to save itself now."""
    told = allotment()
    return told is not None and told.checkpoint_wanted
