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
    """Of each GPU's time, 0 to 1."""
    gpus: Tuple[str, ...] = ()
    deadline: Optional[float] = None
    """Unix time in seconds."""
    stop_soon: bool = False
    checkpoint_wanted: bool = False
    deliverable: bool = False
    """Whether the first tier of the job's target is reached: a good moment to save itself."""
    gpu_memory_bytes: Optional[int] = None
    """Of each GPU."""


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
    memory = _number(told, "gpu_memory_bytes")
    return Allotment(
        cpu_cores=_number(told, "cpu_cores"),
        gpu_share=_number(told, "gpu_share"),
        gpus=tuple(str(gpu) for gpu in gpus) if isinstance(gpus, list) else (),
        deadline=_number(told, "deadline"),
        stop_soon=told.get("stop_soon") is True,
        checkpoint_wanted=told.get("checkpoint_wanted") is True,
        deliverable=told.get("deliverable") is True,
        gpu_memory_bytes=None if memory is None else int(memory),
    )


class Grant:
    """The allotment as it was read last. It is read again only when the file has changed."""

    def __init__(self) -> None:
        self.told: Optional[Allotment] = None
        """None: none could be read yet. One that can no longer be read leaves the last."""
        self._seen: Optional[Tuple[int, int, int]] = None

    def look(self) -> Optional[Allotment]:
        """What is granted now, at the cost of one `stat`."""
        path = os.environ.get("DLSCHED_ALLOTMENT_FILE")
        if not path:
            return self.told
        try:
            status = os.stat(path)  # noqa: PTH116 - imports few modules into a job
        except OSError:
            return self.told
        found = (status.st_ino, status.st_mtime_ns, status.st_size)
        if found != self._seen:
            told = allotment()
            if told is not None:
                self._seen, self.told = found, told
        return self.told


def _number(told: Dict[str, Any], key: str) -> Optional[float]:
    value = told.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
