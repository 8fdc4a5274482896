"""A small set of worlds that feels what the policy `adaptive` does, in half a minute.

Owns which worlds. For finding out whether a change to the policy changes anything, and where;
no figure of it is published.

    python -m benchmarks run screening     prints one figure a kind of world, as JSON
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from itertools import chain

from benchmarks.options import options
from benchmarks.simulated import adaptive_inference, adaptive_training, open_loop
from dlsched.simulation.scoring import PLAIN
from tests.worlds.harm import worse_jobs
from tests.worlds.open_worlds import Scenario, world

CLOSED = ("feasible", "over", "change", "p95-half", "lying")
OPEN = (
    Scenario("poisson", 0.5, hopeless=True),
    Scenario("bursty", 0.7),
    Scenario("periodic", 0.5),
    Scenario("closed", 0.7, hopeless=True),
    Scenario("poisson", 1.2),
    Scenario("closed", 1.4),
    Scenario("poisson", 0.5, trainings=2),
    Scenario("bursty", 0.5, trainings=2, idle_class=True),
    Scenario("periodic", 0.7, trainings=2, minimum_cores=0.4),
)
JOBS = 10
CLOSED_SEEDS, OPEN_SEED, TRAINING_SEED = (1, 2), 1, 201

Figures = Iterator[tuple[str, float]]


def closed_loops() -> Figures:
    """Parts of the services that are within the band, and that meet their targets."""
    policies = ("adaptive?mode=band", "adaptive?mode=slo")
    for scenario in adaptive_inference.SCENARIOS:
        if scenario.name not in CLOSED:
            continue
        for seed in CLOSED_SEEDS:
            for row in adaptive_inference.compare(scenario, JOBS, seed, policies):
                if adaptive_inference.HONEST in row.scenario:
                    continue
                mode = row.policy.partition("mode=")[2]
                good = row.satisfied_jobs if mode == "band" else row.met_jobs
                yield f"{mode}, {scenario.name}: kept", good / JOBS
                yield f"{mode}: updates a minute", row.updates_per_min


def open_loops() -> Figures:
    """Services whose requests are played one by one, beside the same ones under plain Docker."""
    for scenario in OPEN:
        trace = world(scenario, JOBS, OPEN_SEED)
        plain, played = (
            open_loop.play_requests(trace, policy, OPEN_SEED) for policy in (PLAIN, "adaptive")
        )
        kind = f"{scenario.arriving}, {scenario.name}"
        yield f"{kind}: met", open_loop.met_jobs(trace, played) / JOBS
        yield "open: slower than plain", worse_jobs(trace, plain.loads, played.loads) / JOBS
        yield "open: updates a minute", open_loop.updates_per_min(trace, played)
        if scenario.trainings:
            used, base = (open_loop.training_cores(trace, one) for one in (played, plain))
            yield f"{kind}: trainings' CPU of plain", used / base


def trainings() -> Figures:
    """Times of trainings over those under plain Docker."""
    for scenario in adaptive_training.SCENARIOS:
        rows = adaptive_training.compare(scenario, JOBS, TRAINING_SEED, ("none", "adaptive"))
        cells = adaptive_training.cells_of(rows)
        times = adaptive_training.three(cells[scenario.name, JOBS, "adaptive"])
        yield f"{scenario.name}: times of plain", math.nan if times is None else times


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)
    found: dict[str, list[float]] = {}
    for name, value in chain(closed_loops(), open_loops(), trainings()):
        found.setdefault(name, []).append(value)
    means = {name: round(statistics.fmean(values), 5) for name, values in found.items()}
    print(json.dumps(means, indent=1))
    return 0
