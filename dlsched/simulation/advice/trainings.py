"""What a recorded training needs for its target and its deadline, and whether it gets there."""

from __future__ import annotations

import itertools

from dlsched.estimate.learning import LEVEL_POINTS, Learnt, learnt, thinned
from dlsched.model.spec import AccuracyTarget, Tier
from dlsched.model.units import render_cores, render_seconds
from dlsched.simulation.advice.result import AdvisedLimits
from dlsched.simulation.trace.fitting import step_work, threads
from dlsched.simulation.trace.observed import ObservedJob

_HORIZON = 100.0
"""How far ahead its curve is read, in multiples of the steps so far."""
_HOPELESS = 0.05
"""Below this chance a value counts as out of reach."""
_SURE = 0.5
"""A level is known where its interval is narrower than this part of the way to the value."""

Values = list[tuple[int, float]]


def training_need(job: ObservedJob, target: AccuracyTarget, room_cores: float) -> AdvisedLimits:
    """The need of this training on a node where containers may use so many cores."""
    used = threads(job.windows)
    useful = None if used is None else min(used[0], room_cores)
    notes = []
    if used is not None and not used[1]:
        had = max(used[0], *(window.used_cores for window in job.windows))
        notes.append(f"always held back: it can use {render_cores(had)}, or more")
    values = job.values.get(target.metric, [])
    if not values:
        return AdvisedLimits(None, useful, notes=(*notes, f"no {target.metric} of it was read"))
    curve = None if _reached(job, Tier.FINISH) else _curve(values, target)
    out_of_reach = _why_not(job, target, values, curve)
    if out_of_reach is not None:
        return AdvisedLimits(None, useful, out_of_reach, notes=tuple(notes))
    if target.deadline_s is None:
        return AdvisedLimits(None, useful, notes=tuple(notes))
    work_core_s = _work_core_s(job, target, values, curve)
    if work_core_s is None:
        return AdvisedLimits(None, useful, notes=(*notes, "too little of its work is known"))
    cores = work_core_s / target.deadline_s
    most = room_cores if used is None or not used[1] else min(used[0], room_cores)
    if cores > most and _delivered_in_time(job, target.deadline_s):
        cores = most
    if cores > most:
        return AdvisedLimits(
            None,
            useful,
            f"{target.metric} {target.deliver:g} takes {render_seconds(work_core_s / most)} with "
            f"all that it can use ({render_cores(most)}), not {render_seconds(target.deadline_s)}",
            notes=tuple(notes),
        )
    return AdvisedLimits(cores, useful, notes=tuple(notes))


def progress_text(job: ObservedJob, target: AccuracyTarget) -> str:
    """How far it came, such as `map 0.551 at step 31`."""
    values = job.values.get(target.metric, [])
    return f"{target.metric} {values[-1][1]:.4g} at step {values[-1][0]}" if values else ""


def _reached(job: ObservedJob, tier: Tier) -> bool:
    tiers = None if job.last is None else job.last.tiers
    if tiers is None:
        return False
    return (tiers.delivered if tier is Tier.DELIVER else tiers.finished) is not None


def _delivered_in_time(job: ObservedJob, deadline_s: float) -> bool:
    """Whether the record itself shows that the deadline can be met."""
    tiers = None if job.last is None else job.last.tiers
    if tiers is None or tiers.delivered is None or job.started_s is None:
        return False
    return tiers.delivered.at_s - job.started_s <= deadline_s


def _curve(values: Values, target: AccuracyTarget) -> Learnt | None:
    points = []
    for step, group in itertools.groupby(sorted(values), key=lambda one: one[0]):
        found = [value for _, value in group]
        points.append((float(step), sum(found) / len(found), len(found)))
    last = points[-1][0]
    return learnt(
        thinned(points),
        (target.deliver, target.finish),
        max(1.0, _HORIZON * last),
        after_steps=(last, last),
    )


def _why_not(
    job: ObservedJob, target: AccuracyTarget, values: Values, curve: Learnt | None
) -> str | None:
    falls = target.finish < target.deliver
    best = (min if falls else max)(value for _, value in values)
    for tier in Tier:
        if _reached(job, tier):
            continue
        wanted = f"{target.metric} {target.value_of(tier):g} ({tier.value})"
        if job.finished:
            return f"it ended at step {values[-1][0]} with {best:.4g} at best, not {wanted}"
        if curve is None or len(values) < LEVEL_POINTS:
            continue
        reach = curve.deliver if tier is Tier.DELIVER else curve.finish
        low, high = sorted((curve.low_level, curve.high_level))
        away = abs(target.value_of(tier) - curve.level)
        if reach.chance < _HOPELESS and high - low < _SURE * away:
            return (
                f"its curve levels off at {curve.level:.4g} ({low:.4g} to {high:.4g}): "
                f"{wanted} is out of reach at any limit"
            )
    return None


def _work_core_s(
    job: ObservedJob, target: AccuracyTarget, values: Values, curve: Learnt | None
) -> float | None:
    """CPU time from its start to `deliver`."""
    fitted = step_work(job.attempts)
    if fitted is None:
        return None
    falls = target.finish < target.deliver
    sign = -1.0 if falls else 1.0
    steps = [float(step) for step, value in values if sign * (value - target.deliver) >= 0]
    if not steps and curve is None:
        return None
    step = min(steps) if steps else curve.deliver.steps if curve is not None else 0.0
    return fitted[1] + step * fitted[0]
