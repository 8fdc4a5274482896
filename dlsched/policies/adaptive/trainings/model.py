"""What the policy `adaptive` remembers of a training, and how that follows from what is seen.

Owns the reading of reports, of the CPU time that a step takes, and of how many cores a training
can use at once. It must not compare trainings, nor fit curves more often than it is told to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dlsched.estimate.evaluations import evaluations, reaches
from dlsched.estimate.learning import TOTAL_STEPS, Learnt, Point, learnt, thinned
from dlsched.estimate.tuning import CLEARLY, LITTLE, LOOK_WEIGHT, MARGIN, ROOM_RATIO, SETTLED_S
from dlsched.model.forecast import Forecast
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import JobView
from dlsched.policies.adaptive.parameters import AdaptiveParameters

_LEAST_CORES = 0.05
_SEEN_FLOORS = 2.0
"""Who is given no more than so many times its floor waits: that shows nothing."""
_PACED_POINTS = 5
_DIGITS = 6
_MOST_STEPS = 1e12
"""Nobody makes more: who tells of more has told nothing."""


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """One training's evaluations, their fit, and what its steps take."""

    name: str
    container_id: str | None = None
    target: tuple[str, float, float] = ("", 0.0, 0.0)
    """Its metric, and the values to deliver and to finish at."""
    points: tuple[Point, ...] = ()
    """Its evaluations since the last attempt began, thinned."""
    read_s: float | None = None
    """Up to when its reports are read; None: it told nothing yet."""
    step: float = 0.0
    """The latest that it told."""
    told_steps: float | None = None
    """How many it will take in all, by its own word."""
    step_core_s: float | None = None
    """CPU time of a step."""
    paced: bool = False
    """Whether that was measured from one word to the next, without what its start took."""
    mark_step: float | None = None
    """Where the steps that are counted next begin."""
    mark_core_s: float = 0.0
    """Its attained service then."""
    usable_cores: float | None = None
    """What it can use at once, as far as it was seen; None: it was not seen to use less than it
    was given."""
    given_cores: float | None = None
    """What was meant for it by the last decision; None: nothing was decided yet."""
    first: bool = False
    """Whether it was among those served first."""
    due_s: float | None = None
    """Since when it has evaluations that are not fitted."""
    learnt: Learnt | None = None
    outlooks: tuple[Forecast, ...] = ()
    told_s: float | None = None
    """When its outlooks were made."""
    late: bool = False
    """Whether it goes first because of its deadline."""


def followed(
    job: JobView, was: TrainingMemory | None, now_s: float, pressed: bool = False
) -> TrainingMemory:
    """After one more look at that job. The same object where there is no news.

    `pressed`: others on the host take CPU that it would use.
    """
    target = job.spec.target
    assert isinstance(target, AccuracyTarget)
    asked = (target.metric, target.deliver, target.finish)
    if was is None or was.target != asked:
        was = TrainingMemory(job.name, job.container_id, asked)
    if was.container_id != job.container_id:
        was = replace(was, container_id=job.container_id, mark_step=None, usable_cores=None)
    return _usable(job, _read(job, was, now_s), pressed)


def heeded_steps(known: TrainingMemory, rule: AdaptiveParameters) -> float | None:
    """How many steps it will take by its own word, where that counts."""
    return known.told_steps if rule.heeds_total_steps else None


def fitted(job: JobView, known: TrainingMemory, rule: AdaptiveParameters) -> TrainingMemory:
    """With its curve as the evaluations so far tell it."""
    told = heeded_steps(known, rule)
    end = told if told is not None else math.inf
    found = learnt(
        known.points,
        known.target[1:],
        end if math.isfinite(end) else _HORIZON * max(known.step, 1.0),
        told_steps=told,
        after_steps=(
            0.0 if job.tiers.delivered is not None else _last_short(job, known, known.target[1]),
            0.0 if job.tiers.finished is not None else _last_short(job, known, known.target[2]),
        ),
        averaged=rule.averages_curves,
    )
    return replace(known, learnt=found, due_s=None)


def _last_short(job: JobView, known: TrainingMemory, tier: float) -> float:
    """The step of the latest evaluation that did not reach that tier; 0: each did."""
    target = job.spec.target
    assert isinstance(target, AccuracyTarget)
    return max(
        (step for step, value, _ in known.points if not reaches(target, tier, value)), default=0.0
    )


_HORIZON = 50.0
"""Where nobody tells the end, a tier further than so many times the steps so far is never."""


def _read(job: JobView, was: TrainingMemory, now_s: float) -> TrainingMemory:
    samples = job.progress.samples
    read_s = -math.inf if was.read_s is None else was.read_s
    if not samples or samples[-1].received_s <= read_s:
        return was
    metric, points = was.target[0], list(was.points)
    step, told, anew, evaluated = was.step, was.told_steps, False, False
    last = None
    for sample in samples:
        if sample.received_s <= read_s:
            continue
        for told_steps in evaluations(sample, TOTAL_STEPS):
            told = told_steps if 0 < told_steps <= _MOST_STEPS else None
        if sample.step is None:
            continue
        if sample.step < step:
            # A new attempt, from a checkpoint: what lay before that step stays true.
            points = [point for point in points if point[0] < sample.step]
            anew = True
        step, last = float(sample.step), sample
        for value in evaluations(sample, metric):
            points.append((step, float(f"{value:.{_DIGITS}g}"), 1))
            evaluated = True
    known = replace(
        was,
        points=thinned(points),
        read_s=samples[-1].received_s,
        step=step,
        told_steps=told if told is None or told >= step else None,  # what it said was wrong
        due_s=was.due_s if not evaluated or was.due_s is not None else now_s,
    )
    if last is None:
        return known
    if anew:
        known = replace(known, mark_step=None)
    return _paced(job, known, now_s - last.received_s)


def _paced(job: JobView, known: TrainingMemory, ago_s: float) -> TrainingMemory:
    """With what a step takes, from the service attained since the last mark."""
    since_core_s = ago_s * (job.usage.cpu_cores or 0.0) if 0.0 < ago_s <= SETTLED_S else 0.0
    core_s = max(job.attained_core_s - since_core_s, 0.0)
    mark, mark_core_s = known.mark_step, known.mark_core_s
    if mark is None:
        began = known.step_core_s is None and job.starts <= 1 and known.step > 0
        # At its first word it has made these steps, whatever its start took.
        first = core_s / known.step if began else known.step_core_s
        return replace(
            known,
            mark_step=known.step,
            mark_core_s=core_s,
            step_core_s=first,
            # Of so many evaluations its start is a small part.
            paced=known.paced or (began and len(known.points) >= _PACED_POINTS),
        )
    made = known.step - mark
    if made <= 0 or core_s <= mark_core_s:
        return known
    now, old = (core_s - mark_core_s) / made, known.step_core_s
    smoothed = now if old is None or not known.paced else old + LOOK_WEIGHT * (now - old)
    return replace(
        known, step_core_s=smoothed, paced=True, mark_step=known.step, mark_core_s=core_s
    )


def _usable(job: JobView, known: TrainingMemory, pressed: bool) -> TrainingMemory:
    """With what it can use at once: what it used where all that it can use was meant for it."""
    used, given, usable = job.usage.cpu_cores, known.given_cores, known.usable_cores
    # Until its second word its use is still that of its start, on one thread as a rule.
    if used is None or not given or not known.paced:
        return known
    room, floor = MARGIN * given, _SEEN_FLOORS * job.spec.bounds.floor_cores
    if job.actual.cpu_cores is not None:
        room = min(room, job.actual.cpu_cores)
    if usable is not None and used > (1.0 + LITTLE) * usable:
        usable = CLEARLY * used
    elif (
        not pressed and used < ROOM_RATIO * room and given >= (floor if usable is None else usable)
    ):
        usable = used if usable is None else usable + LOOK_WEIGHT * (used - usable)
        usable = max(usable, _LEAST_CORES)
    return known if usable == known.usable_cores else replace(known, usable_cores=usable)
