"""Simulated nodes whose services' requests are played one by one: open and closed loops.

Owns which worlds these are. It must not run or judge anything.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from dlsched.model.facts import NodeFact
from dlsched.model.spec import AccuracyTarget, Bounds, ContainerSpec, JobSpec, LatencyTarget, Target
from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.loops import Loop
from dlsched.simulation.node.workloads import (
    Load,
    ServiceLoad,
    SimulatedJob,
    Trace,
    TrainingLoad,
)

CORES = 4.0
DURATION_S = 120.0
WITHOUT_END = 10_000_000
"""Steps of a training that does not end while it is watched."""

Arriving = Literal["poisson", "periodic", "bursty", "closed"]
ARRIVING: tuple[Arriving, ...] = ("poisson", "periodic", "bursty", "closed")
_RATES_PER_S = (4.0, 8.0, 16.0)
_SLACKS = (1.5, 2.0, 3.0, 5.0, 10.0)
"""Targets, as multiples of the mean latency that a service has alone on the node."""
_P95_RATIO = 0.25
"""Part of the services whose target is of the 95th percentile: three times the mean's."""
_BURST, _BURST_FOR_S, _BURST_EVERY_S = 3.0, 5.0, 30.0
_MOST_USE = 0.85
"""Of a core: what a service with one worker may use, or it has no latency to speak of."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of world."""

    arriving: Arriving
    use_ratio: float
    """Part of the node that all services use together, where each is served at once."""
    hopeless: bool = False
    """Whether one of them has a target below the work of a request."""
    trainings: int = 0
    """Trainings of as many threads as there are cores, without end."""
    idle_class: bool = False
    minimum_cores: float = 0.0
    """`cpus.min` of the first training."""

    @property
    def name(self) -> str:
        """As it is told."""
        words = [f"{self.use_ratio:g} of the cores"]
        words += ["one hopeless"] if self.hopeless else []
        if self.trainings:
            words.append(f"{self.trainings} trainings")
            words += ["idle class"] if self.idle_class else []
            words += [f"one with cpus.min {self.minimum_cores:g}"] if self.minimum_cores else []
        return ", ".join(words)


def world(scenario: Scenario, services: int, seed: int) -> Trace:
    """That kind of world, as this seed draws it."""
    chance = random.Random(f"{seed}/{scenario.arriving}/{scenario.use_ratio}")
    parts = [chance.uniform(0.4, 1.0) for _ in range(services)]
    whole_cores = scenario.use_ratio * CORES
    jobs = []
    for index, part in enumerate(parts):
        use_cores = min(whole_cores * part / sum(parts), _MOST_USE)
        load, alone_s = _load(scenario.arriving, use_cores, chance)
        slack, of_p95 = chance.choice(_SLACKS), chance.random() < _P95_RATIO
        target = LatencyTarget(3.0 * slack * alone_s, 0.95) if of_p95 else None
        target = target or LatencyTarget(slack * alone_s)
        if scenario.hopeless and index == 0:
            target = LatencyTarget(0.5 * load.work_core_s)
        jobs.append(simulated_job(f"service-{index:02d}", target, load))
    for index in range(scenario.trainings):
        least = scenario.minimum_cores if index == 0 else 0.0
        curve = Curve(0.1, 0.97, chance.uniform(2_000.0, 20_000.0))
        training = TrainingLoad(WITHOUT_END, 0.02, 100, curve, threads=CORES)
        target = AccuracyTarget("accuracy", 0.8, 0.95)
        jobs.append(simulated_job(f"training-{index}", target, training, least))
    node = NodeFact(CORES, 1 << 36)
    return Trace(node, tuple(jobs), DURATION_S, name=scenario.name, idle_class=scenario.idle_class)


def _load(arriving: Arriving, use_cores: float, chance: random.Random) -> tuple[ServiceLoad, float]:
    """A service that uses so much, and the mean latency that it has where nobody else computes."""
    rate, noise = chance.choice(_RATES_PER_S), chance.choice((0.2, 0.5, 1.0))
    work_core_s = use_cores / rate
    queued = use_cores / (1.0 - use_cores)
    alone_s = work_core_s * (1.0 + 0.5 * (1.0 + noise * noise) * queued)
    if arriving == "closed":
        clients = chance.choice((1, 2, 4))
        think_s = max(clients / rate - alone_s, 0.0)
        loop = Loop("closed", clients=clients, think_s=think_s)
    elif arriving == "bursty":
        in_bursts = (_BURST - 1.0) * _BURST_FOR_S / _BURST_EVERY_S
        outside = rate / (1.0 + in_bursts)
        burst = {"burst_for_s": _BURST_FOR_S, "burst_every_s": _BURST_EVERY_S}
        loop = Loop("poisson", outside, burst_factor=_BURST, **burst)
    else:
        loop = Loop(arriving, rate)
    return ServiceLoad(work_core_s, noise=noise, loop=loop), alone_s


def simulated_job(
    name: str, target: Target, load: Load, least_cores: float = 0.0, **more: object
) -> SimulatedJob:
    """A job with that target and load; `more` as SimulatedJob takes it."""
    bounds = Bounds(least_cores) if least_cores else Bounds()
    spec = JobSpec(name, ContainerSpec("model"), bounds, target=target)
    return SimulatedJob(spec, load, **more)  # type: ignore[arg-type]
