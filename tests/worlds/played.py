"""Drawn worlds under plain Docker and under `adaptive`: what became of each service.

Both runs of a world play the same requests, and a service is judged by what they took.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.control.decider import NamedPolicy
from dlsched.policies.registry import load
from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.node.world import Computation
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN
from tests.worlds.harm import busiest_ratio, harmed, pairs_of, served
from tests.worlds.harm_worlds import CORES, DURATION_S, World

OURS = "adaptive"


@dataclass(frozen=True)
class Row:
    """One world."""

    seed: int
    busiest_ratio: float
    """Part of the node that services and outside load need in the busiest second."""
    services: int
    harmed: tuple[str, ...]
    """What each harmed service took: mean and p95 under plain Docker, and under ours, in ms."""
    updates_per_min: float


def play(trace: Trace, policy: str, seed: int) -> tuple[dict[str, Computation], int]:
    """What each job truly did, and how many updates were made."""
    found: dict[str, Computation] = {}
    named = NamedPolicy(policy, load(policy))
    run = simulate(trace, named, seed, inspect=lambda _, loads: found.update(loads))
    return found, run.updates


def row_of(world: World) -> Row:
    """That world under both."""
    trace = world.trace()
    seed = world.seed % 1000
    plain, _ = play(trace, PLAIN, seed)
    own, updates = play(trace, OURS, seed)
    pairs, told = pairs_of(trace, plain, own), []
    for pair in pairs:
        was, now = served(pair.plain), served(pair.own)
        if harmed(was, now, pair.target.seconds):
            times = (was.mean_s, was.p95_s, now.mean_s, now.p95_s)
            cells = ["-" if one is None else f"{1000 * one:.1f}" for one in times]
            told.append(f"{pair.name}: {' '.join(cells)}")
    busiest = busiest_ratio(trace, plain) + world.foreign_cores / (CORES * world.full_speed)
    per_min = 60.0 * updates / DURATION_S
    return Row(world.seed, round(busiest, 3), len(pairs), tuple(told), round(per_min, 1))
