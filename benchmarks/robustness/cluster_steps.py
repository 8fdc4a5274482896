"""The steps of a move, as the points at which processes are killed: SWARM.md's M0 to U2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.torture.points import Phase as At
from tests.torture.points import Point

Victim = Literal["controller", "source daemon", "target daemon", "source engine", "target engine"]
VICTIMS: tuple[Victim, ...] = (
    "controller", "source daemon", "target daemon", "source engine", "target engine",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One step: which process comes to it, and what it does."""

    line: str
    who: Literal["controller", "source daemon", "target daemon"]
    action: str
    ordinal: int = 1
    at: tuple[At, ...] = ("before", "after")
    undone: bool = False
    """Whether the job's start on the target fails, so that it returns."""

    @property
    def point(self) -> Point:
        return Point(self.action, "", self.ordinal, self.at == _ORDER)


_ORDER: tuple[At, ...] = ("before", "inside", "after")
"""Inside: the order is sent, its answer not read."""
_HALF: tuple[At, ...] = ("before",)

STEPS = (
    Step("M0", "controller", "order prepare", at=_ORDER),
    Step("M0", "target daemon", "file prepared"),
    Step("M1", "controller", "record leaving"),
    Step("M1", "controller", "order leave", at=_ORDER),
    Step("M1", "source daemon", "file saving"),
    Step("M1", "source daemon", "move: ask"),
    Step("M1", "source daemon", "move: set_aside"),
    Step("M1", "source daemon", "move: end"),
    Step("M1", "source daemon", "packed block", 2, at=_HALF),
    Step("M1", "source daemon", "move: pack", at=("after",)),
    Step("M1", "source daemon", "file away"),
    Step("M2", "controller", "record moving"),
    Step("M2", "controller", "order arrive", at=_ORDER),
    Step("M2", "target daemon", "file arriving"),
    Step("M2", "target daemon", "fetched block", 10, at=_HALF),
    Step("M2", "target daemon", "file running"),
    Step("M2", "target daemon", "engine: create"),
    Step("M2", "target daemon", "unpacked block", 2, at=_HALF),
    Step("M2", "target daemon", "volume filled", at=("after",)),
    Step("M2", "target daemon", "engine: start"),
    Step("M3", "controller", "record placed"),
    Step("M3", "target daemon", "file running, confirmed"),
    Step("M3", "controller", "order clear", at=_ORDER),
    Step("M3", "source daemon", "file fenced"),
    Step("M3", "source daemon", "move: remove"),
    Step("U1", "controller", "record undoing", undone=True),
    Step("U1", "controller", "order clear", at=_ORDER, undone=True),
    Step("U1", "target daemon", "file fenced", undone=True),
    Step("U1", "controller", "record returning", undone=True),
    Step("U1", "controller", "order give_back", at=_ORDER, undone=True),
    Step("U1", "source daemon", "file running", undone=True),
    Step("U1", "source daemon", "move: bring_back", undone=True),
    Step("U2", "controller", "record placed", undone=True),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One process killed at one step."""

    step: Step
    at: At
    victim: Victim

    def __str__(self) -> str:
        undone = ", undone" if self.step.undone else ""
        return f"{self.step.line}{undone}: {self.at} {self.step.action}: {self.victim}"


def faults() -> list[Fault]:
    """All of them: every step with one victim, then with the next, so that a run that is cut short
    has all steps, and all victims about equally often."""
    places = [(step, at) for step in STEPS for at in step.at]
    return [
        Fault(step, at, VICTIMS[(number + turn) % len(VICTIMS)])
        for turn in range(len(VICTIMS))
        for number, (step, at) in enumerate(places)
    ]
