"""The outcomes of cluster-torture, its table and its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.publish.results import grouped, verdict
from benchmarks.robustness.cluster_world import TOGETHER

ASKED_POINTS = 28
"""Of a move, at which each process is killed."""


@dataclass
class Outcome:
    """One fault, and what came of it."""

    part: str
    line: str
    """Of the table of a move: M0 to U2."""
    what: str
    victim: str
    undone: bool = False
    """Whether the job's start on the target was made to fail."""
    reached: bool = False
    """Whether the fault happened."""
    runs_on: str = ""
    """Where the job runs after it."""
    settled_s: float = 0.0
    """From when the last process was started again until nothing was left of the move."""
    listings: int = 0
    """Of all engines, meanwhile."""
    wrong: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        undone = ", undone" if self.undone else ""
        parts = (self.part, f"{self.line}{undone}", self.what, self.victim)
        return ": ".join(dict.fromkeys(parts))

    @property
    def point(self) -> tuple[object, ...]:
        """Of a move, at which it happened."""
        return self.line, self.what, self.undone

    def result(self) -> str:
        if self.wrong:
            return f"LOST: {'; '.join(self.wrong)}"
        if not self.reached:
            return "not reached"
        return f"runs on the {self.runs_on}, after {self.settled_s:.1f} s"


def lost(name: str) -> Outcome:
    """The fault of that name, of which nothing else is known."""
    part, line, rest = f"{name}: ".split(": ", 2)
    what, _, victim = rest.removesuffix(": ").rpartition(": ")
    undone = line.endswith(", undone")
    line = line.removesuffix(", undone")
    return Outcome(part, line, what or victim, victim, undone=undone, reached=True)


def table(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """One row a part and victim, and one for all."""
    groups = grouped(outcomes, lambda one: f"{one.part}: {one.victim}")
    return [_row(name, mine) for name, mine in [*groups.items(), ("all", list(outcomes))]]


def _row(name: str, outcomes: Sequence[Outcome]) -> dict[str, object]:
    reached = [one for one in outcomes if one.reached]
    times = sorted(one.settled_s for one in reached if not one.wrong)
    lost = sorted({wrong.partition(";")[0] for one in outcomes for wrong in one.wrong})
    return {
        "fault": name,
        "points": len({one.point for one in reached}),
        "faults": len(reached),
        "not reached": len(outcomes) - len(reached),
        "survived": sum(not one.wrong for one in reached),
        "on the target": sum(one.runs_on == "target" for one in reached),
        "median s": times[len(times) // 2] if times else "-",
        "most s": times[-1] if times else "-",
        "lost": "; ".join(lost) or "nothing",
    }


def headlines(outcomes: Sequence[Outcome]) -> list[str]:
    reached = [one for one in outcomes if one.reached]
    wrong = [one for one in reached if one.wrong]
    survived = {one.name for one in reached if not one.wrong}
    again = sum(one.name in survived for one in wrong)
    kills = [one for one in reached if one.part == "kill"]
    points = {one.point for one in kills}
    listings = sum(one.listings for one in outcomes)
    twice = sum(TOGETHER in line for one in outcomes for line in one.wrong)
    mended = f"; run again after a mend, {again} of them survived" if wrong else ""
    least = min(
        (
            len({one.point for one in kills if one.victim == victim})
            for victim in {one.victim for one in kills}
        ),
        default=0,
    )
    others = len(reached) - len(kills)
    return [
        (
            f"{len(kills)} kills at {len(points)} points of a move, of each process at {least} or "
            f"more (asked {ASKED_POINTS}): {verdict(least >= ASKED_POINTS)}"
        ),
        (
            f"{others} faults of three managers, their links and certificates (asked some): "
            f"{verdict(others > 0)}"
        ),
        (
            f"faults that lost or doubled the job, or left something behind: {len(wrong)}{mended} "
            f"(asked none left): {verdict(again == len(wrong))}"
        ),
        (
            f"faults in which the job ran twice {TOGETHER}: {twice} (asked none); "
            f"listings of all engines: {listings}: {verdict(not twice)}"
        ),
    ]
