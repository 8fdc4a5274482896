"""Successive values of a training's gauge on a Prometheus page. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Gauge:
    """One gauge, of which each process of the training may have a series."""

    def __init__(self) -> None:
        self._last: str | None = None
        """The last value as text, in which nan equals nan."""

    def take(self, values: Sequence[float]) -> float | None:
        """The value, if it is new; raises ValueError, in one line, where series differ. A value
        that is not finite counts after a finite one alone: many gauges begin with nan."""
        texts = {str(value) for value in values}
        if len(texts) > 1:
            raise ValueError(f"{len(values)} series of that metric, and one is wanted")
        if not texts or texts == {self._last}:
            return None
        if self._last is None and not math.isfinite(values[0]):
            return None
        (self._last,) = texts
        return values[0]
