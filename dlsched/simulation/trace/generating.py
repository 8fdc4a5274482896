"""Generates traces from a recipe: number of jobs, schedule, load; deterministic for a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dlsched.model.facts import NodeFact
from dlsched.model.spec import AccuracyTarget, ContainerSpec, JobSpec, LatencyTarget, Target
from dlsched.simulation.node.learning_curves import Curve, Family
from dlsched.simulation.node.service import quantile_factor
from dlsched.simulation.node.workloads import (
    Fault,
    ServiceLoad,
    Shift,
    SimulatedJob,
    Trace,
    TrainingLoad,
)

Schedule = Literal["burst", "fixed", "random"]
Kind = Literal["training", "inference", "mixed"]

_ARRIVAL_RATIO = 0.4
"""Random arrivals fall into this first fraction of the time, so that the last job can end."""
FAMILIES: tuple[Family, ...] = ("power", "exponential", "plateau", "drop", "restart")
_SILENT_S = (10.0, 30.0)
"""Length of a period without reports, and of the time between two: about an agent's window."""
_CHURN_RATIO = (0.2, 0.8)
"""Services come late, or leave early, within this fraction of the time."""
_LIE = (0.3, 1.0)
"""Exponents of 2 for the factor of false latencies, up or down: 1.23 to 2 times."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to generate; `demand` is that of all jobs together, over the whole time."""

    jobs: int = 10
    duration_s: float = 3600.0
    seed: int = 0
    kind: Kind = "mixed"
    schedule: Schedule = "random"
    cores: float = 16.0
    demand: float = 0.7
    impossible_ratio: float = 0.0
    """Fraction of the services whose target no number of cores would meet."""
    gap_s: float = 40.0
    """Time between two arrivals of the fixed schedule."""
    stay_s: float | None = None
    """How long a service stays; None: to the end."""
    cycle_s: float = 1.0
    name: str = ""
    """The trace's name; empty: derived from the recipe."""
    noise: float = 0.2
    """Standard deviation of a request's work over its mean, in services."""
    quantile: float | None = None
    """Quantile of the services' targets; None: the mean."""
    change_ratio: float = 1.0
    """Midway the work of each service changes by up to this factor, up or down; 1: unchanged."""
    churn_ratio: float = 0.0
    """Fraction of the services that come late (half of them) or leave early."""
    stale_ratio: float = 0.0
    """Fraction of the services that repeatedly do not report for 10 to 30 s."""
    lying_ratio: float = 0.0
    """Fraction of the services whose reported latencies are wrong by a factor of 1.23 to 2, up or
    down."""
    families: tuple[Family, ...] = FAMILIES
    """Families of the trainings' learning curves."""


def generate(recipe: Recipe) -> Trace:
    """The trace of that recipe. Half of a mixed one's jobs, and of its demand, is inference."""
    chance = random.Random(f"trace/{recipe.seed}")
    kinds = [_kind(recipe, index) for index in range(recipe.jobs)]
    parts = 2.0 if len(set(kinds)) == 2 else 1.0
    demand_cores = recipe.demand * recipe.cores / parts
    # Demands differ by up to a factor of ten, log-uniformly.
    drawn = [10.0 ** chance.random() for _ in kinds]
    whole = {
        kind: math.fsum(size for size, its in zip(drawn, kinds, strict=True) if its == kind)
        for kind in set(kinds)
    }
    jobs: list[SimulatedJob] = []
    width = len(str(recipe.jobs - 1))
    for index, (kind, size) in enumerate(zip(kinds, drawn, strict=True)):
        cores = demand_cores * size / whole[kind]
        load, target = (
            _service(recipe, cores, chance)
            if kind == "inference"
            else _training(recipe, cores * recipe.duration_s, chance)
        )
        name = f"{kind}-{index:0{width}}"
        spec = JobSpec(
            name=name,
            container=ContainerSpec(image="simulated"),
            target=target,
            container_digest=name,
            digest=name,
        )
        arrives_s = _arrival(recipe, index, chance)
        leaves_s = None
        if kind == "inference" and recipe.stay_s is not None:
            leaves_s = round(arrives_s + recipe.stay_s, 3)
        jobs.append(SimulatedJob(spec, load, arrives_s, leaves_s))
    return Trace(
        node=NodeFact(recipe.cores, 64 << 30),
        jobs=tuple(sorted(_disturbed(recipe, jobs), key=lambda job: job.name)),
        duration_s=recipe.duration_s,
        cycle_s=recipe.cycle_s,
        name=recipe.name or f"{recipe.kind}-{recipe.schedule}-{recipe.jobs}",
    )


def _kind(recipe: Recipe, index: int) -> Literal["training", "inference"]:
    if recipe.kind == "mixed":
        return "inference" if index % 2 else "training"
    return recipe.kind


def _arrival(recipe: Recipe, index: int, chance: random.Random) -> float:
    if recipe.schedule == "burst":
        return 0.0
    if recipe.schedule == "fixed":
        return min(index * recipe.gap_s, recipe.duration_s * 0.99)
    return round(chance.uniform(0.0, _ARRIVAL_RATIO * recipe.duration_s), 3)


def _service(
    recipe: Recipe, cores: float, chance: random.Random
) -> tuple[ServiceLoad, LatencyTarget]:
    """A service that needs that many cores for its target, or whose target is impossible."""
    threads = float(max(chance.choice((1, 2, 4)), math.ceil(cores)))
    work_core_s = round(0.005 * 20.0 ** chance.random(), 6)
    overhead_s = round(0.1 * work_core_s * chance.random(), 6)
    slow = quantile_factor(recipe.noise, recipe.quantile)
    best_s = overhead_s + work_core_s * slow / threads
    target_s = overhead_s + work_core_s * slow / cores
    if chance.random() < recipe.impossible_ratio:
        target_s = best_s * chance.uniform(0.4, 0.8)
    load = ServiceLoad(work_core_s, overhead_s, threads, noise=recipe.noise)
    return load, LatencyTarget(round(min(max(target_s, 1e-4), 3600.0), 6), recipe.quantile)


def _disturbed(recipe: Recipe, jobs: Sequence[SimulatedJob]) -> list[SimulatedJob]:
    """The jobs with the recipe's disturbances of services. Each disturbance has its own draws: the
    jobs stay those of the undisturbed recipe."""
    services = [job.name for job in jobs if isinstance(job.load, ServiceLoad)]
    there = {job.name: job for job in jobs}

    def drawn(what: str, ratio: float) -> tuple[list[str], random.Random]:
        chance = random.Random(f"trace/{recipe.seed}/{what}")
        return chance.sample(services, round(ratio * len(services))), chance

    if recipe.change_ratio != 1.0:
        names, chance = drawn("change", 1.0)
        for name in names:
            work = round(recipe.change_ratio ** chance.uniform(-1.0, 1.0), 6)
            shift = Shift(recipe.duration_s / 2.0, work=work)
            there[name] = replace(there[name], shifts=(shift,))
    names, chance = drawn("churn", recipe.churn_ratio)
    for index, name in enumerate(names):
        there[name] = _partly_there(
            there[name], recipe.duration_s, chance.uniform(*_CHURN_RATIO), late=index % 2 == 1
        )
    names, chance = drawn("stale", recipe.stale_ratio)
    for name in names:
        there[name] = replace(there[name], faults=_silences(recipe, chance))
    names, chance = drawn("lying", recipe.lying_ratio)
    for name in names:
        exponent = chance.choice((-1.0, 1.0)) * chance.uniform(*_LIE)
        lie = Fault("lying", 0.0, factor=round(2.0**exponent, 6))
        there[name] = replace(there[name], faults=(*there[name].faults, lie))
    return list(there.values())


def _partly_there(job: SimulatedJob, ends_s: float, ratio: float, *, late: bool) -> SimulatedJob:
    """The job without that fraction of its time, at its beginning (`late`) or its end."""
    at_s = round(job.arrives_s + ratio * (ends_s - job.arrives_s), 3)
    leaves_s = job.leaves_s
    if not late:
        return replace(job, leaves_s=at_s if leaves_s is None else min(at_s, leaves_s))
    if leaves_s is not None:
        leaves_s = round(leaves_s + at_s - job.arrives_s, 3)
    return replace(job, arrives_s=at_s, leaves_s=leaves_s)


def _silences(recipe: Recipe, chance: random.Random) -> tuple[Fault, ...]:
    """Periods without reports, over the whole trace."""
    found: list[Fault] = []
    at_s = chance.uniform(*_SILENT_S)
    while at_s < recipe.duration_s:
        for_s = chance.uniform(*_SILENT_S)
        found.append(Fault("silent", round(at_s, 3), round(for_s, 3)))
        at_s += for_s + chance.uniform(*_SILENT_S)
    return tuple(found)


def _training(
    recipe: Recipe, work_core_s: float, chance: random.Random
) -> tuple[TrainingLoad, Target]:
    """A training of that total work; its tiers are at about a third and two thirds."""
    steps = chance.randrange(1000, 6000)
    curve = _curve(recipe.families, steps, chance)
    load = TrainingLoad(
        steps=steps,
        work_core_s=round(work_core_s / steps, 6) or 1e-6,
        evaluate_every=max(1, steps // 60),
        curve=curve,
        threads=min(recipe.cores, chance.choice((2.0, 4.0, 8.0, 16.0))),
        noise=0.0 if chance.random() < 0.25 else 0.004,
        validation_set=200 if chance.random() < 0.25 else None,
        checkpoint_every=max(1, steps // 10),
    )
    deliver = curve.value(steps * chance.uniform(0.2, 0.45))
    finish = curve.value(steps * chance.uniform(0.6, 0.9))
    if finish <= deliver:  # a restart may have thrown it back
        deliver, finish = min(deliver, finish), curve.value(steps)
    return load, AccuracyTarget("accuracy", round(deliver, 4), round(finish, 4))


def _curve(families: Sequence[Family], steps: int, chance: random.Random) -> Curve:
    family = chance.choice(families)
    start, end = round(chance.uniform(0.08, 0.3), 4), round(chance.uniform(0.85, 0.99), 4)
    scale = round(steps * chance.uniform(0.12, 0.3), 1)
    if family == "plateau":
        at, length = int(steps * chance.uniform(0.1, 0.3)), int(steps * chance.uniform(0.1, 0.3))
        return Curve(start, end, scale, family, at_step=at, for_steps=length)
    if family == "drop":
        return Curve(start, end, scale, family, at_step=int(steps * chance.uniform(0.3, 0.6)))
    if family == "restart":
        return Curve(start, end, scale, family, at_step=steps // chance.randrange(3, 6))
    exponent = round(chance.uniform(0.7, 1.5), 3) if family == "power" else 1.0
    return Curve(start, end, scale, family, exponent)
