"""The nodes with all that is on them or comes to them, while a round is decided."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from dlsched.cluster.core.completion import Load, completions
from dlsched.cluster.core.snapshot import ClusterJob, ClusterSnapshot, Left, NodeState, NodeSummary
from dlsched.model.units import CORES_MIN, counted, exceeds, render_bytes, shown

UNKNOWN_LEFT = Left(60.0, 600.0, 6000.0)
"""For a job of which nothing is known, where nothing is known of any job: ten minutes of one core,
within a factor of ten."""

SHOWN_REASONS = 3
"""Reasons that keep a job from nodes, in one line."""


class Occupancy:
    """Every node with its jobs, and the room that is left for more.

    A job under way counts at its target, where it begins after the rest of its pause; its room at
    the source is not free yet. `add` keeps room for a job that this round sends to a node. Jobs of
    unknown nodes do not count.
    """

    def __init__(
        self, snapshot: ClusterSnapshot, speeds: Mapping[tuple[str, str], float] | None = None
    ) -> None:
        """`speeds` are those measured of an image on a node, where they differ from the node's."""
        self.snapshot = snapshot
        self._speeds = speeds or {}
        self.nodes = {
            node.name: node for node in sorted(snapshot.nodes, key=lambda node: node.name)
        }
        self.jobs = {job.name: job for job in snapshot.jobs}
        self.transits = {transit.job: transit for transit in snapshot.moving}
        self.left = _left((*snapshot.jobs, *snapshot.queue))
        """Of each job, the mean of the others where nothing is known of it."""
        self.on: dict[str, list[ClusterJob]] = {name: [] for name in self.nodes}
        self._begins_s: dict[str, float] = {}
        self._floors = dict.fromkeys(self.nodes, 0.0)
        self._memory = {name: node.memory_free_bytes for name, node in self.nodes.items()}
        self._gpus = {name: node.gpus_free for name, node in self.nodes.items()}
        for job in snapshot.jobs:
            transit = self.transits.get(job.name)
            at = transit.target if transit else job.node
            if at not in self.nodes:
                continue
            if transit and job.node != at:
                self.add(job, at, max(transit.ends_s - snapshot.now_s, 0.0))
                continue
            self.on[at].append(job)
            self._floors[at] += job.floor_cores
            if transit:
                self._begins_s[job.name] = max(transit.ends_s - snapshot.now_s, 0.0)

    def add(self, job: ClusterJob, node: str, begins_s: float = 0.0) -> None:
        """Keep room for a job that comes to the node and begins after so many seconds."""
        self.on[node].append(job)
        self._floors[node] += job.floor_cores
        self._gpus[node] -= job.gpus
        free = self._memory[node]
        if free is not None:
            self._memory[node] = free - (job.memory_bytes or 0)
        self._begins_s[job.name] = begins_s

    def lacks(
        self,
        job: ClusterJob,
        node: str,
        gone: Sequence[ClusterJob] = (),
        beside: Sequence[ClusterJob] = (),
    ) -> str | None:
        """Why the job cannot start on the node; None: it can. `gone` are jobs there to be taken as
        ended, `beside` others to be taken as there."""
        return lacks(job, self.nodes[node]) or self._lacks_room(job, node, gone, beside)

    def _lacks_room(
        self,
        job: ClusterJob,
        node: str,
        gone: Sequence[ClusterJob],
        beside: Sequence[ClusterJob],
    ) -> str | None:
        floors = self._floors[node]
        floors += sum(one.floor_cores for one in beside) - sum(one.floor_cores for one in gone)
        capacity = self.nodes[node].capacity_cores
        if exceeds(floors + job.floor_cores, capacity):
            return (
                f"the job's floor is {job.floor_cores:.2f} cores, {capacity - floors:.2f} are free"
            )
        gpus = self._gpus[node]
        gpus += sum(one.gpus for one in gone) - sum(one.gpus for one in beside)
        if job.gpus > gpus:
            return f"needs {counted(job.gpus, 'GPU')}, {max(gpus, 0)} free"
        free = self._memory[node]
        if job.memory_bytes is not None and free is not None:
            free += sum(one.memory_bytes or 0 for one in gone)
            free -= sum(one.memory_bytes or 0 for one in beside)
            if job.memory_bytes > free:
                needs = render_bytes(job.memory_bytes)
                return f"the job needs {needs} of memory, {render_bytes(max(free, 0))} is free"
        return None

    def load(
        self,
        job: ClusterJob,
        node: str,
        left_core_s: float | None = None,
        begins_s: float | None = None,
    ) -> Load:
        """The job in the forecast of the node: with its most likely work, and after the rest of its
        pause, unless given."""
        core_s = self.left[job.name].mid_core_s if left_core_s is None else left_core_s
        speed = self._speeds.get((job.image, node), self.nodes[node].speed)
        wait_s = self._begins_s.get(job.name, 0.0) if begins_s is None else begins_s
        return Load(
            core_s / speed,
            job.parallel_cores,
            job.weight,
            wait_s,
        )

    def loads(self, node: str) -> list[Load]:
        """Those of `on[node]`, in its order."""
        return [self.load(job, node) for job in self.on[node]]

    def ends(self, node: str, loads: list[Load]) -> list[float]:
        """Seconds until each of these loads is done on the node."""
        one = self.nodes[node]
        return completions(max(one.free_cores, CORES_MIN), one.sharing, loads)


def lacks(job: ClusterJob, node: NodeSummary) -> str | None:
    """Why this node takes no such job, however empty it is; None: it does."""
    if node.state is NodeState.SILENT:
        return "the node's agent does not report"
    if node.state is NodeState.DRAINING:
        return "the node drains"
    for key, value in job.requires.items():
        if node.labels.get(key) != value:
            return f"the node lacks the label {shown(f'{key}={value}')}"
    if exceeds(job.floor_cores, node.capacity_cores):
        return (
            f"the job's floor is {job.floor_cores:.2f} cores, the node has "
            f"{node.capacity_cores:.2f}"
        )
    if not job.pulls and not node.has_image(job.image):
        return f"the node lacks the image {shown(job.image)}, and pull_policy is never"
    return job.barred.get(node.name)


def summary(by_node: Mapping[str, str | None]) -> str:
    """What keeps a job from these nodes (None: nothing), the most frequent reason first."""
    reasons = {name: reason for name, reason in by_node.items() if reason is not None}
    if not reasons:
        return "the cluster has no nodes"
    found = Counter(reasons.values()).most_common()
    parts = []
    for reason, count in found[:SHOWN_REASONS]:
        first = min(name for name, one in reasons.items() if one == reason)
        parts.append(f"{first if count == 1 else counted(count, 'node')}: {reason}")
    rest = sum(count for _, count in found[SHOWN_REASONS:])
    return "; ".join([*parts, *([f"{counted(rest, 'more node')}: others"] if rest else [])])


def _left(jobs: tuple[ClusterJob, ...]) -> dict[str, Left]:
    known = {job.name: job.left for job in jobs if job.left is not None}
    if known:
        count = len(known)
        sums = (math.fsum(values) / count for values in zip(*known.values(), strict=True))
        prior = Left(*sums)
    else:
        prior = UNKNOWN_LEFT
    return {job.name: known.get(job.name, prior) for job in jobs}
