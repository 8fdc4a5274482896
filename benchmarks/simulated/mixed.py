"""A mixed node, simulated: services with latency targets and trainings on the same cores.

Owns which traces these are, and how it is told whether trainings cost a service its target: the
same services stand alone on the node, under `adaptive`, and a target that is met there must be met
beside the trainings. A seed draws the trace and its noise alike, nothing is chosen.

    python -m benchmarks run mixed            writes benchmarks/results/mixed.json
    python -m benchmarks run mixed --real     adds real models and trainers: see mixed_real
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.judge.leftover import Left
from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.real import mixed_real
from benchmarks.simulated.playing import compare_all, play
from dlsched.model.spec import LatencyTarget
from dlsched.simulation.node.workloads import Trace, TrainingLoad
from dlsched.simulation.scoring import PLAIN, RunResult
from dlsched.simulation.trace import Recipe, generate

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
        tables[mixed_real.TITLE] = real["rows"]
        lines += mixed_real.headlines(real)
    facts = results.host_facts(str(real["engine"]) if real else "none")
    saved = [asdict(row) for row in rows]
    results.save(NAME, facts, seeds, saved, tables=tables, headlines=lines, real=real)
    results.show(tables, lines)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, real=(False, "the real run instead: 4 minutes"))
    if chosen.real:
        save(None, mixed_real.run())
    else:
        save(compare_all(compare, SCENARIOS, COUNTS, SEEDS), None)
    return 0
