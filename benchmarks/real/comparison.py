"""One seed's services on real containers: calibrate them, then run a policy on them.

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
SATURATE_S, CALIBRATE_S = 6.0, 20.0
"""For so long it is measured what all can get together, and each model's latency at its share."""
JUDGE_MOST_S = 60.0
"""The judged window grows up to this until every job has the requests that its noise needs."""


def begin(session: Session, seed: int) -> tuple[tuple[DemoJob, ...], float]:
    """Start the models of that seed without targets; returns them and what they can get together.

    No daemon runs after it.
    """
    jobs = draw(seed)
    stage(f"start {len(jobs)} models, seed {seed}, all at once under plain Docker")
    session.start("none")
    for job in jobs:
        session.drop(job.name, spec_text(job, None))
    why, rows = session.why_not_running, session.client.jobs
    wait_for(lambda: session.running() == len(jobs), 90, f"{len(jobs)} running models", why)
    wait_for(lambda: all(row["requests"] for row in rows()["jobs"]), 60, "every first report", why)
    session.weigh()
    used = []
    for _ in range(round(SATURATE_S)):
        time.sleep(1.0)
        used.append(session.client.jobs()["node"]["used_cores"])
    session.stop()
    return jobs, float(sorted(used)[len(used) // 2])


def targets_at(session: Session, shares: Mapping[str, float]) -> dict[str, float]:
    """The mean latency of each model at its share, after a fourth of the time is thrown away."""
    cores = ",".join(f"{job}={share:.4f}" for job, share in shares.items())
    session.start(FIXED, {"cores": cores})
    warm_s = CALIBRATE_S / 4
    time.sleep(warm_s)
    first = session.cycle()
    time.sleep(CALIBRATE_S - warm_s)
    session.cycle()  # raises where the daemon has died meanwhile
    session.stop()
    series = arrived(session.reports(first))
    return {
        job: judged.mean_s
        for job in shares
        if (judged := judge(job, 1.0, series[job], 0.0)).mean_s is not None
    }


def run_policy(
    session: Session,
    seed: int,
    demand: float,
    policy: str,
    targets: Mapping[str, float],
    timing: tuple[float, float],
) -> KeptServices:
    """One policy on jobs whose files already say these targets; keeps its journal.

    `timing`: from when on it is judged, and for how long at least, in seconds.
    """
    session.forget()
    session.start(policy)
    first, began_s = session.cycle(), time.monotonic()
    settle_s, judge_s = timing
    time.sleep(settle_s)
    judged_from_s = time.monotonic() - began_s
    time.sleep(judge_s)
    latest_s = began_s + judged_from_s + JUDGE_MOST_S

    def judged() -> list[Judged]:
        series = arrived(session.reports(first))
        return [judge(job, target, series[job], judged_from_s) for job, target in targets.items()]

    while time.monotonic() < latest_s and not all(job.enough for job in judged()):
        time.sleep(5.0)  # more requests are needed
    session.cycle()  # raises where the daemon has died meanwhile
    session.stop()
    folder = folder_of(demand, seed, policy)
    session.keep(folder)
    kept = KeptServices(folder, demand, seed, policy, first, dict(targets), judged_from_s)
    kept.write()
    return kept
