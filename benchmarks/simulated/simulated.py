"""The simulated comparison: every policy on generated traces of 10, 20 and 40 jobs, five seeds.

Owns which traces these are. A seed draws the trace and its noise alike, nothing is chosen; every
policy keeps its defaults, since these trainings take tens of minutes, which they are meant for.

    python -m benchmarks run simulated            writes benchmarks/results/simulated.json
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from benchmarks.judge.settling import Settling
from benchmarks.publish import results
from benchmarks.simulated.traces_pool import compare_all
from dlsched.control.decider import NamedPolicy
from dlsched.policies.registry import load as load_policy
from dlsched.simulation import scoring
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN, Row
from dlsched.simulation.trace import Recipe, Trace, generate

NAME = "simulated"

COUNTS = (10, 20, 40)
SEEDS = (1, 2, 3, 4, 5)

POLICIES = (PLAIN, "fair", "flowcon", "tradl", "dqoes")
READINGS = tuple(
    f"dqoes-published?reading={reading}&floor_ratio={floor}"
    for reading in ("own", "pool")
    for floor in (0.5, 0.05)
)
"""The published inference rule leaves two questions open; each answer is measured."""

_LATEST_END = 4.0
"""A trace of trainings may take so many times its planned time, so that every job ends."""


@dataclass(frozen=True)
class Scenario:
    """A kind of trace, at any number of jobs."""

    name: str
    recipe: Recipe
    policies: tuple[str, ...]


SCENARIOS = (
    *(
        Scenario(f"training-{schedule}", Recipe(kind="training", schedule=schedule), POLICIES)
        for schedule in ("burst", "random")
    ),
    *(
        Scenario(
            f"inference-{load}",
            Recipe(kind="inference", schedule="burst", duration_s=600.0, demand=demand),
            (*POLICIES, *READINGS),
        )
        for load, demand in (("feasible", 0.7), ("tight", 0.95), ("over", 1.4))
    ),
)


def trace_of(scenario: Scenario, jobs: int, seed: int) -> Trace:
    """That scenario's trace with so many jobs."""
    trace = generate(dataclasses.replace(scenario.recipe, jobs=jobs, seed=seed, name=scenario.name))
    if scenario.recipe.kind == "training":
        return dataclasses.replace(trace, duration_s=_LATEST_END * trace.duration_s)
    return trace


def compare(scenario: Scenario, jobs: int, seed: int) -> list[Row]:
    """Every policy on that trace, with decisions to settle among the numbers."""
    trace = trace_of(scenario, jobs, seed)
    runs, settled = [], []
    for policy in scenario.policies:
        settling = Settling()
        named = NamedPolicy(policy, load_policy(policy))
        runs.append(simulate(trace, named, seed, publish=settling.add))
        settled.append(
            Row(scenario.name, jobs, policy, seed, "settling_steps", settling.steps, None, None)
        )
    for run in runs:
        if run.alarms:
            raise RuntimeError(f"{scenario.name}, {run.policy}, seed {seed}: {run.alarms}")
    return [*scoring.rows(trace, runs), *settled]


def table_of(found: Sequence[Row], kind: str) -> list[dict[str, object]]:
    """A line a scenario, number of jobs and policy: means over the seeds."""
    cells: dict[tuple[str, int, str], dict[str, list[Row]]] = {}
    for row in found:
        if row.scenario.startswith(kind):
            group = cells.setdefault((row.scenario, row.n, row.policy), {})
            group.setdefault(row.metric, []).append(row)
    describe = _training_line if kind == "training" else _inference_line
    table = [
        {
            "scenario": scenario,
            "n": n,
            "policy": policy,
            **describe(by_metric),
            "updates": _mean(by_metric, "updates"),
            "steps to settle": _mean(by_metric, "settling_steps"),
        }
        for (scenario, n, policy), by_metric in cells.items()
    ]
    return [results.known(line) for line in table]


def _training_line(by_metric: dict[str, list[Row]]) -> dict[str, object]:
    line: dict[str, object] = {}
    for goal, words in (("tier1", "tier 1"), ("tier2", "tier 2"), ("jct", "completion")):
        line[f"{words} mean of optimum"] = _mean(by_metric, f"{goal}_mean_s", "of_optimum")
        line[f"{words} mean of plain"] = _mean(by_metric, f"{goal}_mean_s", "of_plain")
        line[f"{words} median of plain"] = _mean(by_metric, f"{goal}_median_s", "of_plain")
        line[f"{words} p95 of plain"] = _mean(by_metric, f"{goal}_p95_s", "of_plain")
        if f"{goal}_best_s" in by_metric:  # plain Docker is not beside itself
            line[f"{words} best job of plain"] = _mean(by_metric, f"{goal}_best_s", "of_plain")
            line[f"{words} worst job of plain"] = _mean(by_metric, f"{goal}_worst_s", "of_plain")
            line[f"{words} jobs worse"] = _mean(by_metric, f"{goal}_worse_jobs")
    line["jobs that ended"] = _mean(by_metric, "jct_reached_ratio")
    # A run whose jobs did not all end has no makespan: the others' mean would flatter.
    if len(by_metric.get("makespan_s", ())) == len(by_metric["jct_mean_s"]):
        line["makespan of optimum"] = _mean(by_metric, "makespan_s", "of_optimum")
        line["makespan of plain"] = _mean(by_metric, "makespan_s", "of_plain")
    return line


def _inference_line(by_metric: dict[str, list[Row]]) -> dict[str, object]:
    line: dict[str, object] = {}
    for metric, words in (("satisfied", "within 10 %"), ("met", "not slower")):
        ratio = _mean(by_metric, f"{metric}_mean_ratio")
        jobs = by_metric[f"{metric}_mean_ratio"][0].n
        line[f"{words}, jobs"] = None if ratio is None else ratio * jobs
        line[f"{words}, of optimum"] = _mean(by_metric, f"{metric}_mean_ratio", "of_optimum")
        line[f"{words}, of plain"] = _mean(by_metric, f"{metric}_mean_ratio", "of_plain")
        worst = min(row.value for row in by_metric[f"{metric}_mean_ratio"])
        line[f"{words}, worst seed"] = worst * jobs
    return line


def _mean(by_metric: dict[str, list[Row]], metric: str, of: str = "value") -> float | None:
    """The mean over the seeds that have it; plain Docker may satisfy nobody: no ratio then."""
    values = [value for row in by_metric.get(metric, ()) if (value := getattr(row, of)) is not None]
    return statistics.fmean(values) if values else None


def run(console: Console, counts: Sequence[int], seeds: Sequence[int], processes: int) -> list[Row]:
    """Every scenario at every n and seed, on so many processes; the order of rows is fixed."""
    return compare_all(console, compare, SCENARIOS, counts, seeds, processes)


def save(found: Iterable[Row], seeds: Sequence[int]) -> dict[str, list[dict[str, object]]]:
    """The result file; returns its tables, by title."""
    rows = list(found)
    tables = {
        f"Simulated trainings, mean of {len(seeds)} seeds (times: lower is better)": table_of(
            rows, "training"
        ),
        f"Simulated services, mean of {len(seeds)} seeds (satisfied jobs, mean over the run: "
        "higher is better)": table_of(rows, "inference"),
    }
    results.save(
        NAME, results.host_facts("none"), seeds, [asdict(row) for row in rows], tables=tables
    )
    return tables


def main(arguments: list[str] | None = None) -> int:
    """Run all and save; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--counts", default=",".join(map(str, COUNTS)), help="numbers of jobs")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many (1, 2, ...)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    chosen = parser.parse_args(arguments)
    console = Console(stderr=False)
    seeds = range(1, chosen.seeds + 1)
    found = run(console, [int(n) for n in chosen.counts.split(",")], seeds, chosen.processes)
    results.show(console, save(found, seeds))
    return 0
