"""The marginal value of a core-second for a training: value of its tiers over the work to them.

Until a job's own curve can be fitted, we assume that it needs the average work of the others to its
first tier. So an earlier job has less work left, until it is well past the average, and new
arrivals do not overtake it. With least attained service they would, as if they needed little.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dlsched.estimate.tuning import MOSTLY
from dlsched.model.forecast import ForecastKind
from dlsched.model.resource import CPU, Resource
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import JobView
from dlsched.model.units import counted
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.trainings.model import TrainingMemory, heeded_steps

_PRIOR_DELIVER, _PRIOR_FINISH = 1 / 3, 2 / 3
"""Tiers as fractions of all steps, before evaluations can be fitted."""

_LEAST_RATIO = 0.01
"""An overdue tier is assumed to be this fraction of all steps away."""
_LEAST_CORE_S = 1e-9
"""Least CPU time of a step: keeps remaining work positive where reports are wrong."""
_LEAST_OF_DONE = 0.005
"""Remaining work is at least this fraction of attained service, so that a job with wrong reports
does not stay first for ever."""
_OTHERS_RATIO = 0.3
"""Where no shape may fit, the first tier is placed by the other jobs to this fraction, and for the
rest in the middle of the remaining steps."""
_PAST_RATIO = 0.5
"""A job past the average work has this fraction of its attained service left."""
_FAR = 3.0
"""Outliers: a job's work counts as at most so many times the median."""
_SILENT_RATIO = 1e-9
"""Of the value of a core-second for a job that does not report: less than any other's."""
_SILENT_EVALUATIONS = 8
"""A training is silent after the CPU time of so many evaluations without a report. An evaluation
may come some late: a checkpoint, or other data, takes CPU time too."""


@dataclass(frozen=True, slots=True)
class MarginalValue:
    """Marginal value of a core-second of one training (`index`), and its work left to the end."""

    index: float
    end_core_s: float
    attained_core_s: float
    known: bool
    """Whether there are enough evaluations to rank it."""
    risks_deadline: bool
    why: str
    tiers_core_s: tuple[float | None, float | None] = (None, None)
    """Work left to each tier; None: reached, or given up."""
    chances: tuple[float, float] = (1.0, 1.0)
    """Probability that each tier is reached before the end, doubt about the shape included."""
    tiers_done: int = 0
    """How many of its two tiers are reached or given up."""
    silent: bool = False
    """Whether it does not report, so that exploration would not help."""


@dataclass(frozen=True, slots=True)
class TypicalWork:
    """Work of trainings from their start to their first tier, where it can be estimated."""

    known_core_s: Mapping[str, float]
    """By job; outliers are cut off."""
    whole_core_s: float

    @classmethod
    def of(
        cls,
        jobs: Iterable[JobView],
        memories: Mapping[str, TrainingMemory],
        rule: AdaptiveParameters,
    ) -> TypicalWork:
        """The work that these jobs took, or are expected to take, to their first tier."""
        found = ((job.name, _deliver_core_s(job, memories[job.name], rule)) for job in jobs)
        known = {name: core_s for name, core_s in found if core_s is not None}
        if not known:
            return NO_TYPICAL_WORK
        # One job with wrong reports must not change the average of all.
        most_core_s = _FAR * statistics.median_low(known.values())
        known = {name: min(core_s, most_core_s) for name, core_s in known.items()}
        return cls(known, math.fsum(known.values()))

    def beside(self, name: str) -> float | None:
        """The average of all other jobs; None: it is known of none."""
        own_core_s = self.known_core_s.get(name)
        others = len(self.known_core_s) - (own_core_s is not None)
        return max(self.whole_core_s - (own_core_s or 0.0), 0.0) / others if others else None


NO_TYPICAL_WORK = TypicalWork({}, 0.0)


def _deliver_core_s(job: JobView, known: TrainingMemory, rule: AdaptiveParameters) -> float | None:
    step_core_s, reached = known.step_core_s, job.tiers.delivered
    if step_core_s is None or not known.paced:
        return None
    if reached is not None:
        # Not from attained service, which may include several attempts.
        core_s = 0.0 if reached.step is None else step_core_s * reached.step
    else:
        tiers = _tiers(known, rule) if _is_known(known, rule) else None
        if tiers is None or tiers.chances[0] < MOSTLY:
            return None
        core_s = job.attained_core_s + step_core_s * (tiers.steps[0] - known.step)
    return core_s if core_s > 0.0 else None


def _is_known(known: TrainingMemory, rule: AdaptiveParameters) -> bool:
    return heeded_steps(known, rule) is not None or len(known.points) >= rule.explore_points


class _Tiers(NamedTuple):
    """The steps of both tiers, and the probabilities that they are reached."""

    steps: tuple[float, float]
    chances: tuple[float, float]


def _tiers(known: TrainingMemory, rule: AdaptiveParameters) -> _Tiers | None:
    """The tiers by the fitted curve, else by the reported total; None: neither is there."""
    learnt, reported = known.learnt, heeded_steps(known, rule)
    if learnt is not None:
        deliver, finish = learnt.deliver, learnt.finish
        return _Tiers((deliver.steps, finish.steps), (deliver.chance, finish.chance))
    if reported is not None:
        return _Tiers((_PRIOR_DELIVER * reported, _PRIOR_FINISH * reported), (1.0, 1.0))
    return None


def _left_core_s(attained_core_s: float, typical_core_s: float) -> float:
    """Assumed work left to the first tier when only attained service is known: the rest of the
    average; past that it grows with attained service, as for a heavy tail."""
    return max(typical_core_s - attained_core_s, _PAST_RATIO * attained_core_s, 1.0)


def marginal_value(
    job: JobView,
    known: TrainingMemory,
    now_s: float,
    rule: AdaptiveParameters,
    typical: TypicalWork = NO_TYPICAL_WORK,
    resource: Resource = CPU,
) -> MarginalValue:
    """The marginal value of a core-second for that job; `typical`: the work of the others."""
    if job.diverged is not None or _silent(job, known, now_s, rule):
        # Such a job has no tier that could be reached: the more it attained, the later it comes.
        left_core_s = max(job.attained_core_s, 1.0)
        # It comes after all that report, however much these have left.
        index = _SILENT_RATIO * job.spec.weight * rule.end_weight / left_core_s
        how = "reported nothing for long" if job.diverged is None else f"diverged ({job.diverged})"
        why = (
            f"the job has {how} and comes after the trainings that report; used so far: "
            f"{resource.work(job.attained_core_s)}"
        )
        return MarginalValue(
            index, left_core_s, job.attained_core_s, False, False, why, silent=True
        )
    tiers, typical_core_s = _tiers(known, rule), typical.beside(job.name)
    if known.step_core_s is None or not known.paced or tiers is None:
        return _newcomers(job, known, rule, typical_core_s, resource)
    return _ranked(job, known, known.step_core_s, tiers, rule, typical_core_s, resource)


def _newcomers(
    job: JobView,
    known: TrainingMemory,
    rule: AdaptiveParameters,
    typical_core_s: float | None,
    resource: Resource,
) -> MarginalValue:
    # Heavy tail: the remaining work is about the work done so far.
    left_core_s = max(job.attained_core_s, 1.0)
    index = (rule.deliver_weight + rule.finish_weight + rule.end_weight) / left_core_s
    count = len(known.points)
    why = f"{counted(count, 'evaluation')} reported, too few to fit its learning curve"
    if typical_core_s is not None and job.tiers.delivered is None:
        like_others_core_s = _left_core_s(job.attained_core_s, typical_core_s)
        index = rule.deliver_weight / like_others_core_s
        work = resource.work(like_others_core_s)
        why += (
            f"; {work} of work left to reach {known.tier_values[0]:g}, if the job needs as much as "
            "the other trainings"
        )
    late = _late(job, known)
    return MarginalValue(
        job.spec.weight * index, left_core_s, job.attained_core_s, False, late, why
    )


def _ranked(
    job: JobView,
    known: TrainingMemory,
    step_core_s: float,
    tiers: _Tiers,
    rule: AdaptiveParameters,
    typical_core_s: float | None,
    resource: Resource,
) -> MarginalValue:
    """The marginal value of a job with a fitted curve or a reported total.

    Its index is the largest ratio, over its open tiers and the end, of the value collected up to
    there (weight x chance) to the work left. Each tier counts twice: by the fit alone, and with the
    doubt that no shape fits, in which case it lies in the middle of the rest, or nearer where the
    other jobs suggest that.
    """
    open_tiers = (job.tiers.delivered is None, job.tiers.finished is None)
    reported = heeded_steps(known, rule)
    end = reported if reported is not None else rule.end_over_finish * tiers.steps[1]
    end = max(end, known.step + 1.0)
    sure = 1.0
    if known.learnt is not None:
        # No shape may fit: then a tier is uniformly distributed over the remaining steps.
        sure -= rule.doubt_ratio * (1.0 - known.step / end)
    least = max(_LEAST_RATIO * end, 1.0)
    step_core_s = max(step_core_s, _LEAST_CORE_S)
    least_core_s = max(step_core_s * least, _LEAST_OF_DONE * job.attained_core_s)
    weights = (rule.deliver_weight, rule.finish_weight)
    value, fitted_value, index, parts = 0.0, 0.0, 0.0, []
    left: list[float | None] = []
    chances = tuple(sure * chance + 1.0 - sure for chance in tiers.chances)
    for tier in (0, 1):
        chance = chances[tier]
        if not open_tiers[tier] or chance < rule.give_up_chance:
            left.append(None)
            continue
        elsewhere = (known.step + end) / 2.0
        if tier == 0 and typical_core_s is not None:
            like_others_core_s = _left_core_s(job.attained_core_s, typical_core_s)
            like_others = min(known.step + like_others_core_s / step_core_s, elsewhere)
            elsewhere += _OTHERS_RATIO * (like_others - elsewhere)
        anywhere = sure * tiers.steps[tier] + (1.0 - sure) * elsewhere
        left_core_s, most_core_s = (
            max(step_core_s * (to - known.step), least_core_s)
            for to in (tiers.steps[tier], anywhere)
        )
        left.append(left_core_s)
        value += weights[tier] * chance
        fitted_value += weights[tier] * sure * tiers.chances[tier]
        # Value over work by the fit alone, and with the doubt about its shape included.
        index = max(index, fitted_value / left_core_s, value / most_core_s)
        parts.append(f"{resource.work(left_core_s)} to reach {known.tier_values[tier]:g}")
    end_core_s = max(step_core_s * (end - known.step), least_core_s)
    index = max(index, (value + rule.end_weight) / end_core_s)
    parts.append(f"{resource.work(end_core_s)} to reach its end")
    return MarginalValue(
        job.spec.weight * index,
        end_core_s,
        job.attained_core_s,
        _is_known(known, rule),
        _late(job, known),
        f"the job needs {', '.join(parts)}",
        (left[0], left[1]),
        (chances[0], chances[1]),
        tiers_done=0 if left[0] is not None else 1 if left[1] is not None else 2,
    )


def deadline_at_s(job: JobView) -> float | None:
    """The time by which it should reach `deliver`; None: no deadline, or not started."""
    target = job.spec.target
    if not isinstance(target, AccuracyTarget) or target.deadline_s is None:
        return None
    return None if job.started_at_s is None else job.started_at_s + target.deadline_s


def _late(job: JobView, known: TrainingMemory) -> bool:
    """Whether it misses its deadline unless it goes first. Hysteresis: one that goes first for that
    stays first, else it would be late again."""
    if job.tiers.delivered is not None or deadline_at_s(job) is None:
        return False
    kinds = {one.kind for one in known.outlooks if one.tier == "deliver"}
    return ForecastKind.CROWDED in kinds or (known.late and ForecastKind.EXPECTED in kinds)


def _silent(job: JobView, known: TrainingMemory, now_s: float, rule: AdaptiveParameters) -> bool:
    """Whether a report is long overdue, both by time and by the CPU time attained since."""
    reported_s = job.progress.as_of_s
    since_s = job.started_at_s or 0.0 if reported_s is None else reported_s
    if now_s - since_s <= rule.blind_s:
        return False
    evaluations = sum(count for _, _, count in known.points)
    typical_core_s = rule.blind_s
    if known.step_core_s is not None and evaluations:
        typical_core_s = known.step_core_s * known.step / evaluations
    # A job that is held back cannot report, for any time, also after a restart of the agent.
    silent = 1.0 if job.blind is not None else _SILENT_EVALUATIONS
    return job.attained_core_s - known.mark_core_s > silent * typical_core_s
