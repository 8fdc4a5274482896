"""Evaluations of an accuracy target: which values count, and when a tier is reached."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.model.facts import Sample
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import Diverged

EVALUATIONS = 3
"""Default number of evaluations in a row that reach a tier: a single one may be noise."""

TOGETHER_S = 2.0
"""Values of one evaluation are reported within this time: ranks report theirs together, and an
evaluation of its own takes longer."""

VALUE_MOST = 1e100
"""Larger values are ignored, which keeps all sums and differences finite."""


def evaluations(sample: Sample, metric: str) -> Iterable[float]:
    """The values of that metric in one training report; most reports have none."""
    return [value for name, value in sample.metrics if name == metric and abs(value) <= VALUE_MOST]


def means_divergence(name: str, target: AccuracyTarget) -> bool:
    """Whether `nan` or `inf` of that metric means that the training diverged: the target's own, or
    a loss. Others, such as a rate of nothing, may be undefined in a healthy training."""
    return name == target.metric or name.lower().endswith("loss")


def still_diverged(
    before: tuple[Diverged, ...], sample: Sample, target: AccuracyTarget
) -> tuple[Diverged, ...]:
    """The metrics that mean divergence after this sample, oldest first. A finite value ends it."""
    if not before and not sample.diverged:
        return before
    finite = {name for name, _ in sample.metrics}
    known = {one.metric: one for one in before if one.metric not in finite}
    for name, value in sample.diverged:
        if means_divergence(name, target):
            known.setdefault(name, Diverged(name, value, sample.received_s, sample.step))
    return tuple(known.values())


def reaches(target: AccuracyTarget, tier: float, value: float) -> bool:
    """Whether the value has reached the tier; lower is better if `finish` is below `deliver`."""
    return value <= tier if target.finish < target.deliver else value >= tier
