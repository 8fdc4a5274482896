"""What one move would change, by the forecasts of its two nodes, and when a move is undone.

The rule is ours. A move is priced as in Gandiva (OSDI 2018), which keeps a migration only where it
helps; completions are those of the fluid forecast, before and after, so pause and repeated steps
are inside.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from dlsched.cluster.core.completion import Load
from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.snapshot import ClusterJob

END_WEIGHT = 3.0
"""How many seconds of one job's completion a second of the cluster's end counts as."""

LATER_RATIO, LATER_S = 1.1, 10.0
"""No job on the target may end later than this factor of its time until then, plus this."""

SLOWER_RATIO = 0.7
"""Below this part of its speed on the source, a job may go back."""
JUDGED_AFTER_S = 60.0
"""A job's speed on the target is measured for so long before it is judged."""
REST_AFTER_UNDO_S = 1800.0

_ROUNDING_S = 1e-6
_SPEED_MIN = 1e-3


class Effect(NamedTuple):
    """What a move changes. Times are seconds from now."""

    job: str
    source: str
    target: str
    gain_s: float
    """Weighted completions of the jobs on both nodes, and the end of the cluster, by how much
    earlier."""
    own_before_s: float
    own_after_s: float
    delayed: str | None
    """The job on the target that would end too much later; None: none."""
    end_before_s: float
    """Last completion of the cluster."""
    end_after_s: float

    @property
    def gains(self) -> str:
        """By how much it gains or loses, as a text."""
        return f"{'gain' if round(self.gain_s) >= 0 else 'lose'} {abs(self.gain_s):.0f} s"

    def lacks(self, least_gain_s: float, bold: bool = False) -> str | None:
        """Why the move is not good enough; None: it is. `bold`: only its gain counts."""
        if not self.gain_s > least_gain_s:
            return f"would {self.gains}, a move has to gain more than {least_gain_s:.0f} s"
        if not bold and self.own_after_s > self.own_before_s + _ROUNDING_S:
            return (
                f"would end later: in {self.own_after_s:.0f} s instead of {self.own_before_s:.0f} s"
            )
        if not bold and self.delayed is not None:
            return f"would delay {self.delayed} too much"
        return None


class Forecasts:
    """The completions on all nodes as they are, which moves are compared with."""

    def __init__(self, occupancy: Occupancy) -> None:
        self.occupancy = occupancy
        self.loads: dict[str, list[Load]] = {}
        """Of the jobs of `occupancy.on`, in its order; so are the ends."""
        self.ends: dict[str, list[float]] = {}
        self._latest: list[tuple[float, str]] | None = None
        for node in occupancy.nodes:
            self.refresh(node)

    def refresh(self, node: str) -> None:
        """Forecast the node again, as its jobs have changed."""
        self.loads[node] = self.occupancy.loads(node)
        self.ends[node] = self.occupancy.ends(node, self.loads[node])
        self._latest = None

    def last(self, node: str) -> float:
        """When the last job of the node is done."""
        return max(self.ends[node], default=0.0)

    def last_beside(self, source: str, target: str) -> float:
        """The last completion on all other nodes."""
        if self._latest is None:
            self._latest = heapq.nlargest(3, ((self.last(name), name) for name in self.ends))
        return next((end_s for end_s, name in self._latest if name not in (source, target)), 0.0)

    def added_s(self, job: ClusterJob, node: str, begins_s: float = 0.0) -> float:
        """By how much the weighted completions grow if the job starts there."""
        occupancy = self.occupancy
        load = occupancy.load(job, node, begins_s=begins_s)
        *ends, own_s = occupancy.ends(node, [*self.loads[node], load])
        added_s = load.weight * own_s
        for one, old_s, new_s in zip(self.loads[node], self.ends[node], ends, strict=True):
            added_s += one.weight * (new_s - old_s)
        return added_s


def effect(
    forecasts: Forecasts,
    job: ClusterJob,
    source: str,
    target: str,
    left_core_s: float,
    end_weight: float = END_WEIGHT,
) -> Effect:
    """The effect of moving the job now, if that much work is left of it."""
    occupancy = forecasts.occupancy
    index = occupancy.on[source].index(job)
    moved = occupancy.load(job, source, left_core_s)
    loads = list(forecasts.loads[source])
    loads[index] = moved
    before = occupancy.ends(source, loads)
    del loads[index]
    after = occupancy.ends(source, loads)
    own_before_s = before[index]
    gain_s = 0.0
    for load, old_s, new_s in zip(loads, before[:index] + before[index + 1 :], after, strict=True):
        gain_s += load.weight * (old_s - new_s)

    arrival = occupancy.load(job, target, left_core_s, job.pause_s)
    *arrived, own_after_s = occupancy.ends(target, [*forecasts.loads[target], arrival])
    gain_s += moved.weight * (own_before_s - own_after_s)
    worst_s, delayed = 0.0, None
    there = zip(occupancy.on[target], forecasts.loads[target], strict=True)
    for (one, load), old_s, new_s in zip(there, forecasts.ends[target], arrived, strict=True):
        gain_s += load.weight * (old_s - new_s)
        late_s = new_s - (LATER_RATIO * old_s + LATER_S)
        if late_s > worst_s + _ROUNDING_S:
            worst_s, delayed = late_s, one.name

    rest_end_s = forecasts.last_beside(source, target)
    end_before_s = max(rest_end_s, forecasts.last(target), *before)
    end_after_s = max(rest_end_s, own_after_s, *arrived, *after)
    gain_s += end_weight * (end_before_s - end_after_s)
    return Effect(
        job.name, source, target, gain_s, own_before_s, own_after_s, delayed,
        end_before_s, end_after_s,
    )  # fmt: skip


def measured_speed(job: ClusterJob, before_per_core_s: float, source_speed: float) -> float | None:
    """The speed of the job's present node for it, by its steps per core-second here and on the
    source before; None: not measured."""
    now = job.steps_per_core_s
    return None if now is None else max(source_speed * now / before_per_core_s, _SPEED_MIN)


def undo(
    occupancy: Occupancy, job: ClusterJob, source: str, before_per_core_s: float
) -> str | None:
    """Why the job should go back to the source of its last move; None: it should not.

    It goes back if it makes less than 0.7 of its steps per core-second there, and would end earlier
    there, beside the jobs that are there now and after another pause. What other jobs did since
    does not count as slowness, as speed is per core-second.
    """
    here = job.node
    if here is None or source not in occupancy.nodes or here not in occupancy.nodes:
        return None
    if occupancy.snapshot.now_s - job.placed_at_s < JUDGED_AFTER_S:
        return None
    speed = occupancy.nodes[source].speed
    measured = measured_speed(job, before_per_core_s, speed)
    if measured is None or measured >= SLOWER_RATIO * speed:
        return None
    left_core_s = occupancy.left[job.name].mid_core_s
    loads = occupancy.loads(here)
    index = occupancy.on[here].index(job)
    loads[index] = loads[index]._replace(left_core_s=left_core_s / measured)
    stays_s = occupancy.ends(here, loads)[index]
    back = occupancy.load(job, source, begins_s=job.pause_s)
    returns_s = occupancy.ends(source, [*occupancy.loads(source), back])[-1]
    if returns_s >= stays_s:
        return None
    return (
        f"the job has only {measured / speed:.2f} of its speed on {source}, and would end in "
        f"{returns_s:.0f} s there instead of {stays_s:.0f} s"
    )
