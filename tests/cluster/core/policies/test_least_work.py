from __future__ import annotations

from dlsched.cluster.core.registry import load
from tests.cluster.core.plant import job, node, snapshot


def test_least_work_left_per_core() -> None:
    nodes = [node("a"), node("b", cores=2), node("c", speed=0.5)]
    # Work left for all cores: 100 s, 200 s, 150 s.
    running = [job("r", "a", 800.0), job("s", "b", 400.0), job("t", "c", 600.0)]
    queue = [job("q0", None, 480.0), job("q1", arrived_s=1.0)]
    found = load("least-work").decide(snapshot(nodes, [*running, *queue]), None)
    assert dict(found.place) == {"q0": "a", "q1": "c"}
    assert found.why["q0"] == "a has the least work left: 1 min 40 s on all its cores"
    assert found.moves == ()
