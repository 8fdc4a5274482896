from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlsched.cluster.core.guards import Approved, Passed, guard
from dlsched.cluster.core.snapshot import ClusterDecision, Left, Move, NodeState, Transit
from tests.cluster.core.plant import job, node, snapshot

NOW_S = 10_000.0
PAIR = [node("a"), node("b")]


def moved(
    *moves: Move, jobs: list[Any], nodes: Any = PAIR, memory: Any = (), **more: Any
) -> Approved:
    seen = snapshot(nodes, jobs, NOW_S, **more)
    return guard(seen, ClusterDecision(moves=moves), memory)


def refusal(one: Any, nodes: Any = PAIR, memory: Any = (), **more: Any) -> str | None:
    """Why this job, on `a`, is not moved to `b`; None: it is."""
    found = moved(Move(one.name, "b"), jobs=[one], nodes=nodes, memory=memory, **more)
    if not found.refused:
        assert found.moves == (Move(one.name, "b"),)
        return None
    assert found.moves == ()
    return found.refused[one.name].removeprefix("not moved to 'b': ")


def test_a_move_that_keeps_all_rules_is_let_through_and_remembered() -> None:
    found = moved(Move("x", "b"), jobs=[job("x", "a")])
    assert found.moves == (Move("x", "b"),)
    assert found.passed == (Passed("x", "a", "b", NOW_S),)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"unmovable": "it publishes ports"}, "the job cannot be moved: it publishes ports"),
        ({"reports": 2}, "the job has reported 2 times, 3 are needed"),
        ({"done_core_s": 20.0}, "the job has done less than 3% of its work"),
        ({"left": Left(79, 79, 79)}, "the job is done in 20 s, a move stops it for 10 s"),
        (
            {"rests_until_s": NOW_S + 60},
            "the job's last move failed; it may be moved again in 1 min 0 s",
        ),
        ({"gpus": 1}, "needs 1 GPU, 0 free"),
        ({"requires": {"disk": "ssd"}}, "the node lacks the label 'disk=ssd'"),
        ({"floor_cores": 9.0}, "the job's floor is 9.00 cores, the node has 8.00"),
        ({"node": "gone"}, "gone does not report"),
        ({"node": "b"}, "the job runs there already"),
    ],
)
def test_each_rule_about_the_job(change: dict[str, Any], why: str) -> None:
    found = refusal(replace(job("x", "a"), **change))
    assert found is not None
    assert found.startswith(why.removesuffix(" 0 s"))


def test_no_job_moves_from_a_silent_node_or_to_none() -> None:
    silent = node("a", state=NodeState.SILENT)
    assert refusal(job("x", "a"), [silent, node("b")]) == "a does not report"
    assert refusal(job("x", "a"), [node("a")]) == "there is no such node"


def test_a_job_that_does_not_run_is_not_moved() -> None:
    assert refusal(job("x")) == "the job does not run"
    assert moved(Move("x", "b"), jobs=[]).refused["x"].endswith("the job does not run")


NODES = [node(name) for name in "abcd"]
MANY = [node(f"n{index:02}") for index in range(32)]


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("n00", "n02", "another job is moving from n00"),
        ("n02", "n01", "another job is moving to n01"),
    ],
)
def test_one_move_from_a_source_and_to_a_target(source: str, target: str, why: str) -> None:
    jobs = [job("x", "n00"), job("y", source)]
    found = moved(Move("x", "n01"), Move("y", target), jobs=jobs, nodes=MANY)
    assert found.moves == (Move("x", "n01"),)
    assert found.refused["y"].endswith(why)


def test_one_move_for_each_16_nodes_with_those_under_way() -> None:
    jobs = [job("x", "n00"), job("y", "n02"), job("z", "n04")]
    wanted = (Move("x", "n01"), Move("y", "n03"), Move("z", "n05"))
    found = moved(*wanted, jobs=jobs, nodes=MANY)
    assert found.moves == wanted[:2]
    assert found.refused["z"].endswith("2 moves under way, the most in this cluster")
    moving = (Transit("y", "n02", "n03", NOW_S + 10),)
    found = moved(wanted[0], wanted[2], jobs=jobs, nodes=MANY, moving=moving)
    assert found.moves == wanted[:1]
    moving = (Transit("x", "a", "b", NOW_S + 10),)
    found = moved(Move("y", "c"), jobs=[job("x", "a"), job("y", "d")], nodes=NODES, moving=moving)
    assert found.refused["y"].endswith("1 move under way, the most in this cluster")


def test_a_job_that_moves_is_left_alone() -> None:
    moving = (Transit("x", "a", "b", NOW_S + 10),)
    assert refusal(job("x", "a"), moving=moving) == "the job is moving already"


def before(*passed: tuple[str, str, str, float]) -> tuple[Passed, ...]:
    return tuple(Passed(name, a, b, NOW_S - ago_s) for name, a, b, ago_s in passed)


def test_not_again_within_ten_minutes_and_never_twice_in_a_row() -> None:
    one = job("x", "a")
    assert (
        refusal(one, memory=before(("x", "b", "a", 599), ("y", "a", "b", 10)))
        == "the job moved 9 min 59 s ago"
    )
    assert (
        refusal(one, memory=before(("x", "b", "a", 600)))
        == "no other job has moved since this one did"
    )
    assert refusal(one, memory=before(("x", "b", "a", 600), ("y", "a", "b", 10))) is None


def test_after_a_failed_move_the_job_and_the_pair_rest() -> None:
    jobs = [job("x", "a"), job("y", "a")]
    under_way = (Transit("x", "a", "b", NOW_S + 10),)
    begun = moved(Move("x", "b"), jobs=jobs)
    later = guard(snapshot(PAIR, jobs, NOW_S + 10, under_way), ClusterDecision(), begun.passed)
    assert not later.passed[0].failed
    # It is on `a` still, and no longer under way.
    failed = guard(
        snapshot(PAIR, jobs, NOW_S + 20), ClusterDecision(moves=(Move("y", "b"),)), later.passed
    )
    assert (
        failed.refused["y"] == "not moved to 'b': x's move to b failed; the next try is in 10 min"
    )
    assert failed.passed[0].failed
    nodes = [*PAIR, node("c")]
    elsewhere = guard(
        snapshot(nodes, jobs, NOW_S + 30), ClusterDecision(moves=(Move("y", "c"),)), failed.passed
    )
    assert elsewhere.moves == (Move("y", "c"),)
    own = guard(
        snapshot(nodes, jobs, NOW_S + 30), ClusterDecision(moves=(Move("x", "c"),)), failed.passed
    )
    assert "x's move to b failed" in own.refused["x"]
    rested = guard(
        snapshot(PAIR, jobs, NOW_S + 620), ClusterDecision(moves=(Move("y", "b"),)), failed.passed
    )
    assert rested.moves == (Move("y", "b"),)


def test_a_move_is_undone_once_without_rest_and_the_job_rests_longer_after() -> None:
    there = before(("x", "b", "a", 90.0))
    one = job("x", "a", reports=0)
    found = moved(Move("x", "b", undo=True), jobs=[one], memory=there)
    assert found.moves == (Move("x", "b", undo=True),)
    assert moved(Move("x", "b"), jobs=[one], memory=there).moves == ()
    # Not to another node, and not a second time.
    nodes = [*PAIR, node("c")]
    assert moved(Move("x", "c", undo=True), jobs=[one], nodes=nodes, memory=there).moves == ()
    back = (Passed("x", "b", "a", NOW_S - 1700, undo=True), *before(("y", "a", "b", 9)))
    found = moved(Move("x", "b", undo=True), jobs=[job("x", "a")], memory=back)
    assert found.refused["x"].endswith("the job moved 28 min 20 s ago")


def test_jobs_of_a_draining_node_move_whatever_it_costs() -> None:
    nodes = [node("a", state=NodeState.DRAINING), node("b")]
    fresh = job("x", "a", 10.0, reports=0, done_core_s=0.0)
    assert refusal(fresh) is not None
    assert refusal(fresh, nodes) is None
    assert refusal(fresh, nodes, before(("x", "b", "a", 60))) is None
    resting = replace(fresh, rests_until_s=NOW_S + 1)
    assert refusal(resting, nodes) == "the job's last move failed; it may be moved again in 1 s"


def test_placements_need_a_queued_job_a_known_node_and_room() -> None:
    queue = [job(name, gpus=1) for name in ("p", "q", "r")]
    decision = ClusterDecision(place={"p": "a", "q": "a", "r": "no\nwhere", "ghost": "a"})
    found = guard(snapshot([node("a", gpus_free=1)], queue), decision)
    assert found.place == {"p": "a"}
    assert found.refused == {
        "q": "not placed on a: needs 1 GPU, 0 free",
        "r": "not placed: there is no node 'no\\nwhere'",
        "ghost": "not placed: the job is not in the queue",
    }


def test_room_that_a_move_takes_is_not_placed_upon() -> None:
    nodes = [node("a"), node("b", gpus_free=1)]
    seen = snapshot(nodes, [job("x", "a", gpus=1), job("q", gpus=1)])
    found = guard(seen, ClusterDecision(place={"q": "b"}, moves=(Move("x", "b"),)))
    assert found.moves
    assert found.place == {}
