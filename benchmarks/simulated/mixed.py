"""A mixed node, simulated: services with latency targets and trainings on the same cores.

Owns which traces these are, and how it is told whether trainings cost a service its target: the
same services stand alone on the node, under `adaptive`, and a target that is met there must be met
beside the trainings. A seed draws the trace and its noise alike, nothing is chosen.

    python -m benchmarks run mixed   writes benchmarks/results/mixed.json
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.publish import results
from benchmarks.simulated.playing import compare_all, judge_seeds, play
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import AccuracyTarget, LatencyTarget
from dlsched.simulation.node.workloads import Trace, TrainingLoad
from dlsched.simulation.scoring import PLAIN, RunResult
from dlsched.simulation.trace import Recipe, generate

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


def compare(scenario: Scenario, n: int, seed: int) -> list[Row]:
    """Every policy on that trace, and `adaptive` without the trainings first."""
    trace = trace_of(scenario, n, seed)
    serving = tuple(job for job in trace.jobs if isinstance(job.spec.target, LatencyTarget))
    services_alone = dataclasses.replace(trace, jobs=serving)
    alone = {
        mode: held(run_of(services_alone, f"adaptive?mode={mode}", seed)[0], ratio)
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


def main(arguments: list[str] | None = None) -> int:
    def rows_of(seeds: Sequence[int]) -> list[Row]:
        return compare_all(compare, SCENARIOS, COUNTS, seeds)

    title = "Services and trainings on one simulated node, over all seeds"
    return judge_seeds(
        NAME, __doc__, arguments, SEEDS, rows_of, lambda rows: {title: table_of(rows)}, headlines
    )
