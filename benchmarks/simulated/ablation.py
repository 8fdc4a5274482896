"""What each part of `adaptive` is worth: the policy with one part at a time left out, ten seeds.

Owns which parts these are, and where each could show: load that changes for forgetting, more asked
for than there is for triage, and so on. The simulator knows no CPU burst; what that is worth is
told from real short requests under a quota (`tail`).

    python -m benchmarks run ablation         writes benchmarks/results/ablation.json
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import multiprocessing
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console

from benchmarks.judge.satisfaction import MET, SATISFIED, Reading
from benchmarks.kernel import tail
from benchmarks.publish import results
from benchmarks.simulated import adaptive_inference
from benchmarks.simulated.inference_tables import Line, Measured
from dlsched.control.decider import NamedPolicy
from dlsched.policies.registry import load as load_policy
from dlsched.simulation.node.curves import Family
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN
from dlsched.simulation.trace import Recipe, Trace, generate

NAME = "ablation"
SEEDS = 10
COUNT = 20
"""Jobs in each of these traces."""

MODES: Mapping[str, Reading] = {"band": SATISFIED, "slo": MET}
"""How services are counted in each mode."""

SERVICE_PARTS: Mapping[str, str] = {
    "whole": "",
    "no trim": "&trims=false",
    "no triage": "&triages=false",
    "no forgetting": "&forgets_loads=false",
    "no revert": "&reverts=false",
}
SERVICE_SCENARIOS = ("feasible", "tight", "over", "impossible", "change", "stale", "p95-half")

TRAINING_PARTS: Mapping[str, str] = {
    "whole": "",
    "no curve averaging": "?averages_curves=false",
    "no guard": "?guard_ratio=0.0",
    "no exploring": "?explore_ratio=0.0",
    "no word of total steps": "?heeds_total_steps=false",
}
FAMILIES: Mapping[str, tuple[Family, ...]] = {
    "fitted": ("power", "exponential"),
    "not fitted": ("plateau", "drop", "restart"),
}
"""Learning curves of the families that are fitted, and of others."""
GOALS = {
    "tier1_mean_s": "tier 1",
    "tier2_mean_s": "tier 2",
    "jct_mean_s": "completion",
    "makespan_s": "makespan",
}
_LATEST_END = 4.0
"""A trace may take so many times its planned time, so that every training ends."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One variant on one trace of trainings, beside plain Docker: parts of its times."""

    families: str
    n: int
    policy: str
    seed: int
    goal: str
    of_plain: float


def service_policies() -> dict[str, tuple[str, str]]:
    """By spelled policy: its mode, and what is left out."""
    return {
        f"adaptive?mode={mode}{switch}": (mode, part)
        for mode in MODES
        for part, switch in SERVICE_PARTS.items()
    }


def training_trace(families: str, seed: int) -> Trace:
    """Trainings that all come at once, on curves of these families."""
    recipe = Recipe(
        jobs=COUNT,
        seed=seed,
        kind="training",
        schedule="burst",
        cycle_s=10.0,
        families=FAMILIES[families],
        name=f"training-{families}",
    )
    trace = generate(recipe)
    return dataclasses.replace(trace, duration_s=_LATEST_END * trace.duration_s)


def train(families: str, seed: int) -> list[Trained]:
    """Every variant on that trace."""
    trace = training_trace(families, seed)
    numbers = {}
    for policy in (PLAIN, *(f"adaptive{switch}" for switch in TRAINING_PARTS.values())):
        run = simulate(trace, NamedPolicy(policy, load_policy(policy)), seed)
        if run.alarms:
            raise RuntimeError(f"{families}, {policy}, seed {seed}: {run.alarms}")
        numbers[policy] = run.metrics()
    plain = numbers.pop(PLAIN)
    return [
        Trained(families, COUNT, policy, seed, goal, round(measured[goal] / plain[goal], 5))
        for policy, measured in numbers.items()
        for goal in GOALS
    ]


def serve(scenario: str, seed: int) -> list[Measured]:
    """Every variant, in both modes, on that scenario's trace."""
    (one,) = [each for each in adaptive_inference.SCENARIOS if each.name == scenario]
    return adaptive_inference.compare(one, COUNT, seed, (PLAIN, *service_policies()))


# ---------------------------------------------------------------------- tables


def service_table(found: Sequence[Measured]) -> list[Line]:
    """A line a mode and scenario, a column a variant: of the clairvoyant's, mean over seeds."""
    told = service_policies()
    ratios: dict[tuple[str, str], dict[str, list[float]]] = {}
    for one in found:
        if one.policy not in told:
            continue
        mode, part = told[one.policy]
        reading = MODES[mode].name
        jobs, best = (getattr(one, f"{reading}_{what}") for what in ("jobs", "best_jobs"))
        if best:
            line = ratios.setdefault((mode, one.scenario), {})
            line.setdefault(part, []).append(jobs / best)
    return [
        {
            "mode": mode,
            "scenario": scenario,
            "n": COUNT,
            **{part: statistics.fmean(values) for part, values in line.items()},
        }
        for (mode, scenario), line in sorted(ratios.items(), key=lambda item: item[0][0])
    ]


def training_table(found: Sequence[Trained]) -> list[Line]:
    """A line a kind of curves and goal, a column a variant: of plain Docker's, mean over seeds."""
    parts = {f"adaptive{switch}": part for part, switch in TRAINING_PARTS.items()}
    ratios: dict[tuple[str, str], dict[str, list[float]]] = {}
    for one in found:
        line = ratios.setdefault((one.families, one.goal), {})
        line.setdefault(parts[one.policy], []).append(one.of_plain)
    return [
        {
            "curves": families,
            "n": COUNT,
            "time to": GOALS[goal],
            **{part: statistics.fmean(values) for part, values in line.items()},
        }
        for (families, goal), line in ratios.items()
    ]


def burst_table() -> list[Line]:
    """What the guards' burst is worth to the tail of real short requests, as `tail` measured."""
    saved = results.load("tail")
    burst = "burst, of the quota"
    without, default, _ = tail.BURSTS
    shown = ("none" if without == 0.0 else without, default)
    return [line for line in (saved["table"] if saved else ()) if line[burst] in shown]


def tables_of(served: Sequence[Measured], trained: Sequence[Trained]) -> dict[str, list[Line]]:
    """All tables, by title."""
    services, trainings = (len({one.seed for one in found}) for found in (served, trained))
    return {
        "`adaptive` for services with one part left out: at their target, of the clairvoyant's, "
        f"mean of {services} seeds (higher is better)": service_table(served),
        "`adaptive` for trainings with one part left out: mean times, of plain Docker's, mean of "
        f"{trainings} seeds (lower is better)": training_table(trained),
        "CPU burst, which the simulator does not know: real short requests under a quota, without "
        "and with it (one run, from `tail`)": burst_table(),
    }


# ---------------------------------------------------------------------- running


def run(
    console: Console, seeds: Sequence[int], processes: int
) -> tuple[list[Measured], list[Trained]]:
    """Every variant everywhere, on so many processes; the order of rows is fixed."""
    served: list[Measured] = []
    trained: list[Trained] = []
    context = multiprocessing.get_context("spawn")
    # Targets out of reach are what is measured here, not news; a policy that fails raises.
    with context.Pool(processes, logging.disable, (logging.WARNING,)) as pool:
        services = [(scenario, seed) for scenario in SERVICE_SCENARIOS for seed in seeds]
        trainings = [(families, seed) for families in FAMILIES for seed in seeds]
        serving = pool.starmap_async(serve, services, chunksize=1)
        training = pool.starmap_async(train, trainings, chunksize=1)
        for rows in serving.get():
            served += rows
        console.print(f"   services: {len(services)} traces", highlight=False)
        for lines in training.get():
            trained += lines
        console.print(f"   trainings: {len(trainings)} traces", highlight=False)
    return served, trained


def save(served: Sequence[Measured], trained: Sequence[Trained]) -> dict[str, list[Line]]:
    """The result file; returns its tables, by title."""
    tables = tables_of(served, trained)
    rows = [
        *({"kind": "services", **asdict(one)} for one in served),
        *({"kind": "trainings", **asdict(one)} for one in trained),
    ]
    seeds = sorted({one.seed for one in served})
    results.save(NAME, results.host_facts("none"), seeds, rows, tables=tables)
    return tables


def main(arguments: list[str] | None = None) -> int:
    """Run all and save; fewer seeds are printed alone. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many (1, 2, ...)")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    chosen = parser.parse_args(arguments)
    console = Console(stderr=False)
    found = run(console, range(1, chosen.seeds + 1), chosen.processes)
    tables = save(*found) if chosen.seeds == SEEDS else tables_of(*found)
    results.show(console, tables)
    return 0
