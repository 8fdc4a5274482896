"""Each job's memory: whether it fills up, how often the kernel killed for want of it, and the alarm
with what can be done."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dlsched.estimate.memory import SLOT_S, MemoryTrend, filling_text
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, ContainerState, MemoryFact, Observation
from dlsched.model.spec import JobSpec
from dlsched.model.state import Filling, JobView, MemoryUse
from dlsched.model.units import render_bytes

RAISE_RATIO = 1.5
"""One raise of a limit, and what an alarm proposes, over the present one. A judgement: a leak gets
that much more time, and a load that only needs a little more gets enough."""
HOLDERS_SHOWN = 3
_MIB = 1 << 20
_ALIVE = frozenset({ContainerState.RUNNING, ContainerState.PAUSED})


def promised_bytes(spec: JobSpec, use: MemoryUse) -> int:
    """The memory limit of a job as others must leave it room: the spec's, or the one to which
    dlsched has raised it; 0: none."""
    limit_bytes = spec.container.memory_bytes or 0
    if use.before_bytes is None:
        return limit_bytes
    return max(limit_bytes, use.own_bytes or 0)


class MemoryTracker:
    """One job's memory over all of its starts."""

    def __init__(self) -> None:
        self.use = MemoryUse()
        """The same object while nothing changes."""
        self._last: tuple[object, ...] = ()
        """What the last update was made of: within its minute the same changes nothing."""
        self._start: tuple[str, int, float | None] | None = None
        self._trend = MemoryTrend()
        self._earlier_kills = 0
        """In earlier starts."""
        self._kills: int | None = None
        """In this start; None: unknown."""

    def update(self, fact: ContainerFact | None, now_s: float) -> None:
        """Take in the job's container; None: it has none."""
        start = None if fact is None else fact.start
        made_of = (
            int(now_s // SLOT_S), start, fact and (fact.memory, fact.state, fact.oom_killed)
        )  # fmt: skip
        if made_of == self._last:
            return
        self._last = made_of
        memory, alive = MemoryFact(), fact is not None and fact.state in _ALIVE
        if fact is not None:
            if alive and start != self._start:
                self._earlier_kills += self._kills or 0
                self._start, self._kills, self._trend = start, None, MemoryTrend()
            # A container that ends by it takes its count along: then only the engine knows.
            killed = [self._kills, fact.memory.oom_kills, 1 if fact.oom_killed else None]
            kills = max((one for one in killed if one is not None), default=None)
            if self._kills is not None and kills != self._kills:
                self._trend = MemoryTrend()
            self._kills, memory = kills, fact.memory
        if alive:
            self._trend.add(now_s, memory.held_bytes, memory.limit_bytes)
        known = self._kills is not None or self._earlier_kills
        use = MemoryUse(
            working_set_bytes=memory.working_set_bytes if alive else None,
            held_bytes=memory.held_bytes if alive else None,
            limit_bytes=memory.limit_bytes if alive else self.use.limit_bytes,
            own_bytes=memory.own_bytes if alive else self.use.own_bytes,
            before_bytes=memory.before_bytes,
            peak_bytes=memory.peak_bytes if alive else self.use.peak_bytes,
            oom_kills=self._earlier_kills + (self._kills or 0) if known else None,
            limit_reached=memory.limit_reached if alive else self.use.limit_reached,
            filling=self._trend.filling if alive else None,
        )
        if use != self.use:
            self.use = use


class MemoryAlarms:
    """The alarms of jobs whose memory fills up. A text stays until there is a new forecast, as what
    the host has to spare changes all the time."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Filling, Alarm]] = {}

    def of(self, jobs: Sequence[JobView], observed: Observation) -> tuple[Alarm, ...]:
        before, self._kept = self._kept, {}
        for job in jobs:
            filling = job.memory.filling
            if filling is None or not job.runs:
                continue
            kept = before.get(job.name)
            if kept is None or kept[0] is not filling:
                kept = filling, _alarm(job, filling, jobs, observed)
            self._kept[job.name] = kept
        return tuple(alarm for _, alarm in self._kept.values())


def _alarm(job: JobView, filling: Filling, jobs: Iterable[JobView], observed: Observation) -> Alarm:
    container = job.container_id or job.name
    name = observed.container_names.get(container, container[:12])
    proposed = f"{math.ceil(RAISE_RATIO * filling.limit_bytes / _MIB)}m"
    remedy = f"docker update --memory {proposed} --memory-swap {proposed} {name}"
    parts = [filling_text(filling), f"to raise it: `{remedy}`"]
    spare_bytes = None if observed.node is None else observed.node.memory_available_bytes
    if spare_bytes is not None:
        has_room = spare_bytes >= (RAISE_RATIO - 1.0) * filling.limit_bytes
        but = "" if has_room else ", too little for that"
        parts.append(f"the host has {render_bytes(spare_bytes)} to spare{but}")
    parts += most_held(job, jobs)
    return Alarm(job.name, AlarmKey.MEMORY_FILLS, f"{job.name}: {'; '.join(parts)}")


def most_held(job: JobView, jobs: Iterable[JobView]) -> list[str]:
    """Which other jobs use most memory, in a few words; empty: none uses any."""
    others = [(one.memory.working_set_bytes or 0, one.name) for one in jobs if one is not job]
    most = [pair for pair in sorted(others, reverse=True)[:HOLDERS_SHOWN] if pair[0] >= _MIB]
    shown = ", ".join(f"{render_bytes(size_bytes)} ({one})" for size_bytes, one in most)
    return [f"other jobs use {shown}"] if most else []
