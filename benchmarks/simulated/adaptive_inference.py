"""Services on a simulated node: `adaptive` beside its peers and the clairvoyant, ten seeds.

Owns which traces and policies these are. Traces are 120 s long with a control step a second, so
that all of it takes minutes; a seed draws the trace and its noise alike, nothing is chosen.
Everybody is judged on true latencies from the eighth control step on (`satisfaction`): who settles
later than that has less, and how many decisions that takes is told beside it.

    python -m benchmarks run adaptive-inference   writes benchmarks/results/adaptive-inference.json

While working on a policy, parts of it; they are printed, and written with `--merge` alone:

    python -m benchmarks run adaptive-inference --only tight,over --counts 10 --seeds 2 \
        --policies 'none,adaptive?mode=band'
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from benchmarks.judge.satisfaction import READINGS, Judged, Reading, Watch, judge
from benchmarks.publish import results
from benchmarks.simulated.inference_tables import PUBLISHED, Line, Measured, tables_of
from benchmarks.simulated.traces_pool import compare_all
from dlsched.control.decider import NamedPolicy
from dlsched.policies.registry import load as load_policy
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN
from dlsched.simulation.trace import Recipe, Trace, generate

NAME = "adaptive-inference"

COUNTS = (10, 20, 40)
SEEDS = 10

POLICIES = (
    PLAIN,
    "fair",
    *PUBLISHED,
    "dqoes",
    "benchmarks.peers.proportional:ProportionalPolicy",
    "benchmarks.peers.parties:PartiesPolicy",
    "benchmarks.peers.vpa:VpaPolicy",
    "adaptive?mode=band",
    "adaptive?mode=slo",
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of trace, at any number of jobs."""

    name: str
    words: str
    recipe: Recipe


def _scenario(name: str, words: str, demand: float = 0.7, **more: float) -> Scenario:
    recipe = Recipe(kind="inference", schedule="burst", duration_s=120.0, demand=demand, name=name)
    return Scenario(name, words, dataclasses.replace(recipe, **more))  # type: ignore[arg-type]


SCENARIOS = (
    _scenario("feasible", "demand 0.7"),
    _scenario("tight", "demand 0.95", 0.95),
    _scenario("above", "demand 1.2", 1.2),
    _scenario("over", "demand 1.4", 1.4),
    _scenario("impossible", "1.2, 15 % impossible", 1.2, impossible_ratio=0.15),
    _scenario("change", "0.7, load x0.5 to 2 midway", change_ratio=2.0),
    _scenario("churn", "0.7, half come or go", churn_ratio=0.5),
    _scenario("stale", "0.7, 20 % stale", stale_ratio=0.2),
    _scenario("lying", "0.7, 15 % lying", lying_ratio=0.15),
    _scenario("p95-half", "0.7, p95 at cv 0.5", quantile=0.95, noise=0.5),
    _scenario("p95-one", "0.7, p95 at cv 1", quantile=0.95, noise=1.0),
)

HONEST = ": of which the honest"
"""A liar is judged by its true latency, as everybody. A policy that believes what it is told can
do nothing for it, so the others beside it are told on a line of their own, too."""


def trace_of(scenario: Scenario, jobs: int, seed: int) -> Trace:
    """That scenario's trace with so many jobs."""
    return generate(dataclasses.replace(scenario.recipe, jobs=jobs, seed=seed))


def compare(
    scenario: Scenario, jobs: int, seed: int, policies: Sequence[str] = POLICIES
) -> list[Measured]:
    """Every policy on that trace; plain Docker is the first of them."""
    trace = trace_of(scenario, jobs, seed)
    everybody = [job.name for job in trace.jobs]
    honest = [job.name for job in trace.jobs if not any(one.kind == "lying" for one in job.faults)]
    lines = {scenario.words: everybody}
    if len(honest) < len(everybody):
        lines[scenario.words + HONEST] = honest
    found: list[Measured] = []
    plain: dict[tuple[str, Reading], Judged] = {}
    for policy in policies:
        watch = Watch()
        named = NamedPolicy(policy, load_policy(policy))
        run = simulate(trace, named, seed, publish=watch.publish, inspect=watch.look)
        if run.alarms:
            raise RuntimeError(f"{scenario.name}, n = {jobs}, {policy}, seed {seed}: {run.alarms}")
        for words, among in lines.items():
            judged = {reading: judge(trace, watch, reading, among) for reading in READINGS}
            for reading, one in judged.items():
                plain.setdefault((words, reading), one)
            numbers = {
                f"{reading.name}_{what}": value
                for reading, one in judged.items()
                for what, value in (
                    ("jobs", round(one.jobs, 4)),
                    ("best_jobs", round(one.best_jobs, 4)),
                    ("steps", one.near_after),
                    ("worse_jobs", one.worse_than(plain[words, reading])),
                )
            }
            updates = round(run.updates / trace.duration_s * 60.0, 2)
            found.append(
                Measured(words, jobs, policy, seed, updates_per_min=updates, **numbers)  # type: ignore[arg-type]
            )
    return found


def run(
    console: Console,
    scenarios: Sequence[Scenario],
    counts: Sequence[int],
    seeds: Sequence[int],
    policies: Sequence[str],
    processes: int,
) -> list[Measured]:
    """Every scenario at every n and seed, on so many processes; the order of rows is fixed."""
    return compare_all(console, compare, scenarios, counts, seeds, processes, policies)


# ---------------------------------------------------------------------- saving


def merged(found: Sequence[Measured]) -> list[Measured]:
    """With the saved rows that were not run now, in the order of a whole run."""
    saved = results.load(NAME) or {"rows": []}
    rows = {
        (one.scenario, one.n, one.seed, one.policy): one
        for one in (*(Measured(**row) for row in saved["rows"]), *found)
    }
    scenarios = [scenario.words for scenario in SCENARIOS]

    def place(key: tuple[str, int, int, str]) -> tuple[int, bool, int, int, int]:
        words, n, seed, policy = key
        scenario = scenarios.index(words.removesuffix(HONEST))
        return scenario, words.endswith(HONEST), n, seed, POLICIES.index(policy)

    return [rows[key] for key in sorted(rows, key=place)]


def save(found: Sequence[Measured]) -> dict[str, list[Line]]:
    """The result file; returns its tables, by title."""
    tables = tables_of(found)
    seeds = sorted({row.seed for row in found})
    results.save(
        NAME, results.host_facts("none"), seeds, [asdict(row) for row in found], tables=tables
    )
    return tables


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; saved is only the whole. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = ",".join(scenario.name for scenario in SCENARIOS)
    parser.add_argument("--only", default=names, help=f"scenarios, of {names}")
    parser.add_argument("--counts", default=",".join(map(str, COUNTS)), help="numbers of jobs")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many (1, 2, ...)")
    parser.add_argument("--policies", default=",".join(POLICIES), help="plain Docker goes first")
    parser.add_argument("--merge", action="store_true", help="save, beside what was saved before")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    chosen = parser.parse_args(arguments)
    wanted = chosen.only.split(",")
    scenarios = [one for one in SCENARIOS if one.name in wanted]
    if len(scenarios) < len(wanted):
        parser.error(f"--only {chosen.only}: there are {names}")
    policies = tuple(dict.fromkeys((PLAIN, *chosen.policies.split(","))))
    if chosen.merge and not set(policies) <= set(POLICIES):
        parser.error(f"--merge takes only policies of the table: {', '.join(POLICIES)}")
    counts = tuple(int(n) for n in chosen.counts.split(","))
    seeds = range(1, chosen.seeds + 1)
    console = Console(stderr=False)
    found = run(console, scenarios, counts, seeds, policies, chosen.processes)
    whole = (
        tuple(scenarios),
        counts,
        chosen.seeds,
        policies,
    ) == (SCENARIOS, COUNTS, SEEDS, POLICIES)
    if chosen.merge:
        found = merged(found)
    saves = whole or chosen.merge
    results.show(console, save(found) if saves else tables_of(found))
    return 0
