"""Services on a simulated node: `adaptive` beside its peers and the clairvoyant, ten seeds.

Owns which traces and policies these are. Traces are 120 s long with a control step a second, so
that all of it takes minutes; a seed draws the trace and its noise alike, nothing is chosen.
Everybody is judged on true latencies from the eighth control step on: who settles later than
that has less.

    python -m benchmarks run adaptive-inference   writes benchmarks/results/adaptive-inference.json
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from benchmarks.publish import results
from benchmarks.simulated.playing import compare_all, judge_seeds, play
from dlsched.model.spec import BAND_RATIO
from dlsched.simulation import bounds
from dlsched.simulation.node.service import Service
from dlsched.simulation.node.training import Training
from dlsched.simulation.node.workloads import SimulatedJob
from dlsched.simulation.scoring import PLAIN, demands
from dlsched.simulation.trace import Recipe, Trace, generate

# ------------------------------------------------------------------ who is at its target
# By the simulator's own latencies: neither the noise of a window nor a liar's words count.

JUDGED_FROM_STEP = 8
"""Control steps before anything is judged, also of a service that comes late."""
_START_S = 1.0
"""From a service's arrival to the first thing that is known of it."""
_WORSE_RATIO = 0.05
"""A job got worse when it is at its target for so much less of the judged time."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One of the two ways to count."""

    name: str
    words: str
    band_ratio: float
    """How much slower than the target still counts."""

    def at_target_s(self, service: Service) -> float:
        """How long the service has been at its target so far."""
        return service.met_s if self is MET else service.within_s


SATISFIED = Reading("satisfied", "within 10 %", BAND_RATIO)
MET = Reading("met", "not slower", 0.0)
READINGS = (SATISFIED, MET)


@dataclass(slots=True)
class Watch:
    """What a run was truly like; hand `look` to `simulate`."""

    looks: list[tuple[float, Mapping[tuple[str, str], float]]] = field(default_factory=list)
    """(time, seconds at its target so far by reading and service), one of each cycle."""

    def look(self, now_s: float, loads: Mapping[str, Service | Training]) -> None:
        at_target = {
            (reading.name, name): reading.at_target_s(load)
            for name, load in loads.items()
            if isinstance(load, Service)
            for reading in READINGS
        }
        self.looks.append((now_s, at_target))


@dataclass(frozen=True, slots=True)
class Judged:
    """One run by one reading."""

    jobs: float
    """How many services are at their target, mean over the judged time."""
    best_jobs: float
    """The clairvoyant's."""
    by_job: Mapping[str, float]
    """Part of its judged time for which each service is at its target."""

    def worse_than(self, other: Judged) -> int:
        """How many services got worse than in that other run."""
        return sum(ratio < other.by_job[name] - _WORSE_RATIO for name, ratio in self.by_job.items())


def judge(trace: Trace, watch: Watch, reading: Reading, among: Collection[str]) -> Judged:
    """The services `among` the trace's jobs, from the eighth control step of each on."""
    jobs = [job for job in trace.jobs if job.name in among]
    judged = {job.name: _judged_s(trace, job) for job in jobs}
    kept_s = dict.fromkeys(judged, 0.0)
    for (from_s, before), (_, after) in pairwise(watch.looks):
        gained_s = {name: after[reading.name, name] - before[reading.name, name] for name in judged}
        for name, (begin_s, _) in judged.items():
            if from_s >= begin_s:
                kept_s[name] += gained_s[name]
    length_s = {name: end_s - begin_s for name, (begin_s, end_s) in judged.items()}
    of_judged = [
        replace(one, from_s=max(one.from_s, judged[job.name][0]))
        for job in jobs
        for one in demands(job, trace.duration_s, reading.band_ratio)
    ]
    best_s = bounds.satisfied_job_s(of_judged, trace.node.cores)
    whole_s = math.fsum(length_s.values())
    return Judged(
        jobs=len(jobs) * math.fsum(kept_s.values()) / whole_s,
        best_jobs=len(jobs) * best_s / whole_s,
        by_job={name: kept_s[name] / one for name, one in length_s.items() if one > 0},
    )


def _judged_s(trace: Trace, job: SimulatedJob) -> tuple[float, float]:
    """From when to when that service is judged; nothing where it leaves before."""
    from_s = job.arrives_s + _START_S + JUDGED_FROM_STEP * trace.cycle_s
    to_s = trace.duration_s if job.leaves_s is None else min(job.leaves_s, trace.duration_s)
    return from_s, max(from_s, to_s)


# ------------------------------------------------------------------ the comparison

NAME = "adaptive-inference"

COUNTS = (10, 20, 40)
SEEDS = range(1, 11)

PUBLISHED = tuple(
    f"dqoes-published?reading={reading}&floor_ratio={floor}&interval_s=1.0"
    for reading in ("own", "pool")
    for floor in (0.5, 0.05)
)
"""The published rule leaves two questions open: each answer is measured, and what is shown of DQoES
is the best of them in that row. Asked every second, as everybody here: it gets as many steps."""

POLICIES = (
    PLAIN,
    "fair",
    *PUBLISHED,
    "dqoes",
    "benchmarks.peers.proportional:ProportionalPolicy",
    "benchmarks.peers.parties:PartiesPolicy",
    "adaptive?mode=band",
    "adaptive?mode=slo",
)


CALLED = {
    **dict.fromkeys(PUBLISHED, "dqoes-published"),
    "benchmarks.peers.proportional:ProportionalPolicy": "proportional",
    "benchmarks.peers.parties:PartiesPolicy": "parties",
    "adaptive?mode=band": "adaptive band",
    "adaptive?mode=slo": "adaptive slo",
}
"""What a policy is called in tables, where that is not its name."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of trace, at any number of jobs."""

    name: str
    words: str
    recipe: Recipe


def _scenario(name: str, words: str, demand: float = 0.7, **more: float) -> Scenario:
    recipe = Recipe(kind="inference", schedule="burst", duration_s=120.0, demand=demand, name=name)
    return Scenario(name, words, replace(recipe, **more))  # type: ignore[arg-type]


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


@dataclass(frozen=True, slots=True)
class Measured:
    """One policy on one trace."""

    scenario: str
    n: int
    policy: str
    seed: int
    satisfied_jobs: float
    satisfied_best_jobs: float
    """The clairvoyant's."""
    satisfied_worse_jobs: int
    """Jobs that are satisfied less of the time than under plain Docker."""
    met_jobs: float
    met_best_jobs: float
    met_worse_jobs: int
    updates_per_min: float


def trace_of(scenario: Scenario, jobs: int, seed: int) -> Trace:
    """That scenario's trace with so many jobs."""
    return generate(replace(scenario.recipe, jobs=jobs, seed=seed))


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
        run = play(trace, policy, seed, inspect=watch.look)
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
                    ("worse_jobs", one.worse_than(plain[words, reading])),
                )
            }
            updates = round(run.updates / trace.duration_s * 60.0, 2)
            found.append(
                Measured(words, jobs, policy, seed, updates_per_min=updates, **numbers)  # type: ignore[arg-type]
            )
    return found


# ---------------------------------------------------------------------- tables


def tables_of(found: Sequence[Measured]) -> dict[str, list[dict[str, object]]]:
    """By title, a table with a line a scenario and a column a policy: means over seeds, by n."""
    seeds = len({one.seed for one in found})
    return {
        (
            f"Services {reading.words}, of the clairvoyant's count, n = "
            f"{'/'.join(str(n) for n in dict.fromkeys(one.n for one in found))}, mean of {seeds} "
            "seeds (in brackets, how many are so for less of the time than under plain Docker)"
        ): [
            {"scenario": scenario, **_cells(mine, reading)}
            for scenario, mine in results.grouped(found, lambda one: one.scenario).items()
        ]
        for reading in READINGS
    }


def _cells(found: Sequence[Measured], reading: Reading) -> dict[str, str]:
    """A cell a policy. The published rule's is, for each n, that of its best reading there."""
    cells: dict[str, list[str]] = {}
    for mine in results.grouped(found, lambda one: one.n).values():
        by_policy = results.grouped(mine, lambda one: one.policy)
        published = best_published(by_policy, reading)
        for policy, runs in by_policy.items():
            if policy not in PUBLISHED or policy == published:
                worse = mean(runs, f"{reading.name}_worse_jobs")
                told = f"{of_best(runs, reading):.2f}" + (f" ({worse:.2g})" if worse else "")
                cells.setdefault(f"`{CALLED.get(policy, policy)}`", []).append(told)
    return {name: "/".join(told) for name, told in cells.items()}


def best_published(by_policy: Mapping[str, Sequence[Measured]], reading: Reading) -> str | None:
    """The reading of the published rule that does best there; None: none was run."""
    measured = {name: runs for name, runs in by_policy.items() if name in PUBLISHED}
    return max(measured, key=lambda name: of_best(measured[name], reading), default=None)


def of_best(runs: Sequence[Measured], reading: Reading) -> float:
    """Of the clairvoyant's count, mean over seeds; a seed in which nobody can be is none."""
    return statistics.fmean(
        getattr(one, f"{reading.name}_jobs") / best
        for one in runs
        if (best := getattr(one, f"{reading.name}_best_jobs"))
    )


def mean(runs: Sequence[Measured], name: str) -> float:
    return statistics.fmean(getattr(one, name) for one in runs)


def main(arguments: list[str] | None = None) -> int:
    def rows_of(seeds: Sequence[int]) -> list[Measured]:
        return compare_all(compare, SCENARIOS, COUNTS, seeds)

    return judge_seeds(NAME, __doc__, arguments, SEEDS, rows_of, tables_of)
