"""Drawn worlds under plain Docker and under a policy: what became of each job.

Both runs of a world play the same requests, and a service is judged by what they took.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.config.settings import Settings
from dlsched.control.decider import NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.policies.registry import load
from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN
from tests.worlds.harm import (
    FULL_RATIO,
    Run,
    busiest_ratio,
    harmed_trainings,
    is_harmed,
    meets,
    pairs_of,
    served,
)

OURS = "adaptive"
_GUARDS = GuardOptions(burst_ratio=Settings().burst_ratio)


@dataclass(frozen=True)
class Row:
    """One world."""

    seed: int
    busiest_ratio: float
    """Part of the node that is needed in the busiest second."""
    services: int
    harmed: tuple[str, ...]
    """Each harmed service: mean and p95 under plain Docker and under ours, in ms."""
    updates_per_min: float
    slowed: tuple[str, ...] = ()
    """Each harmed training or other busy container: CPU or end in both runs."""
    reordered: tuple[str, ...] = ()
    """Trainings that have less CPU for the good of other trainings, without a later end."""
    kind: str = ""
    targets: int = 0
    plain_met: int = 0
    own_met: int = 0
    took_s: float = 0.0
    """CPU time of both runs on the host that played them."""

    @property
    def fits(self) -> bool:
        """Whether the demand of everything fits in every second."""
        return self.busiest_ratio <= FULL_RATIO

    @property
    def worse(self) -> tuple[str, ...]:
        """Everyone who is harmed."""
        return self.harmed + self.slowed


def play(trace: Trace, policy: str, seed: int) -> Run:
    """That trace under a new instance of that policy."""
    run = Run()
    named = NamedPolicy(policy, load(policy))
    run.updates = simulate(trace, named, seed, guards=_GUARDS, inspect=run.watch).updates
    return run


def row_of(trace: Trace, seed: int, policy: str = OURS) -> Row:
    """That world under both."""
    plain, own = play(trace, PLAIN, seed), play(trace, policy, seed)
    pairs = pairs_of(trace, plain.loads, own.loads)
    told = []
    for pair in pairs:
        if is_harmed(pair):
            was, now = served(pair.plain), served(pair.own)
            cells = [
                f"{_ms(before)} -> {_ms(after)} ms"
                for before, after in ((was.mean_s, now.mean_s), (was.p95_s, now.p95_s))
            ]
            aim = "no target" if pair.target is None else f"target {_ms(pair.target.seconds)} ms"
            told.append(f"{pair.name} ({aim}): mean {cells[0]}, p95 {cells[1]}")
    slowed, reordered = harmed_trainings(trace, plain, own)
    aims = [(pair, pair.target) for pair in pairs if pair.target is not None]
    return Row(
        seed,
        round(busiest_ratio(trace, plain.loads), 3),
        len(pairs),
        tuple(told),
        round(60.0 * own.updates / trace.duration_s, 1),
        slowed=tuple(slowed),
        reordered=tuple(reordered),
        kind=trace.name,
        targets=len(aims),
        plain_met=sum(meets(pair.plain, target) for pair, target in aims),
        own_met=sum(meets(pair.own, target) for pair, target in aims),
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000.0 * seconds:.1f}"
