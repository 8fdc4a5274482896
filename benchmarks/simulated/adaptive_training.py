"""Trainings on a simulated node: `adaptive` beside its peers and the clairvoyant, ten seeds.

Owns which traces and policies these are. Learning curves of the families that `adaptive` fits and
of families that it does not assume are separate scenarios. A seed draws the trace and its noise
alike, nothing is chosen; everybody is asked every 5 s.

    python -m benchmarks run adaptive-training    writes benchmarks/results/adaptive-training.json
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.publish import results
from benchmarks.simulated.playing import compare_all, judge_seeds, play
from dlsched.simulation import scoring
from dlsched.simulation.node.learning_curves import Family
from dlsched.simulation.scoring import PLAIN, Row
from dlsched.simulation.trace import Recipe, Trace, generate

NAME = "adaptive-training"

COUNTS = (10, 20, 40)
SEEDS = range(1, 11)

BALANCED, DELIVERY = "adaptive", "adaptive?deliver_weight=16.0"
UNTOLD = "adaptive?heeds_total_steps=false"
POLICIES = (
    PLAIN,
    "fair",
    "flowcon",
    "tradl",
    "benchmarks.peers.las:LasPolicy",
    BALANCED,
    DELIVERY,
    UNTOLD,
)

FITTED: tuple[Family, ...] = ("power", "exponential")
OTHERS: tuple[Family, ...] = ("plateau", "drop", "restart")

MEAN_OF_PLAIN = {"fitted": {10: 0.96, 20: 0.87, 40: 0.81}, "others": {10: 1.0, 20: 1.0, 40: 1.0}}
"""The most that the mean of the three time ratios may be, by families and number of jobs."""
MAKESPAN_OF_BEST = 1.02

GOALS = (("tier1", "tier 1"), ("tier2", "tier 2"), ("jct", "completion"))

_LATEST_END = 4.0
"""A trace may take so many times its planned time, so that every job ends."""
_CYCLE_S = 5.0


@dataclass(frozen=True)
class Scenario:
    """A kind of trace, at any number of jobs."""

    families: str
    schedule: str
    recipe: Recipe

    @property
    def name(self) -> str:
        return f"{self.families}-{self.schedule}"


SCENARIOS = tuple(
    Scenario(
        word,
        schedule,
        Recipe(kind="training", schedule=schedule, cycle_s=_CYCLE_S, families=families),
    )
    for word, families in (("fitted", FITTED), ("others", OTHERS))
    for schedule in ("burst", "random")
)


def trace_of(scenario: Scenario, jobs: int, seed: int) -> Trace:
    """That scenario's trace with so many jobs."""
    trace = generate(dataclasses.replace(scenario.recipe, jobs=jobs, seed=seed, name=scenario.name))
    return dataclasses.replace(trace, duration_s=_LATEST_END * trace.duration_s)


def compare(
    scenario: Scenario, jobs: int, seed: int, policies: Sequence[str] = POLICIES
) -> list[Row]:
    """Every policy on that trace; plain Docker, which the others are held against, first."""
    trace = trace_of(scenario, jobs, seed)
    return scoring.rows(trace, [play(trace, policy, seed) for policy in policies])


ByMetric = Mapping[str, list[Row]]
Cells = Mapping[tuple[str, int, str], ByMetric]


def cells_of(rows: Iterable[Row]) -> Cells:
    """The rows by scenario, number of jobs and policy, then by metric."""
    groups = results.grouped(rows, lambda row: (row.scenario, row.n, row.policy)).items()
    return {key: results.grouped(mine, lambda row: row.metric) for key, mine in groups}


def mean(by_metric: ByMetric, metric: str, of: str = "value") -> float | None:
    values = [one for row in by_metric.get(metric, ()) if (one := getattr(row, of)) is not None]
    return statistics.fmean(values) if values else None


def three(by_metric: ByMetric) -> float | None:
    """The mean of the three time ratios to plain Docker."""
    ratios = [mean(by_metric, f"{goal}_mean_s", "of_plain") for goal, _ in GOALS]
    known = [ratio for ratio in ratios if ratio is not None]
    return statistics.fmean(known) if len(known) == len(GOALS) else None


def tables_of(rows: Iterable[Row]) -> dict[str, list[dict[str, object]]]:
    """A table a scenario with a line a policy: times of plain Docker's, means over seeds, by n."""
    tables = {}
    for scenario, mine in results.grouped(rows, lambda row: row.scenario).items():
        cells = cells_of(row for row in mine if row.policy != PLAIN)
        numbers = dict.fromkeys(n for _, n, _ in cells)
        title = (
            f"{scenario}, of plain Docker's (lower is better), n = {'/'.join(map(str, numbers))}, "
            f"mean of {len({row.seed for row in mine})} seeds"
        )
        tables[title] = [
            {"policy": f"`{policy.removeprefix('benchmarks.peers.')}`"}
            | {
                words: "/".join(_number(of(cells[scenario, n, policy])) for n in numbers)
                for words, of in _COLUMNS.items()
            }
            for policy in dict.fromkeys(policy for _, _, policy in cells)
        ]
    return tables


def _of_plain(metric: str) -> Callable[[ByMetric], float | None]:
    return lambda by_metric: mean(by_metric, metric, "of_plain")


_COLUMNS: Mapping[str, Callable[[ByMetric], float | None]] = {
    **{words: _of_plain(f"{goal}_mean_s") for goal, words in GOALS},
    "mean of the three": three,
    "makespan": _of_plain("makespan_s"),
    "jobs worse to tier 1": lambda by_metric: mean(by_metric, "tier1_worse_jobs"),
}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def figures(cells: Cells) -> list[str]:
    """What was to be reached, and whether it was, in one sentence each."""
    told = []
    for scenario in SCENARIOS:
        for n, most in MEAN_OF_PLAIN[scenario.families].items():
            own = cells.get((scenario.name, n, BALANCED))
            if own is None or (whole := three(own)) is None:
                continue
            told.append(_told(f"{scenario.name}, n = {n}: mean of three of plain", whole, most))
            if scenario.families == "fitted":
                for metric, words in (*((f"{g}_mean_s", w) for g, w in GOALS), _MAKESPAN):
                    ratio = mean(own, metric, "of_plain")
                    if ratio is not None:
                        told.append(_told(f"{scenario.name}, n = {n}: {words}", ratio, 1.0))
            spans = {
                policy: span
                for (name, jobs, policy), by_metric in cells.items()
                if (name, jobs) == (scenario.name, n)
                and (span := mean(by_metric, "makespan_s")) is not None
            }
            if BALANCED in spans:
                part = spans[BALANCED] / min(spans.values())
                words = f"{scenario.name}, n = {n}: makespan of the best tried"
                told.append(_told(words, part, MAKESPAN_OF_BEST))
    return told


_MAKESPAN = ("makespan_s", "makespan")


def _told(words: str, value: float, most: float) -> str:
    # As it is printed, so that nobody reads 1.00 at most 1.0 as a miss.
    reached = "reached" if round(value, 3) <= most else "NOT reached"
    return f"{words} {value:.3f}, at most {most:g}: {reached}"


def main(arguments: list[str] | None = None) -> int:
    def rows_of(seeds: Sequence[int]) -> list[Row]:
        return compare_all(compare, SCENARIOS, COUNTS, seeds)

    return judge_seeds(
        NAME,
        __doc__,
        arguments,
        SEEDS,
        rows_of,
        tables_of,
        lambda rows: figures(cells_of(rows)),
    )
