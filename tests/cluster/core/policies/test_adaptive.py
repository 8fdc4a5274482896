from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dlsched.cluster.core.decider import ask
from dlsched.cluster.core.policies.adaptive import AdaptiveMemory, Moved, Speed
from dlsched.cluster.core.registry import load
from dlsched.cluster.core.snapshot import (
    ALTERNATIVES_MAX,
    Alternative,
    ClusterDecision,
    ClusterJob,
    ClusterSnapshot,
    Left,
    Move,
    NodeState,
    Transit,
)
from dlsched.model.errors import PolicyError
from tests.cluster.core.plant import job, node, snapshot

NOW_S = 10_000.0
PAIR = [node("A"), node("B")]


def decide(seen: ClusterSnapshot, spelled: str = "adaptive", memory: Any = None) -> ClusterDecision:
    return load(spelled).decide(seen, memory)


def equal_jobs(*at: str) -> list[ClusterJob]:
    return [job(f"j{index}", name) for index, name in enumerate(at)]


def test_vector_b() -> None:
    first = decide(snapshot(PAIR, equal_jobs("A", "A", "A", "A")))
    assert first.moves[0] == Move("j0", "B")
    assert first.why["j0"] == (
        "A>B: gains 790 s; the job ends in 210 s instead of 400 s, the cluster's last one in 300 s "
        "instead of 400 s; next j1 to B: would gain 790 s"
    )
    assert decide(snapshot(PAIR, equal_jobs("A", "A", "B", "B"))).moves == ()


def test_a_move_has_the_forecast_of_its_jobs_own_end() -> None:
    found = decide(snapshot(PAIR, equal_jobs("A", "A", "A", "A")))
    assert found.forecasts_s["j0"] == pytest.approx(-190)
    assert set(found.forecasts_s) == {move.job for move in found.moves}


def test_alternatives_say_which_rule_refused_each_node() -> None:
    nodes = [node("A"), node("B"), node("C"), node("D", 1.0), node("E", 1.0)]
    jobs = [replace(one, floor_cores=2.0) for one in equal_jobs("A", "A", "A", "A", "C", "C", "C")]
    found = decide(snapshot(nodes, jobs))
    assert found.moves[0] == Move("j0", "B")
    floor = "the job's floor is 2.00 cores, the node has 1.00"
    assert [one.node for one in found.alternatives["j0"]] == ["C", "D", "E"]
    kept, *full = found.alternatives["j0"]
    # Sums 1600 + 900 -> 900 + 1190 + 403.3; the end 400 -> 403.3.
    gain_s = pytest.approx(6.67 - 10, abs=0.01)
    assert kept == Alternative("C", "would lose 3 s, a move has to gain more than 20 s", gain_s)
    assert full == [Alternative("D", floor), Alternative("E", floor)]
    # Of one that stays the best move is among them, and where none fits the nodes that lack room.
    stays = decide(snapshot(PAIR, equal_jobs("A", "A", "B", "B"))).alternatives["j0"]
    assert [(one.node, (one.gain_s or 0) < 0) for one in stays] == [("B", True)]
    tight = [replace(one, floor_cores=2.0) for one in equal_jobs("A", "A")]
    found = decide(snapshot([node("A"), *[node(f"n{index}", 1.0) for index in range(9)]], tight))
    assert len(found.alternatives["j0"]) == ALTERNATIVES_MAX
    assert {one.refused for one in found.alternatives["j0"]} == {floor}


def test_a_gain_beyond_all_bounds_is_not_told() -> None:
    jobs = [replace(one, weight=100.0, pause_s=1e99) for one in equal_jobs("A", "A")]
    asked = ask(load("adaptive"), snapshot(PAIR, jobs), None)
    assert asked.failure is None
    assert {one.gain_s for one in asked.decision.alternatives["j0"]} == {None}


def test_bold_moves_need_only_a_gain() -> None:
    """Vector C of the test of `benefit`."""
    nodes = [node("A"), node("B")]
    on_a = [job("100", "A", 100, 2), job("400", "A", 400, 2), job("1600", "A", 1600, 4)]
    seen = snapshot(nodes, [*on_a, job("200", "A", 200, 4), job("300", "B", 300, 4)])
    assert not {"100", "400"} & {move.job for move in decide(seen).moves}
    assert {"100", "400"} <= {move.job for move in decide(seen, "adaptive?bold=true").moves}


def test_a_move_has_to_gain_whatever_is_left_of_the_job() -> None:
    known = equal_jobs("A", "A", "A", "A")
    unsure = [replace(one, left=Left(1.0, 800.0, 1600.0)) for one in known]
    found = decide(snapshot(PAIR, unsure))
    assert found.moves == ()
    assert "if as little of its work is left as the forecast allows" in found.why["j0"]
    unknown = [replace(one, left=None) for one in known]
    assert decide(snapshot(PAIR, unknown)).moves == ()


def test_jobs_that_cannot_be_moved_or_rest_or_have_no_room_stay() -> None:
    for change in ({"unmovable": "x"}, {"rests_until_s": NOW_S + 1}, {"requires": {"k": "v"}}):
        jobs = [replace(one, **change) for one in equal_jobs("A", "A", "A", "A")]  # type: ignore[arg-type]
        assert decide(snapshot(PAIR, jobs)).moves == ()
    assert decide(snapshot(PAIR, equal_jobs(*"AAAA")), "adaptive?moves=false").moves == ()


def test_a_new_job_starts_where_completions_grow_least() -> None:
    nodes = [node("A"), node("B")]
    # A has two jobs with little left, B one that needs all cores for long.
    running = [job("a1", "A", 8, 4), job("a2", "A", 8, 4), job("b", "B", 8000, 8)]
    found = decide(snapshot(nodes, [*running, job("q", None, 800, 8)]))
    assert dict(found.place) == {"q": "A"}
    assert found.why["q"].startswith(
        "on node A, the job adds least to all jobs' completion times: 10"
    )
    assert dict(decide(snapshot(nodes, [*running, job("q")]), "spread").place) == {"q": "B"}


def test_each_placement_counts_for_the_next() -> None:
    queue = [job(f"q{index}", parallel=8, arrived_s=index) for index in range(4)]
    found = decide(snapshot(PAIR, queue))
    assert list(found.place.values()) == ["A", "B", "A", "B"]


def test_of_many_nodes_the_idle_and_the_nearly_done_are_compared() -> None:
    nodes = [node(f"n{index:02}") for index in range(30)]
    running = [job(f"r{index:02}", f"n{index:02}", 4000 - index, 8) for index in range(30)]
    running[17] = job("r17", "n17", 8, 8)
    assert dict(decide(snapshot(nodes, [*running, job("q")])).place) == {"q": "n17"}


def test_a_missing_image_costs_its_pull() -> None:
    nodes = [node("A", images=frozenset({"other"})), node("B", images=frozenset({"torch"}))]
    found = decide(snapshot(nodes, [job("q", image="torch")]))
    assert dict(found.place) == {"q": "B"}
    assert "next A: 230 s" in found.why["q"]


def test_foreign_load_and_speed_count() -> None:
    nodes = [node("A", foreign_cores=6.0), node("B", speed=0.5), node("C", foreign_cores=7.99999)]
    found = decide(snapshot(nodes, [job("q")]))
    assert (
        found.why["q"]
        == "on node A, the job adds least to all jobs' completion times: 400 s; next B: 400 s"
    )


def test_a_draining_node_is_emptied_without_regard_to_cost() -> None:
    nodes = [node("A", state=NodeState.DRAINING), node("B")]
    found = decide(snapshot(nodes, [job("x", "A", 10.0), job("y", "B")]))
    assert found.moves == (Move("x", "B"),)
    assert found.why["x"].startswith("A drains; on node B, the job adds least")


def judged(speed: float, **change: Any) -> tuple[ClusterDecision, AdaptiveMemory]:
    one = job("m", "B", steps_per_core_s=speed, placed_at_s=NOW_S - 90, image="torch", **change)
    memory = AdaptiveMemory((Moved("m", "A", "B", 10.0),))
    found = decide(snapshot(PAIR, [one]), memory=memory)
    assert isinstance(found.memory, AdaptiveMemory)
    return found, found.memory


def test_the_speed_before_a_move_is_remembered_with_it() -> None:
    jobs = [replace(one, steps_per_core_s=10.0) for one in equal_jobs(*"AAAA")]
    found = decide(snapshot(PAIR, jobs))
    assert isinstance(found.memory, AdaptiveMemory)
    assert found.memory.moved[0] == Moved("j0", "A", "B", 10.0)


def test_a_move_to_a_slow_node_is_undone_and_the_speed_remembered() -> None:
    found, memory = judged(5.0)
    assert found.moves == (Move("m", "A", undo=True),)
    assert found.why["m"].startswith("the job has only 0.50 of its speed on A, and would end in ")
    assert memory == AdaptiveMemory((), (Speed("torch", "B", 0.5, NOW_S + 7200),))
    # A job of the same image now expects that speed there: 800 core-s on 4 cores, twice as long.
    placed = decide(snapshot(PAIR, [job("q", image="torch")]), memory=memory)
    assert "next B: 400 s" in placed.why["q"]
    later = replace(snapshot(PAIR, []), now_s=NOW_S + 7200)
    assert decide(later, memory=memory).memory == AdaptiveMemory()


def test_a_move_that_went_well_is_kept() -> None:
    found, memory = judged(9.0)
    assert found.moves == ()
    assert memory.moved == (Moved("m", "A", "B", 10.0),)
    late = replace(snapshot(PAIR, [job("m", "B", placed_at_s=NOW_S - 700)]))
    assert decide(late, memory=memory).memory == AdaptiveMemory()


@pytest.mark.parametrize("spelled", ["round_s=0", "end_weight=-1", "least_gain_s=nan", "bold=1"])
def test_bounds_of_parameters(spelled: str) -> None:
    with pytest.raises(PolicyError, match=spelled.partition("=")[0]):
        load(f"adaptive?{spelled}")


def test_no_move_is_proposed_from_a_node_that_a_job_is_leaving() -> None:
    nodes = [node("A"), node("B"), node("C")]
    jobs = equal_jobs(*"AAAAA")
    assert decide(snapshot(nodes, jobs)).moves
    moving = (Transit("j4", "A", "C", NOW_S + 10),)
    assert decide(snapshot(nodes, jobs, moving=moving)).moves == ()


def test_a_move_has_to_gain_if_much_is_left_too() -> None:
    # The small node is free now, but a long job is better off waiting for the large one.
    nodes = [node("A"), node("B", cores=2)]
    others = equal_jobs(*"AAAAAAA")
    short = job("x", "A", 100.0)
    assert Move("x", "B") in decide(snapshot(nodes, [*others, short])).moves
    perhaps = replace(short, left=Left(100.0, 100.0, 10_000.0))
    found = decide(snapshot(nodes, [*others, perhaps]))
    assert Move("x", "B") not in found.moves
    assert found.why["x"].endswith("if as much of its work is left as the forecast allows")


def test_a_move_is_not_undone_where_there_is_no_room_any_more() -> None:
    one = job("m", "B", steps_per_core_s=5.0, placed_at_s=NOW_S - 90)
    memory = AdaptiveMemory((Moved("m", "A", "B", 10.0),))
    nodes = [node("A", state=NodeState.DRAINING), node("B")]
    assert decide(snapshot(nodes, [one]), memory=memory).moves == ()


def test_a_job_that_goes_back_counts_for_placements() -> None:
    one = job("m", "B", 8000.0, 8, steps_per_core_s=5.0, placed_at_s=NOW_S - 90)
    memory = AdaptiveMemory((Moved("m", "A", "B", 10.0),))
    nodes = [node("A"), node("B", foreign_cores=8), node("C", cores=7)]
    found = decide(snapshot(nodes, [one, job("q", parallel=8.0)]), memory=memory)
    assert found.moves == (Move("m", "A", undo=True),)
    assert dict(found.place) == {"q": "C"}


def test_of_many_nodes_each_placement_counts_for_the_next() -> None:
    nodes = [node(f"n{index:02}", cores=8 if index < 12 else 4) for index in range(20)]
    queue = [job(f"q{index}", parallel=8, arrived_s=index) for index in range(12)]
    found = decide(snapshot(nodes, queue))
    assert sorted(found.place.values()) == [f"n{index:02}" for index in range(12)]
