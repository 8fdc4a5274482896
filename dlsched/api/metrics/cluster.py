"""Metrics of a cluster, on hosts where its controller has run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from dlsched.api.cluster_schema import ClusterStatus
from dlsched.api.metrics.metric import Kind, Metric, Read, Scene, Series, alone
from dlsched.store.journal.minutes import wall_s

_NODE_STATES = ("ready", "drain", "silent", "down")
_JOB_STATES = (
    *("starting", "running", "saving", "leaving", "moving", "returning", "undoing"),
    *("finished", "failed", "unknown"),
)


def _leads(cluster: ClusterStatus) -> bool:
    return cluster.leader == cluster.manager


def _known(value: Callable[[ClusterStatus], float | None]) -> Read:
    """One series where a controller has run."""
    return alone(lambda scene: None if scene.cluster is None else value(scene.cluster))


def _led(value: Callable[[ClusterStatus], float]) -> Read:
    """One series on the manager that leads: the others know no nodes and no jobs."""
    return _known(lambda cluster: value(cluster) if _leads(cluster) else None)


def _undone(cluster: ClusterStatus) -> float | None:
    return cluster.totals.undone if _leads(cluster) and cluster.totals else None


def _moves(scene: Scene) -> Iterable[Series]:
    """One series an outcome, on the manager that leads."""
    cluster = scene.cluster
    if cluster is not None and _leads(cluster) and cluster.totals is not None:
        yield ("completed",), cluster.totals.completed
        yield ("failed",), cluster.totals.failed


def _by_state(
    states: tuple[str, ...], found: Callable[[ClusterStatus], Iterable[str]]
) -> Callable[[Scene], Iterable[Series]]:
    """One series a state, on the manager that leads."""

    def read(scene: Scene) -> Iterable[Series]:
        if scene.cluster is None or not _leads(scene.cluster):
            return
        counts = Counter(dict.fromkeys(states, 0))
        counts.update(found(scene.cluster))
        for state, count in counts.items():
            yield (state,), float(count)

    return read


CLUSTER_METRICS: tuple[Metric, ...] = (
    Metric(
        "cluster_status_timestamp_seconds",
        Kind.GAUGE,
        (),
        "Unix time at which the cluster's controller on this host last reported. This and all "
        "other metrics of a cluster are absent where no controller has run.",
        _known(lambda cluster: wall_s(cluster.written_at)),
    ),
    Metric(
        "cluster_leads",
        Kind.GAUGE,
        (),
        "Whether the controller on this host leads: 1 or 0. Only the leader has series of "
        "nodes, jobs and moves.",
        _known(_leads),
    ),
    Metric(
        "cluster_nodes",
        Kind.GAUGE,
        ("state",),
        "Nodes of the cluster in each state.",
        _by_state(_NODE_STATES, lambda cluster: (one.state for one in cluster.nodes)),
    ),
    Metric(
        "cluster_jobs",
        Kind.GAUGE,
        ("state",),
        "Jobs of the cluster that have a node, or have ended, in each state.",
        _by_state(_JOB_STATES, lambda cluster: (one.state for one in cluster.jobs)),
    ),
    Metric(
        "cluster_waiting_jobs",
        Kind.GAUGE,
        (),
        "Jobs of the cluster that wait for a node.",
        _led(lambda cluster: len(cluster.queue)),
    ),
    Metric(
        "cluster_moving_jobs",
        Kind.GAUGE,
        (),
        "Moves of jobs that are under way, including those in preparation.",
        _led(lambda cluster: sum(one.target is not None for one in cluster.jobs)),
    ),
    Metric(
        "cluster_unreachable_nodes",
        Kind.GAUGE,
        (),
        "Nodes of the cluster that are silent or down.",
        _led(lambda cluster: sum(one.state in ("silent", "down") for one in cluster.nodes)),
    ),
    Metric(
        "cluster_moves_total",
        Kind.COUNTER,
        ("outcome",),
        "Moves of jobs that were completed or failed since the controller started.",
        _moves,
    ),
    Metric(
        "cluster_moves_undone_total",
        Kind.COUNTER,
        (),
        "Completed moves that the policy took back, as the job was slower. The move back "
        "counts as a move, too.",
        _known(_undone),
    ),
    Metric(
        "cluster_alarms",
        Kind.GAUGE,
        (),
        "Alarms and rejected files that `dlsched cluster status` shows on this host.",
        _known(lambda cluster: len(cluster.alarms) + len(cluster.rejected)),
    ),
)
