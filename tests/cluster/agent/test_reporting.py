"""What a node reports of itself."""

from __future__ import annotations

from dataclasses import replace

from dlsched.cluster.agent.reporting import NodeFacts, node_report
from dlsched.model.cycle import CycleReport
from dlsched.model.state import GpuView, JobState, JobView, NodeView, Snapshot
from tests.doubles import gpu_fact, gpu_spec


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
    snapshot = Snapshot(1, 0.0, NodeView(8.0, 8.0, 1 << 34, gpus=gpus), (runs,))
    facts = NodeFacts(lambda: "fair")
    none = (lambda _: None, lambda *_: None)
    report = node_report(CycleReport(snapshot, "fair"), {}, (), facts, *none, 0.0)
    assert report.gpus_free == 1
