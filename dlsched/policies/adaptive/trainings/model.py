"""The state of the policy `adaptive` for a training: evaluations, CPU time a step, parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlsched.estimate.evaluations import evaluations, reaches
from dlsched.estimate.learning import TOTAL_STEPS, Learnt, Point, learnt, thinned
from dlsched.estimate.tuning import (
    AGAIN_S,
    CLEARLY,
    LITTLE,
    MARGIN,
    ROOM_RATIO,
    SAMPLE_WEIGHT,
    SAMPLES,
    SETTLED_S,
)
from dlsched.model.forecast import Forecast
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import JobView
from dlsched.policies.adaptive.parameters import AdaptiveParameters

NEW = 1 << 30
"""`TrainingMemory.place` of a training that has none yet."""
_LEAST_CORES = 0.05
_WAITING_FLOORS = 2.0
"""A training given less than so many times its floor waits for CPU: its use is no parallelism."""
_PACED_POINTS = 5
_PAUSE_RATIO, _PAUSE_S = 0.5, 30.0
"""A training that uses less than this part of its parallelism, or of one core, pauses; after so
long it counts as its parallelism."""
_UNKNOWN_CORES = 1.0
"""The least parallelism of a training that was not observed to use less than it was given."""
_WEIGHED_S = 3.0
"""Use is measured by weights that have been in place for so long."""
_DIGITS = 6
_MOST_STEPS = 1e12
"""A reported total above this is ignored."""


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """One training's evaluations, their fit, and the CPU time of its steps."""

    name: str
    container_id: str | None = None
    target: tuple[str, float, float] = ("", 0.0, 0.0)
    """Its metric, and the values of `deliver` and `finish`."""
    points: tuple[Point, ...] = ()
    """The evaluations of the present attempt, thinned."""
    read_s: float | None = None
    """Time of the last report that was read; None: there was none yet."""
    step: float = 0.0
    told_steps: float | None = None
    """The total number of steps, as the training reports it."""
    step_core_s: float | None = None
    paced: bool = False
    """Whether `step_core_s` excludes the start-up: it was measured between two reports."""
    mark_step: float | None = None
    """The step at which the present measurement of `step_core_s` began."""
    mark_core_s: float = 0.0
    """Its attained service then."""
    usable_cores: float | None = None
    """Its parallelism in cores; None: it was not observed to use less than it was given."""
    pause_s: float | None = None
    """Since when it uses much less, as while its loader, a checkpoint or an evaluation is slow."""
    stalled_s: float | None = None
    """When it last used much less than it could have had."""
    given_cores: float | None = None
    """Cores that the last decision meant for it; None: there was none yet."""
    place: int = NEW
    """Its place in the last decision's order, from 0."""
    fair_core_s: float = 0.0
    """What it would have attained by now if all trainings had shared the CPU equally."""
    fair_at_s: float | None = None
    """When that was last brought up to date."""
    fair_end_s: float | None = None
    """When it would end, or would have ended, then."""
    total_core_s: float | None = None
    """All its work from start to end, as last estimated; what it attained, once it has ended."""
    presses: bool = False
    """Whether it needs all its parallelism to end in time: several such share equally."""
    weight: float = 0.0
    turn_s: float | None = None
    """When place and weight were decided; None: with less than is known now."""
    due_s: float | None = None
    """Since when it has evaluations that are not fitted."""
    learnt: Learnt | None = None
    outlooks: tuple[Forecast, ...] = ()
    told_s: float | None = None
    """When its forecasts were made."""
    late: bool = False
    """Whether it goes first for its deadline."""

    def usable_of(self, capacity_cores: float) -> float:
        """Its parallelism on so many cores: all of them where it is not known."""
        usable = self.usable_cores
        return capacity_cores if usable is None else min(usable, capacity_cores)

    def stalled_lately(self, now_s: float) -> bool:
        return self.stalled_s is not None and now_s - self.stalled_s <= AGAIN_S

    @property
    def goes_on(self) -> bool:
        """Whether it is not known to have ended if all had shared equally."""
        return self.total_core_s is None or self.fair_core_s < self.total_core_s

    @property
    def metric(self) -> str:
        return self.target[0]

    @property
    def tier_values(self) -> tuple[float, float]:
        """The metric's values at which the job delivers and finishes."""
        return self.target[1:]


def followed(
    job: JobView, was: TrainingMemory | None, now_s: float, pressed: bool = False
) -> TrainingMemory:
    """The memory after this cycle; the same object where nothing changed. `pressed`: foreign
    processes on the host take CPU that the training would use."""
    target = job.spec.target
    assert isinstance(target, AccuracyTarget)
    asked = (target.metric, target.deliver, target.finish)
    if was is None or was.target != asked:
        was = TrainingMemory(job.name, job.container_id, asked)
    if was.container_id != job.container_id:
        was = replace(was, container_id=job.container_id, mark_step=None, usable_cores=None)
    return _usable(job, _read(job, was, now_s), now_s, pressed)


def stalled(
    jobs: Sequence[JobView], memories: Mapping[str, TrainingMemory], now_s: float
) -> dict[str, TrainingMemory]:
    """The memories, with those marked that use much less than their parallelism and than their
    weight gives them of what all trainings use: only a training that asks for less does."""
    used = {job.name: job.usage.cpu_cores or 0.0 for job in jobs}
    whole_cores = math.fsum(used.values())
    weight = math.fsum(memories[name].weight for name in used)
    after = dict(memories)
    for name, cores in used.items():
        one = memories[name]
        if one.pause_s is None or one.turn_s is None or now_s - one.turn_s < _WEIGHED_S:
            continue
        usable_cores = _UNKNOWN_CORES if one.usable_cores is None else one.usable_cores
        could_cores = min(usable_cores, whole_cores * one.weight / weight)
        if cores < _PAUSE_RATIO * could_cores:
            after[name] = replace(one, stalled_s=now_s)
    return after


def heeded_steps(known: TrainingMemory, rule: AdaptiveParameters) -> float | None:
    """The total number of steps that the training reports, where the policy uses that."""
    return known.told_steps if rule.heeds_total_steps else None


def fitted(job: JobView, known: TrainingMemory, rule: AdaptiveParameters) -> TrainingMemory:
    """The memory with its learning curve fitted to all evaluations so far."""
    reported = heeded_steps(known, rule)
    deliver, finish = known.tier_values
    end = reported if reported is not None else math.inf
    found = learnt(
        known.points,
        known.tier_values,
        end if math.isfinite(end) else _HORIZON * max(known.step, 1.0),
        reported_steps=reported,
        after_steps=(
            0.0 if job.tiers.delivered is not None else _last_short(job, known, deliver),
            0.0 if job.tiers.finished is not None else _last_short(job, known, finish),
        ),
    )
    return replace(known, learnt=found, due_s=None)


def _last_short(job: JobView, known: TrainingMemory, tier: float) -> float:
    """The step of the latest evaluation that did not reach that tier; 0: all did."""
    target = job.spec.target
    assert isinstance(target, AccuracyTarget)
    return max(
        (step for step, value, _ in known.points if not reaches(target, tier, value)), default=0.0
    )


_HORIZON = 50.0
"""Without a known end, a tier further than so many times the steps so far counts as never: any
rise, continued for ever, reaches any tier."""


def _read(job: JobView, was: TrainingMemory, now_s: float) -> TrainingMemory:
    samples = job.progress.samples
    read_s = -math.inf if was.read_s is None else was.read_s
    if not samples or samples[-1].received_s <= read_s:
        return was
    points = list(was.points)
    step, reported, new_attempt, evaluated = was.step, was.told_steps, False, False
    last = None
    for sample in samples:
        if sample.received_s <= read_s:
            continue
        for total_steps in evaluations(sample, TOTAL_STEPS):
            reported = total_steps if 0 < total_steps <= _MOST_STEPS else None
        if sample.step is None:
            continue
        if sample.step < step:
            # A new attempt from a checkpoint: evaluations before that step stay valid.
            points = [point for point in points if point[0] < sample.step]
            new_attempt = True
        step, last = float(sample.step), sample
        for value in evaluations(sample, was.metric):
            points.append((step, float(f"{value:.{_DIGITS}g}"), 1))
            evaluated = True
    known = replace(
        was,
        points=thinned(points),
        read_s=samples[-1].received_s,
        step=step,
        # A total below the step is wrong.
        told_steps=reported if reported is None or reported >= step else None,
        due_s=was.due_s if not evaluated or was.due_s is not None else now_s,
    )
    if last is None:
        return known
    if new_attempt:
        known = replace(known, mark_step=None)
    return _paced(job, known, now_s - last.received_s)


def _paced(job: JobView, known: TrainingMemory, ago_s: float) -> TrainingMemory:
    """The memory with the CPU time of a step, from the service attained since the last mark."""
    since_core_s = ago_s * (job.usage.cpu_cores or 0.0) if 0.0 < ago_s <= SETTLED_S else 0.0
    core_s = max(job.attained_core_s - since_core_s, 0.0)
    mark, mark_core_s = known.mark_step, known.mark_core_s
    if mark is None:
        began = known.step_core_s is None and job.starts <= 1 and known.step > 0
        # At its first report all CPU time counts for these steps, the start-up included.
        first = core_s / known.step if began else known.step_core_s
        return replace(
            known,
            mark_step=known.step,
            mark_core_s=core_s,
            step_core_s=first,
            # After so many evaluations the start-up is a small part of it.
            paced=known.paced or (began and len(known.points) >= _PACED_POINTS),
        )
    made = known.step - mark
    if made <= 0 or core_s <= mark_core_s:
        return known
    now, old = (core_s - mark_core_s) / made, known.step_core_s
    smoothed = now if old is None or not known.paced else old + SAMPLE_WEIGHT * (now - old)
    return replace(
        known, step_core_s=smoothed, paced=True, mark_step=known.step, mark_core_s=core_s
    )


def _usable(job: JobView, known: TrainingMemory, now_s: float, pressed: bool) -> TrainingMemory:
    """The memory with its parallelism: its use while it was given all that it can use."""
    used, given, usable = job.usage.cpu_cores, known.given_cores, known.usable_cores
    # Until the second report its use is that of the start-up, usually on one thread.
    if used is None or not given or not known.paced:
        return known
    if used < _PAUSE_RATIO * (_UNKNOWN_CORES if usable is None else usable):
        if known.pause_s is None:
            known = replace(known, pause_s=now_s)
        if known.pause_s is not None and now_s - known.pause_s < _PAUSE_S:
            return known
    elif known.pause_s is not None:
        known = replace(known, pause_s=None)
    room, floor = MARGIN * given, _WAITING_FLOORS * job.spec.bounds.floor_cores
    if job.actual.cpu_cores is not None:
        room = min(room, job.actual.cpu_cores)
    if usable is not None and used > (1.0 + LITTLE) * usable:
        usable = CLEARLY * used
    elif (
        not pressed and used < ROOM_RATIO * room and given >= (floor if usable is None else usable)
    ):
        if usable is None:
            known, usable = replace(known, turn_s=None), used
        usable += (used - usable) / SAMPLES
        usable = max(usable, _LEAST_CORES)
    return known if usable == known.usable_cores else replace(known, usable_cores=usable)
