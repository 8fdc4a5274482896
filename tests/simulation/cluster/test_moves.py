"""One move from node to node, end to end: what it costs, what may interrupt it, and how it is taken
back while the job could still run on the target. And a node that is down or cut off: what becomes
of its jobs. The check of the cluster's invariants raises where a job runs twice, or goes on from an
earlier step than the one that was saved."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from dlsched.cluster.core.leases import leased, over_s
from dlsched.cluster.core.records import Phase, Record, RecordState, Verb
from dlsched.cluster.core.transit import ARRIVAL_S
from dlsched.cluster.store import MemoryStore
from dlsched.model.spec import Checkpoint, JobSpec
from dlsched.simulation.cluster.network import NetworkOptions, NodeFault
from dlsched.simulation.cluster.run import (
    ClusterOptions,
    SimulatedCluster,
    simulate_cluster,
)
from dlsched.simulation.node.workloads import SavedState, Trace, TrainingLoad
from tests.lanes import but_the_first_long
from tests.simulation.cluster.test_thin import completion_s, three_jobs, went_well

SCRIPTED = "tests.simulation.cluster.scripted:Scripted"
Kind = Literal["dead", "agent", "cut"]
STEPS_PER_S = 10.0
"""Of a job that has a node's four cores for itself."""


def cluster(
    trace: Trace | None = None,
    *faults: NodeFault,
    policy: str = SCRIPTED,
    seed: int = 1,
    store: MemoryStore | None = None,
    **network: float,
) -> SimulatedCluster:
    options = ClusterOptions(network=NetworkOptions(faults=faults, **network))
    return SimulatedCluster(trace or three_jobs(), policy, seed, options, store)


@pytest.mark.parametrize(("save_s", "size_bytes"), [(2.0, 50 << 20), (8.0, 2000 << 20)])
def test_a_move_costs_save_transfer_and_start_and_repeats_the_steps_since(
    save_s: float, size_bytes: int
) -> None:
    trace = three_jobs()
    jobs = tuple(replace(job, checkpoint=SavedState(size_bytes, save_s)) for job in trace.jobs)
    there = cluster(replace(trace, jobs=jobs))
    run = there.run()
    assert (run.moves, run.failed_moves, run.nodes["first"]) == (1, 0, "right")
    leave = next(one for one in there.agents.orders if one.verb is Verb.LEAVE)
    saved = next(one for one in there.agents.orders if one.saved).saved
    assert leave.job == "first" and saved is not None
    # It saves for so long, acknowledges within a second, and the next round comes within another.
    carry_s = size_bytes / trace.network_bytes_per_s
    pause_s = save_s + 1.0 + carry_s + 1.0
    asked_s = 61.0
    alone_s = (1000 - saved.step) / STEPS_PER_S
    assert completion_s(run, "first") == pytest.approx(asked_s + pause_s + alone_s, abs=1.5)


@pytest.mark.long
def test_a_checkpoint_that_comes_for_longer_than_an_arrival_may_take_is_waited_for() -> None:
    trace = three_jobs()
    carry_s = ARRIVAL_S + 60.0
    saved = SavedState(int(carry_s * trace.network_bytes_per_s), 2.0)
    jobs = tuple(
        replace(one, checkpoint=saved, load=replace(one.load, steps=10 * one.load.steps))
        for one in trace.jobs
        if isinstance(one.load, TrainingLoad)
    )
    run = cluster(replace(trace, jobs=jobs, duration_s=3600.0)).run()
    assert (run.moves, run.failed_moves, run.nodes["first"]) == (1, 0, "right")


def test_the_other_job_has_the_node_for_itself_from_then_on() -> None:
    moved, stayed = cluster().run(), simulate_cluster(three_jobs(), "spread", 1)
    assert completion_s(moved, "third") < completion_s(stayed, "third") - 50.0
    assert completion_s(moved, "first") < completion_s(stayed, "first") - 50.0


def test_moves_can_be_forbidden() -> None:
    run = simulate_cluster(three_jobs(), SCRIPTED, 1, ClusterOptions(moves=False))
    assert (run.moves, run.nodes["first"]) == (0, "left")


def test_a_job_that_does_not_save_stays_and_rests() -> None:
    there = cluster()
    there.agents.agents["left"].refuses = frozenset({"first"})
    run = there.run()
    assert went_well(run)
    assert (run.moves, run.failed_moves, run.nodes["first"]) == (0, 1, "left")


def test_a_job_that_was_carried_never_falls_behind_its_checkpoint() -> None:
    """The target's host fails after the move, and the job has no checkpoint of its own there."""
    there = cluster(None, NodeFault("dead", "right", 75.0, 20.0))
    run = there.run()
    assert went_well(run) and run.moves == 1
    saved = next(one for one in there.agents.orders if one.saved).saved
    assert saved is not None
    # From that step again, once its host is back.
    again_s = 95.0 + (1000 - saved.step) / STEPS_PER_S
    assert completion_s(run, "first") == pytest.approx(again_s, abs=3.0)


@pytest.mark.parametrize("kind", ["dead", "agent", "cut"])
@pytest.mark.parametrize("node", ["left", "right"])
@pytest.mark.parametrize("at_s", but_the_first_long([65.2, 60.5, 63.0, 66.8]))
@pytest.mark.parametrize("for_s", but_the_first_long([300.0, 5.0]))
def test_nothing_is_lost_when_a_node_fails_at_any_step(
    kind: Kind, node: str, at_s: float, for_s: float
) -> None:
    there = cluster(None, NodeFault(kind, node, at_s, for_s))
    assert went_well(there.run())
    for one in there.store.records().values():
        assert (one.record.state, one.record.exit_code) == (RecordState.ENDED, 0)
    for own in there.agents.nodes.values():
        assert not any(own.runtime.present().values())


@pytest.mark.parametrize("seed", range(6))
def test_lost_and_late_orders_change_no_outcome(seed: int) -> None:
    run = cluster(seed=seed, latency_s=1.0, loss=0.3).run()
    assert went_well(run)
    assert run.moves <= 1


def test_a_job_whose_file_goes_ends_in_the_middle_of_its_move() -> None:
    trace = three_jobs()
    jobs = tuple(replace(job, leaves_s=64.5 if job.name == "first" else None) for job in trace.jobs)
    there = cluster(replace(trace, jobs=jobs))
    run = there.run()
    assert there.store.records()["first"].record.state is RecordState.ENDED
    assert completion_s(run, "third") > 0.0
    assert not any("first" in node.runtime.present() for node in there.agents.nodes.values())


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
def test_a_target_that_fails_as_the_job_arrives_gives_it_back(kind: Kind) -> None:
    """The target comes back long after, and must not run the job a second time: the check of the
    cluster's invariants raises if it does."""
    store = Kept()
    there = cluster(long_first(), NodeFault(kind, "right", ARRIVED_S, 400.3), store=store)
    assert went_well(there.run())
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
    trace = replace(long_first(), duration_s=ARRIVED_S + 390.0)
    there = cluster(trace, NodeFault("agent", "right", ARRIVED_S, 400.3))
    there.run()
    assert there.store.records()["first"].record.state is RecordState.UNDOING
    assert there.agents.nodes["right"].runtime.present()["first"]


def test_a_target_that_is_cut_off_ends_the_job_itself_before_it_returns() -> None:
    trace = replace(long_first(), duration_s=ARRIVED_S + 100.0)
    there = cluster(trace, NodeFault("cut", "right", ARRIVED_S, 400.3))
    there.run()
    assert there.store.records()["first"].record.state is RecordState.MOVING
    assert "first" not in there.agents.nodes["right"].runtime.present()


CUT_S = 66.3
FOR_S = 1000.0


def failing_over(spec: JobSpec) -> JobSpec:
    checkpoint = Checkpoint("SIGUSR1", 5.0, "/ckpt", shared=True)
    return replace(spec, failover="restart", checkpoint=checkpoint)


def restarting(*, restart: bool = True) -> Trace:
    jobs = [
        replace(job, spec=failing_over(job.spec)) if restart and job.name == "first" else job
        for job in long_first().jobs
    ]
    return replace(long_first(), jobs=tuple(jobs))


def left_fails(
    kind: Kind, for_s: float = FOR_S, *, restart: bool = True, until_s: float = 20_000.0
) -> SimulatedCluster:
    world = replace(restarting(restart=restart), duration_s=until_s)
    fault = NodeFault(kind, "left", CUT_S, for_s)
    return cluster(world, fault, policy="spread", store=Kept())


def epochs(there: SimulatedCluster) -> list[tuple[RecordState, str, int]]:
    assert isinstance(there.store, Kept)
    return [(one.state, one.on, one.epoch) for one in there.store.history]


@pytest.mark.parametrize("kind", ["cut", "dead"])
@pytest.mark.parametrize("for_s", but_the_first_long([FOR_S, 205.0]))
def test_it_runs_elsewhere_in_bounded_time_and_never_twice(kind: Kind, for_s: float) -> None:
    record = leased(Record("first", RecordState.PLACED, "left"), restarting().jobs[0].spec)
    bound_s = CUT_S + over_s(record) + 15.0
    there = left_fails(kind, for_s, until_s=bound_s)
    there.run()
    assert there.store.records()["first"].record.on == "right"
    assert there.agents.nodes["right"].runtime.present()["first"]
    there = left_fails(kind, for_s)
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
    there = left_fails("cut", until_s=CUT_S + 300.0)
    there.run()
    saved = there.agents.storage["first"].saved
    assert saved.step > 0
    assert there.agents.agents["right"].held["first"].began_step == saved.step
