"""What can be expected of a target, in words, and when a turn of it is worth a word.

Owns both, alike for pages, API, journal and log. It must not reckon an outlook: policies do. Times
are told as from now on; one that has passed is due at any moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from dlsched.model.units import render_cores, render_seconds


class ForecastKind(StrEnum):
    """What can be said of a target."""

    MET = "met"
    EXPECTED = "expected"
    """It will be met at a time that can be told."""
    CROWDED = "crowded"
    """Not beside these others; with less for some of them it would be."""
    IMPOSSIBLE = "impossible"
    """Not on this node, whoever else is on it."""
    UNLIKELY = "unlikely"
    """Not expected, but nothing rules it out."""
    UNKNOWN = "unknown"
    """There is not enough to tell by yet."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What can be expected of one target of one job, if all goes on as it is decided now.

    Times are on the agent's clock (monotonic), so that they stay true while nothing is decided.
    """

    kind: ForecastKind
    tier: Literal["latency", "deliver", "finish", "end"]
    """Which of its targets: that of its latency, a tier of its accuracy, or its last step."""
    at_s: float | None = None
    """When it is expected, or was met; None: that cannot be told, or it is met all the time."""
    earliest_s: float | None = None
    """The 80 % interval of `at_s`."""
    latest_s: float | None = None
    needs_cores: float | None = None
    """Mean cores that would meet it; None: unknown, or none would."""
    best: float | None = None
    """What the node can bring it to at best: seconds of latency, or a value of its metric."""
    lacks: tuple[tuple[str, float], ...] = ()
    """CROWDED: jobs that would have to give it cores, and how many each, fewest jobs first."""
    why: str = ""
    """In one sentence, with the numbers."""


TURN_S = 60.0
"""A turn has to stand for so long before it is told: an outlook at the edge tells nothing."""

SOON_S = 1.0
"""Nearer than that it is due at any moment: nobody reads faster."""

NAMED = 3
"""So many of those who would have to give are named; of the others their number is told."""

Word = Literal["possible", "crowded", "impossible"]

_WORDS: dict[ForecastKind, Word] = {
    ForecastKind.MET: "possible",
    ForecastKind.EXPECTED: "possible",
    ForecastKind.CROWDED: "crowded",
    ForecastKind.IMPOSSIBLE: "impossible",
}
_OUT_OF_REACH = (ForecastKind.CROWDED, ForecastKind.IMPOSSIBLE)
_UNITS = (("s", 1.0, 180.0), ("min", 60.0, 90 * 60.0), ("h", 3600.0, 36 * 3600.0))
_DAY_S = 86_400.0
_DAYS = 1000
"""Further off nobody can tell, whatever a job says that it will take."""


def in_short(outlook: Forecast, now_s: float) -> str:
    """For a column: `met`, `in 4 min (3-6)`, `lacks 1.2 cores`, `at best 64 ms`, `?`."""
    ends = "ends " if outlook.tier == "end" else ""
    match outlook.kind:
        case ForecastKind.MET:
            return "ended" if ends else "met"
        case ForecastKind.EXPECTED:
            return ends + _about(outlook, now_s)
        case ForecastKind.CROWDED:
            lacking = sum(cores for _, cores in outlook.lacks)
            return f"lacks {render_cores(lacking)}" if lacking > 0 else "crowded"
        case ForecastKind.IMPOSSIBLE:
            return "impossible" if outlook.best is None else f"at best {_best(outlook)}"
        case ForecastKind.UNLIKELY:
            return "not expected"
        case ForecastKind.UNKNOWN:
            return "?"


def in_full(outlook: Forecast, now_s: float) -> str:
    """In one sentence: what, when or with what, and the policy's own words on it.

    What those tell is not told twice.
    """
    because = f": {outlook.why}" if outlook.why else ""
    return _sentence(outlook, now_s) + because


def givers(outlook: Forecast) -> str:
    """What it lacks and who would have to give: `1.2 cores more: from vgg-2`; empty: nobody."""
    lacking = sum(cores for _, cores in outlook.lacks)
    names = [name for name, _ in outlook.lacks[:NAMED]]
    return f"{render_cores(lacking)} more: from {_listed(outlook, names)}" if names else ""


def _listed(outlook: Forecast, words: list[str]) -> str:
    others = len(outlook.lacks) - len(words)
    more = [f"{others} other{'s' if others > 1 else ''}"] if others else []
    return ", ".join(words + more)


def _sentence(outlook: Forecast, now_s: float) -> str:
    match outlook.kind:
        case ForecastKind.MET:
            past = outlook.at_s is not None and outlook.at_s < now_s
            return f"met {render_seconds(now_s - (outlook.at_s or 0.0))} ago" if past else "met"
        case ForecastKind.EXPECTED:
            return _expected(outlook, now_s)
        case ForecastKind.CROWDED:
            as_it_is = f", as it is {_expected(outlook, now_s)}" if outlook.at_s else ""
            needs = "" if any(name in outlook.why for name, _ in outlook.lacks) else _needs(outlook)
            return f"not beside these others{as_it_is}{needs}"
        case ForecastKind.IMPOSSIBLE:
            told = outlook.best is None or _best(outlook) in outlook.why
            return "not on this node" + ("" if told else f", at best {_best(outlook)}")
        case ForecastKind.UNLIKELY:
            return "not expected"
        case ForecastKind.UNKNOWN:
            return "cannot be told yet"


def _needs(outlook: Forecast) -> str:
    lacks = [f"{render_cores(cores)} from {name}" for name, cores in outlook.lacks[:NAMED]]
    would = f", would be met with {_listed(outlook, lacks)}" if lacks else ""
    return (
        "" if outlook.needs_cores is None else f", needs {render_cores(outlook.needs_cores)}"
    ) + would


def _expected(outlook: Forecast, now_s: float) -> str:
    if outlook.at_s is None:
        return "expected"
    if outlook.at_s - now_s < SOON_S:
        return "expected any moment"
    likely = ""
    if outlook.earliest_s is not None and outlook.latest_s is not None:
        low, high = (max(at_s - now_s, 0.0) for at_s in (outlook.earliest_s, outlook.latest_s))
        likely = f" (80 %: {render_seconds(low)} to {render_seconds(high)})"
    return f"expected in {render_seconds(outlook.at_s - now_s)}{likely}"


def _about(outlook: Forecast, now_s: float) -> str:
    """Roughly when, with the interval in the same unit."""
    if outlook.at_s is None:
        return "expected"
    in_s = outlook.at_s - now_s
    if in_s < SOON_S:
        return "any moment"
    if in_s > _DAYS * _DAY_S:
        return f"in over {_DAYS} d"
    unit, scale = next(
        ((unit, scale) for unit, scale, below_s in _UNITS if in_s < below_s), ("d", _DAY_S)
    )

    def rounded(duration_s: float) -> str:
        count = max(duration_s, 0.0) / scale
        return f"{count:.0f}" if scale <= 60.0 or count >= 9.95 else f"{count:.1f}"

    likely = ""
    if outlook.earliest_s is not None and outlook.latest_s is not None:
        low, high = rounded(outlook.earliest_s - now_s), rounded(outlook.latest_s - now_s)
        likely = f" ({low}-{high})" if low != high else ""
    return f"in {rounded(in_s)} {unit}{likely}"


def _best(outlook: Forecast) -> str:
    best = outlook.best or 0.0
    return render_seconds(best) if outlook.tier == "latency" else f"{best:.4g}"


@dataclass(frozen=True, slots=True)
class Standing:
    """What was last told of one target, and what is said of it now."""

    tier: str
    told: Word = "possible"
    now: Word = "possible"
    since_s: float = 0.0
    """Since when that is said."""


Standings = tuple[Standing, ...]


def turned(
    outlooks: Sequence[Forecast], before: Standings, now_s: float
) -> tuple[Standings, tuple[tuple[Word, Forecast], ...]]:
    """How one job's targets stand, and the turns to be told now: each once, and none that flaps.

    What is unknown, or not expected but not ruled out either, turns nothing.
    """
    if not before and not any(one.kind in _OUT_OF_REACH for one in outlooks):
        return before, ()
    known = {one.tier: one for one in before}
    told = []
    for outlook in outlooks:
        word = _WORDS.get(outlook.kind)
        stood = known.get(outlook.tier) or Standing(outlook.tier)
        if word is None or word == stood.now == stood.told:
            continue
        since_s = stood.since_s if word == stood.now else now_s
        turns = word != stood.told and now_s - since_s >= TURN_S
        if turns:
            told.append((word, outlook))
        known[outlook.tier] = Standing(outlook.tier, word if turns else stood.told, word, since_s)
    after = tuple(known.values())
    return (before if after == before else after), tuple(told)


def recalled(outlooks: Sequence[Forecast], now_s: float) -> Standings:
    """How a job's targets stood when it was last looked at, all taken as told."""
    words = ((one.tier, _WORDS.get(one.kind)) for one in outlooks)
    return tuple(Standing(tier, word, word, now_s) for tier, word in words if word is not None)
