"""Chooses the services that meet their targets when not all can, for the policy `adaptive`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlsched.estimate.tuning import CLEARLY, FINE

_UNTOLD_CORES = 5e-4
"""Half of the last digit that is reported."""


class Need(NamedTuple):
    """Mean cores that just meet a service's target, and that meet it with a margin."""

    name: str
    weight: float
    least_cores: float
    best_cores: float
    kept: bool

    @property
    def price(self) -> float:
        return self.least_cores / self.weight


class Triage(NamedTuple):
    """The services chosen to meet their targets, the ones left out, and the cores left over."""

    met: list[Need]
    short: list[Need]
    part: float
    """Position of the chosen services between least (0) and best (1)."""
    left_cores: float


def triaged(
    needs: Sequence[Need],
    room_cores: float,
    floor_cores: float,
    edge_ratio: float = FINE,
) -> Triage:
    """The set of the most total weight that fits, filled greedily, cheapest per weight first.

    A service left out keeps `floor_cores`. Hysteresis: it is admitted again only if `edge_ratio` of
    the room stays free, and services that meet their target count at 0.8 of their cost, so that the
    chosen set does not flap. A set without that advantage wins only if it has more weight.
    """
    least = math.fsum([need.least_cores for need in needs])
    edge = edge_ratio * room_cores
    if least <= room_cores - (0.0 if all(need.kept for need in needs) else edge):
        return _toward_best(list(needs), [], room_cores - least)
    with_hysteresis = sorted(
        needs, key=lambda one: (one.price / (CLEARLY if one.kept else 1.0), one.name)
    )
    met, short = _packed(with_hysteresis, room_cores, floor_cores, edge)
    cheapest = sorted(needs, key=lambda one: (one.price, one.name))
    others, _ = _packed(cheapest, (1.0 - edge_ratio) * room_cores, floor_cores)
    if _weight(others) > _weight(met) * (1.0 + 1e-9):
        met, short = _packed(cheapest, room_cores, floor_cores)
    taken = math.fsum([need.least_cores for need in met]) + floor_cores * len(short)
    return _toward_best(met, short, max(room_cores - taken, 0.0))


def _packed(
    ordered: Sequence[Need], room_cores: float, floor_cores: float, edge_cores: float = 0.0
) -> tuple[list[Need], list[Need]]:
    """Splits `ordered` into the services that fit and the rest, each of which keeps a floor. One
    that was left out before fits only if it leaves `edge_cores` free."""
    left = room_cores - floor_cores * len(ordered)
    met: list[Need] = []
    short: list[Need] = []
    for need in ordered:
        more = need.least_cores - floor_cores
        fits = more <= left - (0.0 if need.kept else edge_cores)
        (met if fits else short).append(need)
        if fits:
            left -= more
    return met, short


def _toward_best(met: list[Need], short: list[Need], left_cores: float) -> Triage:
    more = math.fsum([need.best_cores - need.least_cores for need in met])
    if more <= left_cores:
        return Triage(met, short, 1.0, left_cores - max(more, 0.0))
    return Triage(met, short, left_cores / more, 0.0)


def _weight(needs: Iterable[Need]) -> float:
    return math.fsum([need.weight for need in needs])


def largest_first(met: Iterable[Need]) -> list[Need]:
    return sorted(met, key=lambda one: (-one.least_cores, one.name))


def fewest_givers(missing_cores: float, largest: Iterable[Need]) -> tuple[tuple[str, float], ...]:
    """The fewest chosen services that could give the missing cores, and how many each."""
    givers: list[tuple[str, float]] = []
    for need in largest:
        if missing_cores < _UNTOLD_CORES:
            break
        given = min(need.least_cores, missing_cores)
        givers.append((need.name, round(given, 3)))
        missing_cores -= given
    return tuple(givers) if missing_cores < _UNTOLD_CORES else ()
