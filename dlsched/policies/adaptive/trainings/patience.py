"""Ends in time: no training ends much later than if all shared the CPU equally.

Beside the real trainings, equal sharing is imagined: the CPU time that each would have attained by
now (`TrainingMemory.fair_core_s`), also of those that have ended sooner than they would have. From
there follows when each would end. That time and a part of it, the patience, is its deadline. While
every deadline can be kept, trainings are ordered by value; those that are about to miss theirs come
first, and share equally where they are several. (To order by the imagined end alone is from E. J.
Friedman and S. G. Henderson, "Fairness and efficiency in web server protocols", 2003; that it is
done only where it must be is ours.)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from dlsched.policies.adaptive.trainings.model import TrainingMemory
from dlsched.policies.adaptive.trainings.value import MarginalValue
from dlsched.policies.fair_share import Claim, water_fill

_LEAST_CORES = 1e-9
_ERROR_RATIO = 0.05
"""Part of a training's time that is left to errors of the estimates. On curves of no fitted shape
0.4 of ten trainings ended more than 5 % later than under plain Docker with it (20 drawn traces)."""


def shared_equally(
    known: Collection[TrainingMemory],
    values: Mapping[str, MarginalValue],
    capacity_cores: float,
    now_s: float,
) -> dict[str, TrainingMemory]:
    """The memories by job, each with what it would have attained by now, and when it would end."""
    after, left_core_s = {}, {}
    widths = {one.name: one.usable_of(capacity_cores) for one in known}
    active = {one.name: Claim(1.0, 0.0, widths[one.name]) for one in known if one.goes_on}
    shares = water_fill(capacity_cores, active)
    for was in known:
        value, total_core_s = values.get(was.name), was.total_core_s
        if value is not None and value.known:
            total_core_s = value.attained_core_s + value.end_core_s
        fair_core_s = was.fair_core_s
        if was.fair_at_s is not None:
            fair_core_s += shares.get(was.name, 0.0) * (now_s - was.fair_at_s)
        elif value is not None:  # what it did before it was known counts as its share
            fair_core_s = value.attained_core_s
        one = replace(was, fair_core_s=fair_core_s, fair_at_s=now_s, total_core_s=total_core_s)
        if one.goes_on:
            left_core_s[one.name] = math.inf if total_core_s is None else total_core_s - fair_core_s
        after[one.name] = one
    for name, end_s in _ends_s(left_core_s, widths, capacity_cores).items():
        after[name] = replace(after[name], fair_end_s=now_s + end_s)
    return after


def gone(one: TrainingMemory) -> TrainingMemory:
    """What is kept of a training that has ended, while equal sharing would still go on with it."""
    return TrainingMemory(
        one.name,
        usable_cores=one.usable_cores,
        fair_core_s=one.fair_core_s,
        fair_at_s=one.fair_at_s,
        total_core_s=one.total_core_s or 0.0,
    )


def _ends_s(
    left_core_s: Mapping[str, float], widths: Mapping[str, float], capacity_cores: float
) -> dict[str, float]:
    """Seconds until each would end if all shared equally from now on. Infinite work never ends."""
    left, at_s = dict(left_core_s), 0.0
    ends_s: dict[str, float] = {}
    while capacity_cores > 0.0 and any(map(math.isfinite, left.values())):
        shares = water_fill(capacity_cores, {name: Claim(1.0, 0.0, widths[name]) for name in left})
        step_s, first = min((left[name] / shares[name], name) for name in left)
        at_s += step_s
        left = {name: core_s - shares[name] * step_s for name, core_s in left.items()}
        ends_s[first] = at_s
        del left[first]
    return ends_s


def due_in_s(one: TrainingMemory, begun_s: float, now_s: float, patience: float) -> float:
    """Seconds until the training should have ended; infinite where that is not known."""
    if one.fair_end_s is None:
        return math.inf
    later = max(patience - _ERROR_RATIO, 0.0)
    return one.fair_end_s + later * (one.fair_end_s - begun_s) - now_s


def pressing(
    values: Mapping[str, MarginalValue],
    due_s: Mapping[str, float],
    widths: Mapping[str, float],
    capacity_cores: float,
    margin_s: float,
) -> dict[str, int]:
    """The order in which trainings must come now, as they could not all end in time (`due_s`:
    seconds from now) if others went first for `margin_s`: a number each, in any order where it is
    equal.

    0: those that need all their parallelism until then. Next, those for whose work together, up to
    one of these times, the node's cores just suffice. The others are left out.
    """
    order = sorted(due_s, key=lambda name: (due_s[name], name))
    groups: dict[str, int] = {}
    group, whole_core_s, since = 1, 0.0, 0
    for count, name in enumerate(order, start=1):
        whole_core_s += values[name].end_core_s
        if whole_core_s + margin_s * capacity_cores > due_s[name] * capacity_cores:
            groups |= dict.fromkeys(order[since:count], group)
            group, since = group + 1, count
    alone_s = {name: values[name].end_core_s / max(widths[name], _LEAST_CORES) for name in due_s}
    groups |= {name: 0 for name in due_s if alone_s[name] + margin_s > due_s[name]}
    return groups
