"""The adapter's options for how GPUs reach containers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """The way in, and where the host's GPUs are."""

    injection: Literal["auto", "cdi", "request", "nodes"] = "auto"
    device_folder: Path = Path("/dev")
    """Where the host has their device nodes."""
