"""Simulated against real: kept journals as traces, simulated under the same policy, judged alike.

Two questions. "same run": does a run's own trace, under its own policy, give what it gave? "from
the plain run": what a simulator is for: does the trace of plain Docker's run tell what the other
policies then really gave? Both runs are judged by the same functions from their cycle reports.

    python -m benchmarks run sim-vs-real          writes benchmarks/results/sim-vs-real.json
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from benchmarks.judge.services import arrived, judge, satisfied
from benchmarks.judge.trainings import courses
from benchmarks.publish import results
from benchmarks.real import kept_services, training_set
from benchmarks.real.kept_services import KeptServices
from benchmarks.real.training import kept_runs
from benchmarks.real.training_run import Kept
from dlsched.control.decider import NamedPolicy
from dlsched.model.cycle import CycleReport
from dlsched.policies.registry import load as load_policy
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


def simulated_reports(trace: Trace, policy: str, spelled: str, seed: int) -> list[CycleReport]:
    """The cycles of that trace under that policy."""
    reports: list[CycleReport] = []
    simulate(trace, NamedPolicy(policy, load_policy(spelled)), seed, publish=reports.append)
    return reports


# ---------------------------------------------------------------------- trainings


def training_pairs(kept: Sequence[Kept]) -> tuple[list[Pair], list[str]]:
    """Every job's times in every kept run, and what recording had to remark."""
    pairs: list[Pair] = []
    remarks: dict[str, None] = {}
    plain: dict[tuple[str, int], Recorded] = {}
    for one in sorted(kept, key=lambda one: one.policy != PLAIN):
        reports = one.reports()
        recorded = record(reports, name=one.scenario)
        said = f"{one.scenario}, {one.policy}, seed {one.seed}: "
        remarks |= dict.fromkeys(said + remark for remark in recorded.remarks)
        if one.policy == PLAIN:
            plain[one.scenario, one.seed] = recorded
        variants = {SAME: recorded}
        if one.policy != PLAIN and (one.scenario, one.seed) in plain:
            variants[FROM_PLAIN] = plain[one.scenario, one.seed]
        real = _times(reports, one.arrivals)
        for variant, source in variants.items():
            told = simulated_reports(source.trace, one.policy, one.spelled, one.seed)
            arrivals = {job.name: job.arrives_s for job in source.trace.jobs}
            mine = _times(told, arrivals)
            pairs += [
                Pair(
                    one.scenario, len(real), one.policy, one.seed, variant, goal, job,
                    real[job].get(goal), mine.get(job, {}).get(goal),
                )
                for job in real
                for goal in GOALS
                if goal in real[job] or goal in mine.get(job, {})
            ]  # fmt: skip
    return pairs, list(remarks)


def _times(
    reports: Iterable[CycleReport], arrivals: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """By job and goal, seconds from arrival; goals that were not reached are left out."""
    found = {}
    for name, course in courses(reports, arrivals, training_set.EVALUATIONS).items():
        times = zip(GOALS, (*course.tiers_s, course.ended_s), strict=True)
        found[name] = {goal: at_s - course.arrived_s for goal, at_s in times if at_s is not None}
    return found


# ---------------------------------------------------------------------- services


def service_pairs(kept: Sequence[KeptServices]) -> tuple[list[Pair], list[str]]:
    """Satisfied counts in every kept run of services, both readings of satisfied."""
    pairs: list[Pair] = []
    remarks: dict[str, None] = {}
    plain: dict[int, Recorded] = {}
    for one in sorted(kept, key=lambda one: one.policy != PLAIN):
        reports = one.reports()
        recorded = record(reports, name="satisfied")
        said = f"satisfied, {one.policy}, seed {one.seed}: "
        remarks |= dict.fromkeys(said + remark for remark in recorded.remarks)
        if one.policy == PLAIN:
            plain[one.seed] = recorded
        variants = {SAME: recorded}
        if one.policy != PLAIN and one.seed in plain:
            variants[FROM_PLAIN] = plain[one.seed]
        real = _satisfied(reports, one)
        for variant, source in variants.items():
            told = simulated_reports(source.trace, one.policy, one.policy, one.seed)
            for what, count, mine in zip(
                ("within 10 %", "not slower"), real, _satisfied(told, one), strict=True
            ):
                pairs.append(
                    Pair(
                        "satisfied", len(one.targets), one.policy, one.seed, variant, what, "",
                        count, mine,
                    )
                )  # fmt: skip
    return pairs, list(remarks)


def _satisfied(reports: Iterable[CycleReport], one: KeptServices) -> tuple[int, int]:
    series = arrived(reports)
    return satisfied(
        judge(job, target_s, series.get(job, ()), one.judged_from_s)
        for job, target_s in one.targets.items()
    )


# ---------------------------------------------------------------------- what it comes to


def table_of(pairs: Sequence[Pair]) -> list[dict[str, object]]:
    """A line a scenario, variant, policy and goal: errors over jobs and seeds."""
    groups: dict[tuple[str, str, str, str], list[Pair]] = {}
    for pair in pairs:
        key = (pair.scenario, pair.variant, pair.policy, pair.what)
        groups.setdefault(key, []).append(pair)
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


def run(console: Console) -> int:
    """Judge all that is kept; writes the result file. Returns how many pairs there were."""
    kept = [
        one
        for schedule in training_set.SCHEDULES
        for one in kept_runs(schedule, training_set.POLICIES, range(1, 101))
    ]
    pairs, remarks = training_pairs(kept)
    more, said = service_pairs(kept_services.load_all())
    pairs, remarks = pairs + more, remarks + said
    if not pairs:
        console.print("no kept journals: run the benches training or adaptive-real first")
        return 0
    lines = verdicts(pairs)
    host = dict(kept[0].host) if kept else results.host_facts("none")
    results.save(
        NAME,
        host,
        sorted({pair.seed for pair in pairs}),
        rows_of(pairs),
        title="Simulated against real: errors by job over all seeds",
        table=table_of(pairs),
        headlines=lines,
        remarks=remarks,
    )
    console.print(results.markdown(table_of(pairs)), markup=False, soft_wrap=True)
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return len(pairs)


def main(arguments: list[str] | None = None) -> int:
    """Compare and save; returns the exit code."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args(arguments)
    return 0 if run(Console(stderr=False)) else 1
