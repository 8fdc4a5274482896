"""Services whose requests come by themselves: `adaptive` beside plain Docker and its peers.

Owns which policies play which worlds, and what is counted. Every policy plays the same requests,
and is judged by what they took in the world from the second stretch of 30 s on.

    python -m benchmarks run open-loop   writes benchmarks/results/open-loop.json

While working on a policy, parts of it; they are printed and not written:

    python -m benchmarks run open-loop --only light --seeds 2 --policies none,adaptive
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from rich.console import Console

from benchmarks.peers.fixed import FixedPolicy
from benchmarks.publish import results
from benchmarks.simulated.open_tables import Measured, headlines_of, tables_of
from benchmarks.simulated.traces_pool import compare_all
from dlsched.control.decider import NamedPolicy
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import LatencyTarget
from dlsched.policies.registry import load as load_policy
from dlsched.simulation.node.played import PlayedService, mean_or_quantile
from dlsched.simulation.node.service import BAND_RATIO
from dlsched.simulation.node.starting import Computation
from dlsched.simulation.node.training import Training
from dlsched.simulation.node.workloads import ServiceLoad, SimulatedJob, Trace
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN
from tests.worlds.harm import worse_jobs
from tests.worlds.open_worlds import ARRIVING, CORES, Scenario, world

NAME = "open-loop"
SEEDS, FIRST_SEED = 3, 101
SERVICES, FULL_SERVICES = 10, 20
WINDOW_REQUESTS = 3000
"""Fewer requests of an open loop lie outside the band by chance."""
POLICIES = (
    PLAIN,
    "adaptive",
    "adaptive?mode=band",
    "dqoes",
    "benchmarks.peers.proportional:ProportionalPolicy",
    "benchmarks.peers.parties:PartiesPolicy",
)
FILLED = (0.75, 0.85, 0.95)
"""How much of the node the clairvoyant's subset may use: each is played, the best one counts."""
SETTLED_S = 60.0
"""From then on updates are counted as those of a settled node, too."""

LIGHT = tuple(
    Scenario(arriving, use, hopeless)
    for arriving in ARRIVING
    for use in (0.1, 0.3, 0.5, 0.7)
    for hopeless in (False, True)
)
BESIDE = tuple(
    Scenario(arriving, use, trainings=2, idle_class=idle, minimum_cores=least)
    for arriving in ARRIVING[:3]
    for use in (0.3, 0.5, 0.7)
    for idle, least in ((True, 0.0), (False, 0.0), (False, 0.4))
)
FULL = tuple(Scenario(arriving, use) for arriving in ("poisson", "closed") for use in (1.2, 1.4))
GROUPS = {"light": LIGHT, "beside": BESIDE, "full": FULL}


@dataclass
class Played:
    """One run, as the world had it."""

    loads: Mapping[str, Computation]
    updates_per_min: float
    settled_per_min: float

    def services(self) -> dict[str, PlayedService]:
        """By name."""
        return {name: one for name, one in self.loads.items() if isinstance(one, PlayedService)}

    def training_cores(self, duration_s: float) -> float:
        """What all trainings used in the mean."""
        used = [one.usage_core_s for one in self.loads.values() if isinstance(one, Training)]
        return sum(used) / duration_s


def play(trace: Trace, named: NamedPolicy, seed: int) -> Played:
    """That world under that policy. Raises RuntimeError where a policy fails."""
    found: dict[str, Computation] = {}
    settled = 0

    def publish(report: CycleReport) -> None:
        nonlocal settled
        settled += len(report.outcomes) if report.snapshot.now_s >= SETTLED_S else 0

    run = simulate(
        trace, named, seed, publish=publish, inspect=lambda _, loads: found.update(loads)
    )
    if run.alarms:
        raise RuntimeError(f"{trace.name}, {named.name}, seed {seed}: {run.alarms}")
    of_settled = settled / max(trace.duration_s - SETTLED_S, 1e-9)
    return Played(found, 60.0 * run.updates / trace.duration_s, 60.0 * of_settled)


def named(policy: str) -> NamedPolicy:
    """A fresh one: no run can leave anything to the next."""
    return NamedPolicy(policy, load_policy(policy))


def kept(
    service: PlayedService, target: LatencyTarget, least: float, most: float, first: int = 1
) -> float:
    """Part of the stretches from the `first` on in which it keeps these parts of its target."""
    stretches = {at: took for at, took in service.stretches().items() if at >= first}
    told = [mean_or_quantile(took, target.quantile) for took in stretches.values()]
    within = [least * target.seconds <= one <= most * target.seconds for one in told]
    return sum(within) / max(len(within), 1)


def met_jobs(
    trace: Trace, played: Played, least: float = 0.0, most: float = 1.0, first: int = 1
) -> float:
    """How many services are not slower than their targets, in the mean of the judged stretches."""
    targets = {job.name: job.spec.target for job in trace.jobs}
    found = 0.0
    for name, one in played.services().items():
        target = targets[name]
        assert isinstance(target, LatencyTarget)
        found += kept(one, target, least, most, first)
    return found


def satisfied_jobs(trace: Trace, played: Played) -> float:
    """How many services are within 10 % of their targets, in the mean of windows of at least
    `WINDOW_REQUESTS`, or of all that a service has."""
    targets = {job.name: job.spec.target for job in trace.jobs}
    found = 0.0
    for name, one in played.services().items():
        target = targets[name]
        assert isinstance(target, LatencyTarget)
        windows: list[list[float]] = [[]]
        for at, took in sorted(one.stretches().items()):
            if at >= 1:
                windows += [[]] if len(windows[-1]) >= WINDOW_REQUESTS else []
                windows[-1] += took
        whole = [took for took in windows if len(took) >= WINDOW_REQUESTS] or windows
        told = [mean_or_quantile(took, target.quantile) for took in whole if took]
        near = [abs(one_s / target.seconds - 1.0) <= BAND_RATIO for one_s in told]
        found += sum(near) / max(len(near), 1)
    return found


def clairvoyant(trace: Trace, seed: int, first: int = 1) -> Played:
    """The best of some fixed subsets, chosen knowing rates and work: the cheapest come first.

    Of a load that changes it knows what it changes to.
    """
    needs = sorted((_need_cores(job), job.name) for job in trace.jobs if _may_be_met(job))
    best: tuple[float, Played] | None = None
    chosen_before: set[str] = set()
    for filled in FILLED:
        left, weights = filled * CORES, {}
        for cores, name in needs:
            if cores <= left:
                left -= cores
                weights[name] = max(cores, 0.1)
        if set(weights) == chosen_before:
            continue
        chosen_before = set(weights)
        played = play(trace, NamedPolicy("clairvoyant", FixedPolicy(weights)), seed)
        jobs = met_jobs(trace, played, first=first)
        if best is None or jobs > best[0]:
            best = jobs, played
    assert best is not None
    return best[1]


def _may_be_met(job: SimulatedJob) -> bool:
    target = job.spec.target
    return (
        isinstance(job.load, ServiceLoad)
        and isinstance(target, LatencyTarget)
        and target.seconds > job.load.work_core_s
    )


def _need_cores(job: SimulatedJob) -> float:
    load, target = job.load, job.spec.target
    assert isinstance(load, ServiceLoad) and load.loop is not None
    assert isinstance(target, LatencyTarget)
    if load.loop.is_open:
        times = math.prod(shift.work * shift.arrivals for shift in job.shifts)
        return times * load.loop.rate_per_s * load.work_core_s
    return load.loop.clients * load.work_core_s / (load.loop.think_s + target.seconds)


def compare(
    scenario: Scenario, services: int, seed: int, policies: Sequence[str] = POLICIES
) -> list[Measured]:
    """Every policy on that world; plain Docker is the first, the clairvoyant the last of them."""
    trace = world(scenario, services, seed)
    found: list[Measured] = []
    runs = [(policy, play(trace, named(policy), seed)) for policy in policies]
    runs.append(("clairvoyant", clairvoyant(trace, seed)))
    if scenario.trainings:
        alone = replace(trace, jobs=tuple(job for job in trace.jobs if _serves(job)))
        runs.append(("without trainings", play(alone, named(PLAIN), seed)))
    met = {policy: met_jobs(trace, played) for policy, played in runs}
    for policy, played in runs:
        found.append(
            Measured(
                scenario=scenario.name,
                loop=scenario.arriving,
                n=services,
                policy=policy,
                seed=seed,
                satisfied_jobs=round(satisfied_jobs(trace, played), 4),
                met_jobs=round(met[policy], 4),
                best_jobs=round(met["clairvoyant"], 4),
                plain_jobs=round(met[PLAIN], 4),
                worse_jobs=worse_jobs(trace, runs[0][1].loads, played.loads),
                updates_per_min=round(played.updates_per_min, 2),
                settled_updates_per_min=round(played.settled_per_min, 2),
                training_cores=round(played.training_cores(trace.duration_s), 4),
            )
        )
    return found


def _serves(job: SimulatedJob) -> bool:
    return isinstance(job.spec.target, LatencyTarget)


def merged(found: Sequence[Measured]) -> list[Measured]:
    """With the saved rows that were not run now, in their order."""
    saved = [Measured(**row) for row in (results.load(NAME) or {"rows": []})["rows"]]
    rows = {(one.scenario, one.loop, one.n, one.seed, one.policy): one for one in (*saved, *found)}
    return list(rows.values())


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; saved is only the whole. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(GROUPS), help=f"groups, of {','.join(GROUPS)}")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first seed")
    parser.add_argument("--policies", default=",".join(POLICIES), help="plain Docker goes first")
    parser.add_argument("--merge", action="store_true", help="save, beside what was saved before")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    chosen = parser.parse_args(arguments)
    groups = chosen.only.split(",")
    if not set(groups) <= set(GROUPS):
        parser.error(f"--only {chosen.only}: there are {', '.join(GROUPS)}")
    policies = tuple(dict.fromkeys((PLAIN, *chosen.policies.split(","))))
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    console = Console(stderr=False)
    found: list[Measured] = []
    for group in groups:
        services = FULL_SERVICES if group == "full" else SERVICES
        found += compare_all(
            console, compare, GROUPS[group], (services,), seeds, chosen.processes, policies
        )
    whole = (tuple(groups), policies, chosen.seeds, chosen.first)
    if chosen.merge:
        found = merged(found)
    tables, headlines = tables_of(found), headlines_of(found)
    if chosen.merge or whole == (tuple(GROUPS), POLICIES, SEEDS, FIRST_SEED):
        rows = [asdict(row) for row in found]
        facts, played = results.host_facts("none"), sorted({row.seed for row in found})
        results.save(NAME, facts, played, rows, tables=tables, headlines=headlines)
        full = [row for row in found if row.n == FULL_SERVICES]
        results.save(
            "full-host",
            facts,
            played,
            [asdict(row) for row in full],
            tables=tables_of(full),
            headlines=headlines_of(full),
        )
    results.show(console, tables)
    for line in headlines:
        console.print(f"\n{line}", markup=False, soft_wrap=True)
    return 0
