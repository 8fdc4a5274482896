"""A part of all points, drawn by a seed: what a test run can afford.

Owns what a point is called among those of all acts, and the draw. It must not play anything.
"""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.properties import profile
from tests.torture.points import Phase, Point

SEED = "DLSCHED_TORTURE_SEED"
"""Environment variable with the seed: any text. Without it the same each time; under profiles other
than `ci` (tests/properties.py) the commit's name, else the date."""

PART = 0.1
STEPS = ("to disk", "make", "mode of", "owner of", "empty", "listen")
"""How the actions begin that are steps of writing a small file or of making a socket: those are
all played where no engine is needed."""


@dataclass(frozen=True, slots=True)
class Named:
    """A point of one act under one policy."""

    policy: str
    act: str
    point: Point

    def __str__(self) -> str:
        """Its name. Nothing of the source tree is in it, so it outlives a move of modules."""
        return f"{self.policy}: {self.act}: {self.point}"


def seed() -> str:
    """The seed of this run."""
    asked = os.environ.get(SEED)
    if asked:
        return asked
    if profile() == "ci":
        return "ci"
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip() or datetime.now(UTC).date().isoformat()


def drawn(points: Sequence[Named], by: str, part: float = PART) -> list[tuple[Named, Phase]]:
    """That part of the points, and one of each kind of action that is no step: where to die.

    The same for the same seed; a point that is listed or not moves no other one far.
    """
    order = sorted(points, key=lambda one: _number(by, str(one)))
    tenth = order[: math.ceil(len(order) * part)]
    kinds = {one.point.action for one in tenth}
    for one in order:
        action = one.point.action
        if action not in kinds and not action.startswith(STEPS) and "unfinished" not in action:
            kinds.add(action)
            tenth.append(one)
    return [(one, _phase(by, one)) for one in tenth]


def _phase(by: str, one: Named) -> Phase:
    deaths = one.point.deaths
    return deaths[_number(by, f"{one}, phase") % len(deaths)]


def _number(by: str, text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{by}/{text}".encode()).digest()[:8])
