"""Simulated against real: kept journals as traces, simulated under the same policy, judged alike.

Two questions. "same run": does a run's own trace, under its own policy, give what it gave? "from
the plain run": what a simulator is for: does the trace of plain Docker's run tell what the other
policies then really gave? Both runs are judged by the same functions from their cycle reports.

    python -m benchmarks run sim-vs-real          writes benchmarks/results/sim-vs-real.json
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.judge import arrived, courses, judge, satisfied
from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.real import training_set
from benchmarks.real.kept import KeptServices, load_services
from benchmarks.real.training import Kept, kept_runs
from dlsched.model.cycle import CycleReport
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN
from dlsched.simulation.trace import Trace
from dlsched.simulation.trace.recording import Recorded, record

NAME = "sim-vs-real"

WITHIN_RATIO = 0.15
"""How far a simulated time may be from the real one."""

SAME, FROM_PLAIN = "same run", "from the plain run"
GOALS = ("tier 1", "tier 2", "completion")


@dataclass(frozen=True)
class Pair:
    """One time to a goal, or one count of satisfied services: real and simulated."""

    scenario: str
    n: int
    policy: str
    seed: int
    variant: str
    what: str
    job: str
    real: float | None
    simulated: float | None
    """None: not reached, in one of both alone; what neither reached is no pair."""

    @property
    def error_ratio(self) -> float | None:
        """How far off, as a ratio of the real one; of counts, of the number of services."""
        if self.real is None or self.simulated is None:
            return None
        return (self.simulated - self.real) / (self.n if self.job == "" else self.real)


def simulated_reports(trace: Trace, spelled: str, seed: int) -> list[CycleReport]:
    """The cycles of that trace under that policy."""
    reports: list[CycleReport] = []
    simulate(trace, spelled, seed, publish=reports.append)
    return reports


Runs = TypeVar("Runs", Kept, KeptServices)


def pairs_of(
    kept: Sequence[Runs],
    scenario: Callable[[Runs], str],
    told: Callable[[Sequence[CycleReport], Runs, Trace | None], dict[tuple[str, str], float]],
) -> tuple[list[Pair], list[str]]:
    """Every figure of every kept run, and what recording had to remark.

    `told`: the figures of cycles, by what and job; of a simulation's, with its trace.
    """
    pairs: list[Pair] = []
    remarks: dict[str, None] = {}
    plain: dict[tuple[str, int], Recorded] = {}
    for one in sorted(kept, key=lambda one: one.policy != PLAIN):
        reports, name = one.reports(), scenario(one)
        recorded = record(reports, name=name)
        said = f"{name}, {one.policy}, seed {one.seed}: "
        remarks |= dict.fromkeys(said + remark for remark in recorded.remarks)
        variants = {SAME: recorded}
        if one.policy == PLAIN:
            plain[name, one.seed] = recorded
        elif (name, one.seed) in plain:
            variants[FROM_PLAIN] = plain[name, one.seed]
        real = told(reports, one, None)
        for variant, source in variants.items():
            spelled = one.spelled if isinstance(one, Kept) else one.policy
            mine = told(simulated_reports(source.trace, spelled, one.seed), one, source.trace)
            n = len(one.arrivals if isinstance(one, Kept) else one.targets)
            for what, job in dict.fromkeys((*real, *mine)):
                values = real.get((what, job)), mine.get((what, job))
                pairs.append(Pair(name, n, one.policy, one.seed, variant, what, job, *values))
    return pairs, list(remarks)


def training_pairs(kept: Sequence[Kept]) -> tuple[list[Pair], list[str]]:
    """Every job's times in every kept run."""
    return pairs_of(kept, lambda one: one.scenario, _times)


def _times(
    reports: Iterable[CycleReport], one: Kept, trace: Trace | None
) -> dict[tuple[str, str], float]:
    """Seconds from arrival; goals that were not reached are left out."""
    arrivals = one.arrivals
    if trace is not None:
        arrivals = {job.name: job.arrives_s for job in trace.jobs}
    return {
        (goal, name): at_s - course.arrived_s
        for name, course in courses(reports, arrivals, training_set.EVALUATIONS).items()
        for goal, at_s in zip(GOALS, (*course.tiers_s, course.ended_s), strict=True)
        if at_s is not None and name in one.arrivals
    }


def _satisfied(
    reports: Iterable[CycleReport], one: KeptServices, _: Trace | None
) -> dict[tuple[str, str], float]:
    series = arrived(reports)
    counts = satisfied(
        judge(job, target_s, series.get(job, ()), one.judged_from_s)
        for job, target_s in one.targets.items()
    )
    return dict(zip((("within 10 %", ""), ("not slower", "")), counts, strict=True))


# ---------------------------------------------------------------------- what it comes to


def table_of(pairs: Sequence[Pair]) -> list[dict[str, object]]:
    """A line a scenario, variant, policy and goal: errors over jobs and seeds."""
    groups = results.grouped(pairs, lambda one: (one.scenario, one.variant, one.policy, one.what))
    table: list[dict[str, object]] = []
    for (scenario, variant, policy, what), group in sorted(groups.items()):
        errors = [abs(one) for pair in group if (one := pair.error_ratio) is not None]
        whole = len(errors) == len(group)
        real = [pair.real for pair in group if pair.real is not None]
        mine = [pair.simulated for pair in group if pair.simulated is not None]
        table.append(
            {
                "scenario": scenario,
                "trace": variant,
                "policy": policy,
                "what": what,
                "real, mean": statistics.fmean(real) if whole else None,
                "simulated, mean": statistics.fmean(mine) if whole else None,
                "median error, %": 100 * statistics.median(errors) if errors else None,
                "largest error, %": 100 * max(errors) if whole else None,
                "within 15 %": f"{sum(e <= WITHIN_RATIO for e in errors)} of {len(group)}",
            }
        )
    return table


def verdicts(pairs: Sequence[Pair]) -> list[str]:
    """One line a variant and kind of figure: what the median error is, and how many are within."""
    lines = []
    for variant in (SAME, FROM_PLAIN):
        for word, counts in (
            ("times to tier 1 and 2", False),
            ("satisfied counts (of all services)", True),
        ):
            mine = [
                pair
                for pair in pairs
                if pair.variant == variant
                and (pair.job == "") == counts
                and pair.what != "completion"
            ]
            if not mine:
                continue
            errors = [abs(one) for pair in mine if (one := pair.error_ratio) is not None]
            missed = len(mine) - len(errors)
            median = statistics.median(errors) if errors else float("inf")
            within = sum(error <= WITHIN_RATIO for error in errors)
            lines.append(
                f"{variant}, {word}: median error {median:.1%}, {within} of {len(mine)} within "
                f"{WITHIN_RATIO:.0%}, largest {max(errors, default=float('inf')):.1%}"
                + (f", {missed} reached in one alone" if missed else "")
            )
    return lines


def rows_of(pairs: Sequence[Pair]) -> list[dict[str, object]]:
    """A row a pair; `value` is the error as a ratio, `of_plain` and `of_optimum` do not apply."""
    return [
        {
            "scenario": pair.scenario,
            "n": pair.n,
            "policy": pair.policy,
            "seed": pair.seed,
            "metric": f"{pair.what.replace(' ', '')}_error_ratio",
            "value": pair.error_ratio,
            "of_optimum": None,
            "of_plain": None,
            "trace": pair.variant,
            "job": pair.job,
            "real": pair.real,
            "simulated": pair.simulated,
        }
        for pair in pairs
    ]


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)
    kept = [
        one
        for schedule in training_set.SCHEDULES
        for one in kept_runs(schedule, training_set.POLICIES, range(1, 101))
    ]
    pairs, remarks = training_pairs(kept)
    more, said = pairs_of(load_services(), lambda one: f"satisfied at {one.demand:g}", _satisfied)
    pairs, remarks = pairs + more, remarks + said
    if not pairs:
        print("no kept journals: run the benches training or adaptive-real first")
        return 1
    tables = {"Simulated against real: errors by job over all seeds": table_of(pairs)}
    host = kept[0].host if kept else "none"
    seeds, told = sorted({pair.seed for pair in pairs}), verdicts(pairs)
    results.finish(NAME, host, seeds, rows_of(pairs), tables, told, remarks=remarks)
    return 0
