"""What was measured of services with played requests, and the tables and sentences made of it.

Owns how a row is called and counted. It must not run or judge anything.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.publish.results import verdict

OURS, BAND, DQOES = "adaptive", "adaptive?mode=band", "dqoes"
RESAMPLES = 2000
"""Of the seeds, with replacement, for each interval."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One policy in one world."""

    scenario: str
    loop: str
    n: int
    policy: str
    seed: int
    satisfied_jobs: float
    """Within 10 % of the target, in the mean of windows of 3,000 requests."""
    met_jobs: float
    """Not slower than it."""
    best_jobs: float
    """The clairvoyant's `met_jobs`."""
    plain_jobs: float
    worse_jobs: int
    """Worse off than under plain Docker, as `judge.harm` has it."""
    updates_per_min: float
    settled_updates_per_min: float
    """From the second minute on."""
    training_cores: float


Line = dict[str, object]


def tables_of(found: Sequence[Measured]) -> dict[str, list[Line]]:
    """By title; a line for each kind of world."""
    titles: dict[str, Callable[[Measured], float]] = {
        "Services not slower than their targets": lambda row: row.met_jobs,
        "Services within 10 % of their targets": lambda row: row.satisfied_jobs,
        "Services worse off than under plain Docker": lambda row: float(row.worse_jobs),
        "Updates a minute": lambda row: row.updates_per_min,
        "Updates a minute, settled": lambda row: row.settled_updates_per_min,
        "Cores of trainings": lambda row: row.training_cores,
    }
    return {title: _table(found, value) for title, value in titles.items()}


def _table(found: Sequence[Measured], value: Callable[[Measured], float]) -> list[Line]:
    lines: dict[tuple[str, str, int], Line] = {}
    cells: dict[tuple[tuple[str, str, int], str], list[float]] = {}
    for row in found:
        kind = (row.scenario, row.loop, row.n)
        lines.setdefault(kind, {"world": row.scenario, "loops": row.loop, "n": row.n})
        cells.setdefault((kind, row.policy), []).append(value(row))
    for (kind, policy), values in cells.items():
        lines[kind][called(policy)] = round(statistics.fmean(values), 3)
    return list(lines.values())


def called(policy: str) -> str:
    """What a policy is called in tables."""
    return policy.rpartition(":")[2].removesuffix("Policy").lower() or policy


def headlines_of(found: Sequence[Measured]) -> list[str]:
    """One sentence a figure, ending in whether it was reached."""
    ours = [row for row in found if row.policy == OURS]
    light = [row for row in ours if "training" not in row.scenario and _use(row) <= 0.7]
    open_light = [row for row in light if row.loop != "closed"]
    return [
        *_least(
            "On open loops at .1 to .7 of the node, the services not slower than their targets are "
            "at least .99 of the larger of plain Docker's and the clairvoyant's count",
            open_light,
            lambda row: row.met_jobs / max(row.plain_jobs, row.best_jobs, 1e-9),
            0.99,
        ),
        *_most(
            "Ten services have at most 6 updates a minute",
            light,
            lambda row: row.updates_per_min,
            6.0,
        ),
        *_most(
            "No service is worse off than under plain Docker (where the services fit the node in "
            "every second: slower by 10 % + 2 ms near a target; elsewhere: a target is missed, "
            "and no other service gained one)",
            ours,
            lambda row: float(row.worse_jobs),
            0.0,
        ),
        *_least(
            "Beside trainings, the services not slower than their targets are at least .98 of "
            "those without the trainings",
            _paired(found, "without trainings"),
            lambda row: row.met_jobs / max(row.plain_jobs, 1e-9),
            0.98,
        ),
        *_least(
            "Beside services, trainings have at least .95 of the CPU that the clairvoyant leaves "
            "them",
            _paired(found, "clairvoyant"),
            lambda row: row.training_cores,
            0.95,
        ),
        *_least(
            "Above capacity, the services not slower than their targets are at least .93 of the "
            "clairvoyant's",
            [row for row in ours if _use(row) > 1.0],
            lambda row: row.met_jobs / max(row.best_jobs, 1e-9),
            0.93,
        ),
        *_least(
            "Under `band`, on open loops at .1 to .7 of the node, the part of services within 10 % "
            "of their targets is at least that under `dqoes` and .2",
            _over_dqoes(found),
            lambda row: row.satisfied_jobs / row.n,
            0.2,
        ),
    ]


def _use(row: Measured) -> float:
    return float(row.scenario.partition(" ")[0])


def _paired(found: Sequence[Measured], other: str) -> list[Measured]:
    """Ours beside trainings; what that other run had stands in `plain_jobs`, and the CPU of
    trainings is a part of what they had in it."""
    key = {(row.scenario, row.loop, row.n, row.seed): row for row in found if row.policy == other}
    pairs = []
    for row in found:
        beside = key.get((row.scenario, row.loop, row.n, row.seed))
        if row.policy == OURS and beside is not None and "training" in row.scenario:
            ratio = row.training_cores / beside.training_cores if beside.training_cores else 1.0
            pairs.append((row, beside.met_jobs, ratio))
    return [_with(row, met_jobs, ratio) for row, met_jobs, ratio in pairs]


def _over_dqoes(found: Sequence[Measured]) -> list[Measured]:
    """Band on open loops, by how much it satisfies more than `dqoes` does."""
    key = {(row.scenario, row.loop, row.n, row.seed): row for row in found if row.policy == DQOES}
    pairs = [
        (row, key.get((row.scenario, row.loop, row.n, row.seed)))
        for row in found
        if row.policy == BAND and row.loop != "closed" and "training" not in row.scenario
    ]
    return [
        replace(row, satisfied_jobs=row.satisfied_jobs - other.satisfied_jobs)
        for row, other in pairs
        if other is not None and _use(row) <= 0.7
    ]


def _with(row: Measured, plain_jobs: float, training_cores: float) -> Measured:
    return replace(row, plain_jobs=plain_jobs, training_cores=training_cores)


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of world: a figure over its seeds."""

    name: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    def __str__(self) -> str:
        low, high = interval(self.values)
        return (
            f"{self.mean:.3f} ({low:.3f} to {high:.3f} over {len(self.values)} seeds; {self.name})"
        )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of their mean, by bootstrap (Efron, 1979)."""
    drawn = random.Random(len(values))
    means = sorted(statistics.fmean(drawn.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[RESAMPLES // 40], means[-1 - RESAMPLES // 40]


def _least(
    claim: str, rows: Sequence[Measured], value: Callable[[Measured], float], least: float
) -> list[str]:
    kinds = sorted(_kinds(rows, value), key=lambda kind: kind.mean)
    return _said(claim, kinds, [kind.mean >= least - 5e-4 for kind in kinds])


def _most(
    claim: str, rows: Sequence[Measured], value: Callable[[Measured], float], most: float
) -> list[str]:
    kinds = sorted(_kinds(rows, value), key=lambda kind: -kind.mean)
    return _said(claim, kinds, [kind.mean <= most + 5e-4 for kind in kinds])


def _said(claim: str, worst_first: Sequence[_Kind], kept: Sequence[bool]) -> list[str]:
    if not worst_first:
        return []
    reached = verdict(all(kept))
    return [f"{claim}: in {sum(kept)} of {len(kept)} rows, the worst {worst_first[0]}: {reached}"]


def _kinds(rows: Iterable[Measured], value: Callable[[Measured], float]) -> list[_Kind]:
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(f"{row.loop}, {row.scenario}, n = {row.n}", []).append(value(row))
    return [_Kind(name, tuple(found)) for name, found in values.items()]
