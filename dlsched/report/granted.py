"""`allotment()`: what the agent grants this job, so that the job can fit itself to it.

Owns the reading of `in/allotment.json`. It must not raise, and it promises no more than the file.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, Dict, NamedTuple, Optional, Tuple

_FILE_BYTES = 64 * 1024


class Allotment(NamedTuple):
    """What the job may use now. None: not limited, or not said."""

    cpu_cores: Optional[float] = None
    gpu_share: Optional[float] = None
    gpus: Tuple[str, ...] = ()
    deadline: Optional[float] = None
    """Unix time in seconds."""
    stop_soon: bool = False
    checkpoint_wanted: bool = False
    deliverable: bool = False
    """Whether the first tier of the job's target is reached: a good moment to save itself."""


def allotment() -> Optional[Allotment]:
    """The allotment as the agent wrote it last; None where there is none, or it cannot be read."""
    path = os.environ.get("DLSCHED_ALLOTMENT_FILE")
    if not path:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - imports few modules into a job
            told = json.loads(file.read(_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    gpus = told.get("gpus")
    return Allotment(
        cpu_cores=_number(told, "cpu_cores"),
        gpu_share=_number(told, "gpu_share"),
        gpus=tuple(str(gpu) for gpu in gpus) if isinstance(gpus, list) else (),
        deadline=_number(told, "deadline"),
        stop_soon=told.get("stop_soon") is True,
        checkpoint_wanted=told.get("checkpoint_wanted") is True,
        deliverable=told.get("deliverable") is True,
    )


def _number(told: Dict[str, Any], key: str) -> Optional[float]:
    value = told.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
