"""How far a job is that leaves this node for another one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LeavingPhase(StrEnum):
    SAVING = "saving"
    """Asked for a checkpoint, or ending, or its checkpoint is being packed."""
    REFUSED = "refused"
    """It acknowledged no checkpoint in time, so it runs on."""
    ENDED = "ended"
    """It ended by itself first."""
    AWAY = "away"
    """Its container has ended and is set aside, and its checkpoint is packed in the archive, or is
    in shared storage."""


@dataclass(frozen=True, slots=True)
class Leaving:
    phase: LeavingPhase
    step: int | None = None
    """Of the checkpoint that it acknowledged."""
    sha256: str = ""
    """Of the archive's bytes, in hexadecimal digits."""
    size_bytes: int = 0
    """Of the archive, or of the file in shared storage."""
    file: str = ""
    """In shared storage: its path in the container."""
    why: str = ""
