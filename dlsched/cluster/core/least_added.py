"""Where a job delays others least: the placement of the policy `adaptive`."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from dlsched.cluster.core.benefit import Forecasts
from dlsched.cluster.core.model import ClusterJob
from dlsched.cluster.core.occupancy import Occupancy, positive
from dlsched.model.units import CORES_MIN

_CANDIDATES = 4
"""Forecast for a placement: as many nodes with the most idle cores, and with the least work."""


class LeastAdded:
    """Chooses the node on which the forecast sum of weighted completions grows least."""

    def __init__(self, forecasts: Forecasts, pull_s: float) -> None:
        self._forecasts = forecasts
        self._pull_s = pull_s
        self._stale: str | None = None
        """The node that was chosen last, to which the job was added then."""
        self._idle: dict[str, float] = {}
        self._work: dict[str, float] = {}

    def choose(
        self, job: ClusterJob, nodes: Sequence[str], _occupancy: Occupancy
    ) -> tuple[str, str]:
        """A `Choice`."""
        if self._stale is not None:
            self._forecasts.refresh(self._stale)
            self._idle.pop(self._stale, None)
        names: Sequence[str] = nodes
        if len(nodes) > 2 * _CANDIDATES:
            for name in self._forecasts.loads.keys() - self._idle.keys():
                self._rate(name)
            idle = heapq.nsmallest(_CANDIDATES, nodes, key=lambda name: (-self._idle[name], name))
            work = heapq.nsmallest(_CANDIDATES, nodes, key=lambda name: (self._work[name], name))
            names = sorted({*idle, *work})
        occupancy = self._forecasts.occupancy
        added = []
        for name in names:
            waits_s = 0.0 if occupancy.nodes[name].has_image(job.image) else self._pull_s
            added.append((self._forecasts.added_s(job, name, waits_s), name))
        added.sort()
        added_s, self._stale = added[0]
        why = f"{self._stale} adds least to all completions: {added_s:.0f} s"
        if len(added) > 1:
            why += f"; next {added[1][1]}: {added[1][0]:.0f} s"
        return self._stale, why

    def _rate(self, node: str) -> None:
        cores = self._forecasts.occupancy.nodes[node].free_cores
        loads = self._forecasts.loads[node]
        self._idle[node] = cores - math.fsum(load.parallel_cores for load in loads)
        work = math.fsum(load.left_core_s for load in loads)
        self._work[node] = work / positive(cores, CORES_MIN)
