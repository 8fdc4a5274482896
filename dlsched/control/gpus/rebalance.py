"""Chooses moves to other GPUs: to make room for a waiting job, or away from a failed GPU. A move's
cost is weighed against its gain; a job that would lose work is never chosen: see `unmovable`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dlsched.control.checkpoint_volume import checkpoint_volume
from dlsched.control.gpus.placement import (
    PlacementOptions,
    Room,
    Rooms,
    given_back,
    is_alone,
    named,
    place,
    taken,
)
from dlsched.control.gpus.queue import Turn
from dlsched.model.spec import JobSpec
from dlsched.model.units import render_seconds

UNKNOWN_WAIT_S = 1800.0
"""Assumed wait where there is no estimate."""
UNKNOWN_RESUME_S = 60.0
"""Assumed time from a start to the first report, for a job whose start was not observed."""
APART_S = 1800.0
"""Minimum time between two moves of a job."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A running job that can be moved, with its maximum pause."""

    spec: JobSpec
    gpus: tuple[str, ...]
    """UUIDs of the GPUs that it holds."""
    pause_s: float
    problem: str | None = None
    """How it lost a GPU, in one line; None: it did not."""
    used_bytes: int = 0
    """Used memory on each of its GPUs, as far as known."""

    @property
    def goes(self) -> JobSpec:
        """Its spec at the destination. By default it asks for the GPU memory that it uses now."""
        container = self.spec.container
        if container.gpu_memory_bytes is not None or not is_alone(self.spec):
            return self.spec
        return replace(self.spec, container=replace(container, gpu_memory_bytes=self.used_bytes))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A move that pays off."""

    job: str
    gpus: tuple[str, ...]
    """UUIDs of its new GPUs."""
    why: str


def unmovable(spec: JobSpec) -> str | None:
    """Why a job cannot be moved, in one line; None: it can. It must declare `checkpoint` and save
    to one of its writable volumes, as all else is lost with the container."""
    if spec.checkpoint is None:
        return "the job declares no checkpoint"
    if checkpoint_volume(spec) is None:
        return f"the job's checkpoint path {spec.checkpoint.path} is in no writable volume"
    return None


def pause_s(spec: JobSpec, resume_s: float | None) -> float:
    """Maximum duration of a move: saving, stopping, and the time to the first report. `resume_s` is
    the observed time from start to first report; None: unknown."""
    saves_s = 0.0 if spec.checkpoint is None else spec.checkpoint.timeout_s
    return saves_s + spec.stop.grace_s + (UNKNOWN_RESUME_S if resume_s is None else resume_s)


def off_lost_gpu(
    movable: Iterable[Movable], left: Rooms, options: PlacementOptions
) -> Wanted | None:
    """A move for the first job, by name, that lost a GPU; None: no such job, or no room. It may
    keep those of its GPUs that still work."""
    for one in sorted(movable, key=lambda each: each.spec.name):
        if one.problem is None:
            continue
        found = place(one.goes, _without(left, one), options)
        if found.gpus is not None:
            return Wanted(one.spec.name, found.gpus, f"{one.problem}; {_there(found.gpus, left)}")
    return None


def to_make_room(
    waiting: Iterable[tuple[JobSpec, Turn]],
    movable: Iterable[Movable],
    left: Rooms,
    options: PlacementOptions,
) -> Wanted | None:
    """The cheapest move that lets a waiting job start and gains more than it costs; first job
    first.

    Cost: the moving job's pause times its weight. Gain: the waiting job's wait less that pause,
    times its weight. In `left`, GPUs reserved for a waiting job are closed.
    """
    cheapest = sorted(movable, key=lambda each: (_cost(each), each.spec.name))
    for spec, turn in waiting:
        opened = {uuid: replace(left[uuid], closed=None) for uuid in turn.kept}
        mine = {**left, **opened}
        wait_s = UNKNOWN_WAIT_S if turn.wait_s is None else turn.wait_s
        for one in cheapest:
            gain = (wait_s - one.pause_s) * spec.weight
            goes = _exchange(one, spec, mine, options) if gain > _cost(one) else None
            if goes is None:
                continue
            how = "an assumed" if turn.wait_s is None else "a"
            why = (
                f"makes room for {spec.name}, which gains {gain:.0f} s ({how} wait of "
                f"{render_seconds(wait_s)}, less the pause, times its weight {spec.weight:g}); it "
                f"costs {_cost(one):.0f} s (a pause of up to {render_seconds(one.pause_s)} times "
                f"the weight {one.spec.weight:g}); {_there(goes, left)}"
            )
            return Wanted(one.spec.name, goes, why)
    return None


def _exchange(
    one: Movable, waits: JobSpec, left: Rooms, options: PlacementOptions
) -> tuple[str, ...] | None:
    """The moving job's new GPUs, if the waiting job can then start; None: no room for both."""
    gone = _without(left, one)
    begins = place(waits, gone, options).gpus
    if begins is None:
        return None
    return place(one.goes, taken(gone, waits, begins), options).gpus


def _without(left: Rooms, one: Movable) -> dict[str, Room]:
    back = {uuid: given_back(left[uuid], one.spec) for uuid in one.gpus if uuid in left}
    return {**left, **back}


def _cost(one: Movable) -> float:
    return one.pause_s * one.spec.weight


def _there(uuids: Sequence[str], left: Rooms) -> str:
    return f"to {named(left[uuid].gpu.fact for uuid in uuids)}"
