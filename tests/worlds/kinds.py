"""Kinds of drawn nodes that a policy may harm: each has services with targets, and beside them what
nobody tuned it for.

Owns which worlds there are. It must not run or judge them: the property in the tests and the bench
`no-harm` do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dlsched.model.facts import NodeFact
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.simulation.node.learning_curves import Curve
from dlsched.simulation.node.loops import Loop
from dlsched.simulation.node.workloads import (
    Pause,
    ReportNoise,
    ServiceLoad,
    SimulatedJob,
    Trace,
    TrainingLoad,
)
from tests.worlds.harm_worlds import KINDS as LOOPS
from tests.worlds.harm_worlds import drawn, service
from tests.worlds.open_worlds import WITHOUT_END, simulated_job

DURATION_S = 160.0
_ENDLESS = 10**9


@dataclass(frozen=True, slots=True)
class Node:
    """Where a world is drawn."""

    chance: random.Random
    cores: float
    services: int
    """With targets."""

    @property
    def fair_cores(self) -> float:
        """An even share for each of these and one more."""
        return self.cores / (self.services + 1)


Beside = Callable[[Node, list[SimulatedJob]], list[SimulatedJob]]
"""What a kind adds to the services of a node, or makes of them."""


def world(kind: str, seed: int) -> Trace:
    """The world of that kind that this seed draws."""
    if kind == "targets":
        trace = drawn(seed).trace()
        return replace(trace, name=kind, duration_s=DURATION_S, cpu_burst=True)
    chance = random.Random(f"{kind}/{seed}")
    chosen = KINDS[kind]
    cores = chance.choice(chosen.cores)
    node = Node(chance, cores, chance.randint(*chosen.services))
    use_ratio, heavy_ratio = chance.uniform(*chosen.use_ratio), chance.choice((0.0, 0.0, 0.1))
    parts = [chance.uniform(0.2, 1.0) for _ in range(node.services)]
    targeted = [
        service(
            chance,
            f"service-{index}",
            chance.choice(LOOPS),
            use_ratio * cores * part / sum(parts),
            heavy_ratio=heavy_ratio,
            threads=chance.choice((1.0, 1.0, 2.0, 4.0)),
            workers=chance.choice((1, 8)),
        )
        for index, part in enumerate(parts)
    ]
    return Trace(
        NodeFact(cores, 1 << 36),
        tuple(sorted(chosen.beside(node, targeted), key=lambda job: job.name)),
        DURATION_S,
        name=kind,
        idle_class=chance.random() < 0.5,
        full_speed=chance.choice((1.0, 0.75)),
        cpu_burst=True,
    )


def untargeted(node: Node, name: str) -> SimulatedJob:
    """An open loop without a target, with or without reports."""
    chance = node.chance
    use_cores = chance.uniform(0.05, 0.7)
    threads, workers = chance.choice((1.0, 2.0)), chance.choice((1, 8))
    job = service(chance, name, chance.choice(LOOPS), use_cores, threads=threads, workers=workers)
    assert isinstance(job.load, ServiceLoad)
    return simulated_job(name, None, replace(job.load, report_s=chance.choice((1.0, math.inf))))


def hog(name: str, threads: float) -> SimulatedJob:
    """A container of busy threads that reports nothing."""
    load = TrainingLoad(_ENDLESS, 1.0, _ENDLESS, Curve(1.0, 0.0, 1.0), threads=threads)
    return simulated_job(name, None, load)


def _untargeted(node: Node, targeted: list[SimulatedJob]) -> list[SimulatedJob]:
    count = node.chance.choice((1, 1, 2))
    return [*targeted, *(untargeted(node, f"untargeted-{index}") for index in range(count))]


def _hog(node: Node, targeted: list[SimulatedJob]) -> list[SimulatedJob]:
    """A hog of many threads, beside an untargeted service in every second world."""
    beside = [hog("hog", node.cores * node.chance.choice((1.0, 2.0, 4.0)))]
    if node.chance.random() < 0.5:
        beside.append(untargeted(node, "untargeted"))
    return [*targeted, *beside]


def _small_hog(node: Node, targeted: list[SimulatedJob]) -> list[SimulatedJob]:
    """One that uses less than its fair share, beside a hog or a training in some worlds."""
    beside = [hog("small-hog", node.chance.uniform(0.3, 0.9) * node.fair_cores)]
    more = node.chance.choice(("nothing", "nothing", "hog", "training"))
    if more == "hog":
        beside.append(hog("hog", 2.0 * node.cores))
    elif more == "training":
        beside.append(_training(node, "training", ()))
    return [*targeted, *beside]


def _stalls(node: Node, targeted: list[SimulatedJob]) -> list[SimulatedJob]:
    """Trainings that stall: by their loader, for checkpoints, or for evaluations."""
    chance = node.chance
    beside = []
    for index in range(chance.randint(1, round(node.cores / 2.0) + 1)):
        kind = chance.choice(("loader", "loader", "checkpoint", "evaluation"))
        pauses = {
            "loader": Pause(10.0, 5.0, first_s=chance.uniform(0.0, 10.0)),
            "checkpoint": Pause(30.0, 3.0, threads=0.1, first_s=chance.uniform(5.0, 35.0)),
            "evaluation": Pause(20.0, 4.0, threads=1.0, first_s=chance.uniform(5.0, 25.0)),
        }
        beside.append(_training(node, f"training-{index}-{kind}", (pauses[kind],)))
    return [*targeted, *beside]


def _training(node: Node, name: str, pauses: tuple[Pause, ...]) -> SimulatedJob:
    """One of four threads, or as many as there are cores; every second one ends meanwhile."""
    chance = node.chance
    threads = min(4.0, node.cores)
    steps = round(chance.uniform(30.0, 100.0) * threads) if chance.random() < 0.5 else WITHOUT_END
    work_core_s = 0.5 if steps < WITHOUT_END else 0.1
    load = TrainingLoad(
        steps,
        work_core_s,
        10,
        Curve(0.1, 0.97, chance.uniform(100.0, 2000.0)),
        threads=threads,
        pauses=pauses,
    )
    return simulated_job(name, AccuracyTarget("accuracy", 0.8, 0.95), load)


def _chain(node: Node, targeted: list[SimulatedJob]) -> list[SimulatedJob]:
    """A service whose requests call one without a target; beside a hog in every second world."""
    chance = node.chance
    rate = chance.choice((5.0, 10.0, 20.0))
    own, its = (chance.uniform(0.05, 0.5) for _ in range(2))
    caller = ServiceLoad(
        own / rate, noise=0.3, loop=Loop("poisson", rate), workers=8, calls="callee"
    )
    callee = ServiceLoad(its / rate, noise=0.3, loop=Loop("called"), workers=chance.choice((1, 8)))
    if chance.random() < 0.5:
        callee = replace(callee, report_s=math.inf)
    alone_s = caller.work_core_s + callee.work_core_s / (1.0 - its)
    target = LatencyTarget(chance.choice((2.0, 3.0, 10.0)) * alone_s)
    beside = [simulated_job("caller", target, caller), simulated_job("callee", None, callee)]
    if chance.random() < 0.5:
        beside.append(hog("hog", 2.0 * node.cores))
    return [*targeted, *beside]


def _locks(node: Node, targeted: list[SimulatedJob]) -> list[SimulatedJob]:
    """A service whose throughput is highest at two cores, beside a training in some worlds."""
    chance = node.chance
    rate = chance.choice((10.0, 20.0, 40.0))
    load = ServiceLoad(
        chance.uniform(0.3, 0.8) / rate,
        noise=0.3,
        loop=Loop("poisson", rate),
        workers=chance.choice((4, 8)),
        peak_cores=2.0,
    )
    target = LatencyTarget(chance.choice((3.0, 5.0, 20.0)) * load.work_core_s)
    beside = [simulated_job("locks", target, load)]
    if chance.random() < 0.3:
        beside.append(_training(node, "training", ()))
    return [*targeted, *beside]


def _closed(node: Node, targeted: list[SimulatedJob]) -> list[SimulatedJob]:
    """Services with one client or several, beside a training in some worlds."""
    chance = node.chance
    beside = []
    for index in range(chance.randint(1, 2)):
        clients = chance.choice((1, 1, 2, 4))
        loop = Loop("closed", clients=clients, think_s=chance.choice((0.0, 0.05, 0.5)))
        workers = chance.choice((1, clients))
        load = ServiceLoad(chance.uniform(0.005, 0.05), noise=0.3, loop=loop, workers=workers)
        alone_s = load.work_core_s * clients / workers
        target = LatencyTarget(chance.choice((1.5, 3.0, 10.0)) * alone_s)
        beside.append(simulated_job(f"closed-{index}", target, load))
    if chance.random() < 0.3:
        beside.append(_training(node, "training", ()))
    return [*targeted, *beside]


def _noise(node: Node, targeted: list[SimulatedJob]) -> list[SimulatedJob]:
    """Lost, false and late reports, beside a training in some worlds."""
    chance = node.chance
    jobs = []
    for job in targeted:
        noise = ReportNoise(0.1, 0.01, late_s=chance.choice((0.0, 0.0, 5.0)))
        assert isinstance(job.load, ServiceLoad)
        jobs.append(replace(job, load=replace(job.load, report_noise=noise)))
    if chance.random() < 0.3:
        jobs.append(_training(node, "training", ()))
    return jobs


def _batches(node: Node, targeted: list[SimulatedJob]) -> list[SimulatedJob]:
    """Each minute many requests arrive at once."""
    return [_with_batches(node, job) for job in targeted]


def _with_batches(node: Node, job: SimulatedJob) -> SimulatedJob:
    load = job.load
    assert isinstance(load, ServiceLoad) and load.loop is not None
    batch_core_s = node.chance.uniform(0.05, 0.3) * node.cores
    loop = replace(
        load.loop,
        batch=max(1, round(batch_core_s / load.work_core_s)),
        batch_at_s=node.chance.uniform(0.0, 60.0),
    )
    return replace(job, load=replace(load, loop=loop))


def _many(node: Node, targeted: list[SimulatedJob]) -> list[SimulatedJob]:
    """Services with and without targets, some with batches, beside a training in some worlds."""
    chance = node.chance
    jobs = []
    for job in targeted:
        draw = chance.random()
        if draw < 0.2:
            jobs.append(simulated_job(f"untargeted-{len(jobs)}", None, job.load))
        elif draw < 0.4:
            jobs.append(_with_batches(replace(node, cores=1.0), job))
        else:
            jobs.append(job)
    if chance.random() < 0.5:
        jobs.append(_training(node, "training", ()))
    return jobs


@dataclass(frozen=True, slots=True)
class Kind:
    """What stands beside the services with targets, and how large the node is."""

    beside: Beside
    cores: tuple[float, ...] = (2.0, 4.0, 8.0)
    services: tuple[int, int] = (1, 6)
    """Fewest and most, with targets."""
    use_ratio: tuple[float, float] = (0.05, 0.5)
    """Of the node, by these."""


KINDS: Mapping[str, Kind] = {
    "targets": Kind(lambda _, targeted: targeted),
    "untargeted": Kind(_untargeted, cores=(2.0, 4.0, 16.0), services=(1, 12)),
    "hog": Kind(_hog),
    "small-hog": Kind(_small_hog),
    "stalls": Kind(_stalls, cores=(2.0, 4.0, 8.0, 16.0)),
    "chain": Kind(_chain),
    "locks": Kind(_locks, cores=(4.0, 8.0)),
    "closed": Kind(_closed, cores=(4.0, 8.0)),
    "noise": Kind(_noise, use_ratio=(0.05, 0.95)),
    "batches": Kind(_batches),
    "many": Kind(_many, cores=(16.0,), services=(20, 40)),
}
