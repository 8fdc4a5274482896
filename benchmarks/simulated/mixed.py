"""A mixed node, simulated: services with latency targets and trainings on the same cores.

Owns which traces these are, and how it is told whether trainings cost a service its target: the
same services stand alone on the node, under `adaptive`, and a target that is met there must be met
beside the trainings. A seed draws the trace and its noise alike, nothing is chosen.

    python -m benchmarks run mixed            writes benchmarks/results/mixed.json
    python -m benchmarks run mixed --real     adds real models and trainers
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.options import options
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
from benchmarks.simulated.playing import compare_all, play
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.simulation.node.workloads import Trace, TrainingLoad
from dlsched.simulation.scoring import PLAIN, RunResult
from dlsched.simulation.trace import Recipe, generate
from tools.session import session, wait_for

# ---------------------------------------------------------------------- what is left over


class Left:
    """Adds up core-seconds left for trainings, and used by them, cycle by cycle."""

    def __init__(self, threads: Mapping[str, float]) -> None:
        """`threads`: how many cores each training can use at once."""
        self._threads = threads
        self._before_s: float | None = None
        self._there: set[str] = set()
        self.used_core_s = 0.0
        self.left_core_s = 0.0

    def add(self, report: CycleReport) -> None:
        """The next cycle: its usage is that of the time since the one before."""
        seen, node = report.snapshot, report.snapshot.node
        there = {
            job.name
            for job in seen.running
            if isinstance(job.spec.target, AccuracyTarget) and job.usage.cpu_cores is not None
        }
        if self._before_s is not None:
            # Who came within the cycle did not want CPU for all of it.
            wanting = there & self._there
            uses = {job.name: job.usage.cpu_cores or 0.0 for job in seen.running}
            others = math.fsum(cores for name, cores in uses.items() if name not in wanting)
            # What the operator keeps back is there for others on the host to use.
            there_is = min(node.capacity_cores, node.cores - (node.foreign_cores or 0.0))
            wanted = math.fsum(self._threads[name] for name in wanting)
            elapsed_s = seen.now_s - self._before_s
            self.left_core_s += max(0.0, min(there_is - others, wanted)) * elapsed_s
            self.used_core_s += math.fsum(uses[name] for name in wanting) * elapsed_s
        self._before_s, self._there = seen.now_s, there

    @property
    def ratio(self) -> float:
        """Used of left; 1 where nothing was left to use."""
        return self.used_core_s / self.left_core_s if self.left_core_s > 0 else 1.0


def left_of(reports: Iterable[CycleReport], threads: Mapping[str, float], since_s: float) -> Left:
    """The whole of a run from so many seconds after its first cycle on."""
    left, began_s = Left(threads), None
    for report in reports:
        began_s = report.snapshot.now_s if began_s is None else began_s
        if report.snapshot.now_s >= began_s + since_s:
            left.add(report)
    return left


# ---------------------------------------------------------------------- real containers

REAL_TITLE = "Real models and trainers on one node"

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


def run_real() -> dict[str, Any]:
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


def real_headlines(real: Mapping[str, Any]) -> list[str]:
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


# ---------------------------------------------------------------------- simulated

NAME = "mixed"

COUNTS = (10, 20, 40)
SEEDS = tuple(range(1, 11))
MODES = {"slo": "met_ratio", "band": "satisfied_ratio"}
"""How a target is read, and which ratio of a job's time says that it was met."""

POLICIES = (
    PLAIN,
    "fair",
    "dqoes",
    "tradl",
    "flowcon",
    *(f"adaptive?mode={mode}" for mode in MODES),
)

DURATION_S = 600.0
HELD_RATIO = 0.95
"""A target is met by a job that meets it for so much of its time: the rest is learning."""


@dataclass(frozen=True)
class Scenario:
    """How much of the node services and trainings need, half each."""

    name: str
    demand: float
    """Of all jobs together; all at once, for the whole time."""


SCENARIOS = (Scenario("light", 1.0), Scenario("full", 1.7))


@dataclass(frozen=True)
class Row:
    """One policy on one trace."""

    scenario: str
    n: int
    policy: str
    seed: int
    services: int
    met: int
    """Services not slower than their target for `HELD_RATIO` of their time."""
    within: int
    """The same, within 10 % of it on either side."""
    missed_beside: int | None
    """Services that `adaptive` keeps at their target alone on the node, and that miss it here
    beside the trainings, in the policy's own reading of a target."""
    met_mean_ratio: float
    within_mean_ratio: float
    training_use_ratio: float
    """Core-seconds that trainings used, of those that services left and trainings could use."""
    tier1_mean_s: float
    completion_mean_s: float
    updates: int


def trace_of(scenario: Scenario, n: int, seed: int) -> Trace:
    """Half services, half trainings, all there from the first second on."""
    return generate(
        Recipe(
            jobs=n,
            duration_s=DURATION_S,
            seed=seed,
            kind="mixed",
            schedule="burst",
            demand=scenario.demand,
            name=f"mixed-{scenario.name}",
        )
    )


def services_of(trace: Trace) -> Trace:
    """The same node without its trainings."""
    serving = tuple(job for job in trace.jobs if isinstance(job.spec.target, LatencyTarget))
    return dataclasses.replace(trace, jobs=serving)


def compare(scenario: Scenario, n: int, seed: int) -> list[Row]:
    """Every policy on that trace, and `adaptive` without the trainings first."""
    trace = trace_of(scenario, n, seed)
    alone = {
        mode: held(run_of(services_of(trace), f"adaptive?mode={mode}", seed)[0], ratio)
        for mode, ratio in MODES.items()
    }
    rows = []
    for policy in POLICIES:
        run, use_ratio = run_of(trace, policy, seed)
        mode = "band" if policy.endswith("mode=band") else "slo"
        services = [job for job in run.jobs if job.kind == "service"]
        rows.append(
            Row(
                scenario=scenario.name,
                n=n,
                policy=policy,
                seed=seed,
                services=len(services),
                met=len(held(run, "met_ratio")),
                within=len(held(run, "satisfied_ratio")),
                missed_beside=len(alone[mode] - held(run, MODES[mode])),
                met_mean_ratio=statistics.fmean(job.met_ratio or 0.0 for job in services),
                within_mean_ratio=statistics.fmean(job.satisfied_ratio or 0.0 for job in services),
                training_use_ratio=use_ratio,
                tier1_mean_s=statistics.fmean(run.times("tier1").values()),
                completion_mean_s=statistics.fmean(run.times("completion").values()),
                updates=run.updates,
            )
        )
    return rows


def run_of(trace: Trace, policy: str, seed: int) -> tuple[RunResult, float]:
    """The run, and the part of the CPU left over that trainings used."""
    threads = {
        job.name: job.load.threads for job in trace.jobs if isinstance(job.load, TrainingLoad)
    }
    left = Left(threads)
    run = play(trace, policy, seed, publish=left.add)
    return run, left.ratio


def held(run: RunResult, ratio: str) -> set[str]:
    """The services that met their target for long enough."""
    return {job.name for job in run.jobs if (getattr(job, ratio) or 0.0) >= HELD_RATIO}


def table_of(rows: Sequence[Row]) -> list[dict[str, object]]:
    """A line a scenario, number of jobs and policy: over all seeds."""
    plain = {(r.scenario, r.n, r.seed): r for r in rows if r.policy == PLAIN}
    scenarios = [one.name for one in SCENARIOS]
    groups = results.grouped(
        rows, lambda row: (scenarios.index(row.scenario), row.n, POLICIES.index(row.policy))
    )
    table: list[dict[str, object]] = []
    for _, mine in sorted(groups.items()):
        beside = [(row, plain[row.scenario, row.n, row.seed]) for row in mine]
        table.append(
            {
                "scenario": mine[0].scenario,
                "n": mine[0].n,
                "policy": mine[0].policy,
                "services not slower, of all": _ratio(mine, "met"),
                "within 10 %, of all": _ratio(mine, "within"),
                "missed beside trainings, met alone": sum(row.missed_beside or 0 for row in mine),
                "worst seed's training use of what is left": min(
                    r.training_use_ratio for r in mine
                ),
                "training use of what is left": statistics.fmean(
                    row.training_use_ratio for row in mine
                ),
                "tier 1 of plain": statistics.fmean(
                    row.tier1_mean_s / base.tier1_mean_s for row, base in beside
                ),
                "completion of plain": statistics.fmean(
                    row.completion_mean_s / base.completion_mean_s for row, base in beside
                ),
                "updates": statistics.fmean(row.updates for row in mine),
            }
        )
    return table


def _ratio(rows: Sequence[Row], count: str) -> float:
    return sum(getattr(row, count) for row in rows) / sum(row.services for row in rows)


def headlines(rows: Sequence[Row]) -> list[str]:
    """The two figures that the policy is held to, in words."""
    lines = []
    for mode in MODES:
        mine = [row for row in rows if row.policy == f"adaptive?mode={mode}"]
        missed = sum(row.missed_beside or 0 for row in mine)
        services = sum(row.services for row in mine)
        worst = min(row.training_use_ratio for row in mine)
        mean = statistics.fmean(row.training_use_ratio for row in mine)
        lines.append(
            f"`adaptive` ({mode}): {missed} of {services} services miss beside trainings a target "
            f"that they meet without them; trainings use {mean:.3f} of the CPU left over in the "
            f"mean, {worst:.3f} on the worst trace."
        )
    return lines


def save(rows: Sequence[Row] | None, real: Mapping[str, object] | None) -> None:
    """Write the result file and print it; a part that was not run (None) stays as it was saved."""
    before = results.load(NAME) or {}
    rows = [Row(**row) for row in before.get("rows", ())] if rows is None else rows
    real = before.get("real") if real is None else real
    seeds = sorted({row.seed for row in rows})
    tables: dict[str, Any] = {}
    lines: list[str] = []
    if rows:
        title = f"Services and trainings on one simulated node, {len(seeds)} seeds"
        tables[title] = table_of(rows)
        lines += headlines(rows)
    if real:
        tables[REAL_TITLE] = real["rows"]
        lines += real_headlines(real)
    facts = results.host_facts(str(real["engine"]) if real else "none")
    saved = [asdict(row) for row in rows]
    results.save(NAME, facts, seeds, saved, tables=tables, headlines=lines, real=real)
    results.show(tables, lines)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, real=(False, "the real run instead: 4 minutes"))
    if chosen.real:
        save(None, run_real())
    else:
        save(compare_all(compare, SCENARIOS, COUNTS, SEEDS), None)
    return 0
