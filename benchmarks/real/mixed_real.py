"""A mixed node, real: some models of the demo set, and two trainers beside them, in four minutes.

Owns the course of events: the models' targets are their latencies at drawn shares of half the
node; then they stand alone under `adaptive`, then beside two trainers that never end, under plain
Docker and under `adaptive`. Nothing is chosen: the seed draws the set, the host measures it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.judge.leftover import left_of
from benchmarks.places import KEPT
from benchmarks.publish import results
from benchmarks.real import training_set
from benchmarks.real.comparison import (
    Plan,
    PolicyRun,
    Watcher,
    begin,
    run_policy,
    spec_text,
    targets_at,
)
from dlsched.simulation.scoring import PLAIN
from tools.session import session, wait_for

TITLE = "Real models and trainers on one node"

ADAPTIVE = "adaptive"
SEED = 1
MODELS = 4
DEMAND = 0.5
"""Of capacity, that the models need: the rest is for the trainers."""
TRAINERS = ("cnn", "lstm")

PLAN = Plan(
    seed=SEED,
    jobs=MODELS,
    demand_ratio=DEMAND,
    calibrate_s=16.0,
    settle_s=20.0,
    judge_s=25.0,
    judge_most_s=45.0,
    keep_in=KEPT / "mixed",
)


def run() -> dict[str, Any]:
    """All of it, on fresh containers: the engine's version, and a row a run."""
    threads = dict.fromkeys(TRAINERS, float(training_set.THREADS))
    watcher = Watcher()
    with session() as one:
        jobs, capacity = begin(one, PLAN, watcher)
        shares = {job.name: DEMAND * capacity * job.part for job in jobs}
        watcher.stage(f"targets: latency at drawn shares of {DEMAND} of {capacity:.2f} cores")
        targets = targets_at(one, watcher, shares, PLAN.calibrate_s)
        for job in jobs:
            one.drop(job.name, spec_text(job, targets[job.name]))
        watcher.stage(f"{MODELS} models alone, {ADAPTIVE}")
        runs = [("alone", run_policy(one, PLAN, watcher, ADAPTIVE, targets))]
        watcher.stage(f"beside {len(TRAINERS)} trainers")
        # Under plain Docker, so that no policy begins with their start-up.
        one.start(PLAIN)
        for name in TRAINERS:
            one.drop(name, training_set.endless(name, SEED))
        wait_for(lambda: one.running() == MODELS + len(TRAINERS), 60, "every trainer to run")
        wait_for(
            lambda: all(
                row["blind"] is None for row in one.client.jobs()["jobs"] if row["name"] in TRAINERS
            ),
            60,
            "every trainer's first report",
        )
        one.stop()
        for policy in (PLAIN, ADAPTIVE):
            plan = replace(PLAN, keep_in=PLAN.keep_in / "beside")
            watcher.stage(f"{MODELS} models and {len(TRAINERS)} trainers, {policy}")
            runs.append(("beside trainers", run_policy(one, plan, watcher, policy, targets)))
        version = one.engine.version()["Version"]
    return {
        "engine": version,
        "rows": [row_of(how, found, threads) for how, found in runs],
        "missed_beside": missed(runs[0][1], runs[-1][1]),
        "host": results.host_facts(version),
    }


def row_of(how: str, found: PolicyRun, threads: Mapping[str, float]) -> dict[str, object]:
    left = left_of(found.kept.reports(), threads, found.kept.judged_from_s)
    return {
        "models": how,
        "policy": found.policy,
        "not slower": sum(job.slo for job in found.judged),
        "of models": len(found.judged),
        "worst of target": max((job.ratio or math.inf) for job in found.judged),
        "too few requests to judge": sum(not job.enough for job in found.judged),
        "training core-seconds": left.used_core_s,
        "training use of what is left": left.ratio,
        "updates/min": found.updates_per_min,
    }


def missed(alone: PolicyRun, beside: PolicyRun) -> list[str]:
    """Models that met their target alone, and not beside the trainers."""
    met = {job.job for job in alone.judged if job.slo}
    return sorted(job.job for job in beside.judged if job.job in met and not job.slo)


def headlines(real: Mapping[str, Any]) -> list[str]:
    """The two figures that the policy is held to, in words."""
    rows: Sequence[Mapping[str, Any]] = real["rows"]
    last = rows[-1]
    names = ", ".join(real["missed_beside"]) or "none"
    told = (
        f"Real, `{last['policy']}`: {last['not slower']} of {last['of models']} models are not "
        f"slower than their target beside {len(TRAINERS)} trainers (met alone, but not there: "
        f"{names}); the trainers use {last['training use of what is left']:.2f} of the CPU "
        "that is left over."
    )
    return [told]
