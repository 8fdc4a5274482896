"""What counts as an evaluation of an accuracy target, and as having reached a tier of it."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.model.facts import Sample
from dlsched.model.spec import AccuracyTarget

EVALUATIONS = 3
"""How many evaluations in a row reach a tier, by default: one alone may be noise."""

VALUE_MOST = 1e100
"""A value beyond is no metric; leaving it out keeps all sums and differences finite."""


def evaluations(sample: Sample, metric: str) -> Iterable[float]:
    """The values of that metric in one training report: none in most."""
    return [value for name, value in sample.metrics if name == metric and abs(value) <= VALUE_MOST]


def reaches(target: AccuracyTarget, tier: float, value: float) -> bool:
    """Whether the value is at that tier or beyond; a finish below deliver: lower is better."""
    return value <= tier if target.finish < target.deliver else value >= tier
