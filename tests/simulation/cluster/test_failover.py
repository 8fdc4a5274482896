"""A node that is down or cut off: what becomes of its jobs. The check of the cluster's invariants
raises where a job runs twice, or goes on from an earlier step than the one that was saved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.leases import LEASE_S, leased, over_s
from dlsched.cluster.core.records import Phase, Record, RecordState
from dlsched.model.spec import Checkpoint, JobSpec
from dlsched.simulation.cluster.network import NodeFault
from dlsched.simulation.cluster.run import SimulatedCluster
from dlsched.simulation.node.workloads import Trace
from tests.lanes import but_the_first_long
from tests.simulation.cluster.test_moves import Kept, Kind, long_first
from tests.simulation.cluster.test_moves import cluster as failing
from tests.simulation.cluster.test_thin import went_well

CUT_S = 66.3
FOR_S = 1000.0


def failing_over(spec: JobSpec) -> JobSpec:
    checkpoint = Checkpoint("SIGUSR1", 5.0, "/ckpt", shared=True)
    return replace(spec, failover="restart", checkpoint=checkpoint)


def trace(*, restart: bool = True) -> Trace:
    jobs = [
        replace(job, spec=failing_over(job.spec)) if restart and job.name == "first" else job
        for job in long_first().jobs
    ]
    return replace(long_first(), jobs=tuple(jobs))


def cluster(
    kind: Kind, for_s: float = FOR_S, *, restart: bool = True, until_s: float = 20_000.0
) -> SimulatedCluster:
    world = replace(trace(restart=restart), duration_s=until_s)
    fault = NodeFault(kind, "left", CUT_S, for_s)
    return failing(world, fault, policy="spread", store=Kept())


def epochs(there: SimulatedCluster) -> list[tuple[RecordState, str, int]]:
    assert isinstance(there.store, Kept)
    return [(one.state, one.on, one.epoch) for one in there.store.history]


@pytest.mark.parametrize("kind", ["cut", "dead"])
@pytest.mark.parametrize("for_s", but_the_first_long([FOR_S, 205.0]))
def test_it_runs_elsewhere_in_bounded_time_and_never_twice(kind: Kind, for_s: float) -> None:
    record = leased(Record("first", RecordState.PLACED, "left"), trace().jobs[0].spec)
    bound_s = CUT_S + over_s(record) + 15.0
    there = cluster(kind, for_s, until_s=bound_s)
    there.run()
    assert there.store.records()["first"].record.on == "right"
    assert there.agents.nodes["right"].runtime.present()["first"]
    there = cluster(kind, for_s)
    assert went_well(there.run())
    assert epochs(there) == [
        (RecordState.PLACED, "left", 1),
        (RecordState.ENDED, "left", 1),
        (RecordState.PLACED, "right", 2),
        (RecordState.ENDED, "right", 2),
    ]
    if for_s < FOR_S:
        assert there.agents.agents["left"].held["first"].phase is Phase.FENCED


def test_one_that_is_cut_off_saves_itself_and_goes_on_from_there() -> None:
    there = cluster("cut", until_s=CUT_S + 300.0)
    there.run()
    saved = there.agents.storage["first"].saved
    assert saved.step > 0
    assert there.agents.agents["right"].held["first"].began_step == saved.step


def test_it_ends_where_it_is_cut_off_well_before_another_node_may_have_it() -> None:
    there = cluster("cut", until_s=CUT_S + LEASE_S + 30.0)
    there.run()
    assert "first" not in there.agents.nodes["left"].runtime.present()
    assert there.store.records()["first"].record.on == "left"


@pytest.mark.parametrize("kind", ["cut", "dead"])
def test_by_default_nothing_happens_until_the_node_is_back(kind: Kind) -> None:
    there = cluster(kind, restart=False, until_s=CUT_S + FOR_S - 10.0)
    there.run()
    assert epochs(there) == [(RecordState.PLACED, "left", 1)]
    assert ("first" in there.agents.nodes["left"].runtime.present()) == (kind == "cut")
    there = cluster(kind, restart=False)
    there.run()
    assert {on for _, on, _ in epochs(there)} == {"left"}


def test_while_the_store_reaches_the_host_nothing_starts_elsewhere() -> None:
    there = cluster("agent", until_s=CUT_S + 300.0)
    there.run()
    assert epochs(there) == [(RecordState.PLACED, "left", 1)]
    assert there.agents.nodes["left"].runtime.present()["first"]


def test_a_node_that_is_back_in_time_goes_on_with_its_job_in_a_new_epoch() -> None:
    there = cluster("cut", LEASE_S + 40.0)
    assert went_well(there.run())
    assert epochs(there)[:3] == [
        (RecordState.PLACED, "left", 1),
        (RecordState.RETURNING, "left", 2),
        (RecordState.PLACED, "left", 2),
    ]


def test_a_short_cut_is_not_noticed() -> None:
    there = cluster("cut", LEASE_S - 25.0)
    assert went_well(there.run())
    assert [one[2] for one in epochs(there)] == [1, 1]
