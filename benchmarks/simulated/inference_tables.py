"""What was measured of simulated services under each policy, and the tables made of it.

Owns how a row is called and counted. It must not run anything, nor judge: `satisfaction` does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.judge.satisfaction import READINGS, SATISFIED, Reading

PUBLISHED = tuple(
    f"dqoes-published?reading={reading}&floor_ratio={floor}&interval_s=1.0"
    for reading in ("own", "pool")
    for floor in (0.5, 0.05)
)
"""The published rule leaves two questions open: each answer is measured, and what is told of DQoES
is the best of them in that row. Asked every second, as everybody here: it gets as many steps."""

CALLED = {
    **dict.fromkeys(PUBLISHED, "dqoes-published"),
    "benchmarks.peers.proportional:ProportionalPolicy": "proportional",
    "benchmarks.peers.parties:PartiesPolicy": "parties",
    "benchmarks.peers.vpa:VpaPolicy": "vpa",
    "adaptive?mode=band": "adaptive band",
    "adaptive?mode=slo": "adaptive slo",
}
"""What a policy is called in tables, where that is not its name."""


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
    satisfied_steps: int | None
    """Decisions until it is near the clairvoyant; None: never."""
    satisfied_worse_jobs: int
    """Jobs that are satisfied less of the time than under plain Docker."""
    met_jobs: float
    met_best_jobs: float
    met_steps: int | None
    met_worse_jobs: int
    updates_per_min: float


Line = dict[str, object]
Cell = Callable[[Sequence[Measured]], float | None]


def tables_of(found: Sequence[Measured]) -> dict[str, list[Line]]:
    """By title, tables with a line a scenario and n, and a column a policy: means over seeds."""
    seeds = f"{len({one.seed for one in found})} seeds"
    tables: dict[str, list[Line]] = {}
    for reading in READINGS:
        services = f"Services {reading.words}"
        cells: dict[str, Cell] = {
            f"{services}, of the clairvoyant's, mean of {seeds}": partial(of_best, reading=reading),
            f"{services}, jobs, mean of {seeds}": partial(mean, name=f"{reading.name}_jobs"),
            f"{services}: decisions until 90 % of the clairvoyant's, median of {seeds}": partial(
                _steps, reading=reading
            ),
            f"{services} for less of the time than under plain Docker, jobs, mean of {seeds}": (
                partial(mean, name=f"{reading.name}_worse_jobs")
            ),
        }
        tables |= {title: _table(found, reading, cell) for title, cell in cells.items()}
    updates = partial(mean, name="updates_per_min")
    return tables | {
        f"Updates of limits a minute, mean of {seeds}": _table(found, SATISFIED, updates)
    }


def _table(found: Sequence[Measured], reading: Reading, cell: Cell) -> list[Line]:
    """A line a scenario and n. The published rule's cell is that of its best reading there."""
    lines: dict[tuple[str, int], dict[str, list[Measured]]] = {}
    for one in found:
        lines.setdefault((one.scenario, one.n), {}).setdefault(one.policy, []).append(one)
    table = []
    for (scenario, n), by_policy in lines.items():
        best_jobs = mean(next(iter(by_policy.values())), f"{reading.name}_best_jobs")
        line: Line = {"scenario": scenario, "n": n, "clairvoyant, jobs": best_jobs}
        published = best_published(by_policy, reading)
        for policy, runs in by_policy.items():
            if policy not in PUBLISHED or policy == published:
                line[CALLED.get(policy, policy)] = cell(runs)
        table.append(line)
    return table


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
    """Over the seeds, of that field."""
    return statistics.fmean(getattr(one, name) for one in runs)


def _steps(runs: Sequence[Measured], reading: Reading) -> float | None:
    """The median; None, which is shown as never, where most seeds never are."""
    steps = [getattr(one, f"{reading.name}_steps") for one in runs]
    median = statistics.median([math.inf if one is None else one for one in steps])
    return None if median == math.inf else float(median)
