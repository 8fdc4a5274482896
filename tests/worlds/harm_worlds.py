"""Drawn small nodes on which no service may be worse off for a policy than under plain Docker:
open loops with targets, and trainings beside them.

Owns which worlds there are. It must not run or judge them: the property in the tests and the bench
`no-harm` do.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from dlsched.model.facts import NodeFact
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.loops import Loop
from dlsched.simulation.node.workloads import (
    HostLoad,
    ServiceLoad,
    SimulatedJob,
    Trace,
    TrainingLoad,
)
from tests.worlds.open_worlds import simulated_job

CORES = 2.0
DURATION_S = 40.0
KINDS = ("poisson", "periodic", "bursty")


@dataclass(frozen=True)
class World:
    """What is drawn of a node; the seed draws the rest."""

    seed: int
    use_ratio: float
    """Of the node, by all services in the mean."""
    kinds: tuple[str, ...]
    """Of loops, a service each."""
    hopeless: bool
    trainings: int
    heavy_ratio: float = 0.0
    idle_class: bool = False
    foreign_cores: float = 0.0
    """What processes outside dlsched use from the tenth second to the thirtieth."""
    threads: int = 1
    """Of each request, after a part that one of them does alone."""
    serial_ratio: float = 0.0
    full_speed: float = 1.0
    """Work in a core-second while all cores are busy."""

    def trace(self) -> Trace:
        """Services that use that part of the node in the mean, and what is beside them."""
        chance = random.Random(self.seed)
        parts = [chance.uniform(0.2, 1.0) for _ in self.kinds]
        jobs = [training(index) for index in range(1, self.trainings + 1)]
        for index, (kind, part) in enumerate(zip(self.kinds, parts, strict=True)):
            job = service(
                chance,
                f"service-{index}",
                kind,
                self.use_ratio * CORES * part / sum(parts),
                heavy_ratio=self.heavy_ratio,
                threads=float(self.threads),
                serial_ratio=self.serial_ratio,
            )
            jobs.append(job)
        if self.hopeless:
            load = ServiceLoad(0.01, loop=Loop("poisson", 5.0))
            jobs.append(simulated_job("hopeless", LatencyTarget(0.001), load))
        host = (HostLoad(10.0, 20.0, self.foreign_cores),) if self.foreign_cores else ()
        return Trace(
            NodeFact(CORES, 1 << 34),
            tuple(sorted(jobs, key=lambda job: job.name)),
            DURATION_S,
            host=host,
            idle_class=self.idle_class,
            full_speed=self.full_speed,
        )


def drawn(seed: int) -> World:
    """The world that this seed draws."""
    chance = random.Random(seed)
    return World(
        seed,
        chance.uniform(0.02, 0.6),
        tuple(chance.choice(KINDS) for _ in range(chance.randint(1, 5))),
        hopeless=chance.random() < 0.5,
        trainings=chance.randint(0, 2),
        heavy_ratio=chance.choice((0.0, 0.1)),
        idle_class=chance.random() < 0.5,
        foreign_cores=chance.choice((0.0, 0.0, 0.5)),
        threads=chance.choice((1, 1, 2)),
        serial_ratio=chance.choice((0.0, 0.3)),
        full_speed=chance.choice((1.0, 0.75)),
    )


def service(
    chance: random.Random, name: str, kind: str, use_cores: float, **more: Any
) -> SimulatedJob:
    """One with a target that it meets alone on the node; `more` as ServiceLoad takes it."""
    use_cores = min(use_cores, 0.7)
    rate = chance.choice((5.0, 10.0, 20.0, 30.0))
    load = ServiceLoad(
        use_cores / rate, noise=chance.choice((0.1, 0.5)), loop=_loop(kind, rate), **more
    )
    slack = chance.choice((2.0, 5.0, 20.0))
    target = LatencyTarget(slack * load.work_core_s / (1.0 - use_cores))
    return simulated_job(name, target, load)


def _loop(kind: str, rate_per_s: float) -> Loop:
    if kind != "bursty":
        return Loop(kind, rate_per_s)  # type: ignore[arg-type]
    # Three times as many for 5 s of every 20: as many in the mean.
    return Loop("poisson", rate_per_s / 1.5, burst_factor=3.0, burst_every_s=20.0)


def training(number: int) -> SimulatedJob:
    """One that wants the whole node and does not end while it is watched."""
    load = TrainingLoad(1_000_000, 0.02, 50, Curve(0.1, 0.97, 400.0), threads=CORES)
    return simulated_job(f"training-{number}", AccuracyTarget("accuracy", 0.9, 0.95), load)
