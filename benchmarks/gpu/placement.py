"""Placement on GPUs: what 1,000 queued jobs cost, and what its choices are worth.

No GPU is needed: placement is a pure function. Time is that of asking the rule for every job of a
queue, beside naive first fit in the same run. Worth is that of a simulated queue: jobs come, are
placed, run for their time and leave. All rules see the same jobs through the same queue (who waits
first keeps the GPUs that it will get), and differ in the choice of GPUs alone. Seeds are 1, 2, 3,
...; none is chosen.

    python -m benchmarks run gpu-placement        writes benchmarks/results/gpu-placement.json
"""

from __future__ import annotations

import heapq
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any
from unittest import mock

from benchmarks import options as asked
from benchmarks.publish import results
from dlsched.control.admission import admit
from dlsched.control.gpus import queue as gpu_queue
from dlsched.control.gpus.placement import (
    Holder,
    Placement,
    PlacementOptions,
    Rooms,
    fitting,
    place,
    rooms,
    taken,
)
from dlsched.control.gpus.queue import GpuQueue
from dlsched.model.facts import GpuFact
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec, LatencyTarget
from dlsched.model.state import GpuView, NodeView

NAME = "gpu-placement"
DEVICES, QUEUED = 64, 1000
FIGURE_S = 0.05
QUEUE = (400, 32)
"""Jobs and GPUs of the simulated queue."""
LOADS = (0.7, 1.0)
"""What its jobs ask for, of all that the GPUs could do."""
SEEDS = tuple(range(1, 11))
_SAME_S = 1.0
"""Waits that differ by less are the same."""
_KINDS = (("NVIDIA T4", 16), ("NVIDIA A10", 24), ("NVIDIA A100", 40), ("NVIDIA A100", 80))
_OPTIONS = PlacementOptions()

Rule = Callable[[JobSpec, Rooms, PlacementOptions], Placement]


def node(devices: int, seed: int) -> NodeView:
    """As many GPUs of each of four kinds, on two NUMA nodes, in an order as drawn by the seed."""
    kinds = [_KINDS[index % len(_KINDS)] for index in range(devices)]
    random.Random(seed).shuffle(kinds)
    views = []
    for index, (model, gib) in enumerate(kinds):
        fact = GpuFact(f"GPU-{index:02}", index, model, gib << 30, numa_node=index % 2)
        views.append(GpuView(fact))
    return NodeView(1e6, 1e6, 1 << 60, gpus=tuple(views))


def jobs(count: int, seed: int) -> list[JobSpec]:
    """A queue as drawn by the seed: half share a GPU, a fifth of these are services."""
    chance = random.Random(seed)
    return [_job(f"job-{index:04}", chance) for index in range(count)]


def _job(name: str, chance: random.Random) -> JobSpec:
    shares = chance.random() < 0.5
    share = chance.choice((0.1, 0.2, 0.25, 0.3, 0.5, 0.7)) if shares else 1.0
    count = 1 if shares else chance.choices((1, 2, 4, 8), (70, 15, 10, 5))[0]
    gib = chance.choice((None, 2, 4, 8, 16) if shares else (None, None, 12, 20, 36))
    container = ContainerSpec(
        "m",
        gpus=count,
        gpu_memory_bytes=None if gib is None else gib << 30,
        gpu_model="A100" if count <= 4 and chance.random() < 0.1 else None,
    )
    serves = shares and chance.random() < 0.2
    return JobSpec(
        name,
        container,
        Bounds(0.01, floor_share=share),
        target=LatencyTarget(0.05) if serves else None,
    )


# ---------------------------------------------------------------------- rules


def first_fit(spec: JobSpec, left: Rooms, _: PlacementOptions) -> Placement:
    """The naive rule: the first GPUs in the driver's order that fit."""
    found: list[str] = []
    for uuid, room in left.items():
        if fitting(spec, [room]):
            found.append(uuid)
        if len(found) == spec.container.gpus:
            return Placement(tuple(found))
    return Placement(None, "fits on too few")


RULES: Mapping[str, tuple[Rule, PlacementOptions]] = {
    "first fit": (first_fit, _OPTIONS),
    "best fit (auto)": (place, _OPTIONS),
    "best fit (pack)": (place, PlacementOptions(prefer="pack")),
}
"""By name, the rule and its options; all others are measured against the first."""


# ---------------------------------------------------------------------- one queue


def least_ms(work: Callable[[], object]) -> float:
    """CPU time of the quickest of five: a host may be busy with other work."""
    times_s = []
    for _ in range(5):
        began_s = time.process_time()
        work()
        times_s.append(time.process_time() - began_s)
    return 1000 * min(times_s)


def place_all(queue: Sequence[JobSpec], on: NodeView, rule: Rule) -> int:
    """Ask the rule for every job of the queue in turn; returns how many it placed."""
    left: Rooms = rooms(on, (), _OPTIONS)
    count = 0
    for spec in queue:
        found = rule(spec, left, _OPTIONS)
        if found.gpus is not None:
            left = taken(left, spec, found.gpus)
            count += 1
    return count


def costs(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """What the choice of GPUs costs for a whole queue."""
    rows = []
    for seed in seeds:
        on, queue = node(DEVICES, seed), jobs(QUEUED, seed)
        ours, naive = (least_ms(partial(place_all, queue, on, rule)) for rule in (place, first_fit))
        rows.append({"seed": seed, "ms": ours, "first fit ms": naive})
    return rows


# ---------------------------------------------------------------------- a simulated queue


@dataclass(frozen=True)
class Arrival:
    """A job that comes at a time and runs for a time, both in seconds."""

    at_s: float
    spec: JobSpec
    runs_s: float


@dataclass(frozen=True)
class Begun:
    """How a job of the simulated queue came to run."""

    waited_s: float
    mixed: bool
    """On several GPUs that are not of one model: the slowest would set its pace."""
    beside: float | None
    """What is promised to others of the GPU's time, where a service begins."""


def arrivals(count: int, on: NodeView, load: float, seed: int) -> list[Arrival]:
    """So many jobs, of so much work together as that load: 1 is all that the node can do."""
    chance = random.Random(seed)
    drawn = [(spec, chance.lognormvariate(6.0, 1.0)) for spec in jobs(count, seed)]
    work_s = sum(spec.container.gpus * spec.bounds.floor_share * runs_s for spec, runs_s in drawn)
    between_s = work_s / count / len(on.gpus) / load
    at_s, coming = 0.0, []
    for spec, runs_s in drawn:
        at_s += chance.expovariate(1.0 / between_s)
        coming.append(Arrival(at_s, spec, runs_s))
    return coming


def queued(coming: Sequence[Arrival], on: NodeView, options: PlacementOptions) -> dict[str, Begun]:
    """How each job came to run; admission is asked whenever one comes or ends."""
    ahead = sorted(coming, key=lambda one: one.at_s, reverse=True)
    queue: list[Arrival] = []
    held: dict[str, Holder] = {}
    kept: dict[str, tuple[str, ...]] = {}
    ends: list[tuple[float, str]] = []
    begun: dict[str, Begun] = {}
    while ahead or ends:
        now_s = min([one.at_s for one in ahead[-1:]] + [at_s for at_s, _ in ends[:1]])
        while ends and ends[0][0] <= now_s:
            del held[heapq.heappop(ends)[1]]
        while ahead and ahead[-1].at_s <= now_s:
            queue.append(ahead.pop())
        gpus = GpuQueue(on, tuple(held.values()), options, kept)
        verdicts = admit([one.spec for one in queue], [], on, len(coming), gpus=gpus)
        kept = {name: verdict.kept for name, verdict in verdicts.items() if verdict.kept}
        for one in [one for one in queue if verdicts[one.spec.name].admitted]:
            queue.remove(one)
            on_gpus = [gpus.left[uuid] for uuid in verdicts[one.spec.name].gpus]
            taken_share = 1.0 - on_gpus[0].share_left - one.spec.bounds.floor_share
            begun[one.spec.name] = Begun(
                waited_s=now_s - one.at_s,
                mixed=len({room.gpu.fact.model for room in on_gpus}) > 1,
                beside=taken_share if one.spec.target is not None else None,
            )
            held[one.spec.name] = Holder(one.spec, verdicts[one.spec.name].gpus)
            heapq.heappush(ends, (now_s + one.runs_s, one.spec.name))
    return begun


def simulated(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A row a load, seed and rule: what waiting in the simulated queue was like."""
    count, devices = QUEUE
    rows: list[dict[str, Any]] = []
    for load in LOADS:
        for seed in seeds:
            on = node(devices, seed)
            coming = arrivals(count, on, load, seed)
            naive: dict[str, Begun] = {}
            for name, (rule, options) in RULES.items():
                with mock.patch.object(gpu_queue, "place", rule):
                    begun = queued(coming, on, options)
                naive = naive or begun
                rows.append({"load": load, "seed": seed, "rule": name, **_figures(begun, naive)})
    return rows


def _figures(begun: Mapping[str, Begun], naive: Mapping[str, Begun]) -> dict[str, Any]:
    more_s = {job: one.waited_s - naive[job].waited_s for job, one in begun.items()}
    beside = [one.beside for one in begun.values() if one.beside is not None]
    return {
        "mean wait s": statistics.fmean(one.waited_s for one in begun.values()),
        "longest wait s": max(one.waited_s for one in begun.values()),
        "wait longer": sum(each > _SAME_S for each in more_s.values()),
        "wait shorter": sum(each < -_SAME_S for each in more_s.values()),
        "mixed": sum(one.mixed for one in begun.values()),
        "beside": statistics.fmean(beside),
    }


_MEANS = ("mean wait s", "wait longer", "wait shorter", "mixed", "beside")


def queue_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By load and rule: means over the seeds, against first fit, and who got worse."""
    found = []
    for (load, rule), mine in results.grouped(rows, itemgetter("load", "rule")).items():
        here = [row for row in rows if (row["load"], row["rule"]) == (load, "first fit")]
        naive = {row["seed"]: row["mean wait s"] for row in here}
        ratios = [row["mean wait s"] / naive[row["seed"]] for row in mine]
        of_all = {name: statistics.fmean(row[name] for row in mine) for name in _MEANS}
        found.append({
            "load": load,
            "rule": rule,
            "mean wait s": of_all["mean wait s"],
            "of first fit's (best, worst seed)": (
                f"{of_all['mean wait s'] / statistics.fmean(naive.values()):.2f} "
                f"({min(ratios):.2f}, {max(ratios):.2f})"
            ),
            "seeds worse": f"{sum(ratio > 1.0 for ratio in ratios)} of {len(ratios)}",
            "jobs that wait longer, shorter": (
                f"{of_all['wait longer']:.0f}, {of_all['wait shorter']:.0f}"
            ),
            "jobs on GPUs of several models": of_all["mixed"],
            "promised to others beside a service": of_all["beside"],
        })  # fmt: skip
    return found


def main(arguments: list[str] | None = None) -> int:
    asked.options(__doc__, arguments)
    timed = costs(SEEDS)
    middle = statistics.median(row["ms"] for row in timed)
    ratio = statistics.median(row["ms"] / row["first fit ms"] for row in timed)
    headline = (
        f"Placing {QUEUED} queued jobs on {DEVICES} GPUs: {middle:.1f} ms in the median of "
        f"{len(SEEDS)} seeds (slowest {max(row['ms'] for row in timed):.1f} ms; figure: under "
        f"{1000 * FIGURE_S:.0f} ms), {ratio:.2f} of what naive first fit takes."
    )
    waits = simulated(SEEDS)
    title = (
        f"A simulated queue of {QUEUE[0]} jobs that come to {QUEUE[1]} GPUs; means of {len(SEEDS)} "
        "seeds, no GPU needed"
    )
    results.finish(NAME, "none", SEEDS, waits, {title: queue_table(waits)}, [headline], costs=timed)
    return 0
