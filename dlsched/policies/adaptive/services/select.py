"""Who of the services is satisfied when not all can be, for the policy `adaptive`.

Owns that choice and the room it leaves. It must not know how a need was found out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlsched.estimate.tuning import CLEARLY, FINE
from dlsched.policies.adaptive.parameters import AdaptiveParameters

_UNTOLD_CORES = 5e-4
"""Less than the last digit that is told."""


class Need(NamedTuple):
    """Mean cores that satisfy a service, just so and well."""

    name: str
    weight: float
    least_cores: float
    best_cores: float
    kept: bool

    @property
    def price(self) -> float:
        """Cores per weight."""
        return self.least_cores / self.weight


class Triage(NamedTuple):
    """Who is satisfied, who is not, and what is left of the room."""

    met: list[Need]
    short: list[Need]
    part: float
    """How far everybody who is satisfied gets on the way from least to best; below 0: nobody was
    left out, and so much is missing for the least, as a part of it."""
    left_cores: float


def triaged(
    needs: Sequence[Need],
    room_cores: float,
    floor_cores: float,
    rule: AdaptiveParameters,
    edge_ratio: float = FINE,
) -> Triage:
    """The most weight satisfied in that room, the cheapest per weight first.

    Who is left out has `floor_cores` of the room for itself, and comes in again once it leaves
    `edge_ratio` of the room.
    """
    least = math.fsum([need.least_cores for need in needs])
    edge = edge_ratio * room_cores
    if least <= room_cores - (0.0 if all(need.kept for need in needs) else edge):
        return _toward_best(list(needs), [], room_cores - least)
    if not rule.triages:
        return Triage(list(needs), [], room_cores / least - 1.0, 0.0)
    steady = sorted(needs, key=lambda one: (one.price / (CLEARLY if one.kept else 1.0), one.name))
    met, short = _packed(steady, room_cores, floor_cores, edge)
    cheapest = sorted(needs, key=lambda one: (one.price, one.name))
    others, _ = _packed(cheapest, (1.0 - edge_ratio) * room_cores, floor_cores)
    if _weight(others) > _weight(met) * (1.0 + 1e-9):
        met, short = _packed(cheapest, room_cores, floor_cores)
    taken = math.fsum([need.least_cores for need in met]) + floor_cores * len(short)
    return _toward_best(met, short, max(room_cores - taken, 0.0))


def _packed(
    ordered: Sequence[Need], room_cores: float, floor_cores: float, edge_cores: float = 0.0
) -> tuple[list[Need], list[Need]]:
    """Those that fit, first come first served, when each that does not leaves room for a floor.

    Who was left out fits only if it leaves `edge_cores`.
    """
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
    """Those that could give most come first."""
    return sorted(met, key=lambda one: (-one.least_cores, one.name))


def fewest_givers(missing_cores: float, largest: Iterable[Need]) -> tuple[tuple[str, float], ...]:
    """The fewest satisfied services that could give so many cores, and how many each.

    None where all of them together could not.
    """
    givers: list[tuple[str, float]] = []
    for need in largest:
        if missing_cores < _UNTOLD_CORES:
            break
        given = min(need.least_cores, missing_cores)
        givers.append((need.name, round(given, 3)))
        missing_cores -= given
    return tuple(givers) if missing_cores < _UNTOLD_CORES else ()
