"""A doctor's finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, the result, and what to do about it."""

    what: str
    state: State
    line: str
    remedy: str = ""
    """Shown unless the state is ok."""
