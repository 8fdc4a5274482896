"""What a controller reports of four nodes, two of them with the same host's name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dlsched.api.cluster_schema import (
    AlternativeRow,
    ClusterStatus,
    ClusterTotals,
    EventRow,
    JobRow,
    MoveRow,
    NodeRow,
    QueueRow,
)
from dlsched.cluster.status_file import SCHEMA_VERSION

JOB = JobRow(
    name="resnet",
    node="n1",
    target="n3",
    state="moving",
    epoch=7,
    since_s=12.0,
    moves=1,
    goal="accuracy 0.9, 0.97",
    measured=0.71,
    granted_cores=2.0,
    left_core_s=600.0,
    unmovable="",
    why="gains 190 s",
    events=(EventRow("2026-01-01T00:00:00.000Z", "placed on gpu-1"),),
    moved=(
        MoveRow(
            "2026-01-01T00:10:00.000Z",
            "n3",
            "n1",
            "undone",
            "gains 790 s",
            "0.58 of its speed on twin",
            -190.4,
            None,
            pending=False,
        ),
    ),
    alternatives=(AlternativeRow("n2", "the node's agent does not report", None),),
)
TOTALS = ClusterTotals(
    completed=3,
    failed=1,
    undone=1,
)


def written_ago(age_s: float) -> str:
    """Seconds pass until a test reads it: hours are still told as hours then."""
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def example() -> ClusterStatus:
    now = written_ago(2.0)
    nodes = (
        NodeRow("n1", "gpu-1", "10.0.0.1", "ready", 9, 7.8, 8.0, 840.0, 2.0, ""),
        NodeRow("n2", "gpu-2", "10.0.0.2", "silent", 0, None, None, None, None, "no report: refu"),
        NodeRow("n3", "twin", "10.0.0.3", "ready", 0, 0.0, 8.0, None, 1.0, ""),
        NodeRow("n4", "twin", "10.0.0.4", "drain", 0, 0.0, 8.0, None, 1.0, ""),
    )
    return ClusterStatus(
        schema_version=SCHEMA_VERSION,
        instance="default",
        manager="n1",
        leader="n1",
        policy="adaptive",
        written_at=now,
        observed_at=now,
        nodes=nodes,
        jobs=(JOB,),
        queue=(QueueRow("vgg", 30.0, "gpu-1: the job's floor is 64.00 cores, the node has 8.00"),),
        asked=(),
        rejected=("a.yaml:3:9: weight: 'no' is not a number",),
        alarms=(),
        totals=TOTALS,
    )
