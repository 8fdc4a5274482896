"""GPUs for queued jobs: assignments, minimum waits, and reservations for the first that wait.
Forecasts of when holders end are passed in."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from dlsched.control.gpus.placement import (
    Holder,
    Placement,
    PlacementOptions,
    Room,
    Rooms,
    fitting,
    given_back,
    is_model,
    kinds_text,
    place,
    rooms,
    taken,
)
from dlsched.estimate.finish import unknown
from dlsched.model.facts import GpuFact
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import JobSpec, LatencyTarget
from dlsched.model.state import NodeView
from dlsched.model.units import counted, render_bytes, render_seconds

_ESTIMATED = 16
"""Number of waiting jobs that get an estimate, from the head of the queue."""
_ROUND_S = ((60.0, 3600.0), (600.0, 6 * 3600.0), (3600.0, math.inf))
"""(step, up to): estimates are rounded up to such steps, as more precision would be made up."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Whether a queued job may start now and on which GPUs; if not, why, and what it reserves."""

    reason: str | None = None
    """Why it waits; None: it does not."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the assigned GPUs."""
    kept: tuple[str, ...] = ()
    """UUIDs of the GPUs reserved for it, as it is the first that waits for them."""
    wait_s: float | None = None
    """Minimum wait for GPUs; None: no estimate."""

    @property
    def admitted(self) -> bool:
        return self.reason is None


class GpuQueue:
    """The node's GPUs during one pass through a queue, first job first.

    The first job that does not fit reserves the GPUs that it will get, and jobs behind it use only
    the others. A later job also reserves GPUs if it could use none of the reserved ones, or only
    after a service is stopped. So small jobs cannot starve it, however many arrive.
    """

    def __init__(
        self,
        node: NodeView,
        holders: Sequence[Holder] = (),
        options: PlacementOptions | None = None,
        kept: Mapping[str, tuple[str, ...]] | None = None,
        outlook: Callable[[str], Forecast] = lambda job: unknown(f"{job} reports nothing"),
        now_s: float = 0.0,
    ) -> None:
        """`kept` are the previous reservations by job; they are kept if possible. `outlook`
        forecasts when a holder may end, and is called only while a job waits."""
        self._options = options or PlacementOptions()
        self._gpu_problem = node.gpu_trouble
        self.left: Rooms = rooms(node, holders, self._options)
        """Free room beside all holders so far. Reserved GPUs are closed."""
        self._holders = {one.spec.name: one.spec for one in holders}
        self._kept_before = kept or {}
        self._outlook = cache(outlook)
        self._now_s = now_s
        self._kept: set[str] = set()
        self._waiting = 0
        self._refused: dict[_Ask, Placement] = {}
        """Requests that do not fit, valid until the rooms change."""
        # A GPU with a problem counts as present: it may come back.
        self._there = [room.gpu.fact for room in self.left.values() if not room.gpu.reserved]

    def never(self, spec: JobSpec) -> str | None:
        """Why even an empty node could not run it; None: it could, or that is unknown."""
        if not spec.container.gpus or self._gpu_problem is not None:
            return None
        container, there = spec.container, self._there
        asks = counted(container.gpus, "GPU")
        mine = [fact for fact in there if is_model(fact.model, container.gpu_model)]
        if container.gpus <= sum(_suits(spec, fact) for fact in mine):
            return None
        if len(there) >= container.gpus > len(mine):
            asks += f" of model {container.gpu_model}"
        elif len(mine) >= container.gpus:
            asks += f" with {render_bytes(container.gpu_memory_bytes or 0)} each"
        has = kinds_text((fact.model, fact.memory_bytes) for fact in there)
        has = f"{len(there)}: {has}" if there else "no GPUs for jobs"
        return f"can never start: the job asks for {asks}, the node has {has}"

    def admit(self, spec: JobSpec) -> Turn:
        """Its GPUs, or why it waits. Jobs behind it cannot use what it gets or reserves."""
        ask = _ask(spec)
        found = self._refused.get(ask) or place(spec, self.left, self._options)
        if found.gpus is not None:
            self.left = taken(self.left, spec, found.gpus)
            self._refused.clear()
            self._holders[spec.name] = spec
            return Turn(gpus=found.gpus)
        self._refused[ask] = found
        self._waiting += 1
        reason = found.reason or ""
        if self._gpu_problem is not None and all(
            one.gpu.fact.trouble for one in self.left.values()
        ):
            return Turn(f"the job waits for GPUs, which cannot be observed: {self._gpu_problem}")
        if self._gpu_problem is not None:
            reason = f"{reason}; not all GPUs can be observed: {self._gpu_problem}"
        if self._waiting > _ESTIMATED:
            return Turn(f"{reason}; the job is too far back in the queue to say when it starts")
        frees = {
            uuid: self._frees(spec, room)
            for uuid, room in self.left.items()
            if _suits(spec, room.gpu.fact)
        }
        opens = {uuid for uuid in frees if self._opens(spec, self.left[uuid])}
        kept = () if self._kept & (opens or frees.keys()) else self._keep(spec, frees, opens)
        count = spec.container.gpus
        soonest = sorted(frees.values(), key=self._in_s)[:count]
        wait = soonest[-1] if len(soonest) == count else unknown("the node has too few GPUs")
        in_s = self._in_s(wait)
        wait_s = in_s if in_s < math.inf else None
        return Turn(f"{reason}; {_when(wait_s, wait.why, reason)}", kept=kept, wait_s=wait_s)

    def _keep(
        self, spec: JobSpec, frees: Mapping[str, Forecast], opens: Collection[str]
    ) -> tuple[str, ...]:
        """Reserve GPUs for it: the previous ones, else those free soonest, else those with the
        fewest jobs. GPUs held by services come last, as services may never end."""
        before = self._kept_before.get(spec.name, ())
        usable = [uuid for uuid in frees if self.left[uuid].closed is None]
        if len(usable) < spec.container.gpus:
            return ()  # a closed GPU may never open, and until then jobs behind can use the others
        usable.sort(
            key=lambda uuid: (
                uuid not in opens,
                uuid not in before,
                self._in_s(frees[uuid]),
                len(self.left[uuid].jobs),
            )
        )
        kept = tuple(usable[: spec.container.gpus])
        shut = {uuid: replace(self.left[uuid], closed=f"kept for {spec.name}") for uuid in kept}
        self.left = {**self.left, **shut}
        self._refused.clear()
        self._kept.update(kept)
        return kept

    def _opens(self, spec: JobSpec, room: Room) -> bool:
        """Whether the job would fit on that GPU after all holders that end by themselves."""
        room = self._reopened(room)
        holders = [self._holders[job] for job in room.jobs]
        ending = [one for one in holders if not isinstance(one.target, LatencyTarget)]
        if len(ending) == len(holders):
            return room.closed is None
        for holder in ending:
            room = given_back(room, holder)
        return bool(fitting(spec, [room]))

    def _reopened(self, room: Room) -> Room:
        return replace(room, closed=None) if room.gpu.uuid in self._kept else room

    def _frees(self, spec: JobSpec, room: Room) -> Forecast:
        """When the job would fit on that GPU, as its holders end one by one, soonest first."""
        room = self._reopened(room)
        gpu = f"GPU {room.gpu.fact.index}"
        if room.closed is not None:
            return unknown(f"{gpu}: {room.closed}")
        latest = Forecast(ForecastKind.MET, "finish", self._now_s)
        ends = {job: self._outlook(job) for job in room.jobs}
        for job in sorted(ends, key=lambda name: (self._in_s(ends[name]), name)):
            if fitting(spec, [room]):
                return latest
            latest = ends[job]
            if latest.at_s is None:
                return latest
            room = given_back(room, self._holders[job])
        return (
            latest
            if fitting(spec, [room])
            else unknown(f"{gpu}: processes that belong to no job hold its memory")
        )

    def _in_s(self, outlook: Forecast) -> float:
        """Earliest time from now; infinite: unknown."""
        at_s = outlook.at_s if outlook.earliest_s is None else outlook.earliest_s
        return math.inf if at_s is None else max(0.0, at_s - self._now_s)


_Ask = tuple[int, float, int | None, str | None]


def _ask(spec: JobSpec) -> _Ask:
    """A job's request. Jobs with equal requests fit alike."""
    container = spec.container
    return (
        container.gpus, spec.bounds.floor_share, container.gpu_memory_bytes, container.gpu_model
    )  # fmt: skip


def _when(in_s: float | None, why: str, said: str) -> str:
    """The estimate as text: rounded up, and only as exact as it can be."""
    if in_s is None:
        return "when the job starts is unknown" + ("" if why in said else f": {why}")
    step_s = next(step_s for step_s, up_to_s in _ROUND_S if in_s <= up_to_s)
    rounded_s = step_s * max(1, math.ceil(in_s / step_s))
    return f"the job starts in about {render_seconds(rounded_s)} at the earliest" + (
        f": {why}" if why else ""
    )


def _suits(spec: JobSpec, fact: GpuFact) -> bool:
    """Whether the job could use that GPU if it were empty."""
    needs_bytes = spec.container.gpu_memory_bytes or 0
    return is_model(fact.model, spec.container.gpu_model) and needs_bytes <= fact.memory_bytes
