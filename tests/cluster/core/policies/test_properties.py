"""What holds for every cluster policy that is shipped, whatever the nodes may report."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.cluster.core.decider import ask
from dlsched.cluster.core.guards import NODES_PER_MOVE, Passed, guard
from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.registry import CLUSTER
from dlsched.cluster.core.snapshot import (
    ClusterDecision,
    ClusterJob,
    ClusterSnapshot,
    Evaluation,
    Left,
    Move,
    NodeState,
    NodeSummary,
    Sharing,
    Transit,
)
from dlsched.cluster.wire import AMOUNT_MAX, VALUE_MAX
from dlsched.policies.registry import known
from dlsched.simulation.cluster.random_moves import simulated_policy
from tests.properties import examples

POLICIES = [
    *known(CLUSTER),
    "adaptive?bold=true",
    "random",
]
NAMES = [f"n{index:02}" for index in range(40)]
speeds = st.floats(0.1, 10)
values = st.floats(-VALUE_MAX, VALUE_MAX) | st.floats(0, 100)
amounts = st.floats(0, AMOUNT_MAX) | st.floats(0, 1e5)


NODE = st.builds(
    NodeSummary,
    st.just(""),
    capacity_cores=st.floats(0.1, 64),
    foreign_cores=st.floats(0, 80),
    memory_free_bytes=st.none() | st.integers(0, 100),
    gpus_free=st.integers(0, 2),
    images=st.sampled_from([frozenset(), frozenset({"torch"})]),
    labels=st.sampled_from([{}, {"disk": "ssd"}]),
    state=st.sampled_from([NodeState.READY] * 4 + list(NodeState)),
    sharing=st.sampled_from(Sharing),
    speed=speeds,
)


@st.composite
def jobs(draw: st.DrawFn, name: str, at: list[str]) -> ClusterJob:
    sure = draw(st.floats(0, 1e5))
    return ClusterJob(
        name,
        image=draw(st.sampled_from(["", "torch"])),
        arrived_s=draw(st.floats(0, 1000)),
        node=draw(st.none() | st.sampled_from(at)),
        weight=draw(st.floats(0.01, 100)),
        floor_cores=draw(st.floats(0.01, 2)),
        memory_bytes=draw(st.none() | st.integers(0, 60)),
        gpus=draw(st.sampled_from([0, 0, 1])),
        requires=draw(st.sampled_from([{}, {}, {"disk": "ssd"}])),
        left=draw(
            st.none()
            | st.just(Left(sure, sure, sure))
            | st.lists(amounts, min_size=3, max_size=3).map(lambda three: Left(*sorted(three)))
        ),
        done_core_s=draw(st.floats(0, 1e5)),
        parallel_cores=draw(st.floats(0.1, 16)),
        has_target=draw(st.booleans()),
        evaluations=tuple(
            draw(st.lists(st.builds(Evaluation, st.floats(0, 1000), values), max_size=4))
        ),
        reports=draw(st.integers(0, 9)),
        steps_per_core_s=draw(st.none() | amounts.filter(bool)),
        unmovable=draw(st.sampled_from([None, None, "it publishes ports"])),
        pause_s=draw(amounts),
        moves=draw(st.integers(0, 2)),
        placed_at_s=draw(st.floats(0, 1000)),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> ClusterSnapshot:
    at = NAMES[: draw(st.sampled_from([0, 1, 2, 4, 12, 40]))]
    kinds = [draw(NODE) for _ in at[:4]]
    found = [draw(jobs(f"j{index}", [*at, "gone"])) for index in range(draw(st.integers(0, 10)))]
    running = [one for one in found if one.node]
    moving = tuple(
        Transit(one.name, one.node or "", draw(st.sampled_from(at)), draw(st.floats(0, 2000)))
        for one in running[: draw(st.integers(0, 1)) if at else 0]
    )
    return ClusterSnapshot(
        round=draw(st.integers(0, 9)),
        now_s=1000.0,
        nodes=tuple(replace(kinds[index % 4], name=name) for index, name in enumerate(at)),
        jobs=tuple(running),
        queue=tuple(one for one in found if not one.node),
        moving=moving,
    )


def check_approved(
    seen: ClusterSnapshot, place: dict[str, str], moves: list[tuple[str, str]]
) -> None:
    """Together they fit, and at most one move is under way from and to each node."""
    by_name = {one.name: one for one in (*seen.jobs, *seen.queue)}
    occupancy = Occupancy(seen)
    for name, target in [*moves, *place.items()]:
        assert occupancy.lacks(by_name[name], target) is None
        occupancy.add(by_name[name], target)
    sources = Counter(
        [*(one.source for one in seen.moving), *(by_name[name].node for name, _ in moves)]
    )
    targets = Counter([*(one.target for one in seen.moving), *(target for _, target in moves)])
    assert max(sources.values(), default=0) <= 1
    assert max(targets.values(), default=0) <= 1
    under_way = len(seen.moving) + len(moves)
    assert under_way <= max(1, len(seen.nodes) // NODES_PER_MOVE, len(seen.moving))


@pytest.mark.parametrize("spelled", POLICIES)
@settings(max_examples=examples(60))
@given(first=snapshots(), later_s=st.floats(0, 4000), second=snapshots())
def test_any_cluster_gives_a_sound_decision(
    spelled: str, first: ClusterSnapshot, later_s: float, second: ClusterSnapshot
) -> None:
    policy = simulated_policy(spelled, seed=1)
    memory: object = None
    passed: tuple[Passed, ...] = ()
    for seen in (first, first, replace(second, now_s=second.now_s + later_s)):
        asked = ask(policy, seen, memory)
        assert asked.failure is None
        assert asked == ask(policy, seen, memory)
        decision = asked.decision
        queue = {one.name: one for one in seen.queue}
        occupancy = Occupancy(seen)
        for name, target in decision.place.items():
            assert occupancy.lacks(queue[name], target) is None
            assert decision.why[name]
        assert all(decision.why[name] for name in queue)
        assert all(decision.why[move.job] for move in decision.moves)
        approved = guard(seen, decision, passed)
        check_approved(seen, approved.place, [(one.job, one.target) for one in approved.moves])
        # What guards let through and what they refuse is all that was decided.
        assert {*decision.place, *(one.job for one in decision.moves)} == {
            *approved.place, *(one.job for one in approved.moves), *approved.refused,
        }  # fmt: skip
        memory, passed = decision.memory, approved.passed


@settings(max_examples=examples(200))
@given(seen=snapshots(), data=st.data())
def test_guards_hold_a_policy_that_asks_for_anything(
    seen: ClusterSnapshot, data: st.DataObject
) -> None:
    names = st.sampled_from([f"j{index}" for index in range(6)])
    targets = st.sampled_from([*NAMES[:5], "gone"])
    decision = ClusterDecision(
        place=data.draw(st.dictionaries(names, targets)),
        moves=tuple(
            Move(name, target, data.draw(st.booleans()))
            for name, target in data.draw(st.dictionaries(names, targets)).items()
        ),
    )
    approved = guard(seen, decision)
    check_approved(seen, approved.place, [(one.job, one.target) for one in approved.moves])
