"""A process's work before its first step or request: importing a framework, reading weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlsched.model.facts import Report
from dlsched.simulation.node.played import PlayedService
from dlsched.simulation.node.service import Service
from dlsched.simulation.node.training import Training

Computation = Service | PlayedService | Training


class StartUp:
    """Work on one thread, charged to `load`, which is idle meanwhile."""

    changes_by_itself = False

    def __init__(self, work_core_s: float, load: Computation) -> None:
        self.load = load
        self.throttled = False
        self._left_core_s = work_core_s
        self._cores = 0.0

    @property
    def usage_core_s(self) -> float:
        """CPU time of its job so far."""
        return self.load.usage_core_s

    def wants_cores(self, quota_cores: float) -> float:
        """One thread, or the quota."""
        return min(1.0, quota_cores)

    def grant(self, cores: float, quota_cores: float) -> None:
        self._cores = cores
        self.throttled = quota_cores < 1.0 and cores > 0.99 * quota_cores

    def ends_in_s(self) -> float:
        return self._left_core_s / self._cores if self._cores > 0 else math.inf

    def advance(self, _now_s: float, elapsed_s: float) -> None:
        """Let time pass at the present rate."""
        used = min(self._cores * elapsed_s, self._left_core_s)
        self.load.usage_core_s += used
        self._left_core_s -= used

    def finish(self, _now_s: float) -> None:
        """End at exactly this time, without a rest from rounding."""
        self.load.usage_core_s += self._left_core_s
        self._left_core_s = 0.0

    def crash(self) -> None:
        """Does nothing: the next start begins again."""

    def lines(self, _now_s: float) -> Sequence[Report]:
        """None: there is no reporter yet."""
        return ()
