"""Fifty trainings of five kinds on four nodes, drawn from a seed: the worlds in which policies of a
cluster are compared. Lengths and kinds are ours; only their number, the arrivals and the number of
nodes are those of the SpeCon paper."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from dlsched.model.facts import NodeFact
from dlsched.model.spec import AccuracyTarget, Bounds, ContainerSpec, JobSpec
from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.workloads import (
    HostLoad,
    SavedState,
    SimulatedJob,
    Trace,
    TraceNode,
    TrainingLoad,
)

JOBS, NODES, CORES = 50, 4, 8.0
ARRIVE_S = 450.0
DURATION_S = 14_400.0

WORLDS = ("equal", "two-half", "loses", "heavy", "slow")
"""Equal nodes; two of four of half the size; one that loses three quarters of its CPU to others at
300 s; equal nodes, and lengths with a heavy tail; two of four that do half the work in a
core-second, which no policy knows."""

_LOSS = HostLoad(300.0, DURATION_S, 0.75 * CORES, 262_144)
_SPREAD, _HEAVY_SPREAD = 0.4, 0.9
"""Standard deviation of the logarithm of a job's work within its kind."""


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    work_core_s: float
    """Median."""
    threads: float
    step_core_s: float


KINDS = (
    Kind("birnn", 900.0, 4.0, 0.5),
    Kind("dynrnn", 575.0, 4.0, 0.3),
    Kind("rnn", 325.0, 2.0, 0.2),
    Kind("lenet", 450.0, 8.0, 0.25),
    Kind("vae", 700.0, 8.0, 0.4),
)


def world(name: str, seed: int) -> Trace:
    """The jobs are the same in all worlds of a seed, but for the lengths of the heavy one."""
    sizes = [CORES] * NODES
    if name == "two-half":
        sizes[2:] = [CORES / 2] * 2
    nodes = tuple(
        TraceNode(
            f"node-{index + 1}",
            NodeFact(cores, 64 << 30),
            speed=0.5 if name == "slow" and index >= 2 else 1.0,
            host=(_LOSS,) if name == "loses" and index == 0 else (),
        )
        for index, cores in enumerate(sizes)
    )
    chance = random.Random(f"cluster/{seed}")
    kinds = [KINDS[index % len(KINDS)] for index in range(JOBS)]
    works_core_s = _works(kinds, chance, heavy=name == "heavy")
    jobs = [
        _job(kind, index, work_core_s, chance)
        for index, (kind, work_core_s) in enumerate(zip(kinds, works_core_s, strict=True))
    ]
    return Trace(
        node=nodes[0].node,
        nodes=nodes,
        jobs=tuple(sorted(jobs, key=lambda job: job.name)),
        duration_s=DURATION_S,
        cycle_s=5.0,
        name=f"cluster-{JOBS}-{name}",
    )


def _works(kinds: Sequence[Kind], chance: random.Random, *, heavy: bool) -> list[float]:
    """The work of each job, log-normal around its kind's median. A heavy tail has the same
    medians."""
    spread = _HEAVY_SPREAD if heavy else _SPREAD
    return [kind.work_core_s * math.exp(spread * chance.gauss(0.0, 1.0)) for kind in kinds]


def _job(kind: Kind, index: int, work_core_s: float, chance: random.Random) -> SimulatedJob:
    steps = max(round(work_core_s / kind.step_core_s), 60)
    curve = Curve(
        round(chance.uniform(0.08, 0.3), 4),
        round(chance.uniform(0.85, 0.99), 4),
        round(steps * chance.uniform(0.12, 0.3), 1),
        chance.choice(("power", "exponential")),
    )
    deliver, finish = (curve.value(steps * chance.uniform(*at)) for at in ((0.2, 0.45), (0.6, 0.9)))
    load = TrainingLoad(
        steps=steps,
        work_core_s=kind.step_core_s,
        evaluate_every=max(1, steps // 60),
        curve=curve,
        threads=kind.threads,
        noise=0.004,
        checkpoint_every=max(1, steps // 10),
    )
    name = f"{kind.name}-{index:02}"
    spec = JobSpec(
        name=name,
        container=ContainerSpec(image=kind.name),
        bounds=Bounds(ceiling_cores=kind.threads),
        target=AccuracyTarget("accuracy", round(deliver, 4), round(finish, 4)),
        container_digest=name,
        digest=name,
    )
    shortest_s = steps * kind.step_core_s / kind.threads
    return SimulatedJob(
        spec,
        load,
        arrives_s=round(chance.uniform(0.0, ARRIVE_S), 3),
        start_up_s=1.0,
        start_up_work_core_s=1.0,
        checkpoint=SavedState(save_s=round(1.0 + 0.01 * shortest_s, 3)),
    )
