from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlsched.cluster.core.policies.specon import SpeConJob, SpeConMemory
from dlsched.cluster.core.registry import load
from dlsched.cluster.core.snapshot import (
    ClusterDecision,
    ClusterJob,
    Evaluation,
    Growth,
    Move,
    NodeState,
    Transit,
)
from tests.cluster.core.plant import job, node, snapshot

POLICY = load("specon")
VECTOR_G = (2.00, 1.50, 1.20, 1.02, 1.00, 0.99, 0.90)


def training(name: str, at: str, **more: Any) -> ClusterJob:
    return job(name, at, placed_at_s=0.0, **more)


def known(decision: ClusterDecision) -> SpeConJob:
    assert isinstance(decision.memory, SpeConMemory)
    return decision.memory.jobs[0]


def classes(rounds: list[tuple[float, list[Evaluation]]], **change: Any) -> list[SpeConJob]:
    """What is known of a job after each round, which has a time and new evaluations."""
    memory: Any = None
    found = []
    for now_s, evaluations in rounds:
        one = replace(training("x", "A", evaluations=tuple(evaluations)), **change)
        decision = POLICY.decide(snapshot([node("A")], [one], now_s), memory)
        memory = decision.memory
        found.append(known(decision))
    return found


def test_vector_g() -> None:
    rounds = [(10.0 * k, [Evaluation(10.0 * k, value)]) for k, value in enumerate(VECTOR_G)]
    found = classes(rounds)
    assert [one.growth for one in found[3:]] == [
        Growth.PROGRESSING, Growth.WATCHING, Growth.CONVERGED, Growth.PROGRESSING,
    ]  # fmt: skip
    assert [one.since_s for one in found[4:]] == [40, 50, 60]
    assert found[-1].peak == pytest.approx(0.05)


def test_vector_g_does_not_depend_on_when_rounds_are() -> None:
    everything = [Evaluation(10.0 * k, value) for k, value in enumerate(VECTOR_G)]
    (at_60,) = classes([(60.0, everything)])
    late = classes([(27.0, everything[:3]), (63.0, everything[3:])])[-1]
    assert at_60.growth is late.growth is Growth.PROGRESSING
    assert at_60.since_s == late.since_s == 60
    assert classes([(58.0, everything[:6])])[0].growth is Growth.CONVERGED


def test_evaluations_of_an_interval_are_averaged() -> None:
    pairs = [
        Evaluation(at_s, value + noise)
        for k, value in enumerate(VECTOR_G[:6])
        for at_s, noise in ((10.0 * k - 1, 0.5), (10.0 * k, -0.5))
        if at_s >= 0
    ]
    pairs.insert(0, Evaluation(0.0, VECTOR_G[0] + 0.5))
    assert classes([(50.0, pairs)])[0].growth is Growth.CONVERGED


def test_an_interval_without_evaluations_changes_no_class() -> None:
    rounds = [(10.0 * k, [Evaluation(10.0 * k, value)]) for k, value in enumerate(VECTOR_G[:5])]
    found = classes([*rounds, (50.0, []), (60.0, [])])
    assert [one.growth for one in found[4:]] == [Growth.WATCHING] * 3
    # The next one is as slow over the longer time.
    found = classes([*rounds, (60.0, []), (70.0, [Evaluation(70.0, 0.99)])])
    assert found[-1].growth is Growth.CONVERGED


def test_no_job_is_classed_before_its_age() -> None:
    rounds = [(10.0 * k, [Evaluation(10.0 * k, value)]) for k, value in enumerate(VECTOR_G)]
    assert {one.growth for one in classes(rounds, placed_at_s=31.0)} == {Growth.PROGRESSING}


S_NODES = [node(name) for name in "ABC"]
S_CLASSES = {
    "a1": (Growth.PROGRESSING, 0.0),
    "a2": (Growth.WATCHING, 45.0),
    "a3": (Growth.CONVERGED, 50.0),
    "a4": (Growth.CONVERGED, 40.0),
    "b1": (Growth.PROGRESSING, 0.0),
    "b2": (Growth.CONVERGED, 60.0),
    "c1": (Growth.CONVERGED, 70.0),
}


def vector_s(*moved: tuple[str, str], nodes: Any = S_NODES, **change: Any) -> ClusterDecision:
    """Vector S, after those moves."""
    at = {name: name[0].upper() for name in S_CLASSES} | dict(moved)
    names = {name for name, _ in moved}
    jobs = [
        replace(training(name, where, moves=int(name in names)), **change.get(name, {}))
        for name, where in at.items()
    ]
    memory = SpeConMemory(
        tuple(
            SpeConJob(name, 0.0, interval=9, growth=growth, since_s=since_s)
            for name, (growth, since_s) in S_CLASSES.items()
        )
    )
    return POLICY.decide(snapshot(nodes, jobs, 80.0, change.get("moving", ())), memory)


def test_vector_s() -> None:
    first = vector_s()
    assert first.moves == (Move("a4", "C"),)
    assert first.why["a4"] == "converged; A scores 3.0, C 0.5"
    second = vector_s(("a4", "C"))
    assert second.moves == (Move("a3", "C"),)
    assert second.why["a3"] == "converged; A scores 2.5, C 1.0"
    assert vector_s(("a4", "C"), ("a3", "C")).moves == ()


def test_only_converged_movable_jobs_go_and_only_to_nodes_with_room() -> None:
    assert vector_s(a4={"unmovable": "it publishes ports"}).moves == (Move("a3", "C"),)
    assert vector_s(a4={"rests_until_s": 90.0}).moves == (Move("a3", "C"),)
    # Without a target the metric says nothing: it counts as a whole job, and stays.
    stays = vector_s(a4={"has_target": False})
    assert stays.moves == (Move("a3", "C"),)
    assert "A scores 3.5" in stays.why["a3"]
    drains = [node("A"), node("B"), node("C", state=NodeState.SILENT)]
    assert vector_s(nodes=drains).moves == (Move("a4", "B"),)


def test_one_move_at_a_time_and_one_a_round() -> None:
    assert vector_s(moving=(Transit("b2", "B", "A", 90.0),)).moves == ()
    first = vector_s()
    assert isinstance(first.memory, SpeConMemory)
    assert first.memory.move_at_s == 110.0
    jobs = [training(name, name[0].upper()) for name in S_CLASSES]
    soon = POLICY.decide(snapshot(S_NODES, jobs, 109.0), first.memory)
    assert soon.moves == ()
    assert POLICY.decide(snapshot(S_NODES, jobs, 110.0), soon.memory).moves == first.moves


def test_new_jobs_start_as_under_spread() -> None:
    found = POLICY.decide(snapshot(S_NODES, [training("x", "A"), job("q")]), None)
    assert dict(found.place) == {"q": "B"}


def test_a_job_that_moved_once_stays() -> None:
    assert vector_s(a4={"moves": 1}).moves == (Move("a3", "C"),)
