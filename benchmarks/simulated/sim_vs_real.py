"""Simulated against real: kept journals as traces, simulated under the same policy, judged alike.

Two questions. "same run": does a run's own trace, under its own policy, give what it gave? "from
the plain run": what a simulator is for: does the trace of plain Docker's run tell what the other
policies then really gave? Both runs are judged by the same functions from their cycle reports.

    python -m benchmarks run sim-vs-real          writes benchmarks/results/sim-vs-real.json
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.judge.trainings import courses
from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.real import training_set
from benchmarks.real.training import Kept, kept_runs
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
    """One time to a goal: real and simulated."""

    scenario: str
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
        """How far off, as a ratio of the real one."""
        if self.real is None or self.simulated is None:
            return None
        return (self.simulated - self.real) / self.real


def simulated_reports(trace: Trace, policy: str, spelled: str, seed: int) -> list[CycleReport]:
    """The cycles of that trace under that policy."""
    reports: list[CycleReport] = []
    simulate(trace, NamedPolicy(policy, load_policy(spelled)), seed, publish=reports.append)
    return reports


def pairs_of(kept: Sequence[Kept]) -> tuple[list[Pair], list[str]]:
    """Every job's times in every kept run, and what recording had to remark."""
    pairs: list[Pair] = []
    remarks: dict[str, None] = {}
    plain: dict[tuple[str, int], Recorded] = {}
    for one in sorted(kept, key=lambda one: one.policy != PLAIN):
        reports, name = one.reports(), one.scenario
        recorded = record(reports, name=name)
        said = f"{name}, {one.policy}, seed {one.seed}: "
        remarks |= dict.fromkeys(said + remark for remark in recorded.remarks)
        variants = {SAME: recorded}
        if one.policy == PLAIN:
            plain[name, one.seed] = recorded
        elif (name, one.seed) in plain:
            variants[FROM_PLAIN] = plain[name, one.seed]
        real = _times(reports, one.arrivals)
        for variant, source in variants.items():
            arrivals = {job.name: job.arrives_s for job in source.trace.jobs}
            mine = _times(
                simulated_reports(source.trace, one.policy, one.spelled, one.seed), arrivals
            )
            for key in dict.fromkeys((*real, *mine)):
                if key[1] in one.arrivals:
                    values = real.get(key), mine.get(key)
                    pairs.append(Pair(name, one.policy, one.seed, variant, *key, *values))
    return pairs, list(remarks)


def _times(
    reports: Iterable[CycleReport], arrivals: Mapping[str, float]
) -> dict[tuple[str, str], float]:
    """Seconds from arrival, by goal and job; goals that were not reached are left out."""
    return {
        (goal, name): at_s - course.arrived_s
        for name, course in courses(reports, arrivals, training_set.EVALUATIONS).items()
        for goal, at_s in zip(GOALS, (*course.tiers_s, course.ended_s), strict=True)
        if at_s is not None
    }


# ---------------------------------------------------------------------- what it comes to


def verdicts(pairs: Sequence[Pair]) -> list[str]:
    """One line a variant: what the median error is, and how many are within."""
    lines = []
    for variant in (SAME, FROM_PLAIN):
        mine = [one for one in pairs if one.variant == variant and one.what != "completion"]
        if not mine:
            continue
        errors = [abs(one) for pair in mine if (one := pair.error_ratio) is not None]
        missed = len(mine) - len(errors)
        median = statistics.median(errors) if errors else float("inf")
        within = sum(error <= WITHIN_RATIO for error in errors)
        lines.append(
            f"{variant}, times to tier 1 and 2: median error {median:.1%}, {within} of "
            f"{len(mine)} within {WITHIN_RATIO:.0%}, largest "
            f"{max(errors, default=float('inf')):.1%}"
            + (f", {missed} reached in one alone" if missed else "")
        )
    return lines


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)
    kept = [
        one
        for schedule in training_set.SCHEDULES
        for one in kept_runs(schedule, training_set.POLICIES, range(1, 101))
    ]
    pairs, remarks = pairs_of(kept)
    if not pairs:
        print("no kept journals: run the bench training first")
        return 1
    seeds = sorted({pair.seed for pair in pairs})
    results.finish(NAME, kept[0].host, seeds, pairs, {}, verdicts(pairs), remarks=remarks)
    return 0
