"""What one shard of a federation says of itself in at most 4 KiB, and how long a job that joins its
queue would wait by that.

A shard is one cluster with managers and a controller of its own.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, NamedTuple

NODES_MAX = 500
"""Of one shard: what one swarm bears, and one controller decides in a round."""
SUMMARY_BYTES_MAX = 4096

CORES_STEPS = (0.0, 0.01, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
"""Least free cores of the nodes that one bin counts."""
MEMORY_STEPS = (0, *(1 << power for power in range(30, 42)))
"""Least free bytes, likewise: from 1 GiB to 2 TiB."""
GPU_STEPS = (0, 1, 2, 3, 4, 6, 8, 16)
ENDS_S = tuple(round(30 * 1.5**power, 1) for power in range(21))
"""Seconds from now up to which one bin counts: from 30 s to 28 hours."""

_COUNT_MAX = 1e9
_NAME_MAX = 64


class Ask(NamedTuple):
    """What a job needs of one node before it starts."""

    cores: float
    memory_bytes: int = 0
    gpus: int = 0


class NodeRoom(NamedTuple):
    """One node that takes jobs, for the summary of its shard."""

    free_cores: float
    """Not promised to a job there as its floor."""
    free_memory_bytes: int | None = None
    """None: unknown, so memory refuses no job."""
    free_gpus: int = 0
    cores: float = 0.0
    demand_cores: float = 0.0
    """The most that its jobs could use."""
    ends: Sequence[tuple[float, float]] = ()
    """Of each job there: seconds until its forecast end, and the cores that this frees. Sorted."""


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """One shard at one moment."""

    shard: str
    nodes: int
    """Those that take jobs."""
    largest: Ask
    """The most of each that one of them has when empty."""
    free_cores: tuple[int, ...]
    """Nodes by `CORES_STEPS`."""
    free_memory: tuple[int, ...]
    """Nodes by `MEMORY_STEPS`; one whose memory is unknown counts as the most."""
    free_gpus: tuple[int, ...]
    """Nodes by `GPU_STEPS`."""
    starts_s: tuple[float, ...]
    """Forecast start of a next job that needs as many cores as `CORES_STEPS` says, if no job were
    queued; the last value stands for all larger ones."""
    ends_cores: tuple[float, ...]
    """Cores that jobs free by their forecast ends, by `ENDS_S`; the last bin has all later ones."""
    cores: float = 0.0
    """Of all its nodes."""
    demand_cores: float = 0.0
    """The most that all jobs could use, those of the queue too."""
    queue_length: int = 0
    queue_cores: float = 0.0
    head: str = ""
    """The first of the queue."""
    head_cores: float = 0.0
    age_s: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


class BadSummary(ValueError):
    """One line on what is wrong with a summary."""


def parse_summary(text: str | bytes) -> ShardSummary:
    """A summary that another shard wrote. Raises BadSummary."""
    size = len(text if isinstance(text, bytes) else text.encode(errors="replace"))
    if size > SUMMARY_BYTES_MAX:
        raise BadSummary(f"is {size} bytes, at most {SUMMARY_BYTES_MAX}")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise BadSummary("is no JSON") from None
    names = {one.name for one in fields(ShardSummary)}
    if not isinstance(raw, dict) or raw.keys() != names:
        raise BadSummary(f"must be an object with exactly {', '.join(sorted(names))}")
    largest = _numbers(raw, "largest", 3)
    return ShardSummary(
        shard=_name(raw, "shard"),
        nodes=int(_number(raw["nodes"], "nodes", NODES_MAX)),
        largest=Ask(largest[0], int(largest[1]), int(largest[2])),
        free_cores=_counts(raw, "free_cores", len(CORES_STEPS)),
        free_memory=_counts(raw, "free_memory", len(MEMORY_STEPS)),
        free_gpus=_counts(raw, "free_gpus", len(GPU_STEPS)),
        starts_s=_numbers(raw, "starts_s", len(CORES_STEPS)),
        ends_cores=_numbers(raw, "ends_cores", len(ENDS_S) + 1),
        cores=_number(raw["cores"], "cores"),
        demand_cores=_number(raw["demand_cores"], "demand_cores"),
        queue_length=int(_number(raw["queue_length"], "queue_length")),
        queue_cores=_number(raw["queue_cores"], "queue_cores"),
        head=_name(raw, "head"),
        head_cores=_number(raw["head_cores"], "head_cores"),
        age_s=_number(raw["age_s"], "age_s"),
    )


def summarize(
    shard: str,
    largest: Ask,
    rooms: Iterable[NodeRoom],
    queue: Sequence[tuple[str, Ask]] = (),
    queue_demand_cores: float = 0.0,
) -> ShardSummary:
    """The summary of a shard with these nodes, and this queue in its order."""
    cores, memory = [0] * len(CORES_STEPS), [0] * len(MEMORY_STEPS)
    gpus, ends = [0] * len(GPU_STEPS), [0.0] * (len(ENDS_S) + 1)
    starts_s = [_COUNT_MAX] * len(CORES_STEPS)
    nodes, all_cores, demand = 0, 0.0, queue_demand_cores
    for room in rooms:
        nodes += 1
        all_cores += room.cores
        demand += room.demand_cores
        step = _bin(CORES_STEPS, room.free_cores)
        cores[step] += 1
        known = room.free_memory_bytes
        memory[-1 if known is None else _bin(MEMORY_STEPS, known)] += 1
        gpus[_bin(GPU_STEPS, room.free_gpus)] += 1
        _starts(starts_s, room, step)
        for end_s, freed in room.ends:
            ends[bisect.bisect_left(ENDS_S, end_s)] += freed
    return ShardSummary(
        shard,
        nodes,
        largest,
        tuple(cores),
        tuple(memory),
        tuple(gpus),
        tuple(round(value, 1) for value in starts_s),
        tuple(round(value, 1) for value in ends),
        round(all_cores, 2),
        round(demand, 2),
        len(queue),
        round(math.fsum(ask.cores for _, ask in queue), 2),
        queue[0][0] if queue else "",
        queue[0][1].cores if queue else 0.0,
    )


def fits(summary: ShardSummary, ask: Ask) -> bool:
    """Whether some node there could take the job if it were empty, as far as a summary says."""
    return summary.nodes > 0 and all(
        asked <= most for asked, most in zip(ask, summary.largest, strict=True)
    )


def wait_s(summary: ShardSummary, ask: Ask, ahead_cores: float, queued: bool) -> float:
    """Seconds until such a job starts there, after others that need so many cores. `queued`: some
    of those wait already, so free cores are too few for them.

    It is a fluid estimate: jobs start as soon as cores for all those before them and for the job
    itself have become free, by the forecast ends. Free cores that are too few for such a job on
    their node do not count. Of memory and GPUs only those that are free now are known, apart from
    cores: where no node has enough, the job is taken to wait until half of all that runs has ended.
    The placing of the shard has the last word.
    """
    size = max(ask.cores, summary.head_cores)
    missing = ahead_cores + ask.cores - _usable(summary.free_cores, size)
    beside = has_beside(summary, ask)
    if not queued and missing <= 0 and beside:
        return 0.0
    step = bisect.bisect_left(CORES_STEPS, ask.cores)
    least_s = summary.starts_s[min(step, len(CORES_STEPS) - 1)]
    if not beside:
        least_s = max(least_s, _freed_s(summary.ends_cores, sum(summary.ends_cores) / 2 or 1.0))
    return max(least_s, _freed_s(summary.ends_cores, missing)) if ahead_cores > 0 else least_s


def crowding_s(summary: ShardSummary, shortest_s: float, more_cores: float = 0.0) -> float:
    """How much longer a job takes there than its shortest time, as all jobs share the cores, once
    jobs that could use so many more cores have come."""
    if summary.cores <= 0:
        return math.inf
    return shortest_s * max((summary.demand_cores + more_cores) / summary.cores - 1.0, 0.0)


def _freed_s(ends_cores: tuple[float, ...], missing: float) -> float:
    """When that many cores will have become free."""
    if missing <= 0:
        return 0.0
    freed = _sums(ends_cores)
    index = bisect.bisect_left(freed, missing)
    if index < len(ENDS_S):
        begins_s, before = (ENDS_S[index - 1], freed[index - 1]) if index else (0.0, 0.0)
        return begins_s + (ENDS_S[index] - begins_s) * (missing - before) / ends_cores[index]
    # Beyond the forecast, as fast as on its average.
    return ENDS_S[-1] * missing / freed[-1] if freed[-1] > 0 else math.inf


# A round asks the same of each summary for every job of every queue.
@lru_cache(maxsize=256)
def _sums(ends_cores: tuple[float, ...]) -> list[float]:
    """Cores that will have become free by each of `ENDS_S`."""
    return list(itertools.accumulate(ends_cores[: len(ENDS_S)]))


def has_beside(summary: ShardSummary, ask: Ask) -> bool:
    """Whether a node has enough memory free, and one enough GPUs."""
    return all(
        sum(counts[bisect.bisect_left(steps, asked) :]) > 0
        for steps, counts, asked in (
            (MEMORY_STEPS, summary.free_memory, ask.memory_bytes),
            (GPU_STEPS, summary.free_gpus, ask.gpus),
        )
    )


@lru_cache(maxsize=4096)
def _usable(free_cores: tuple[int, ...], cores: float) -> float:
    """Free cores in pieces of that size, at least so many."""
    if cores <= 0:
        return 0.0
    return sum(
        count * (least // cores) * cores
        for least, count in zip(CORES_STEPS, free_cores, strict=True)
    )


def _starts(starts_s: list[float], room: NodeRoom, step: int) -> None:
    """Lower these starts to those on this node."""
    for index in range(step + 1):
        starts_s[index] = 0.0
    free = room.free_cores
    for end_s, freed in room.ends:
        free += freed
        reached = _bin(CORES_STEPS, free)
        for index in range(step + 1, reached + 1):
            starts_s[index] = min(starts_s[index], end_s)
        step = max(step, reached)


def _bin(steps: Sequence[float], value: float) -> int:
    return max(bisect.bisect_right(steps, value + 1e-9) - 1, 0)


def _number(value: Any, name: str, most: float = _COUNT_MAX) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise BadSummary(f"{name} must be a number from 0 to {most:g}")
    return float(value)


def _numbers(raw: Mapping[str, Any], name: str, count: int) -> tuple[float, ...]:
    values = raw[name]
    if not isinstance(values, list) or len(values) != count:
        raise BadSummary(f"{name} must be a list of {count} numbers")
    return tuple(_number(value, name, 2.0**62) for value in values)


def _counts(raw: Mapping[str, Any], name: str, count: int) -> tuple[int, ...]:
    values = tuple(map(int, _numbers(raw, name, count)))
    if sum(values) > NODES_MAX:
        raise BadSummary(f"{name} counts {sum(values)} nodes, at most {NODES_MAX}")
    return values


def _name(raw: Mapping[str, Any], name: str) -> str:
    value = raw[name]
    if not isinstance(value, str) or len(value) > _NAME_MAX or not value.isprintable():
        raise BadSummary(f"{name} must be a name of at most {_NAME_MAX} characters")
    return value
