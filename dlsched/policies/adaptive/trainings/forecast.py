"""Forecast of when trainings reach their tiers: a simulation of the policy from its last order."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dlsched.estimate.learning import LEVEL_POINTS, Reach
from dlsched.estimate.tuning import MOSTLY
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.resource import CPU, Resource
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import JobView, Reached
from dlsched.model.units import counted, render_percent
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.trainings.model import TrainingMemory, heeded_steps
from dlsched.policies.adaptive.trainings.value import MarginalValue, deadline_at_s

Tier = Literal["deliver", "finish", "end"]
TIERS: tuple[Tier, ...] = ("deliver", "finish", "end")

_NEARLY_NEVER = 0.01
"""Chance below which a tier is impossible. It includes the doubt about the curve's shape, so the
run is nearly over then: curves still rise late, where the learning rate drops."""
_OWN_SPREAD = 2.75
"""Factor on a curve's fitted interval, since real curves have none of the fitted shapes. With it
the 80 % interval held .84 of the time on the curves that may be looked at (`verdicts --shown`),
with 2 it held .78. Curves of families that were not looked at take the rest."""
_LEAST_SPREAD = 0.1
"""Half the least interval, as a fraction of the time: others come, and the order changes. Without
it 80 % intervals of ends held .56 of the time, with it .75 (8 drawn traces of ten trainings)."""
_LEAST_CORES = 0.01


@dataclass(frozen=True, slots=True)
class RemainingWork:
    name: str
    cores: float
    left_core_s: tuple[float | None, float | None, float]
    """Core-seconds to deliver, finish and end; None: reached, or given up."""


def forecast(
    trainings: Sequence[RemainingWork], capacity_cores: float, tier_weights: Sequence[float]
) -> dict[str, list[float | None]]:
    """Seconds until each training reaches its remaining tiers, by job.

    An event simulation: at any moment the first in the queue get all that they can use. `trainings`
    are in the present order. A training that reaches a tier is queued again by its remaining weight
    per work.
    """
    found: dict[str, list[float | None]] = {
        training.name: [None, None, None] for training in trainings
    }
    left = {training.name: 0.0 for training in trainings}  # to its next tier
    done = {training.name: 0.0 for training in trainings}
    stage = {training.name: -1 for training in trainings}
    by_name = {training.name: training for training in trainings}
    line: list[tuple[float, int, str]] = []

    def next_stage(name: str) -> bool:
        training, tier = by_name[name], stage[name] + 1
        while tier < 3 and training.left_core_s[tier] is None:
            tier += 1
        stage[name] = tier
        if tier < 3:
            goal = training.left_core_s[tier]
            assert goal is not None
            left[name] = max(goal - done[name], 0.0)
        return tier < 3

    def index(name: str) -> float:
        training, collected = by_name[name], 0.0
        best = 0.0
        for tier in range(stage[name], 3):
            goal = training.left_core_s[tier]
            if goal is not None:
                collected += tier_weights[tier]
                best = max(best, collected / max(goal - done[name], 1e-9))
        return best

    for place, training in enumerate(trainings):
        if next_stage(training.name):
            line.append((-math.inf, place, training.name))
    now_s = 0.0
    while line:
        free, running, step_s = max(capacity_cores, _LEAST_CORES), [], math.inf
        for _, _, name in line:
            rate = min(by_name[name].cores, free)
            running.append((name, rate))
            free -= rate
            step_s = min(step_s, left[name] / rate)
            if free <= 1e-9:
                break
        now_s += step_s
        there = set()
        for name, rate in running:
            left[name] -= rate * step_s
            done[name] += rate * step_s
            if left[name] <= 1e-9 * max(done[name], 1.0):
                there.add(name)
        # Only a running training can reach its tier, and those are first in the queue.
        arrived = [entry for entry in line[: len(running)] if entry[2] in there]
        line[: len(running)] = [entry for entry in line[: len(running)] if entry[2] not in there]
        for _, place, name in arrived:
            found[name][stage[name]] = now_s
            if next_stage(name):
                insort(line, (-index(name), place, name))
    return found


def outlooks(
    jobs: Sequence[JobView],
    order: Sequence[str],
    memories: Mapping[str, TrainingMemory],
    values: Mapping[str, MarginalValue],
    given: Mapping[str, float],
    now_s: float,
    capacity_cores: float,
    rule: AdaptiveParameters,
    resource: Resource = CPU,
) -> dict[str, tuple[Forecast, ...]]:
    """Forecasts of each job's tiers and of its end, by job."""
    tier_weights = (rule.deliver_weight, rule.finish_weight, rule.end_weight)
    trainings = [
        RemainingWork(
            name,
            max(memories[name].usable_of(capacity_cores), _LEAST_CORES),
            (*values[name].tiers_core_s, values[name].end_core_s),
        )
        for name in order
    ]
    in_s = forecast(trainings, capacity_cores, tier_weights)
    cores = {training.name: training.cores for training in trainings}
    return {
        job.name: _of_job(
            job,
            memories[job.name],
            values[job.name],
            in_s[job.name],
            cores[job.name],
            given,
            now_s,
            rule,
            resource,
        )
        for job in jobs
    }


def _of_job(
    job: JobView,
    known: TrainingMemory,
    value: MarginalValue,
    in_s: Sequence[float | None],
    cores: float,
    given: Mapping[str, float],
    now_s: float,
    rule: AdaptiveParameters,
    resource: Resource,
) -> tuple[Forecast, ...]:
    target = job.spec.target
    assert isinstance(target, AccuracyTarget)
    found: list[Forecast] = []
    steps = known.step_core_s
    both = (job.tiers.delivered, job.tiers.finished)
    quiet = value.silent or job.blind is not None
    for place, (tier, reached) in enumerate(zip(TIERS, both, strict=False)):
        goal = f"{target.metric} {getattr(target, tier):g}"
        if reached is not None:
            found.append(_met(tier, goal, reached))
            continue
        left = value.tiers_core_s[place]
        if known.learnt is None or steps is None or not value.known or quiet:
            why = f"{counted(len(known.points), 'evaluation')} reported, too few to forecast {goal}"
            if quiet:
                how = "the job has reported nothing for long"
                if job.progress.lacks is not None:
                    how = f"no {target.metric} was ever reported"
                if job.diverged is not None:
                    how = f"the job diverged ({job.diverged})"
                why = f"{how}, so it is unknown when {goal} is reached"
            found.append(Forecast(ForecastKind.UNKNOWN, tier, why=why))
            continue
        reach = getattr(known.learnt, tier)
        chance, level = value.chances[place], known.learnt.level
        # Without a known end the fit extrapolates far beyond the data, and may say never.
        endless = heeded_steps(known, rule) is None
        never = endless and reach.chance < rule.give_up_chance
        if left is None or chance < MOSTLY or never:
            count = len(known.points)
            if endless and count < LEVEL_POINTS:
                why = (
                    f"{counted(count, 'evaluation')} reported, too few to say whether "
                    f"{target.metric} levels off short of {getattr(target, tier):g}"
                )
                found.append(Forecast(ForecastKind.UNKNOWN, tier, why=why))
                continue
            kind = ForecastKind.IMPOSSIBLE if chance < _NEARLY_NEVER else ForecastKind.UNLIKELY
            why = f"by the curve so far {target.metric} levels off at {level:.4g}, short of {goal}"
            if not endless and kind is ForecastKind.UNLIKELY:
                why += f", with a chance of {render_percent(round(chance, 2))} to reach it"
            found.append(Forecast(kind, tier, best=level, why=why, why_has_numbers=True))
            continue
        if reach.chance < MOSTLY:
            why = (
                f"{goal} will be reached with a chance of {render_percent(round(reach.chance, 2))}"
                ", too small to say when"
            )
            found.append(Forecast(ForecastKind.UNKNOWN, tier, best=level, why=why))
            continue
        at_s = in_s[place]
        assert at_s is not None
        fair_s = _fair_s(known, left, value.end_core_s, now_s)
        found.append(
            _expected(tier, goal, now_s, at_s, left, steps, reach, cores, fair_s, resource)
        )
        if tier == "deliver":
            found[-1] = _in_time(job, found[-1], left, at_s, cores, given, now_s)
    if value.known and steps is not None and in_s[2] is not None:
        found.append(_end(job, known, value, in_s[2], steps, cores, now_s, rule, resource))
    return tuple(found)


def _end(
    job: JobView,
    known: TrainingMemory,
    value: MarginalValue,
    in_s: float,
    step_core_s: float,
    cores: float,
    now_s: float,
    rule: AdaptiveParameters,
    resource: Resource,
) -> Forecast:
    """The forecast of the last step."""
    low, high = _end_core_s(job, known, value.end_core_s, step_core_s, rule)
    fair_s = _fair_s(known, value.end_core_s, value.end_core_s, now_s)
    why = f"the training has {resource.work(value.end_core_s)} of work left until its end"
    if known.told_steps is None or not rule.heeds_total_steps:
        why += ", estimated from its progress towards finish"
    return _between("end", why, now_s, in_s, value.end_core_s, low, high, cores, fair_s)


def _fair_s(known: TrainingMemory, left_core_s: float, end_core_s: float, now_s: float) -> float:
    """Seconds that the work would take by equal shares: no training is to end later than that."""
    if known.fair_end_s is None:
        return 0.0
    return (known.fair_end_s - now_s) * left_core_s / max(end_core_s, left_core_s)


def _met(tier: Tier, goal: str, reached: Reached) -> Forecast:
    why = f"{goal} was reached with {reached.value:.4g}"
    return Forecast(ForecastKind.MET, tier, at_s=reached.at_s, why=why)


def _expected(
    tier: Tier,
    goal: str,
    now_s: float,
    in_s: float,
    left_core_s: float,
    step_core_s: float,
    reach: Reach,
    cores: float,
    fair_s: float,
    resource: Resource,
) -> Forecast:
    """The forecast of a tier."""
    below, above = (
        _OWN_SPREAD * max(off * step_core_s, 0.0)
        for off in (reach.steps - reach.low_steps, reach.high_steps - reach.steps)
    )
    low, high = max(left_core_s - below, 0.0), left_core_s + above
    why = (
        f"the work left to reach {goal} is about {resource.work(left_core_s)} ({low:.0f} to "
        f"{high:.0f})"
    )
    return _between(tier, why, now_s, in_s, left_core_s, low, high, cores, fair_s)


def _between(
    tier: Tier,
    why: str,
    now_s: float,
    in_s: float,
    left_core_s: float,
    low_core_s: float,
    high_core_s: float,
    cores: float,
    fair_s: float,
) -> Forecast:
    """The forecast with its interval: of the work, at the forecast's pace, and of waits."""
    pace = left_core_s / max(in_s, 1e-9)
    # The jobs that it waits for may take up to twice as long, or nothing.
    wait_s = max(in_s - left_core_s / cores, 0.0)
    least_s = low_core_s / cores
    earliest_s = max(in_s - max(left_core_s - low_core_s, 0.0) / pace - wait_s, least_s)
    latest_s = in_s + max(high_core_s - left_core_s, 0.0) / pace + wait_s
    return Forecast(
        ForecastKind.EXPECTED,
        tier,
        at_s=now_s + in_s,
        earliest_s=now_s + min(earliest_s, (1.0 - _LEAST_SPREAD) * in_s),
        latest_s=now_s + max(latest_s, (1.0 + _LEAST_SPREAD) * in_s, fair_s),
        why=why,
    )


def _end_core_s(
    job: JobView,
    known: TrainingMemory,
    left_core_s: float,
    step_core_s: float,
    rule: AdaptiveParameters,
) -> tuple[float, float]:
    """The interval of the work to the end: by the CPU time of a step, the recent one or the one in
    the mean since the start, and without a reported total by the interval of `finish`."""
    low, high = left_core_s, left_core_s
    if heeded_steps(known, rule) is None and known.learnt is not None:
        reach = known.learnt.finish
        a_step = _OWN_SPREAD * rule.end_over_finish * step_core_s
        low = max(low - a_step * max(reach.steps - reach.low_steps, 0.0), 0.0)
        high += a_step * max(reach.high_steps - reach.steps, 0.0)
    whole = job.attained_core_s / known.step if known.step > 0 else step_core_s
    times = whole / step_core_s if step_core_s > 0 else 1.0
    return low * min(times, 1.0), high * max(times, 1.0)


def _in_time(
    job: JobView,
    outlook: Forecast,
    left_core_s: float,
    in_s: float,
    cores: float,
    given: Mapping[str, float],
    now_s: float,
) -> Forecast:
    """The forecast, or why the job misses its deadline if that is earlier."""
    due_s = deadline_at_s(job)
    if due_s is None or now_s + in_s <= due_s:
        return outlook
    there_s = max(due_s - now_s, 0.0)
    needs = left_core_s / there_s if there_s > 0 else math.inf
    late_s = now_s + in_s - due_s
    if needs > cores:
        # The remaining work is too uncertain to exclude it before the deadline has passed.
        kind = ForecastKind.UNLIKELY if there_s > 0 else ForecastKind.IMPOSSIBLE
        when = f"is in {there_s:.0f} s" if there_s > 0 else "has passed"
        return Forecast(
            kind,
            outlook.tier,
            why=f"the job's deadline {when}; even alone on the node the job would need another "
            f"{left_core_s / cores:.0f} s",
        )
    lacking = needs - left_core_s / in_s
    lacks: list[tuple[str, float]] = []
    for other, has in sorted(given.items(), key=lambda one: (-one[1], one[0])):
        if lacking <= 1e-9 or has <= 0:
            break
        if other != job.name:
            lacks.append((other, min(has, lacking)))
            lacking -= has
    return replace(
        outlook,
        kind=ForecastKind.CROWDED,
        needs_cores=needs,
        lacks=tuple(lacks),
        why=f"in the present order of trainings the job reaches `deliver` {late_s:.0f} s after its "
        "deadline",
    )
