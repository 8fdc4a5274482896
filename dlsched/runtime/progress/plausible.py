"""What a server's counts cannot be: a wrong unit, or quantiles that contradict the mean."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from dlsched.runtime.progress.cumulative import Cumulative

SHORTEST_S = 1e-6
"""No request over a network is faster on average."""
LONGEST_MEAN_S = 6 * 3600.0
"""Longer requests than that are jobs."""
AGE_SLACK_S = 60.0
"""The server may have begun before its container was started again, and clocks differ."""
CONCURRENT_MAX = 10_000.0
"""Requests under way in one container on average; more do not fit into its memory."""
CONTRADICTION = 10.0
"""Mean over what the quantiles allow: a window and a whole life differ by less."""
HIGH_QUANTILE = 0.9

_REMEDY = "give its unit (s, ms or us)"


def improbable(series: Iterable[Cumulative], unit_s: float, age_s: float | None) -> str | None:
    """Why these counts since the start cannot have that unit; None: they can. `age_s`: how long the
    server has run, if known."""
    whole = [(one.requests, one.total * unit_s) for one in series if one.total is not None]
    count, total_s = sum(count for count, _ in whole), sum(total_s for _, total_s in whole)
    if count < 1 or total_s <= 0.0:
        return None
    mean_s = total_s / count
    if mean_s < SHORTEST_S:
        return f"its mean would be {mean_s * 1e6:.3g} us: {_REMEDY}"
    if mean_s > LONGEST_MEAN_S:
        return f"its mean would be {mean_s / 3600:.3g} h: {_REMEDY}"
    if age_s is None:
        return None
    if mean_s > age_s + AGE_SLACK_S:
        return f"its mean would be {mean_s:.3g} s, but it runs for {age_s:.3g} s: {_REMEDY}"
    concurrent = total_s / (age_s + AGE_SLACK_S)
    if concurrent > CONCURRENT_MAX:
        return f"{concurrent:.3g} requests would be under way at any time: {_REMEDY}"
    return None


def contradiction(added: Cumulative, unit_s: float) -> str | None:
    """Why these requests cannot have their quantiles; None: they can."""
    if not added.quantiles or not added.count or added.total is None:
        return None
    mean = added.total / added.count
    points = sorted(added.quantiles.items())
    highest, value = points[-1]
    if any(later < earlier for (_, earlier), (_, later) in pairwise(points)):
        return "its quantiles go back: only the mean is read"
    if highest >= HIGH_QUANTILE and mean > CONTRADICTION * value:
        shown = f"p{100 * highest:g} {value * unit_s * 1e3:.3g} ms"
    elif (low := _least(points)) > CONTRADICTION * mean:
        shown = f"quantiles that make {low * unit_s * 1e3:.3g} ms at least"
    else:
        return None
    return f"mean {mean * unit_s * 1e3:.3g} ms contradicts {shown}: only the mean is read"


def _least(points: list[tuple[float, float]]) -> float:
    """The smallest mean that these quantiles allow."""
    ends = [quantile for quantile, _ in points[1:]] + [1.0]
    return sum((end - at) * value for (at, value), end in zip(points, ends, strict=True))
