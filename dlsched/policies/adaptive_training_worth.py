"""What a training is worth, for the policy `adaptive`: value reached a core-second.

Owns the index and what it is drawn from. It must not divide cores, nor compare trainings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlsched.model import AccuracyTarget, JobView, OutlookKind
from dlsched.policies.adaptive_parameters import AdaptiveParameters
from dlsched.policies.adaptive_training_memory import TrainingMemory

_PRIOR_DELIVER, _PRIOR_FINISH = 1 / 3, 2 / 3
"""Where tiers lie on the way, before evaluations tell."""
_LEAST_RATIO = 0.01
"""A tier that should have been reached already is taken to be so much of the way off."""

_LEAST_CORE_S = 1e-9
"""A step that took no CPU time was told by a liar: what is left must be above zero all the same."""
_LEAST_OF_DONE = 0.005
"""However near it says it is, so much of what it had is left: who lies is not first for ever."""
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
    tiers_done: int = 0
    """How many of its two tiers it has behind it: reached, or given up."""
    silent: bool = False
    """Whether it tells nothing, so that more CPU would not make it known."""


def worth(job: JobView, known: TrainingMemory, now_s: float, rule: AdaptiveParameters) -> Worth:
    """What it is worth to serve that job now."""
    target = job.spec.target
    assert isinstance(target, AccuracyTarget)
    values = (rule.deliver_weight, rule.finish_weight, rule.end_weight)
    if _silent(job, known, now_s, rule):
        # Whoever tells nothing has no tier to be brought to: the more it had, the later it comes.
        left_core_s = max(job.attained_core_s, 1.0)
        index = job.spec.weight * values[2] / left_core_s
        why = f"silent, after {job.attained_core_s:.0f} core-s"
        return Worth(index, left_core_s, job.attained_core_s, False, False, why, silent=True)
    open_tiers = (job.tiers.delivered is None, job.tiers.finished is None)
    told = known.told_steps if rule.heeds_total_steps else None
    step_core_s = known.step_core_s
    learnt = known.learnt
    if step_core_s is None or not known.paced or (told is None and learnt is None):
        # As with heavy tails: what is left is about as much as what was done.
        left = max(job.attained_core_s, 1.0)
        index = job.spec.weight * math.fsum(values) / left
        why = f"{len(known.points)} evaluations, too few to rank it"
        return Worth(index, left, job.attained_core_s, False, _late(job, known), why)
    if learnt is None:
        assert told is not None
        end, sure = told, 1.0
        steps, chances = (_PRIOR_DELIVER * told, _PRIOR_FINISH * told), (1.0, 1.0)
    else:
        steps = (learnt.deliver.steps, learnt.finish.steps)
        chances = (learnt.deliver.chance, learnt.finish.chance)
        end = told if told is not None else rule.end_over_finish * steps[1]
        # No shape may fit: then a tier is as likely to be anywhere on the rest of the way.
        sure = 1.0 - rule.doubt_ratio * max(1.0 - known.step / end, 0.0)
    end = max(end, known.step + 1.0)
    least = max(_LEAST_RATIO * end, 1.0)
    step_core_s = max(step_core_s, _LEAST_CORE_S)
    least_core_s = max(step_core_s * least, _LEAST_OF_DONE * job.attained_core_s)
    value, fitted_value, index, parts = 0.0, 0.0, 0.0, []
    tiers: list[float | None] = []
    for tier in (0, 1):
        chance = sure * chances[tier] + 1.0 - sure
        if not open_tiers[tier] or chance < rule.give_up_chance:
            tiers.append(None)
            continue
        anywhere = sure * steps[tier] + (1.0 - sure) * (known.step + end) / 2.0
        left_core_s, most_core_s = (
            max(step_core_s * (to - known.step), least_core_s) for to in (steps[tier], anywhere)
        )
        tiers.append(left_core_s)
        value += values[tier] * chance
        fitted_value += values[tier] * sure * chances[tier]
        # What it brings as far as the fit says, and what it brings in the long run.
        index = max(index, fitted_value / left_core_s, value / most_core_s)
        parts.append(f"{left_core_s:.0f} core-s to {(target.deliver, target.finish)[tier]:g}")
    end_core_s = max(step_core_s * (end - known.step), least_core_s)
    index = max(index, (value + values[2]) / end_core_s)
    parts.append(f"{end_core_s:.0f} to the end")
    return Worth(
        job.spec.weight * index,
        end_core_s,
        job.attained_core_s,
        told is not None or len(known.points) >= rule.explore_points,
        _late(job, known),
        ", ".join(parts),
        (tiers[0], tiers[1]),
        tiers_done=0 if tiers[0] is not None else 1 if tiers[1] is not None else 2,
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
    return OutlookKind.CROWDED in kinds or (known.late and OutlookKind.EXPECTED in kinds)


def _silent(job: JobView, known: TrainingMemory, now_s: float, rule: AdaptiveParameters) -> bool:
    """Whether it should have told something long ago, by the time and the CPU that it had."""
    told_s = job.progress.as_of_s
    since_s = job.started_at_s or 0.0 if told_s is None else told_s
    if now_s - since_s <= rule.blind_s:
        return False
    if job.blind is not None:
        return True
    evaluations = sum(count for _, _, count in known.points)
    usual_core_s = rule.blind_s
    if known.step_core_s is not None and evaluations:
        usual_core_s = known.step_core_s * known.step / evaluations
    return job.attained_core_s - known.mark_core_s > _SILENT_EVALUATIONS * usual_core_s
