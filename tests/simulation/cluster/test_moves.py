"""One move from node to node, end to end: what it costs, and what may interrupt it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.records import RecordState, Verb
from dlsched.cluster.core.transit import PATIENCE
from dlsched.simulation.cluster.network import NetworkOptions, NodeFault
from dlsched.simulation.cluster.run import (
    ClusterOptions,
    ClusterRun,
    SimulatedCluster,
    simulate_cluster,
)
from dlsched.simulation.node.workloads import SavedState, Trace, TrainingLoad
from tests.lanes import but_the_first_long
from tests.simulation.cluster.test_thin import three_jobs

SCRIPTED = "tests.simulation.cluster.scripted:Scripted"
STEPS_PER_S = 10.0
"""Of a job that has a node's four cores for itself."""


def cluster(
    trace: Trace | None = None, seed: int = 1, network: NetworkOptions | None = None
) -> SimulatedCluster:
    options = ClusterOptions(network=network or NetworkOptions())
    return SimulatedCluster(trace or three_jobs(), SCRIPTED, seed, options)


def completion_s(run: ClusterRun, job: str) -> float:
    times = {one.name: one.completion_s for one in run.jobs}
    found = times[job]
    assert found is not None
    return found


def went_well(run: ClusterRun) -> bool:
    return all(one.completion_s is not None for one in run.jobs)


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
    carry_s = PATIENCE.arrival_s + 60.0
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


@pytest.mark.parametrize(("job", "node"), [("first", "left"), ("second", "right")])
def test_the_moves_of_one_job_can_be_left_out(job: str, node: str) -> None:
    run = simulate_cluster(three_jobs(), SCRIPTED, 1, ClusterOptions(stay=frozenset({job})))
    assert (run.moves, run.nodes["first"]) == ((0, "left") if job == "first" else (1, "right"))
    assert run.nodes[job] == node


def test_a_job_that_does_not_save_stays_and_rests() -> None:
    there = cluster()
    there.agents.agents["left"].refuses = frozenset({"first"})
    run = there.run()
    assert went_well(run)
    assert (run.moves, run.failed_moves, run.nodes["first"]) == (0, 1, "left")


def test_a_job_that_was_carried_never_falls_behind_its_checkpoint() -> None:
    """The target's host fails after the move, and the job has no checkpoint of its own there."""
    fault = NodeFault("dead", "right", 75.0, 20.0)
    there = cluster(network=NetworkOptions(faults=(fault,)))
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
    kind: str, node: str, at_s: float, for_s: float
) -> None:
    fault = NodeFault(kind, node, at_s, for_s)  # type: ignore[arg-type]
    there = cluster(network=NetworkOptions(faults=(fault,)))
    run = there.run()
    assert went_well(run)
    for one in there.store.records().values():
        assert (one.record.state, one.record.exit_code) == (RecordState.ENDED, 0)
    for own in there.agents.nodes.values():
        assert not any(own.runtime.present().values())


@pytest.mark.parametrize("seed", range(6))
def test_lost_and_late_orders_change_no_outcome(seed: int) -> None:
    run = cluster(seed=seed, network=NetworkOptions(latency_s=1.0, loss=0.3)).run()
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
