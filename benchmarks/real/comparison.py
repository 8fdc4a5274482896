"""One seed's comparison on real containers: calibrate, then each policy in turn on the same jobs.

Owns the course of events. It must not judge (`benchmarks.judge` does).
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.judge import Judged, arrived, judge
from benchmarks.options import stage
from benchmarks.real.kept import KeptServices, folder_of
from tools.session import Session, wait_for

MODELS = ("mobilenet", "xception", "inception", "resnet", "vgg")
"""Networks in examples/images/inference."""

BATCH = {"mobilenet": 384, "xception": 72, "inception": 40, "resnet": 24, "vgg": 56}
"""Images a request: about 10 ms of CPU, so that ten seconds hold enough requests to judge."""

SPREAD = 10.0

FLOOR_CORES = 0.02
"""Every model's `cpus: min`."""


@dataclass(frozen=True)
class DemoJob:
    """One model of the set and its drawn part of the demand."""

    name: str
    model: str
    batch: int
    part: float
    """Of the whole set's demand; the parts sum to 1."""


def draw(seed: int, jobs: int = 8) -> tuple[DemoJob, ...]:
    """The set of that seed."""
    chance = random.Random(seed)
    draws = [SPREAD ** chance.random() for _ in range(jobs)]
    models = [MODELS[index % len(MODELS)] for index in range(jobs)]
    chance.shuffle(models)
    total = sum(draws)
    return tuple(
        DemoJob(f"{model}-{index}", model, BATCH[model], share / total)
        for index, (model, share) in enumerate(zip(models, draws, strict=True), start=1)
    )


def spec_text(job: DemoJob, target_s: float | None) -> str:
    """The job file, as a user would write it."""
    lines = [
        f"name: {job.name}",
        "image: dlsched-examples/inference",
        f"command: [python, runner.py, --model, {job.model}, --batch, '{job.batch}']",
        "memory: 512MiB",
        "network: none",
        f"cpus: {{min: {FLOOR_CORES:g}}}",
        "stop: {grace: 5s}",
    ]
    if target_s is not None:
        lines.append(f"target: {{latency: {target_s * 1000:.4g}ms}}")
    return "\n".join(lines) + "\n"


FIXED = "tools.fixed_policy:FixedPolicy"


@dataclass(frozen=True)
class Plan:
    """How long what takes, and how much is asked for."""

    seed: int
    policies: tuple[str, ...] = ("none", "dqoes-published", "adaptive?mode=band", "adaptive")
    """Names, each with parameters as in `dqoes-published?reading=pool&floor_ratio=0.05`."""
    jobs: int = 8
    demand_ratio: float = 0.7
    """Of the capacity that the calibration measured."""
    saturate_s: float = 6.0
    calibrate_s: float = 20.0
    settle_s: float = 60.0
    judge_s: float = 20.0
    judge_most_s: float = 60.0
    """The judged window grows up to this until every job has the requests that its noise needs."""


@dataclass
class Comparison:
    """One seed, whole."""

    plan: Plan
    set: tuple[DemoJob, ...]
    capacity_cores: float
    targets: dict[str, float]
    runs: list[KeptServices]


def compare(session: Session, plan: Plan) -> Comparison:
    jobs, capacity = begin(session, plan)
    shares = {job.name: plan.demand_ratio * capacity * job.part for job in jobs}
    stage(
        f"capacity is {capacity:.2f} cores; measure each model's latency at its drawn share "
        f"({', '.join(f'{cores:.2f}' for cores in shares.values())} cores)"
    )
    targets = targets_at(session, shares, plan.calibrate_s)
    runs = []
    for job in jobs:
        session.drop(job.name, spec_text(job, targets[job.name]))
    for policy in plan.policies:
        stage(f"policy {policy}, from plain Docker's even split")
        runs.append(run_policy(session, plan, policy, targets))
    return Comparison(plan, jobs, capacity, targets, runs)


def begin(session: Session, plan: Plan) -> tuple[tuple[DemoJob, ...], float]:
    """Start the models of that seed without targets; returns them and what they can get together.

    No daemon runs after it.
    """
    jobs = draw(plan.seed, plan.jobs)
    stage(f"start {plan.jobs} models, seed {plan.seed}, all at once under plain Docker")
    session.start("none")
    for job in jobs:
        session.drop(job.name, spec_text(job, None))
    why, rows = session.why_not_running, session.client.jobs
    wait_for(lambda: session.running() == plan.jobs, 90, f"{plan.jobs} running models", why)
    wait_for(lambda: all(row["requests"] for row in rows()["jobs"]), 60, "every first report", why)
    session.confine()
    used = []
    for _ in range(round(plan.saturate_s)):
        time.sleep(1.0)
        used.append(session.client.jobs()["node"]["used_cores"])
    session.stop()
    return jobs, float(sorted(used)[len(used) // 2])


def targets_at(session: Session, shares: Mapping[str, float], seconds: float) -> dict[str, float]:
    """The mean latency of each model at its share, after a fourth of the time is thrown away."""
    cores = ",".join(f"{job}={share:.4f}" for job, share in shares.items())
    session.start(FIXED, {"cores": cores})
    warm_s = seconds / 4
    time.sleep(warm_s)
    first = session.cycle()
    time.sleep(seconds - warm_s)
    session.cycle()  # raises where the daemon has died meanwhile
    session.stop()
    series = arrived(session.reports(first))
    return {
        job: judged.mean_s
        for job in shares
        if (judged := judge(job, 1.0, series[job], 0.0)).mean_s is not None
    }


def run_policy(
    session: Session, plan: Plan, policy: str, targets: Mapping[str, float]
) -> KeptServices:
    """One policy on jobs whose files already say these targets; keeps its journal."""
    session.forget()
    session.start(policy)
    first, began_s = session.cycle(), time.monotonic()
    time.sleep(plan.settle_s)
    judged_from_s = time.monotonic() - began_s
    time.sleep(plan.judge_s)
    latest_s = began_s + judged_from_s + plan.judge_most_s

    def judged() -> list[Judged]:
        series = arrived(session.reports(first))
        return [judge(job, target, series[job], judged_from_s) for job, target in targets.items()]

    while time.monotonic() < latest_s and not all(job.enough for job in judged()):
        time.sleep(5.0)  # more requests are needed
    session.cycle()  # raises where the daemon has died meanwhile
    session.stop()
    folder = folder_of(plan.demand_ratio, plan.seed, policy)
    session.keep(folder)
    kept = KeptServices(
        folder, plan.demand_ratio, plan.seed, policy, first, dict(targets), judged_from_s
    )
    kept.write()
    return kept
