"""What a doctor finds. It must not look for anything itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and what to do about it."""

    what: str
    state: State
    line: str
    remedy: str = ""
    """Shown where it is not ok."""
