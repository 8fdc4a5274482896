"""`allotment()`: what the agent grants this job. It never raises."""

from __future__ import annotations

import json
import math
import os
from typing import Any, Dict, NamedTuple, Optional, Tuple

_FILE_BYTES = 64 * 1024


class Allotment(NamedTuple):
    """What the job may use now. None: not limited, or unknown."""

    cpu_cores: Optional[float] = None
    gpu_share: Optional[float] = None
    """Share of each GPU's time, 0 to 1."""
    gpus: Tuple[str, ...] = ()
    stop_soon: bool = False
    checkpoint_wanted: bool = False
    deliverable: bool = False
    """Whether the first tier of the job's target is reached: a good moment for a checkpoint."""
    gpu_memory_bytes: Optional[int] = None
    """Memory of each GPU."""


def allotment() -> Optional[Allotment]:
    """The allotment as last written by the agent; None where it is missing or unreadable."""
    path = os.environ.get("DLSCHED_ALLOTMENT_FILE")
    if not path:
        return None
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - imports few modules into a job
            document = json.loads(file.read(_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    gpus = document.get("gpus")
    memory = _number(document, "gpu_memory_bytes")
    return Allotment(
        cpu_cores=_number(document, "cpu_cores"),
        gpu_share=_number(document, "gpu_share"),
        gpus=tuple(str(gpu) for gpu in gpus) if isinstance(gpus, list) else (),
        stop_soon=document.get("stop_soon") is True,
        checkpoint_wanted=document.get("checkpoint_wanted") is True,
        deliverable=document.get("deliverable") is True,
        gpu_memory_bytes=None if memory is None else int(memory),
    )


class Grant:
    """The allotment, read again only when the file has changed."""

    def __init__(self) -> None:
        self.last: Optional[Allotment] = None
        """The last readable allotment; None: none yet."""
        self._stamp: Optional[Tuple[int, int, int]] = None

    def poll(self) -> Optional[Allotment]:
        """The present allotment, at the cost of one `stat`."""
        path = os.environ.get("DLSCHED_ALLOTMENT_FILE")
        if not path:
            return self.last
        try:
            status = os.stat(path)  # noqa: PTH116 - imports few modules into a job
        except OSError:
            return self.last
        found = (status.st_ino, status.st_mtime_ns, status.st_size)
        if found != self._stamp:
            read = allotment()
            if read is not None:
                self._stamp, self.last = found, read
        return self.last


def _number(document: Dict[str, Any], key: str) -> Optional[float]:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
