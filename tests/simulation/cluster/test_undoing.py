"""Moves that are taken back while the job could still run on the target."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.records import Record, RecordState
from dlsched.cluster.store import MemoryStore
from dlsched.simulation.cluster.network import NetworkOptions, NodeFault
from dlsched.simulation.cluster.run import ClusterOptions, SimulatedCluster
from dlsched.simulation.node.workloads import Trace, TrainingLoad
from tests.lanes import but_the_first_long
from tests.simulation.cluster.test_moves import SCRIPTED, went_well
from tests.simulation.cluster.test_thin import three_jobs

ARRIVED_S = 66.0
"""Its container runs on the target, and has not reported yet."""


def long_first() -> Trace:
    """The job that moves has a lot to do, and starts faster than anyone could take it back."""
    trace = three_jobs()
    jobs = []
    for job in trace.jobs:
        assert isinstance(job.load, TrainingLoad)
        steps = 8000 if job.name == "first" else job.load.steps
        jobs.append(replace(job, load=replace(job.load, steps=steps), start_up_s=0.01))
    return replace(trace, jobs=tuple(jobs))


class Kept(MemoryStore):
    """A store that remembers every record of one job."""

    def __init__(self) -> None:
        super().__init__((), leader="manager")
        self.history: list[Record] = []

    def put(self, record: Record, version: int | None) -> int:
        if record.job == "first":
            self.history.append(record)
        return super().put(record, version)


@pytest.mark.parametrize("kind", but_the_first_long(["agent", "cut", "dead"]))
def test_a_target_that_fails_as_the_job_arrives_gives_it_back(kind: str) -> None:
    """The target comes back long after, and must not run the job a second time: the check of the
    cluster's invariants raises if it does."""
    store = Kept()
    fault = NodeFault(kind, "right", ARRIVED_S, 400.3)  # type: ignore[arg-type]
    options = ClusterOptions(network=NetworkOptions(faults=(fault,)))
    there = SimulatedCluster(long_first(), SCRIPTED, 1, options, store)
    run = there.run()
    assert went_well(run)
    assert [(one.state, one.on, one.epoch) for one in store.history] == [
        (RecordState.PLACED, "left", 1),
        (RecordState.LEAVING, "left", 1),
        (RecordState.MOVING, "right", 2),
        (RecordState.UNDOING, "right", 2),
        (RecordState.RETURNING, "left", 3),
        (RecordState.PLACED, "left", 3),
        (RecordState.ENDED, "left", 3),
    ]


def test_while_only_the_target_s_agent_is_down_the_job_runs_nowhere_else() -> None:
    """Nothing has ended its container there, as its host is up."""
    fault = NodeFault("agent", "right", ARRIVED_S, 400.3)
    options = ClusterOptions(network=NetworkOptions(faults=(fault,)))
    there = SimulatedCluster(long_first(), SCRIPTED, 1, options)
    there.trace = replace(there.trace, duration_s=ARRIVED_S + 390.0)
    there.run()
    assert there.store.records()["first"].record.state is RecordState.UNDOING
    assert there.agents.nodes["right"].runtime.present()["first"]


def test_a_target_that_is_cut_off_ends_the_job_itself_before_it_returns() -> None:
    fault = NodeFault("cut", "right", ARRIVED_S, 400.3)
    options = ClusterOptions(network=NetworkOptions(faults=(fault,)))
    there = SimulatedCluster(long_first(), SCRIPTED, 1, options)
    there.trace = replace(there.trace, duration_s=ARRIVED_S + 100.0)
    there.run()
    assert there.store.records()["first"].record.state is RecordState.MOVING
    assert "first" not in there.agents.nodes["right"].runtime.present()
