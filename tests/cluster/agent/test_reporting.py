"""How much of a node's capacity is taken by what the cluster has not placed there."""

from __future__ import annotations

import pytest

from dlsched.cluster.agent.reporting import NodeFacts, node_report
from dlsched.cluster.core.reports import NodeReport
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec
from dlsched.model.state import JobState, JobView, NodeView, Snapshot, Usage


def report(capacity_cores: float, foreign_cores: float | None, *jobs: JobView) -> NodeReport:
    node = NodeView(capacity_cores, 8.0, 1 << 30, foreign_cores=foreign_cores)
    cycle = CycleReport(Snapshot(1, 100.0, node, jobs), "fair")
    return node_report("a", cycle, {}, [], NodeFacts(lambda: "fair"), lambda _: None, 100.0)


@pytest.mark.parametrize(
    ("foreign_cores", "taken_cores"), [(None, 0.0), (1.5, 0.0), (2.0, 0.0), (5.0, 3.0), (8.0, 6.0)]
)
def test_other_processes_use_the_cores_beyond_the_capacity_first(
    foreign_cores: float | None, taken_cores: float
) -> None:
    assert report(6.0, foreign_cores).foreign_cores == taken_cores


def test_without_cores_beyond_the_capacity_they_use_the_capacity() -> None:
    assert report(8.0, 1.5).foreign_cores == 1.5


def test_a_job_of_the_nodes_own_folder_uses_the_capacity() -> None:
    spec = JobSpec("own", ContainerSpec("image"), Bounds())
    own = JobView(spec, JobState.RUNNING, usage=Usage(cpu_cores=1.25))
    assert report(6.0, 1.0, own).foreign_cores == 1.25
