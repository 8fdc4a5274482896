"""Nodes, jobs and snapshots for the tests of the cluster's core."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlsched.cluster.core.snapshot import (
    ClusterJob,
    ClusterSnapshot,
    Left,
    NodeSummary,
    Sharing,
    Transit,
)

GIB = 1 << 30


def node(
    name: str, cores: float = 8.0, sharing: Sharing = Sharing.FAIR, **more: Any
) -> NodeSummary:
    return NodeSummary(name, cores, sharing=sharing, **more)


def job(
    name: str,
    at: str | None = None,
    left: float | Left | None = 800.0,
    parallel: float = 4.0,
    **more: Any,
) -> ClusterJob:
    """A job that may move: reported often, done by a half, arrived long ago."""
    known = Left(left, left, left) if isinstance(left, int | float) else left
    basis = ClusterJob(
        name,
        node=at,
        left=known,
        parallel_cores=parallel,
        reports=100,
        done_core_s=known.mid_core_s if known else 0.0,
        pause_s=10.0,
    )
    return replace(basis, **more)


def snapshot(
    nodes: list[NodeSummary],
    jobs: list[ClusterJob],
    now_s: float = 10_000.0,
    moving: tuple[Transit, ...] = (),
) -> ClusterSnapshot:
    """Jobs without a node are its queue."""
    return ClusterSnapshot(
        round=1,
        now_s=now_s,
        nodes=tuple(sorted(nodes, key=lambda one: one.name)),
        jobs=tuple(sorted((one for one in jobs if one.node), key=lambda one: one.name)),
        queue=tuple(one for one in jobs if not one.node),
        moving=moving,
    )
