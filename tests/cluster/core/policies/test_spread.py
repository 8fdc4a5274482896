from __future__ import annotations

from dlsched.cluster.core.policies.spread import SpreadParameters, SpreadPolicy
from dlsched.cluster.core.registry import load
from dlsched.cluster.core.snapshot import Move, NodeState, Transit
from tests.cluster.core.plant import job, node, snapshot

POLICY = SpreadPolicy(SpreadParameters())


def test_fewest_jobs_then_name() -> None:
    nodes = [node("a"), node("b"), node("c")]
    jobs = [job("r", "a"), *(job(f"q{i}", arrived_s=i) for i in range(3))]
    decision = POLICY.decide(snapshot(nodes, jobs), None)
    assert dict(decision.place) == {"q0": "b", "q1": "c", "q2": "a"}
    assert decision.why["q0"] == "b has the fewest jobs: 0 jobs"
    assert decision.moves == ()


def test_a_draining_node_is_emptied_one_by_one() -> None:
    nodes = [node("a", state=NodeState.DRAINING), node("b"), node("c")]
    jobs = [job("r0", "a", unmovable="it publishes ports"), job("r1", "a"), job("r2", "a")]
    decision = POLICY.decide(snapshot(nodes, jobs), None)
    assert decision.moves == (Move("r1", "b"),)
    assert decision.why["r0"] == "a drains, and the job cannot be moved: it publishes ports"
    assert decision.why["r2"] == "a drains: its jobs move one by one"
    moving = (Transit("r1", "a", "b", 10),)
    assert POLICY.decide(snapshot(nodes, jobs, moving=moving), None).moves == ()


def test_two_draining_nodes_do_not_move_jobs_to_one_node() -> None:
    nodes = [node("a", state=NodeState.DRAINING), node("b", state=NodeState.DRAINING)]
    jobs = [job("x", "a"), job("y", "b"), job("z", "d"), job("zz", "d")]
    found = POLICY.decide(snapshot([*nodes, node("c"), node("d")], jobs), None)
    assert found.moves == (Move("x", "c"), Move("y", "d"))
    found = POLICY.decide(snapshot([*nodes, node("c")], jobs), None)
    assert found.moves == (Move("x", "c"),)
    assert "c: another job is moving there" in found.why["y"]


def test_no_queued_job_takes_the_room_of_one_that_comes_from_a_draining_node() -> None:
    nodes = [node("a", state=NodeState.DRAINING), node("b", gpus_free=1)]
    found = POLICY.decide(snapshot(nodes, [job("x", "a", gpus=1), job("q", gpus=1)]), None)
    assert found.moves == (Move("x", "b"),)
    assert dict(found.place) == {}


def test_least_work_left_per_core() -> None:
    nodes = [node("a"), node("b", cores=2), node("c", speed=0.5)]
    # Work left for all cores: 100 s, 200 s, 150 s.
    running = [job("r", "a", 800.0), job("s", "b", 400.0), job("t", "c", 600.0)]
    queue = [job("q0", None, 480.0), job("q1", arrived_s=1.0)]
    found = load("least-work").decide(snapshot(nodes, [*running, *queue]), None)
    assert dict(found.place) == {"q0": "a", "q1": "c"}
    assert found.why["q0"] == "a has the least work left: 1 min 40 s on all its cores"
    assert found.moves == ()
