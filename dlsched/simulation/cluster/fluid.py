"""A shard of fluid nodes: no agents and no containers, only how CPU time is divided, with the real
placement.

Completions are those of `forecast`, by the true work of each job; forecasts and placements know
only an estimate of it. A job is placed by the core's own `place` and `LeastAdded`, among candidates
that heaps by free cores select first: the nodes with the most cores free and those that would be
done first, as many as `LeastAdded` looks at. Only the first queued job of each size is considered
at a time, as the others of its size fit nowhere before it.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dlsched.cluster.core.benefit import Forecasts
from dlsched.cluster.core.federation import QueuedJob
from dlsched.cluster.core.forecast import Load, completions, phases
from dlsched.cluster.core.hand_over import Entry, EntryState, start
from dlsched.cluster.core.least_added import LeastAdded
from dlsched.cluster.core.model import ClusterJob, ClusterSnapshot, Left, NodeSummary, Sharing
from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.placing import place
from dlsched.cluster.core.shards import Ask, NodeRoom, ShardSummary, summarize
from dlsched.control.admission import rank_s

_CANDIDATES = 4
_OVERDUE_RATIO = 0.25
"""A job that has outlived its estimate is taken to need this part of its work so far once more."""
_OVERDUE_S = 30.0
"""The same for an end that was forecast and has passed without any event on its node."""


@dataclass(slots=True)
class FluidJob:
    """A job, and how far it is."""

    name: str
    home: str
    """The shard to which it is submitted."""
    arrives_s: float
    cores: int
    """Its floor, which is also its weight."""
    parallel_cores: float
    work_core_s: float
    estimate_core_s: float
    """The work that forecasts assume."""
    done_core_s: float = 0.0
    started_s: float | None = None
    ended_s: float | None = None
    been: frozenset[str] = frozenset()
    """Shards that have handed it over."""
    came_at_s: float = -math.inf

    @property
    def rank(self) -> tuple[float, str]:
        return rank_s(self.cores, self.arrives_s), self.name

    @property
    def shortest_s(self) -> float:
        """As far as is known when it arrives."""
        return self.estimate_core_s / self.parallel_cores

    @property
    def expected_core_s(self) -> float:
        """What its forecast assumes to be left."""
        return max(self.estimate_core_s - self.done_core_s, _OVERDUE_RATIO * self.done_core_s, 1.0)


class FluidNode:
    """One node, whose cores are shared by weight."""

    def __init__(self, name: str, cores: int) -> None:
        self.name = name
        self.cores = cores
        self.free = cores
        """Beyond the floors of its jobs."""
        self.jobs: list[FluidJob] = []
        self.version = 0
        """Higher after each change."""
        self._at_s = 0.0
        self._rates: Sequence[tuple[int, float]] = ()
        self._ends: list[tuple[float, float]] | None = None

    def advance(self, now_s: float) -> None:
        """Let its jobs run until now."""
        for index, rate in self._rates:
            self.jobs[index].done_core_s += rate * (now_s - self._at_s)
        self._at_s = now_s

    def finish(self, now_s: float) -> list[FluidJob]:
        """Remove and return the jobs that are done by now. `divide` must follow."""
        self.advance(now_s)
        done = [job for job in self.jobs if job.done_core_s >= job.work_core_s - 1e-6]
        for job in done:
            job.ended_s = now_s
            self.jobs.remove(job)
            self.free += job.cores
        return done

    def add(self, job: FluidJob) -> None:
        self.jobs.append(job)
        self.free -= job.cores

    def divide(self) -> float:
        """Divide its cores again, after a change; returns when the next job is done."""
        self.version += 1
        self._ends = None
        loads = [
            Load(max(job.work_core_s - job.done_core_s, 1e-6), job.parallel_cores, job.cores)
            for job in self.jobs
        ]
        if not loads:
            self._rates = ()
            return math.inf
        first = next(phases(self.cores, Sharing.FAIR, loads))
        self._rates = first.granted
        return self._at_s + first.ends_s

    def ends(self, now_s: float) -> list[tuple[float, float]]:
        """Forecast ends of its jobs in seconds from now, and the cores that they free, sorted."""
        if self._ends is None:
            loads = [Load(job.expected_core_s, job.parallel_cores, job.cores) for job in self.jobs]
            found = completions(self.cores, Sharing.FAIR, loads)
            self._ends = sorted(
                (self._at_s + end_s, float(job.cores))
                for end_s, job in zip(found, self.jobs, strict=True)
            )
        return [(max(end_s - now_s, _OVERDUE_S), cores) for end_s, cores in self._ends]

    def starts_s(self, cores: int, now_s: float) -> float:
        """Forecast start of a job that needs so many cores."""
        free: float = self.free
        if free >= cores:
            return 0.0
        for end_s, freed in self.ends(now_s):
            free += freed
            if free >= cores:
                return end_s
        return math.inf

    def drained_s(self) -> float:
        """About when it will be done with all its work."""
        return self._at_s + sum(job.expected_core_s for job in self.jobs) / self.cores

    def view(self) -> tuple[NodeSummary, list[ClusterJob]]:
        """As the core sees it."""
        summary = NodeSummary(self.name, self.cores, sharing=Sharing.FAIR)
        return summary, [cluster_job(job, self.name) for job in self.jobs]


def cluster_job(job: FluidJob, node: str | None = None) -> ClusterJob:
    """The job as the core sees it, with the work that is expected."""
    left = job.expected_core_s
    return ClusterJob(
        job.name,
        arrived_s=job.arrives_s,
        node=node,
        weight=job.cores,
        floor_cores=job.cores,
        left=Left(left, left, left),
        parallel_cores=job.parallel_cores,
    )


def queued(job: FluidJob, ahead_cores: float = 0.0) -> QueuedJob:
    """The job as a federation sees it."""
    return QueuedJob(
        job.name,
        Ask(job.cores),
        ahead_cores,
        job.parallel_cores,
        job.shortest_s,
        len(job.been),
        job.been,
        job.came_at_s,
    )


@dataclass(slots=True)
class FluidQueue:
    """Jobs that wait, by size; each size in the order of the queue."""

    sizes: dict[int, list[tuple[float, str]]] = field(default_factory=dict)
    jobs: dict[str, FluidJob] = field(default_factory=dict)
    demand_cores: float = 0.0

    def add(self, job: FluidJob) -> None:
        bisect.insort(self.sizes.setdefault(job.cores, []), job.rank)
        self.jobs[job.name] = job
        self.demand_cores += job.parallel_cores

    def remove(self, name: str) -> None:
        job = self.jobs.pop(name)
        ranks = self.sizes[job.cores]
        del ranks[bisect.bisect_left(ranks, job.rank)]
        self.demand_cores -= job.parallel_cores

    def firsts(self) -> list[FluidJob]:
        """The first of each size, in order."""
        ranks = sorted(found[0] for found in self.sizes.values() if found)
        return [self.jobs[name] for _, name in ranks]

    def __iter__(self) -> Iterator[FluidJob]:
        for _, name in heapq.merge(*self.sizes.values()):
            yield self.jobs[name]


class FluidShard:
    """Nodes with one queue, and the entries of all its jobs."""

    def __init__(self, name: str, nodes: int, cores: int) -> None:
        self.name = name
        self.nodes = {
            one: FluidNode(one, cores) for one in (f"node-{index:05}" for index in range(nodes))
        }
        self.cores = cores
        self.queue = FluidQueue()
        self.held: dict[str, FluidJob] = {}
        """Queued too, but given no node yet, as a federation may have a better shard."""
        self.running_demand = 0.0
        self.entries: dict[str, Entry] = {}
        self._by_free: list[list[tuple[float, str, int]]] = [[] for _ in range(cores + 1)]
        self._kept: tuple[str, str, int] | None = None
        """The head of the queue, the node on which it is to start, and that node's version."""
        for node in self.nodes.values():
            self._file(node)

    def submit(self, job: FluidJob, entry: Entry, *, hold: bool = False) -> None:
        """Queue a job by an entry that says so."""
        assert entry.state is EntryState.QUEUED
        self.entries[job.name] = entry
        if hold:
            self.held[job.name] = job
        else:
            self.queue.add(job)

    def release(self, name: str) -> None:
        """Hold this job no longer."""
        job = self.held.pop(name, None)
        if job is not None:
            self.queue.add(job)

    def remove(self, name: str) -> None:
        """Remove a queued job."""
        if self.held.pop(name, None) is None:
            self.queue.remove(name)

    def finish(self, node: FluidNode, now_s: float) -> float:
        """Remove the node's jobs that are done; returns when its next one is."""
        for job in node.finish(now_s):
            del self.entries[job.name]
            self.running_demand -= job.parallel_cores
        return self.divide(node)

    def serve(self, now_s: float) -> dict[str, float]:
        """Start queued jobs; returns when the next job is done, by node that has changed."""
        changed: dict[str, float] = {}
        while (firsts := self.queue.firsts()) and (started := self._place(firsts, now_s)):
            for name, node_name in started.items():
                node, job = self.nodes[node_name], self.queue.jobs[name]
                entry = start(self.entries[name])
                assert entry is not None, f"{name} is not to be started in {self.name}"
                self.entries[name] = entry
                self.queue.remove(name)
                job.started_s = now_s
                node.advance(now_s)
                node.add(job)
                self.running_demand += job.parallel_cores
                changed[node_name] = self.divide(node)
        return changed

    def divide(self, node: FluidNode) -> float:
        next_s = node.divide()
        self._file(node)
        return next_s

    def summary(self, now_s: float) -> ShardSummary:
        rooms = (
            NodeRoom(
                float(node.free),
                cores=node.cores,
                demand_cores=sum(job.parallel_cores for job in node.jobs),
                ends=node.ends(now_s),
            )
            for node in self.nodes.values()
        )
        queue = [(job.name, Ask(job.cores)) for job in self.queue]
        demand = sum(job.parallel_cores for job in (*self.queue, *self.held.values()))
        return summarize(self.name, Ask(self.cores, 1 << 40, 0), rooms, queue, demand)

    def crowding(self) -> ShardSummary:
        """A summary with only what `holds` needs."""
        demand = self.running_demand + self.queue.demand_cores
        demand += sum(job.parallel_cores for job in self.held.values())
        empty = summarize(self.name, Ask(self.cores), ())
        return replace(empty, cores=self.cores * len(self.nodes), demand_cores=demand)

    def waiting(self) -> list[QueuedJob]:
        """Its queue, as a federation sees it; those that are held are last."""
        found, ahead = [], 0
        for job in itertools.chain(self.queue, self.held.values()):
            found.append(queued(job, ahead))
            ahead += job.cores
        return found

    def candidates(self, cores: int) -> set[str]:
        """Nodes with room: those with the most cores free, and those that would be done first."""
        idle: list[str] = []
        drained: list[tuple[float, str]] = []
        for free in range(self.cores, cores - 1, -1):
            first = self._first(free)
            idle += [name for _, name in first[: _CANDIDATES - len(idle)]]
            drained += first
        return {*idle, *(name for _, name in heapq.nsmallest(_CANDIDATES, drained))}

    def _place(self, firsts: Sequence[FluidJob], now_s: float) -> dict[str, str]:
        """Nodes of the jobs that can start now."""
        head, *behind = firsts
        names = self.candidates(head.cores)
        if names:
            firsts = [head]
        else:
            for job in behind:
                names |= self.candidates(job.cores)
            if names:
                names.add(self._reserved(head, now_s))
        if not names:
            return {}
        for name in names:
            node = self.nodes[name]
            node.advance(now_s)
        views = [self.nodes[name].view() for name in sorted(names)]
        running = sorted(itertools.chain(*(jobs for _, jobs in views)), key=lambda job: job.name)
        queue = tuple(map(cluster_job, firsts))
        snapshot = ClusterSnapshot(
            0, now_s, tuple(node for node, _ in views), tuple(running), queue
        )
        occupancy = Occupancy(snapshot)
        return place(occupancy, LeastAdded(Forecasts(occupancy), 0.0).choose).place

    def _reserved(self, head: FluidJob, now_s: float) -> str:
        """The node on which the head of the queue is to start."""
        if self._kept is not None:
            name, node, version = self._kept
            if name == head.name and self.nodes[node].version == version:
                return node
        _, node = min((one.starts_s(head.cores, now_s), one.name) for one in self.nodes.values())
        self._kept = head.name, node, self.nodes[node].version
        return node

    def _file(self, node: FluidNode) -> None:
        heapq.heappush(self._by_free[node.free], (node.drained_s(), node.name, node.version))

    def _first(self, free: int) -> list[tuple[float, str]]:
        """Of the nodes with so many cores free, the few that would be done first."""
        heap = self._by_free[free]
        found: list[tuple[float, str, int]] = []
        while heap and len(found) < _CANDIDATES:
            one = heapq.heappop(heap)
            node = self.nodes[one[1]]
            if node.version == one[2] and node.free == free:
                found.append(one)
        for one in found:
            heapq.heappush(heap, one)
        return [(drained_s, name) for drained_s, name, _ in found]
