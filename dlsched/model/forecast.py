"""Forecasts for targets as text, and which changes of them are worth a log line. Policies compute
the forecasts. Times are relative to now; a forecast whose time has passed is withdrawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from dlsched.model.units import render_cores, render_seconds


class ForecastKind(StrEnum):
    """What is known about reaching a target."""

    MET = "met"
    EXPECTED = "expected"
    """It will be met at a known time."""
    CROWDED = "crowded"
    """It cannot be met beside these other jobs, but could be if some of them got less."""
    IMPOSSIBLE = "impossible"
    """It cannot be met on this node, even alone."""
    UNLIKELY = "unlikely"
    """Not expected, but not ruled out."""
    UNKNOWN = "unknown"
    """There is not enough data yet."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast for one target of a job, if current decisions stay. Times are on the agent's
    monotonic clock, so they stay true between decisions."""

    kind: ForecastKind
    tier: Literal["latency", "deliver", "finish", "end"]
    """The target: a latency, a tier of an accuracy, or the last step."""
    at_s: float | None = None
    """When it is expected or was met; None: unknown, or it is met continuously. `earliest_s` to
    `latest_s` is the 80 % interval."""
    earliest_s: float | None = None
    latest_s: float | None = None
    needs_cores: float | None = None
    """Mean cores that would meet it; None: unknown, or no number would."""
    best: float | None = None
    """The best that the node can reach: seconds of latency, or a value of the metric."""
    lacks: tuple[tuple[str, float], ...] = ()
    """For CROWDED: the jobs that would have to give it cores, and how many; fewest jobs first."""
    why: str = ""
    """The reason in one sentence, with numbers."""
    why_has_numbers: bool = False
    """Whether `why` says `needs_cores` with `lacks`, or `best`, which pages then do not repeat."""


TURN_S = 60.0
"""Debounce: a change is reported after it has lasted this long, as forecasts near a limit flap."""

SOON_S = 1.0
"""Times closer than this read "any moment": no reader is faster."""

WITHDRAWN_S = 10.0
"""An expectation is withdrawn this long after its latest time. The policy `adaptive` renews
those of trainings every five seconds."""

NAMED = 3
"""Number of jobs named in a list; the rest is only counted."""

Reachability = Literal["possible", "crowded", "impossible"]

_REACHABILITY: dict[ForecastKind, Reachability] = {
    ForecastKind.MET: "possible",
    ForecastKind.EXPECTED: "possible",
    ForecastKind.CROWDED: "crowded",
    ForecastKind.IMPOSSIBLE: "impossible",
}
_OUT_OF_REACH = (ForecastKind.CROWDED, ForecastKind.IMPOSSIBLE)
_UNITS = (("s", 1.0, 180.0), ("min", 60.0, 90 * 60.0), ("h", 3600.0, 36 * 3600.0))
_DAY_S = 86_400.0
_DAYS = 1000
"""Upper bound of shown times. Beyond it no forecast is reliable, whatever a job reports."""


def as_of(outlook: Forecast, now_s: float) -> Forecast:
    """The forecast; unknown where it was to come true by a time that has passed."""
    last_s = max(outlook.at_s or now_s, outlook.latest_s or 0.0)
    if outlook.kind is not ForecastKind.EXPECTED or now_s <= last_s + WITHDRAWN_S:
        return outlook
    why = (
        f"the target is not met; it was expected at the latest {render_seconds(now_s - last_s)} ago"
    )
    return replace(
        outlook, kind=ForecastKind.UNKNOWN, at_s=None, earliest_s=None, latest_s=None, why=why
    )


def in_short(outlook: Forecast, now_s: float) -> str:
    """Text for a column: `met`, `in 4 min (3-6)`, `lacks 1.2 cores`, `at best 64 ms`, `?`."""
    outlook = as_of(outlook, now_s)
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
    """One sentence: the kind, the time or the cores, and the policy's reason, without
    repetition."""
    outlook = as_of(outlook, now_s)
    because = f": {outlook.why}" if outlook.why else ""
    return _sentence(outlook, now_s) + because


def givers(outlook: Forecast) -> str:
    """The missing cores and the jobs that would have to give them, such as `1.2 cores more: from
    vgg-2`; empty if there are none."""
    lacking = sum(cores for _, cores in outlook.lacks)
    names = [name for name, _ in outlook.lacks[:NAMED]]
    return f"{render_cores(lacking)} more: from {_listed(outlook, names)}" if names else ""


def _listed(outlook: Forecast, names: list[str]) -> str:
    others = len(outlook.lacks) - len(names)
    more = [f"{others} other{'s' if others > 1 else ''}"] if others else []
    return ", ".join(names + more)


def _sentence(outlook: Forecast, now_s: float) -> str:
    match outlook.kind:
        case ForecastKind.MET:
            past = outlook.at_s is not None and outlook.at_s < now_s
            return f"met {render_seconds(now_s - (outlook.at_s or 0.0))} ago" if past else "met"
        case ForecastKind.EXPECTED:
            return _expected(outlook, now_s)
        case ForecastKind.CROWDED:
            as_it_is = (
                f"; with the job's present share {_expected(outlook, now_s)}"
                if outlook.at_s
                else ""
            )
            needs = "" if outlook.why_has_numbers else _needs(outlook)
            return f"cannot be met beside the other jobs{as_it_is}{needs}"
        case ForecastKind.IMPOSSIBLE:
            known = outlook.best is None or outlook.why_has_numbers
            return "cannot be met on this node" + ("" if known else f", at best {_best(outlook)}")
        case ForecastKind.UNLIKELY:
            return "not expected"
        case ForecastKind.UNKNOWN:
            return "no forecast"


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
        # Where both read alike, the interval is narrower than the time is exact.
        if render_seconds(low) != render_seconds(high):
            likely = f" (80 %: {render_seconds(low)} to {render_seconds(high)})"
    return f"expected in {render_seconds(outlook.at_s - now_s)}{likely}"


def _about(outlook: Forecast, now_s: float) -> str:
    """The approximate time, with its interval in the same unit."""
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
class TargetState:
    """The last reported forecast of one target, and the current one."""

    tier: str
    reported: Reachability = "possible"
    now: Reachability = "possible"
    since_s: float = 0.0


TargetStates = tuple[TargetState, ...]


def turned(
    outlooks: Sequence[Forecast], before: TargetStates, now_s: float
) -> tuple[TargetStates, tuple[tuple[Reachability, Forecast], ...]]:
    """The new states of one job's targets, and the changes to report now, without flapping. UNKNOWN
    and UNLIKELY change nothing."""
    if not before and not any(one.kind in _OUT_OF_REACH for one in outlooks):
        return before, ()
    known = {one.tier: one for one in before}
    changes = []
    for outlook in outlooks:
        reach = _REACHABILITY.get(outlook.kind)
        stood = known.get(outlook.tier) or TargetState(outlook.tier)
        if reach is None or reach == stood.now == stood.reported:
            continue
        since_s = stood.since_s if reach == stood.now else now_s
        turns = reach != stood.reported and now_s - since_s >= TURN_S
        if turns:
            changes.append((reach, outlook))
        known[outlook.tier] = TargetState(
            outlook.tier, reach if turns else stood.reported, reach, since_s
        )
    after = tuple(known.values())
    return (before if after == before else after), tuple(changes)


def recalled(outlooks: Sequence[Forecast], now_s: float) -> TargetStates:
    """States from a job's earlier forecasts, all taken as already reported."""
    reaches = ((one.tier, _REACHABILITY.get(one.kind)) for one in outlooks)
    return tuple(
        TargetState(tier, reach, reach, now_s) for tier, reach in reaches if reach is not None
    )
