from __future__ import annotations

import pytest

from dlsched.cluster.core.benefit import Effect, Forecasts, effect, undo
from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.snapshot import ClusterSnapshot, Sharing, Transit
from tests.cluster.core.plant import job, node, snapshot

LEAST_S = 20.0  # 1.5 pauses of 10 s, and 5 s


def effects(of: ClusterSnapshot, source: str, target: str) -> dict[str, Effect]:
    seen = Occupancy(of)
    forecasts = Forecasts(seen)
    return {
        one.name: effect(forecasts, one, source, target, seen.left[one.name].mid_core_s)
        for one in seen.on[source]
    }


def vector_b(count: int, moving: tuple[str, ...] = ()) -> dict[str, Effect]:
    """Four equal jobs, all begun on A; those named are on their pause to B."""
    jobs = [job(f"j{index}", "A") for index in range(count)]
    under_way = tuple(Transit(name, "A", "B", 10_010) for name in moving)
    return effects(snapshot([node("A"), node("B")], jobs, moving=under_way), "A", "B")


@pytest.mark.parametrize(
    ("moving", "gain_s", "lacks"),
    [
        ((), 490 + 3 * 100, None),  # 1600 -> 900 + 210; the cluster's end 400 -> 300
        (("j3",), 290 + 3 * 90, None),  # 900 + 210 -> 400 + 420; 300 -> 210
        # 820 -> 200 + 930; 210 -> 310
        (("j2", "j3"), -310 - 3 * 100, "would lose 610 s, a move has to gain more than 20 s"),
    ],
)
def test_vector_b(moving: tuple[str, ...], gain_s: float, lacks: str | None) -> None:
    found = vector_b(4, moving)["j0"]
    assert (found.gain_s, found.lacks(LEAST_S)) == (pytest.approx(gain_s), lacks)
    if not moving:
        assert (found.own_before_s, found.own_after_s) == pytest.approx((400, 210))
        assert (found.end_before_s, found.end_after_s) == pytest.approx((400, 300))


def vector_c(sharing: Sharing) -> dict[str, Effect]:
    jobs = [
        job("100", "A", 100, 2),
        job("400", "A", 400, 2),
        job("1600", "A", 1600, 4),
        job("200", "A", 200, 4),
        job("300", "B", 300, 4),
    ]
    return effects(snapshot([node("A", 8, sharing), node("B", 8, sharing)], jobs), "A", "B")


def test_vector_c_under_shortest_first() -> None:
    found = vector_c(Sharing.SHORTEST)
    gains = {name: one.gain_s for name, one in found.items()}
    assert gains == pytest.approx({"100": 40, "400": 65, "1600": 90 - 3 * 10, "200": 90})
    assert found["1600"].lacks(LEAST_S) == "would end later: in 410 s instead of 400 s"
    assert (found["200"].own_before_s, found["200"].own_after_s) == pytest.approx((100, 60))
    assert found["200"].lacks(LEAST_S) is None


def test_vector_c_under_fair_sharing() -> None:
    found = vector_c(Sharing.FAIR)
    gains = {name: round(one.gain_s) for name, one in found.items()}
    assert gains == {"100": 73, "400": 94, "1600": 127, "200": 157}
    assert (found["200"].end_before_s, found["200"].end_after_s) == pytest.approx((433.333, 400))
    refused = {name for name, one in found.items() if one.lacks(LEAST_S)}
    assert {"100", "400"} <= refused
    assert "60 s instead of 50 s" in (found["100"].lacks(LEAST_S) or "")
    assert "210 s instead of 200 s" in (found["400"].lacks(LEAST_S) or "")
    assert found["100"].lacks(LEAST_S, bold=True) is None


def test_harm_is_a_job_on_the_target_that_ends_much_later() -> None:
    jobs = [
        *(job(f"j{index}", "A", 800, 8) for index in range(4)),
        job("short", "B", 160, 8),  # 20 s alone, 40 s beside another
    ]
    found = effects(snapshot([node("A"), node("B")], jobs), "A", "B")["j0"]
    # It begins after 10 s: the other has 80 left, which take 20 s: 30 s in all, of 32 allowed.
    assert found.delayed is None
    jobs[-1] = job("short", "B", 240, 8)  # 30 s alone; now 10 + 160/4 = 50 s, of 43 allowed
    found = effects(snapshot([node("A"), node("B")], jobs), "A", "B")["j0"]
    assert found.delayed == "short"
    assert found.lacks(LEAST_S) == "would delay short too much"


def test_weights_count() -> None:
    jobs = [
        job("100", "A", 100, 2),
        job("400", "A", 400, 2, weight=3.0),
        job("1600", "A", 1600, 4),
        job("200", "A", 200, 4),
    ]
    nodes = [node("A", 8, Sharing.SHORTEST), node("B", 8, Sharing.SHORTEST)]
    # As in vector C, but the 50 s of the 400 count three times.
    assert effects(snapshot(nodes, jobs), "A", "B")["200"].gain_s == pytest.approx(90 + 2 * 50)


def undone(
    speed: float | None, *, left: float = 800.0, placed_at_s: float = 9_900.0, crowd: int = 0
) -> str | None:
    moved = job("m", "B", left, steps_per_core_s=speed, placed_at_s=placed_at_s)
    jobs = [moved, *(job(f"a{index}", "A") for index in range(crowd))]
    return undo(Occupancy(snapshot([node("A"), node("B")], jobs)), moved, "A", 10.0)


def test_a_move_is_undone_where_the_job_is_much_slower() -> None:
    # 800 core-s at 0.5 of the speed take 400 s here, 10 + 200 s there.
    text = "the job has only 0.50 of its speed on A, and would end in 210 s there instead of 400 s"
    assert undone(5.0) == text
    assert undone(7.1) is None
    assert undone(None) is None


def test_a_move_is_not_undone_too_early_or_where_going_back_takes_longer() -> None:
    assert undone(5.0, placed_at_s=9_950.0) is None
    assert undone(5.0, left=40.0) is None  # 20 s here, 10 + 10 s there
    assert undone(5.0, crowd=8) is None


def test_the_end_of_the_cluster_counts_where_it_is_that_of_another_node() -> None:
    jobs = [*(job(f"j{index}", "A") for index in range(4)), job("last", "C", 4000, 8)]
    found = effects(snapshot([node("A"), node("B"), node("C")], jobs), "A", "B")["j0"]
    assert found.gain_s == pytest.approx(490)
    assert (found.end_before_s, found.end_after_s) == pytest.approx((500, 500))


def test_a_node_is_forecast_again_where_jobs_came() -> None:
    nodes = [node("A"), node("B"), node("C")]
    seen = Occupancy(snapshot(nodes, [job("a", "A", 80, 8), job("q", None, 800, 8)]))
    forecasts = Forecasts(seen)
    assert forecasts.last_beside("B", "C") == pytest.approx(10)
    assert forecasts.last_beside("A", "C") == 0
    seen.add(seen.snapshot.queue[0], "B")
    forecasts.refresh("B")
    assert forecasts.last_beside("A", "C") == pytest.approx(100)
