"""What a training is worth, for the policy `adaptive`: value reached a core-second.

Owns the index and what it is drawn from. It must not divide cores, nor put trainings in order.

Of a newcomer nothing is known but the others: it is taken to need as much to its first tier as they
do in the mean. So whoever began earlier is nearer, until it is well past that, and is not put back
by each one that arrives, as it would be by least attained service, whose newcomers need little by
assumption.
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
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.trainings.model import TrainingMemory, heeded_steps

_PRIOR_DELIVER, _PRIOR_FINISH = 1 / 3, 2 / 3
"""Where tiers lie on the way, before evaluations tell."""

_LEAST_RATIO = 0.01
"""A tier that should have been reached already is taken to be so much of the way off."""
_LEAST_CORE_S = 1e-9
"""A step that took no CPU time was told by a liar: what is left must be above zero all the same."""
_LEAST_OF_DONE = 0.005
"""However near it says it is, so much of what it had is left: who lies is not first for ever."""
_OTHERS_RATIO = 0.3
"""Where no shape may fit, the others tell so much of where the first tier is, and half the way to
the end the rest."""
_PAST_RATIO = 0.5
"""Of one that is past what is usual, so much of what it had is still left."""
_FAR = 3.0
"""What is so many times what is usual counts as no more."""
_SILENT_EVALUATIONS = 8
"""After the CPU time of so many evaluations without one a training is silent."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What is left of one training, and what a core-second brings there."""

    index: float
    end_core_s: float
    """Work left to the end."""
    attained_core_s: float
    known: bool
    """Whether enough is known to rank it."""
    risks_deadline: bool
    why: str
    tiers_core_s: tuple[float | None, float | None] = (None, None)
    """Work left to each tier; None: reached, or given up."""
    chances: tuple[float, float] = (1.0, 1.0)
    """That each tier is reached before the end, also where no shape fits the curve."""
    tiers_done: int = 0
    """How many of its two tiers it has behind it: reached, or given up."""
    silent: bool = False
    """Whether it tells nothing, so that more CPU would not make it known."""


@dataclass(frozen=True, slots=True)
class Usual:
    """The work of trainings from their start to their first tier, as far as it is known."""

    known_core_s: Mapping[str, float]
    """By job, cut off where it is far from what is usual."""
    whole_core_s: float
    """The sum of all."""

    @classmethod
    def of(
        cls,
        jobs: Iterable[JobView],
        memories: Mapping[str, TrainingMemory],
        rule: AdaptiveParameters,
    ) -> Usual:
        """What these jobs took, and are expected to take."""
        found = ((job.name, _deliver_core_s(job, memories[job.name], rule)) for job in jobs)
        known = {name: core_s for name, core_s in found if core_s is not None}
        if not known:
            return NOTHING_USUAL
        # One that tells nonsense must not decide for everybody.
        most_core_s = _FAR * statistics.median_low(known.values())
        known = {name: min(core_s, most_core_s) for name, core_s in known.items()}
        return cls(known, math.fsum(known.values()))

    def beside(self, name: str) -> float | None:
        """The mean of all others; None: of none it is known."""
        own_core_s = self.known_core_s.get(name)
        others = len(self.known_core_s) - (own_core_s is not None)
        return max(self.whole_core_s - (own_core_s or 0.0), 0.0) / others if others else None


NOTHING_USUAL = Usual({}, 0.0)


def _deliver_core_s(job: JobView, known: TrainingMemory, rule: AdaptiveParameters) -> float | None:
    step_core_s, reached = known.step_core_s, job.tiers.delivered
    if step_core_s is None or not known.paced:
        return None
    if reached is not None:
        # What it attained since may be of several attempts.
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
    """At which steps both tiers are, and how likely they are reached."""

    steps: tuple[float, float]
    chances: tuple[float, float]


def _tiers(known: TrainingMemory, rule: AdaptiveParameters) -> _Tiers | None:
    """Where the tiers are; None: nothing tells."""
    learnt, told = known.learnt, heeded_steps(known, rule)
    if learnt is not None:
        deliver, finish = learnt.deliver, learnt.finish
        return _Tiers((deliver.steps, finish.steps), (deliver.chance, finish.chance))
    if told is not None:
        return _Tiers((_PRIOR_DELIVER * told, _PRIOR_FINISH * told), (1.0, 1.0))
    return None


def _left_core_s(attained_core_s: float, usual_core_s: float) -> float:
    """Work to the first tier of one of whom it is known only what it had.

    Up to what is usual; then the more the further it is past that, as with heavy tails.
    """
    return max(usual_core_s - attained_core_s, _PAST_RATIO * attained_core_s, 1.0)


def worth(
    job: JobView,
    known: TrainingMemory,
    now_s: float,
    rule: AdaptiveParameters,
    usual: Usual = NOTHING_USUAL,
    resource: Resource = CPU,
) -> Worth:
    """What it is worth to serve that job now, among others of whom `usual` is known."""
    if _silent(job, known, now_s, rule):
        # Whoever tells nothing has no tier to be brought to: the more it had, the later it comes.
        left_core_s = max(job.attained_core_s, 1.0)
        index = job.spec.weight * rule.end_weight / left_core_s
        why = f"silent, after {resource.work(job.attained_core_s)}"
        return Worth(index, left_core_s, job.attained_core_s, False, False, why, silent=True)
    tiers, usual_core_s = _tiers(known, rule), usual.beside(job.name)
    if known.step_core_s is None or not known.paced or tiers is None:
        return _newcomers(job, known, rule, usual_core_s, resource)
    return _ranked(job, known, known.step_core_s, tiers, rule, usual_core_s, resource)


def _newcomers(
    job: JobView,
    known: TrainingMemory,
    rule: AdaptiveParameters,
    usual_core_s: float | None,
    resource: Resource,
) -> Worth:
    # As with heavy tails: what is left is about as much as what was done.
    left_core_s = max(job.attained_core_s, 1.0)
    index = (rule.deliver_weight + rule.finish_weight + rule.end_weight) / left_core_s
    why = f"{len(known.points)} evaluations, too few to rank it"
    if usual_core_s is not None and job.tiers.delivered is None:
        like_others_core_s = _left_core_s(job.attained_core_s, usual_core_s)
        index = rule.deliver_weight / like_others_core_s
        work = resource.work(like_others_core_s)
        why += f", {work} to {known.target[1]:g} if it is like the others"
    late = _late(job, known)
    return Worth(job.spec.weight * index, left_core_s, job.attained_core_s, False, late, why)


def _ranked(
    job: JobView,
    known: TrainingMemory,
    step_core_s: float,
    tiers: _Tiers,
    rule: AdaptiveParameters,
    usual_core_s: float | None,
    resource: Resource,
) -> Worth:
    open_tiers = (job.tiers.delivered is None, job.tiers.finished is None)
    told = heeded_steps(known, rule)
    end = told if told is not None else rule.end_over_finish * tiers.steps[1]
    end = max(end, known.step + 1.0)
    sure = 1.0
    if known.learnt is not None:
        # No shape may fit: then a tier is as likely to be anywhere on the rest of the way.
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
        if tier == 0 and usual_core_s is not None:
            like_others_core_s = _left_core_s(job.attained_core_s, usual_core_s)
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
        # What it brings as far as the fit says, and what it brings in the long run.
        index = max(index, fitted_value / left_core_s, value / most_core_s)
        parts.append(f"{resource.work(left_core_s)} to {known.target[1 + tier]:g}")
    end_core_s = max(step_core_s * (end - known.step), least_core_s)
    index = max(index, (value + rule.end_weight) / end_core_s)
    parts.append(f"{end_core_s:.0f} to the end")
    return Worth(
        job.spec.weight * index,
        end_core_s,
        job.attained_core_s,
        _is_known(known, rule),
        _late(job, known),
        ", ".join(parts),
        (left[0], left[1]),
        (chances[0], chances[1]),
        tiers_done=0 if left[0] is not None else 1 if left[1] is not None else 2,
    )


def deadline_at_s(job: JobView) -> float | None:
    """When it should have reached `deliver`; None: it has no deadline, or did not start."""
    target = job.spec.target
    if not isinstance(target, AccuracyTarget) or target.deadline_s is None:
        return None
    return None if job.started_at_s is None else job.started_at_s + target.deadline_s


def _late(job: JobView, known: TrainingMemory) -> bool:
    """Whether it will miss its deadline unless it goes first; then it would not.

    Who was sent first for that stays there: else it would be late again.
    """
    if job.tiers.delivered is not None or deadline_at_s(job) is None:
        return False
    kinds = {one.kind for one in known.outlooks if one.tier == "deliver"}
    return ForecastKind.CROWDED in kinds or (known.late and ForecastKind.EXPECTED in kinds)


def _silent(job: JobView, known: TrainingMemory, now_s: float, rule: AdaptiveParameters) -> bool:
    """Whether it should have told something long ago, by the time and the CPU that it had."""
    told_s = job.progress.as_of_s
    since_s = job.started_at_s or 0.0 if told_s is None else told_s
    if now_s - since_s <= rule.blind_s:
        return False
    evaluations = sum(count for _, _, count in known.points)
    usual_core_s = rule.blind_s
    if known.step_core_s is not None and evaluations:
        usual_core_s = known.step_core_s * known.step / evaluations
    # Who is held back has no word to say, however long that is, also after a restart of the agent.
    silent = 1.0 if job.blind is not None else _SILENT_EVALUATIONS
    return job.attained_core_s - known.mark_core_s > silent * usual_core_s
