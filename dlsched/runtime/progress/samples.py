"""Turns the numbers in a program's lines into training samples: one for each evaluation. Pure.

An evaluation may be printed by several ranks, redrawn by a progress bar, or spread over two lines,
with the step on the one and the metric on the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dlsched.estimate.evaluations import TOGETHER_S
from dlsched.model.facts import Sample
from dlsched.model.sources import Step, When

KNOWN_MOST = 1024
"""Values remembered as already counted: far more than are printed between two repetitions."""

STEP = "step"


def _holds(only: When, numbers: Mapping[str, float]) -> bool:
    """Whether the groups are equal; also where one is missing from the line."""
    left, right = (numbers.get(group) for group in only)
    return left is None or right is None or left == right


class Repeats:
    """Recognizes values that were already counted at their step."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, float | str], None] = {}
        self._step = -1

    def without(self, sample: Sample) -> Sample | None:
        """The sample without repeated values; None: it has nothing else. Without a step, nothing
        can be told apart. A lower step with a new value begins a new attempt."""
        step = sample.step
        if step is None:
            return sample
        metrics = tuple(one for one in sample.metrics if (step, *one) not in self._known)
        diverged = tuple(one for one in sample.diverged if (step, *one) not in self._known)
        bare = not (sample.metrics or sample.diverged)
        if not (metrics or diverged or (bare and (step, "", 0.0) not in self._known)):
            return None
        if step < self._step:
            self._known = {key: None for key in self._known if key[0] < step}
        self._step = step
        # The step alone, printed after its metrics, is not new either.
        self._known[step, "", 0.0] = None
        self._known.update({(step, name, value): None for name, value in metrics})
        self._known.update({(step, name, text): None for name, text in diverged})
        while len(self._known) > KNOWN_MOST:
            del self._known[next(iter(self._known))]
        if len(metrics) + len(diverged) == len(sample.metrics) + len(sample.diverged):
            return sample
        return replace(sample, metrics=metrics, diverged=diverged)


class Writers:
    """Recognizes evaluations without a step that several writers report, each its own value.

    Of the values within TOGETHER_S the first one of each writer is of the first evaluation, the
    second one of the second, and so on.
    """

    def __init__(self) -> None:
        self._began_s = -math.inf
        self._values: dict[tuple[str, str], int] = {}
        """By metric and writer: values since then."""
        self._evaluations: dict[str, int] = {}
        """By metric: evaluations since then."""

    def compared(self, sample: Sample, writer: str) -> Sample:
        """The sample, marked where another writer has reported its evaluation already."""
        if sample.step is not None:
            return sample
        if sample.received_s - self._began_s > TOGETHER_S:
            self._began_s, self._values, self._evaluations = sample.received_s, {}, {}
        again = False
        for name, _ in (*sample.metrics, *sample.diverged):
            values = self._values[name, writer] = self._values.get((name, writer), 0) + 1
            again = again or values <= self._evaluations.get(name, 0)
            self._evaluations[name] = max(values, self._evaluations.get(name, 0))
        return replace(sample, again=again)


class Samples:
    """Makes samples of one container start, from the numbers of its lines."""

    def __init__(self, step: Step | None = None, only: When | None = None) -> None:
        """`step`: where steps come from; None: from the metric's own line."""
        self._step_from = step
        self._only = only
        self._repeats = Repeats()
        self._step: int | None = None
        """The last step printed."""
        self._waiting: dict[str, float] = {}
        """Metrics whose step is not printed yet."""
        self._last: dict[str, tuple[float, float]] = {}
        """By metric without a step: its last value, and when it was printed last."""
        self._began_s: dict[str, float] = {}
        """By metric without a step: when the first value of its evaluation was printed."""
        self._evaluations = 0

    def add(
        self, numbers: Mapping[str, float], at_s: float, *, redrawn: bool = False
    ) -> Sample | None:
        """The sample that is complete with this line's numbers, printed at `at_s`; None: none.
        `redrawn`: the line overwrites the one before, so that the same value in it is no news."""
        if self._only is not None:
            if not _holds(self._only, numbers):
                return None
            numbers = {k: v for k, v in numbers.items() if k not in self._only}
        counts = self._step_from == "evaluations"
        step = int(numbers[STEP]) if STEP in numbers and not counts else None
        again = False
        metrics = {name: value for name, value in numbers.items() if name != STEP}
        match self._step_from:
            case "carried":
                step = self._step = self._step if step is None else step
            case "follows":
                metrics = self._waiting = {**self._waiting, **metrics}
                if step is None:
                    return None
                self._waiting = {}
        if step is None:
            metrics = self._fresh(metrics, at_s, redrawn=redrawn)
            if not metrics:
                return None
            again = self._is_again(metrics, at_s)
        if counts:
            step = self._evaluations = self._evaluations + 1
        sample = sample_of(at_s, step, metrics.items())
        return self._repeats.without(replace(sample, again=again))

    def missed(self) -> None:
        """Lines are lost: a step from before is not that of what comes."""
        self._step, self._waiting = None, {}

    def _fresh(
        self, metrics: Mapping[str, float], at_s: float, *, redrawn: bool
    ) -> dict[str, float]:
        """The metrics without those that were printed just before."""
        fresh = {}
        for name, value in metrics.items():
            before, before_s = self._last.get(name, (None, -math.inf))
            is_later = not redrawn and at_s - before_s > TOGETHER_S
            if before is None or str(before) != str(value) or is_later:
                fresh[name] = value
            self._last[name] = value, at_s
        return fresh

    def _is_again(self, metrics: Iterable[str], at_s: float) -> bool:
        """Whether one of these metrics has a value of the same evaluation already."""
        began_s = {name: self._began_s.get(name, -math.inf) for name in metrics}
        again = {name for name, since_s in began_s.items() if at_s - since_s <= TOGETHER_S}
        self._began_s.update(dict.fromkeys(began_s.keys() - again, at_s))
        return bool(again)


def sample_of(at_s: float, step: int | None, metrics: Iterable[tuple[str, float]]) -> Sample:
    finite, diverged = [], []
    for name, value in metrics:
        if math.isfinite(value):
            finite.append((name, value))
        else:
            diverged.append((name, f"{value:g}"))
    return Sample(at_s, step, tuple(finite), tuple(diverged))
