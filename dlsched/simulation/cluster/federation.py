"""Runs queued jobs on many shards of fluid nodes, with and without a federation, event by event.

The federation is the real one: its rule decides on summaries that went through their JSON form and
are one round old, and each hand-over makes the writes of the real table, a second apart.
"""

from __future__ import annotations

import gc
import heapq
import itertools
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dlsched.cluster.core.federation import (
    HOLD_S,
    ROUND_S,
    RULE,
    FederationMemory,
    FederationRule,
    HandOver,
    considered,
    decide,
    holds,
)
from dlsched.cluster.core.hand_over import Entry, EntryState, Write, begin, next_write
from dlsched.cluster.core.shards import parse_summary
from dlsched.simulation.cluster.fluid import FluidJob, FluidShard, queued

WRITE_S = 1.0
"""Between the writes of a hand-over."""

SIZES = (1, 2, 4, 8)
SIZE_WEIGHTS = (0.25, 0.3, 0.25, 0.2)
_MEAN_SIZE = sum(size * weight for size, weight in zip(SIZES, SIZE_WEIGHTS, strict=True))
_TAIL, _TAIL_SPAN = 1.1, 100.0
"""Lengths are a bounded Pareto of this exponent, as process lifetimes have it (Harchol-Balter and
Downey 1997), the longest 100 times the shortest."""
_ESTIMATE_SIGMA = 0.5
"""Of the logarithm of estimated by true work."""
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class FederationWorld:
    """Shards and the jobs that are submitted to them."""

    shards: Mapping[str, int]
    """Nodes by shard."""
    node_cores: int
    jobs: Sequence[FluidJob]
    """Before anything has happened; runs have copies."""


@dataclass(frozen=True, slots=True)
class WorldOptions:
    shards: int = 20
    nodes: int = 500
    """Of each shard."""
    node_cores: int = 8
    jobs: int = 100_000
    load: float = 0.85
    """Floors of all jobs that arrive in the day, as a part of all cores."""
    uneven: float = 3.0
    """A quarter of the shards gets so many times as many jobs as each of the others."""
    stretch: float = 1.0
    """The most that a job can use, as a multiple of its floor."""


@dataclass(slots=True)
class FederationRun:
    """What came of it."""

    completions_s: dict[str, float]
    """From its arrival, by job."""
    makespan_s: float
    moved: int = 0
    """Jobs that were handed over at least once."""
    hand_overs: int = 0
    returned: int = 0
    """Hand-overs that ended in the source, as it started the job meanwhile."""
    held: int = 0
    """Jobs that waited for the federation before they were given a node."""
    rounds_s: list[float] = field(default_factory=list)
    """CPU time of each round: parsing all summaries, and deciding."""
    summaries_s: list[float] = field(default_factory=list)
    """CPU time of making each summary."""
    largest_bytes: int = 0
    """Of all summaries."""


def draw_world(seed: int, options: WorldOptions) -> FederationWorld:
    """Arrivals over a day, more of them around noon, uneven over shards, with heavy tails."""
    draw = random.Random(seed)
    names = [f"shard-{index + 1:02}" for index in range(options.shards)]
    crowded = set(draw.sample(names, max(1, options.shards // 4)))
    weights = [options.uneven if name in crowded else 1.0 for name in names]
    cores = options.shards * options.nodes * options.node_cores
    mean_s = options.load * cores * DAY_S / (options.jobs * _MEAN_SIZE)
    shortest_s = mean_s / _pareto_mean()
    jobs = []
    for index in range(options.jobs):
        size = draw.choices(SIZES, SIZE_WEIGHTS)[0]
        work = size * shortest_s * _pareto(draw.random())
        jobs.append(
            FluidJob(
                f"job-{index:06}",
                draw.choices(names, weights)[0],
                _arrival(draw),
                size,
                min(size * options.stretch, options.node_cores),
                work,
                work * math.exp(draw.gauss(0.0, _ESTIMATE_SIGMA)),
            )
        )
    return FederationWorld(dict.fromkeys(names, options.nodes), options.node_cores, jobs)


def flat(world: FederationWorld) -> FederationWorld:
    """The same jobs and nodes with one queue."""
    jobs = [replace(job, home="flat") for job in world.jobs]
    return FederationWorld({"flat": sum(world.shards.values())}, world.node_cores, jobs)


def simulate_federation(
    world: FederationWorld, federated: bool, rule: FederationRule = RULE
) -> FederationRun:
    """Run all jobs to their ends; the same arguments give the same result but for CPU times."""
    return _Run(world, federated, rule).run()


class _Run:
    def __init__(self, world: FederationWorld, federated: bool, rule: FederationRule) -> None:
        self.world, self.federated, self.rule = world, federated, rule
        self.shards = {
            name: FluidShard(name, nodes, world.node_cores) for name, nodes in world.shards.items()
        }
        self.jobs = {job.name: replace(job) for job in world.jobs}
        self.found = FederationRun({}, 0.0)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = itertools.count()
        self._memory = FederationMemory()
        self._summaries: dict[str, str] = {}
        self._summed_s = -math.inf
        for job in self.jobs.values():
            self._at(job.arrives_s, partial(self._arrive, job))
        if federated:
            self._at(ROUND_S, self._round)

    def run(self) -> FederationRun:
        while self._events:
            now_s, _, act = heapq.heappop(self._events)
            act(now_s)
        for job in self.jobs.values():
            assert job.ended_s is not None, f"{job.name} was lost"
            self.found.completions_s[job.name] = job.ended_s - job.arrives_s
        self.found.makespan_s = max(job.ended_s or 0.0 for job in self.jobs.values())
        self.found.moved = sum(1 for job in self.jobs.values() if job.been)
        return self.found

    def _at(self, at_s: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._count), act))

    def _arrive(self, job: FluidJob, now_s: float) -> None:
        shard = self.shards[job.home]
        hold = self.federated and holds(shard.crowding(), queued(job), self.rule)
        shard.submit(job, Entry(job.name, EntryState.QUEUED), hold=hold)
        if hold:
            self.found.held += 1
            self._at(now_s + HOLD_S, partial(self._release, shard, job))
        else:
            self._serve(shard, now_s)

    def _release(self, shard: FluidShard, job: FluidJob, now_s: float) -> None:
        shard.release(job.name)
        self._serve(shard, now_s)

    def _serve(self, shard: FluidShard, now_s: float) -> None:
        for node, next_s in shard.serve(now_s).items():
            self._expect(shard, node, next_s)

    def _expect(self, shard: FluidShard, node: str, next_s: float) -> None:
        version = shard.nodes[node].version
        if next_s < math.inf:
            self._at(next_s, partial(self._end, shard, node, version))

    def _end(self, shard: FluidShard, name: str, version: int, now_s: float) -> None:
        node = shard.nodes[name]
        if node.version != version:
            return
        self._expect(shard, name, shard.finish(node, now_s))
        self._serve(shard, now_s)

    def _round(self, now_s: float) -> None:
        if self._events:
            self._at(now_s + ROUND_S, self._round)
        if not any(shard.queue.jobs or shard.held for shard in self.shards.values()):
            return
        before, summed_s = self._summaries, self._summed_s
        self._summarize(now_s)
        if now_s - summed_s > 1.5 * ROUND_S:
            before, summed_s = self._summaries, now_s
        queues = {
            name: considered(parse_summary(self._summaries[name]), shard.waiting(), self.rule)
            for name, shard in self.shards.items()
            if shard.queue.jobs or shard.held
        }
        gc.disable()  # it would go through all that is simulated
        began_s = time.thread_time()
        summaries = {
            name: replace(parse_summary(text), age_s=now_s - summed_s)
            for name, text in before.items()
        }
        number = round(now_s / ROUND_S)
        decision = decide(number, now_s, summaries, queues, self._memory, self.rule)
        self.found.rounds_s.append(time.thread_time() - began_s)
        gc.enable()
        self._memory = decision.memory
        for one in decision.hand_overs:
            self._hand_over(one, now_s)

    def _summarize(self, now_s: float) -> None:
        self._summaries = {}
        for name, shard in self.shards.items():
            began_s = time.thread_time()
            text = shard.summary(now_s).to_json()
            self.found.summaries_s.append(time.thread_time() - began_s)
            self.found.largest_bytes = max(self.found.largest_bytes, len(text))
            self._summaries[name] = text
        self._summed_s = now_s

    def _hand_over(self, one: HandOver, now_s: float) -> None:
        source, target = self.shards[one.source], self.shards[one.target]
        own = source.entries.get(one.job)
        write = begin(one.source, one.target, own, target.entries.get(one.job)) if own else None
        if write is not None:
            self.found.hand_overs += 1
            self._write(one, write, now_s)

    def _step(self, one: HandOver, now_s: float) -> None:
        own, there = (self.shards[name].entries.get(one.job) for name in (one.source, one.target))
        write = next_write(one.source, one.target, own, there)
        if write is not None:
            self._write(one, write, now_s)

    def _write(self, one: HandOver, write: Write, now_s: float) -> None:
        shard, job = self.shards[write.shard], self.jobs[one.job]
        if write.entry is None:
            del shard.entries[one.job]
            self.found.returned += 1
            return
        if write.entry.state is EntryState.QUEUED:
            job.been, job.came_at_s = job.been | {one.source}, now_s
            shard.submit(job, write.entry)
            self._serve(shard, now_s)
            return
        shard.entries[one.job] = write.entry
        if write.entry.state is EntryState.GONE:
            shard.remove(one.job)
            self._serve(shard, now_s)
        self._at(now_s + WRITE_S, partial(self._step, one))


def _arrival(draw: random.Random) -> float:
    """In a day whose density is 1 + 0.5 sin, highest after six hours."""
    while True:
        at_s = draw.random() * DAY_S
        if draw.random() * 1.5 <= 1.0 + 0.5 * math.sin(2 * math.pi * at_s / DAY_S):
            return at_s


def _pareto(part: float) -> float:
    """The quantile of the bounded Pareto whose shortest value is 1."""
    found: float = (1.0 - part * (1.0 - _TAIL_SPAN**-_TAIL)) ** (-1.0 / _TAIL)
    return found


def _pareto_mean() -> float:
    norm = 1.0 - _TAIL_SPAN**-_TAIL
    mean: float = _TAIL / (_TAIL - 1.0) * (1.0 - _TAIL_SPAN ** (1.0 - _TAIL)) / norm
    return mean
