"""Services under open loops, where plain Docker has room: nobody may be worse off for `adaptive`.

Owns the two measurements that the default policy once failed. Real: HTTP services (the inference
example) under Poisson clients, beside a service whose target nothing can meet, and beside two
trainings. Simulated: ten such services beside a hopeless one, on seeds of their own. Latencies are
the clients', counted from the moment that a request was due.

    python -m benchmarks run open-loop-real     writes benchmarks/results/open-loop-real.json
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.publish.results import verdict
from benchmarks.real.http_services import (
    BY_HAND,
    MODELS,
    POLICIES,
    Measured,
    Scenario,
    Service,
    begin,
    harmed,
    measure,
    real_table,
    trainings_table,
)
from benchmarks.simulated.playing import play
from dlsched.model.facts import NodeFact
from dlsched.model.spec import LatencyTarget
from dlsched.simulation.node.workloads import ServiceLoad, Trace
from dlsched.simulation.scoring import PLAIN
from tests.worlds.open_worlds import simulated_job
from tools.session import session

NAME = "open-loop-real"
SETTLE_S, JUDGE_S = 25.0, 40.0
RUNS = 3
"""Of each real scenario."""
MOST_WORSE_S = 1.0
"""Simulated: the first seconds of a run differ by chance."""

WEB = tuple(Service(f"{model}-1", model, 30.0, 0.025) for model in ("resnet", "inception", "vgg"))
SCENARIOS = (
    Scenario(
        "five services beside one with a target of 1 ms",
        (
            *(Service(f"{model}-1", model, 5.0, 0.150) for model in MODELS),
            Service("hopeless", "resnet", 5.0, 0.001),
        ),
    ),
    Scenario(
        # Less than half of two cores.
        "six services beside two trainings",
        tuple(
            Service(f"{model}-{index}", model, rate, 0.025)
            for index, (model, rate) in enumerate(
                zip((*MODELS, "mobilenet"), (60.0, 30.0, 30.0, 30.0, 30.0, 60.0), strict=True), 1
            )
        ),
        trainings=("cnn", "lstm"),
    ),
    Scenario(
        "adopted services beside an own training",
        WEB,
        trainings=("cnn",),
        adopted=tuple(service.name for service in WEB),
    ),
    Scenario("own services beside an adopted training", WEB, trainings=("cnn",), adopted=("cnn",)),
    Scenario(
        "an own and an adopted service beside an own and an unmanaged training",
        WEB[:2],
        trainings=("cnn",),
        adopted=(WEB[0].name,),
        unmanaged=("lstm",),
    ),
)


# ---------------------------------------------------------------------- real


def real() -> tuple[str, list[Measured]]:
    """All scenarios under every policy, `RUNS` times: the engine's version and the rows."""
    found = []
    for scenario, number in product(SCENARIOS, range(1, RUNS + 1)):
        with session() as one:
            begin(one, scenario)
            by_hand = (BY_HAND,) if scenario.trainings and not scenario.adopted else ()
            for policy in (PLAIN, *by_hand, *POLICIES[1:]):
                print(f"{scenario.words}: {policy}, run {number} of {RUNS}", flush=True)
                found += measure(one, scenario, policy, number, settle_s=SETTLE_S, judge_s=JUDGE_S)
            version = str(one.engine.version()["Version"])
    return version, found


# ---------------------------------------------------------------------- simulated

LEAST_STEPS_RATIO = 0.9
SEEDS = range(201, 221)
LOADS = (0.1, 0.3, 0.5, 0.7)
CORES = 2.0
SERVICES = 10
DURATION_S = 120.0
TARGET_OVER_ALONE = 3.0


def trace_of(load_ratio: float, hopeless: int, seed: int) -> Trace:
    """Ten Poisson services that use so much of the node, beside so many hopeless ones.

    Each has a target of three times what it answers in with a core of its own.
    """
    chance = random.Random(seed)
    parts = [chance.uniform(0.2, 1.0) for _ in range(SERVICES)]
    jobs = []
    for index, part in enumerate(parts):
        use_cores = min(load_ratio * CORES * part / math.fsum(parts), 0.9)
        work_core_s = 10 ** chance.uniform(-2.3, -1.3)
        alone_s = work_core_s / (1.0 - use_cores)
        load = ServiceLoad(work_core_s, arrivals_per_s=use_cores / work_core_s, noise=0.3)
        target = LatencyTarget(TARGET_OVER_ALONE * alone_s)
        jobs.append(simulated_job(f"service-{index}", target, load))
    hog = ServiceLoad(0.02, arrivals_per_s=5.0)
    jobs += [
        simulated_job(f"hopeless-{index}", LatencyTarget(0.001), hog) for index in range(hopeless)
    ]
    jobs.sort(key=lambda job: job.name)
    return Trace(NodeFact(CORES, 1 << 34), tuple(jobs), DURATION_S)


@dataclass(frozen=True)
class Simulated:
    """One policy on one trace."""

    load_ratio: float
    hopeless: int
    policy: str
    seed: int
    met_ratio: float
    """Part of the time in which a service is not slower than its target, mean of the ten."""
    worst_ratio: float
    updates_per_min: float


def simulated() -> list[Simulated]:
    """Every load, with and without a hopeless service, under every policy and seed."""
    found = []
    for load_ratio, hopeless, seed in product(LOADS, (0, 1), SEEDS):
        trace = trace_of(load_ratio, hopeless, seed)
        for policy in POLICIES:
            run = play(trace, policy, seed)
            met = [job.met_ratio or 0.0 for job in run.jobs if job.name.startswith("service")]
            mean, worst = round(statistics.mean(met), 4), round(min(met), 4)
            updates_per_min = round(run.updates / DURATION_S * 60, 2)
            told = (mean, worst, updates_per_min)
            found.append(Simulated(load_ratio, hopeless, policy, seed, *told))
    return found


def simulated_table(found: Sequence[Simulated]) -> list[dict[str, object]]:
    """One row a load: how much of the time services were not slower, mean and worst seed."""
    table = []
    for load_ratio, hopeless in product(LOADS, (0, 1)):
        line: dict[str, object] = {"use of the node": load_ratio, "hopeless": hopeless}
        for policy in POLICIES:
            key = (load_ratio, hopeless, policy)
            rows = [row for row in found if (row.load_ratio, row.hopeless, row.policy) == key]
            line[f"not slower, {policy}"] = statistics.mean(row.met_ratio for row in rows)
            line[f"worst service, {policy}"] = min(row.worst_ratio for row in rows)
            if policy != PLAIN:
                line["updates/min"] = statistics.mean(row.updates_per_min for row in rows)
        table.append(line)
    return table


# ---------------------------------------------------------------------- saving


def headlines(real_rows: Sequence[Mapping[str, object]], worse: int, pairs: int) -> list[str]:
    """The figures that the policy is held to, in words."""
    slower = harmed(real_rows)
    held = sum(bool(row["cycles with a ceiling"]) for row in real_rows)
    return [
        (
            f"Real, slower than under plain Docker by more than 10 % + 2 ms: "
            f"{', '.join(slower) or 'none'} of {len(real_rows)} services."
        ),
        f"Real, services that had a ceiling: {held} of {len(real_rows)}.",
        (
            f"Simulated, traces where services were within target for over {MOST_WORSE_S:g} s of "
            f"{DURATION_S:g} less than under plain Docker: {worse} of {pairs}."
        ),
    ]


def of_trainings(table: Sequence[Mapping[str, object]]) -> list[str]:
    """What trainings keep of the steps that they make in the idle class, put there by hand."""
    told = []
    for row in table:
        if f"steps, {BY_HAND}" in row:
            ratio = float(str(row["steps, adaptive"])) / float(str(row[f"steps, {BY_HAND}"]))
            reached = verdict(ratio >= LEAST_STEPS_RATIO)
            told.append(
                f"Real, {row['scenario']}: the trainings make {ratio:.2f} of the steps that they "
                f"make in the idle class by hand (asked: {LEAST_STEPS_RATIO:g}): {reached}."
            )
    return told


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)
    rows = simulated()
    plain = {(r.load_ratio, r.hopeless, r.seed): r.met_ratio for r in rows if r.policy == PLAIN}
    own = [row for row in rows if row.policy != PLAIN]
    worse = sum(row.met_ratio < plain[row.load_ratio, row.hopeless, row.seed] - 1e-9 for row in own)
    version, measured = real()
    real_rows, trainings = real_table(measured), trainings_table(measured)
    tables = {
        f"Real HTTP services under Poisson clients, ms, median of {RUNS} runs": real_rows,
        "Real: the trainings' steps meanwhile": trainings,
        "Simulated: ten Poisson services on two cores, 20 seeds": simulated_table(rows),
    }
    told = [*headlines(real_rows, worse, len(own)), *of_trainings(trainings)]
    results.finish(NAME, version, SEEDS, [*measured, *rows], tables, told)
    return 0
