from __future__ import annotations

import pytest

from dlsched.model.decision import Decision
from dlsched.policies.published.dqoes import DqoesPublishedMemory
from dlsched.policies.registry import load
from tests.policies.plant import job, snapshot

# The project's unit vectors, in seconds: the classes are G, B, S.
VECTOR = snapshot(
    job("a", 40.0, [30.0], cores=2.0),
    job("b", 20.0, [30.0], cores=1.0),
    job("c", 30.0, [31.0], cores=1.0),
    capacity=4.0,
)
BEFORE = DqoesPublishedMemory((("a", 2.0), ("b", 1.0), ("c", 1.0)), 10.0, 20.0)


def cores(decision: Decision) -> list[float | None]:
    return [decision.limits[name].cpu_cores for name in sorted(decision.limits)]


@pytest.mark.parametrize(
    ("reading", "expected"), [("own", [1.8, 1.1, 1.0]), ("pool", [1.8, 1.2, 1.0])]
)
def test_unit_vectors(reading: str, expected: list[float]) -> None:
    decision = load("dqoes-published", {"reading": reading}).decide(VECTOR, BEFORE)
    assert cores(decision) == pytest.approx(expected)
    assert decision.why["a"].startswith("G, q +10000.0 ms: 2.000 -> 1.800")
    assert [decision.why[name][0] for name in "abc"] == ["G", "B", "S"]


def test_limits_start_at_equal_parts_of_the_node() -> None:
    seen = snapshot(*(job(name, 0.05, []) for name in "abcd"), capacity=4.0)
    assert cores(load("dqoes-published").decide(seen, None)) == [1.0] * 4


@pytest.mark.parametrize(("floor_ratio", "expected"), [(0.5, 0.5), (0.05, 0.09)])
def test_both_floors(floor_ratio: float, expected: float) -> None:
    seen = snapshot(job("a", 0.05, [0.01], used=0.1), job("b", 0.05, [0.05]), capacity=2.0)
    policy = load("dqoes-published", {"floor_ratio": floor_ratio})
    limit = policy.decide(seen, None).limits["a"].cpu_cores
    assert limit == pytest.approx(expected)  # usage less the tenth, or the floor above it


def test_pool_freezes_when_nobody_is_better_than_asked() -> None:
    seen = snapshot(job("a", 0.05, [0.2]), job("b", 0.05, [0.05]), capacity=2.0)
    policy = load("dqoes-published", {"reading": "pool"})
    assert cores(policy.decide(seen, None)) == [1.0, 1.0]


def test_the_interval_doubles_up_to_eight_times_and_falls_back() -> None:
    policy = load("dqoes-published")
    near = snapshot(job("a", 0.05, [0.05]))
    memory, intervals = None, []
    for _ in range(5):
        decision = policy.decide(near, memory)
        memory = decision.memory
        intervals.append(decision.next_s)
    assert intervals == [2, 4, 8, 16, 16]
    late = snapshot(job("a", 0.05, [0.09]))
    assert policy.decide(late, memory).next_s == 2
    woken = snapshot(job("a", 0.05, [0.05]), wakes=("b arrived",))
    assert policy.decide(woken, memory).next_s == 2


def test_a_job_without_latency_target_keeps_its_fair_share() -> None:
    decision = load("dqoes-published").decide(snapshot(job("a", None), job("b")), None)
    assert decision.limits["a"].cpu_cores == 1.0
    assert "fair share" in decision.why["a"]
