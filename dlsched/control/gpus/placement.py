"""Best-fit placement of jobs on GPUs, by share of time and by memory.

Deterministic: equal arguments give equal answers, whatever the order of any mapping. `admission`
orders the queue, `rebalance` chooses moves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal, NamedTuple

from dlsched.control.gpus.holders import in_a_reason
from dlsched.model.facts import ComputeMode, GpuFact
from dlsched.model.spec import JobSpec, LatencyTarget
from dlsched.model.state import GpuView, NodeView
from dlsched.model.units import counted, render_bytes, some_of

Prefer = Literal["auto", "pack", "spread"]
Foreign = Literal["avoid", "share"]
OnLoss = Literal["keep", "move"]

_ROUNDING = 1e-9
"""Tolerance, since shares are sums of decimal fractions."""

_KINDS = 4
"""Maximum number of models listed in a text. Hosts with more are rare."""


@dataclass(frozen=True, slots=True)
class PlacementOptions:
    prefer: Prefer = "auto"
    """pack: GPUs in use first; spread: emptiest first; auto: spread only latency targets."""
    reserved: Collection[str] = ()
    """UUIDs that no job gets. For a partitioned GPU this covers all its instances."""
    foreign: Foreign = "avoid"
    """Whether a GPU with foreign processes is avoided, or shared as far as its memory allows."""
    on_loss: OnLoss = "keep"
    """What happens to a job whose GPU fails."""
    move: bool = True
    """Whether a job may be moved, to make room for a waiting one or by a policy's decision."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A job with the UUIDs of the GPUs that it holds."""

    spec: JobSpec
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """Free time share and memory of one GPU."""

    gpu: GpuView
    usable_bytes: int
    """Its memory, less that of foreign processes."""
    share_left: float
    memory_left_bytes: int
    jobs: tuple[str, ...] = ()
    """Names of the jobs on it, sorted."""
    closed: str | None = None
    """Why no job may be added, in a few words; None: it is open."""


@dataclass(frozen=True, slots=True)
class Placement:
    """UUIDs of the GPUs for a job, or why there are none."""

    gpus: tuple[str, ...] | None
    reason: str | None = None


Rooms = Mapping[str, Room]


def is_alone(spec: JobSpec) -> bool:
    """Whether it has its GPUs exclusively: all of their time is guaranteed to it."""
    return spec.bounds.floor_share >= 1.0 - _ROUNDING


def memory_on(spec: JobSpec, gpu_bytes: int) -> int:
    """Memory guaranteed to a job on one of its GPUs, which has `gpu_bytes` in total."""
    asked = spec.container.gpu_memory_bytes
    if asked is not None:
        return asked
    return gpu_bytes if is_alone(spec) else int(spec.bounds.floor_share * gpu_bytes)


def rooms(node: NodeView, holders: Iterable[Holder], options: PlacementOptions) -> dict[str, Room]:
    """Free room of each GPU beside `holders`, in the driver's order. A GPU partitioned into
    instances is left out: only its instances can be used."""
    divided = {gpu.fact.part_of for gpu in node.gpus}
    empty = (_empty(gpu, options) for gpu in node.gpus if gpu.uuid not in divided)
    left = {room.gpu.uuid: room for room in empty}
    for holder in sorted(holders, key=lambda one: one.spec.name):
        left = taken(left, holder.spec, holder.gpus)
    return left


def taken(left: Rooms, spec: JobSpec, gpus: Iterable[str]) -> dict[str, Room]:
    """`left` after the job has taken `gpus` too. UUIDs not in `left` are ignored."""
    return {**left, **{uuid: _beside(left[uuid], spec) for uuid in gpus if uuid in left}}


def given_back(room: Room, spec: JobSpec) -> Room:
    return replace(
        room,
        share_left=room.share_left + _share_of(room, spec),
        memory_left_bytes=room.memory_left_bytes + memory_on(spec, room.gpu.fact.memory_bytes),
        jobs=tuple(name for name in room.jobs if name != spec.name),
    )


def is_model(product: str, asked: str | None) -> bool:
    """Whether a product name matches the model that a job asks for; None matches any."""
    return asked is None or asked.casefold() in product.casefold()


def fitting(spec: JobSpec, left: Iterable[Room]) -> list[Room]:
    """The rooms in which the job fits on one GPU."""
    return [
        room
        for room in left
        if room.closed is None
        and _has_time(spec, room)
        and room.memory_left_bytes >= _needed_bytes(spec, room)
        and is_model(room.gpu.fact.model, spec.container.gpu_model)
    ]


def _has_time(spec: JobSpec, room: Room) -> bool:
    if is_alone(spec):
        return not room.jobs
    return room.share_left >= spec.bounds.floor_share - _ROUNDING


def _needed_bytes(spec: JobSpec, room: Room) -> int:
    """The free memory that it needs; if it has the GPU alone, only what it asks for."""
    if is_alone(spec):
        return spec.container.gpu_memory_bytes or 0
    return memory_on(spec, room.gpu.fact.memory_bytes)


def place(spec: JobSpec, left: Rooms, options: PlacementOptions) -> Placement:
    """GPUs for a job among what is left, or one line on why it does not fit.

    Best fit: least room left behind or, when spreading, most room left; then least wasted memory.
    Several GPUs are of one model if possible, then on one NUMA node if possible.
    """
    free = fitting(spec, left.values())
    count = spec.container.gpus
    if len(free) < count:
        return Placement(None, _lacks(spec, left.values()))
    largest_bytes = max(room.usable_bytes for room in left.values()) or 1
    spreads = _spreads(spec, options)
    facts = {_rank(spec, room, largest_bytes, spreads=spreads): room.gpu.fact for room in free}
    if count == 1:
        return Placement((min(facts).uuid,))
    ranked: Mapping[_Rank, GpuFact] = {rank: facts[rank] for rank in sorted(facts)}
    for alike in (attrgetter("model"), attrgetter("numa_node")):
        ranked = _first_group(ranked, count, alike)
    return Placement(tuple(rank.uuid for rank in list(ranked)[:count]))


class _Rank(NamedTuple):
    """Rank of a GPU for a job. The least is best, and no two GPUs have the same."""

    fit: float
    rest: float
    """Breaks ties of `fit`."""
    in_driver: int
    uuid: str


def _first_group(
    ranked: Mapping[_Rank, GpuFact], count: int, alike: Callable[[GpuFact], object]
) -> Mapping[_Rank, GpuFact]:
    """The best group of at least `count` GPUs with an equal property; all GPUs if there is none."""
    groups: dict[object, dict[_Rank, GpuFact]] = {}
    for rank, fact in ranked.items():
        groups.setdefault(alike(fact), {})[rank] = fact
    enough = [group for group in groups.values() if len(group) >= count]
    return min(enough, key=lambda group: list(group)[:count], default=ranked)


def _rank(spec: JobSpec, room: Room, largest_bytes: int, *, spreads: bool) -> _Rank:
    wasted_bytes = room.memory_left_bytes - memory_on(spec, room.gpu.fact.memory_bytes)
    wasted = wasted_bytes / largest_bytes
    if is_alone(spec):  # it takes the whole GPU, so waste is a GPU larger than needed
        fit, rest = room.usable_bytes / largest_bytes, 0.0
    elif spreads:
        fit, rest = -room.share_left, wasted
    else:
        fit = float(not room.jobs)
        rest = room.share_left - spec.bounds.floor_share + wasted
    return _Rank(fit, rest, room.gpu.fact.index, room.gpu.uuid)


def _spreads(spec: JobSpec, options: PlacementOptions) -> bool:
    if options.prefer == "auto":
        return isinstance(spec.target, LatencyTarget)
    return options.prefer == "spread"


# ---------------------------------------------------------------------- room left


def _empty(gpu: GpuView, options: PlacementOptions) -> Room:
    usable_bytes = max(0, gpu.fact.memory_bytes - gpu.foreign_memory_bytes)
    return Room(
        gpu=gpu,
        usable_bytes=usable_bytes,
        share_left=1.0,
        memory_left_bytes=usable_bytes,
        closed=_closed(gpu, options),
    )


def _closed(gpu: GpuView, options: PlacementOptions) -> str | None:
    fact, others = gpu.fact, gpu.foreign_processes
    exclusive = fact.compute_mode is ComputeMode.EXCLUSIVE
    if gpu.reserved:
        return "reserved"
    if fact.trouble is not None:
        return fact.trouble
    if fact.compute_mode is ComputeMode.PROHIBITED:
        return "the GPU's compute mode is prohibited, so no program may use it"
    if others and (options.foreign == "avoid" or exclusive):
        return f"used by {_foreign(gpu)}"
    if gpu.kept_for:
        return f"kept for {gpu.kept_for[0]}, which may return from another node"
    return None


def _foreign(gpu: GpuView) -> str:
    """What of no job holds the GPU; a journal of an older version has only the number."""
    foreign = [in_a_reason(one) for one in gpu.holders if not one.managed]
    if not foreign:
        return f"{gpu.foreign_processes} foreign process{'es' if gpu.foreign_processes > 1 else ''}"
    return some_of(foreign)


def _beside(room: Room, spec: JobSpec) -> Room:
    return replace(
        room,
        share_left=room.share_left - _share_of(room, spec),
        memory_left_bytes=room.memory_left_bytes - memory_on(spec, room.gpu.fact.memory_bytes),
        jobs=tuple(sorted({*room.jobs, spec.name})),
    )


def _share_of(room: Room, spec: JobSpec) -> float:
    """The GPU time that the job takes: all of it where only one process may use the GPU."""
    exclusive = room.gpu.fact.compute_mode is ComputeMode.EXCLUSIVE
    return 1.0 if exclusive else spec.bounds.floor_share


# ---------------------------------------------------------------------- texts


def named(gpus: Iterable[GpuFact]) -> str:
    """A list for texts: `GPU 0`, `GPUs 0, 1, 2 and 5 more`, `2 instances of GPU 0`."""
    facts = list(gpus)
    whole = sorted(fact.index for fact in facts if fact.part_of is None)
    parts = Counter(fact.index for fact in facts if fact.part_of is not None)
    texts = [
        f"{count} instance{'s' if count > 1 else ''} of GPU {index}"
        for index, count in sorted(parts.items())
    ]
    if whole:
        listed = some_of([str(index) for index in whole])
        texts.insert(0, f"GPU{'s' if len(whole) > 1 else ''} {listed}")
    return " and ".join(texts)


def kinds_text(gpus: Iterable[tuple[str, int]]) -> str:
    """Counts by model and size in bytes: `2 NVIDIA A100 80 GiB, 1 Tesla T4 15 GiB`."""
    counts = Counter(f"{model} {render_bytes(size_bytes)}" for model, size_bytes in gpus)
    each = [f"{count} {kind}" for kind, count in counts.items()]
    return ", ".join([*each[:_KINDS], *(["..."] if len(each) > _KINDS else [])])


def _lacks(spec: JobSpec, left: Iterable[Room]) -> str:
    """Why the job does not fit, with numbers: needed, left, and closed."""
    count, share = spec.container.gpus, spec.bounds.floor_share
    model = spec.container.gpu_model
    mine = [room for room in left if is_model(room.gpu.fact.model, model)]
    there = [room for room in mine if room.closed is None]
    which = f"{len(there)}" + (f" {model}" if model else "")
    free = [room for room in there if _has_time(spec, room)]
    if len(free) >= count:
        most_bytes = max([0, *(room.memory_left_bytes for room in free)])
        asked = spec.container.gpu_memory_bytes
        needs = f"{share:.2f} of the memory of" if asked is None else f"{render_bytes(asked)} on"
        gpu = "a GPU" if count == 1 else f"each of {count} GPUs"
        most = f"at most {render_bytes(most_bytes)} is left on the {len(free)} of {which} with time"
        text = f"needs {needs} {gpu}, {most} left"
    elif is_alone(spec):
        text = f"needs {counted(count, 'GPU')} alone, {len(free)} of {which} free"
    elif count == 1:
        left_most = max([0.0, *(room.share_left for room in there)])
        shown = math.floor(100 * left_most + _ROUNDING) / 100
        text = f"needs {share:.2f} of a GPU's time, at most {shown:.2f} is left on any of {which}"
    else:
        text = f"needs {share:.2f} of the time of {count} GPUs, free on {len(free)}"
        text += f" of {which}"
    shut: dict[str, list[GpuFact]] = {}
    fits = {room.gpu.uuid for room in fitting(spec, there)}
    for room in mine:
        why = room.closed
        if why is None and room.gpu.uuid not in fits:
            why = _held(room.gpu, memory=len(free) >= count)
        if why is not None:
            shut.setdefault(why, []).append(room.gpu.fact)
    return "; ".join([text, *sorted(f"{named(gpus)}: {why}" for why, gpus in shut.items())])


def _held(gpu: GpuView, *, memory: bool) -> str | None:
    """What holds an open GPU without need of it: idle holders, and where `memory` is lacking also
    those of no job; None: nothing."""
    found = [
        in_a_reason(one)
        for one in gpu.holders
        if one.idle_over_s is not None or (memory and not one.managed)
    ]
    return f"held by {some_of(found)}" if found else None
