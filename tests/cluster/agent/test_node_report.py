"""What a node reports of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.agent.assignments import Assignment
from dlsched.cluster.agent.node_report import node_report
from dlsched.cluster.core.records import Phase
from dlsched.cluster.core.reports import NodeReport
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import Usage
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec
from dlsched.model.state import GpuView, JobState, JobView, NodeView, Snapshot
from tests.doubles import gpu_fact, gpu_spec


def reported(node: NodeView, *jobs: JobView) -> NodeReport:
    cycle = CycleReport(Snapshot(1, 100.0, node, jobs), "fair")
    return node_report(cycle, {}, (), "fair", frozenset(), lambda _: None, lambda *_: None, 100.0)


def test_a_gpu_is_free_unless_something_has_it_or_may_return_to_it() -> None:
    free = [GpuView(gpu_fact(index)) for index in range(5)]
    gpus = (
        free[0],
        replace(free[1], reserved=True),
        replace(free[2], foreign_processes=1),
        replace(free[3], kept_for=("away",)),
        free[4],
    )
    runs = JobView(gpu_spec("runs"), JobState.RUNNING, gpus=("GPU-4",))
    assert reported(NodeView(8.0, 8.0, 1 << 34, gpus=gpus), runs).gpus_free == 1


def foreign_cores(capacity_cores: float, used_cores: float | None, *jobs: JobView) -> float:
    node = NodeView(capacity_cores, 8.0, 1 << 30, foreign_cores=used_cores)
    return reported(node, *jobs).foreign_cores


@pytest.mark.parametrize(
    ("used_cores", "taken_cores"), [(None, 0.0), (1.5, 0.0), (2.0, 0.0), (5.0, 3.0), (8.0, 6.0)]
)
def test_other_processes_use_the_cores_beyond_the_capacity_first(
    used_cores: float | None, taken_cores: float
) -> None:
    assert foreign_cores(6.0, used_cores) == taken_cores


def test_without_cores_beyond_the_capacity_they_use_the_capacity() -> None:
    assert foreign_cores(8.0, 1.5) == 1.5


def test_a_job_of_the_nodes_own_folder_uses_the_capacity() -> None:
    spec = JobSpec("own", ContainerSpec("image"), Bounds())
    own = JobView(spec, JobState.RUNNING, usage=Usage(cpu_cores=1.25))
    assert foreign_cores(6.0, 1.0, own) == 1.25


def test_what_matters_most_comes_first() -> None:
    """A report has a bound, and what is behind it is left out."""
    held = {
        job: Assignment(job, 1, phase)
        for job, phase in (("a", Phase.FENCED), ("b", Phase.ENDED), ("c", Phase.RUNNING))
    }
    cycle = CycleReport(Snapshot(1, 100.0, NodeView(8.0, 8.0, 1 << 30)), "fair")
    report = node_report(
        cycle, held, (), "fair", frozenset(), lambda _: None, lambda *_: None, 100.0
    )
    assert [one.job for one in report.holdings] == ["c", "b", "a"]
