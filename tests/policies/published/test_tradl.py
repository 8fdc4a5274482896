from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.decision import Decision
from dlsched.model.errors import PolicyError
from dlsched.model.spec import AccuracyTarget, Bounds
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.registry import load
from tests.policies.plant import job, snapshot
from tests.policies.training import TARGET, cores, trainer

N = 8.0


def climbing(name: str, before: float, last: float, **changes: object) -> JobView:
    """A job with those mean accuracies in the windows to 70 s and to 100 s."""
    values = [(60.0, before), (90.0, last)]
    fixed = {"metric": "accuracy", "target": TARGET, "used": 1.0}
    return trainer(name, values, **{**fixed, **changes})  # type: ignore[arg-type]


def reached(name: str, value: float = 0.92, times: int = 3, **changes: object) -> JobView:
    """A job whose last evaluations had that accuracy."""
    values = [(10.0, 0.5), *((90.0 + each, value) for each in range(times))]
    return trainer(name, values, **{"metric": "accuracy", "target": TARGET, **changes})  # type: ignore[arg-type]


def at(now_s: float, *jobs: JobView, wakes: tuple[str, ...] = ()) -> Snapshot:
    return snapshot(*jobs, now_s=now_s, capacity=N, wakes=wakes)


def decide(seen: Snapshot, memory: object = None, **options: object) -> Decision:
    return load("tradl", options).decide(seen, memory)


def known(decision: Decision, name: str = "a") -> object:
    return next(one for one in decision.memory.jobs if one.name == name)


# --------------------------------------------------------------------- who gets what


def test_growth_shares_by_progress_per_cpu() -> None:
    # The way to the tier falls from 0.5 by 0.3 and 0.1, in a third of the CPU: 3/0.75 to 1/0.25.
    seen = at(100, climbing("a", 0.4, 0.7, used=1.5), climbing("b", 0.4, 0.5, used=0.5))
    assert cores(decide(seen)) == pytest.approx([4.0, 4.0])
    seen = at(100, climbing("a", 0.4, 0.7), climbing("b", 0.4, 0.5))
    assert cores(decide(seen)) == pytest.approx([6.0, 2.0])


def test_closest_shares_by_one_over_the_time_to_the_tier() -> None:
    # tau: 0.2 to go at 0.3 a window, and 0.4 at 0.1: 2/3 and 4 windows.
    seen = at(100, climbing("a", 0.4, 0.7), climbing("b", 0.4, 0.5))
    expected = [N * 6 / 7, N / 7]
    assert cores(decide(seen, weights="closest")) == pytest.approx(expected)
    unread = at(100, climbing("a", 0.4, 0.7, used=None), climbing("b", 0.4, 0.5))
    assert cores(decide(unread, weights="closest")) == pytest.approx(expected)


def test_going_backwards_is_no_progress_and_leaves_the_least() -> None:
    seen = at(100, climbing("a", 0.4, 0.7), climbing("b", 0.5, 0.4))
    assert cores(decide(seen)) == pytest.approx([N - 0.4, 0.4])


@pytest.mark.parametrize("silent", [(), ((95.0, 0.3),)], ids=["no report", "one report"])
def test_a_job_not_measured_yet_weighs_as_much_as_the_mean(
    silent: tuple[tuple[float, float], ...],
) -> None:
    newcomer = trainer("c", silent, metric="accuracy", target=TARGET)
    seen = at(100, climbing("a", 0.4, 0.7), climbing("b", 0.4, 0.5), newcomer)
    assert cores(decide(seen)) == pytest.approx([4.0, N / 6, N / 3])


def test_the_reached_get_the_floor_and_the_others_the_rest() -> None:
    seen = at(100, climbing("a", 0.4, 0.5), reached("b"), reached("c", 0.98))
    decision = decide(seen)
    assert cores(decision) == pytest.approx([N / 2, N / 4, N / 4])
    assert decision.why["c"].startswith("deliverable")
    later = decide(seen, decision.memory)
    assert later.why["b"].startswith("class D: reached its deliver value 8 s ago")
    assert later.why["c"].startswith("class F: finished, accuracy 0.97 reached")


def test_the_reached_may_be_held_further_back() -> None:
    seen = at(100, climbing("a", 0.4, 0.5), reached("b"), reached("c", 0.98))
    assert cores(decide(seen, settled_ratio=0.1)) == pytest.approx([N * 0.95, N / 40, N / 40])
    with pytest.raises(PolicyError, match="settled_ratio"):
        decide(seen, settled_ratio=0.0)


def test_a_better_value_may_be_a_lower_one() -> None:
    lower = AccuracyTarget("error", 0.1, 0.03)
    down = [(10.0, 0.9), (90.0, 0.09), (91.0, 0.08), (92.0, 0.1)]
    up = [(10.0, 0.05), (90.0, 0.9), (91.0, 0.9), (92.0, 0.9)]
    seen = at(
        100,
        trainer("a", down, metric="error", target=lower),
        trainer("b", up, metric="error", target=lower),
    )
    decision = decide(seen)
    assert decision.why["a"].startswith("deliverable: error 0.1")
    assert decision.why["b"].startswith("class U")


def test_weight_and_bounds_hold_among_the_under() -> None:
    seen = at(100, climbing("a", 0.4, 0.5, weight=3.0), climbing("b", 0.4, 0.5))
    assert cores(decide(seen)) == pytest.approx([6.0, 2.0])
    seen = at(100, climbing("a", 0.4, 0.7, bounds=Bounds(0.1, 2.0)), climbing("b", 0.4, 0.5))
    assert cores(decide(seen)) == pytest.approx([2.0, 6.0])


def test_what_a_job_cannot_use_of_its_limit_goes_to_others() -> None:
    seen = at(100, climbing("a", 0.4, 0.7, cores=6.0, used=1.0), climbing("b", 0.4, 0.41))
    assert cores(decide(seen)) == pytest.approx([1.25, 6.75])
    binding = at(100, climbing("a", 0.4, 0.7, cores=6.0, used=5.9), climbing("b", 0.4, 0.41))
    assert (cores(decide(binding))[0] or 0.0) > 5.0
    settled = at(100, climbing("a", 0.4, 0.7, cores=4.0, used=1.0), reached("b"))
    assert cores(decide(settled)) == pytest.approx([1.25, 6.75])


def test_others_keep_their_fair_share() -> None:
    seen = at(100, climbing("a", 0.4, 0.5), reached("b"), job("c", 0.05, [0.04]), trainer("d"))
    decision = decide(seen)
    # Half of the node is the two trainers': a third of that for the one that is deliverable.
    assert cores(decision) == pytest.approx([N / 3, N / 6, N / 4, N / 4])
    assert decision.why["c"] == decision.why["d"] == "no accuracy target, fair share: 2.000 cores"
    alone = decide(at(100, job("c", 0.05, [0.04]), trainer("d")))
    assert cores(alone) == [4.0, 4.0]


# --------------------------------------------------------------------- reaching a tier


def test_a_tier_is_reached_when_the_job_says_so_and_not_by_its_samples_here() -> None:
    assert decide(at(100, reached("a", times=2))).why["a"].startswith("class U")
    flicker = [(1.0, 0.91), (2.0, 0.95), (3.0, 0.89), (4.0, 0.92), (5.0, 0.93)]
    seen = trainer("a", flicker, metric="accuracy", target=TARGET)
    assert decide(at(100, seen)).why["a"].startswith("class U")
    seen = trainer("a", flicker, metric="accuracy", target=TARGET, in_a_row=2)
    assert decide(at(100, seen)).why["a"].startswith("deliverable")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"container_id": "c2"}, "deliverable"),
        ({"target": AccuracyTarget("accuracy", 0.91, 0.97)}, "deliverable"),
        ({"target": AccuracyTarget("accuracy", 0.9, 0.97, deadline_s=60.0)}, "class D"),
    ],
    ids=["another container", "another target", "another deadline"],
)
def test_another_container_or_target_is_told_of_anew(changed: dict[str, object], told: str) -> None:
    other = climbing("b", 0.4, 0.5)
    memory = decide(at(100, reached("a"), other)).memory
    assert decide(at(110, reached("a", **changed), other), memory).why["a"].startswith(told)


# --------------------------------------------------------------------- nobody below a tier


def test_nobody_under_lifts_all_limits_and_backs_off() -> None:
    seen = at(100, reached("a", cores=1.0), job("b", 0.05, [0.04]))
    memory: object = None
    intervals = []
    for _ in range(5):
        decision = decide(seen, memory)
        assert cores(decision) == [None, None]
        memory = decision.memory
        intervals.append(decision.next_s)
    assert intervals == [10, 20, 40, 80, 80]
    assert decide(replace(seen, wakes=("c: left",)), memory).next_s == 10
    assert decide(at(100, reached("a"), climbing("b", 0.4, 0.5)), memory).next_s == 10


# --------------------------------------------------------------------- giving up


def stuck_for(
    seconds: int, view: JobView, memory: object = None, start_s: int = 100
) -> tuple[str, object]:
    """What is said of job a after so long beside ever new ones, a decision every 10 s."""
    why = ""
    for now_s in range(start_s, start_s + seconds + 1, 10):
        new = climbing("b", 0.4, 0.5, container_id=f"c{now_s}")
        decision = decide(at(now_s, view, new), memory)
        memory, why = decision.memory, decision.why["a"]
    return why, memory


def plateau(value: float = 0.5, **changes: object) -> JobView:
    return climbing("a", value, value, **changes)


def test_a_job_that_makes_no_step_gives_up_and_gets_the_floor() -> None:
    why, memory = stuck_for(300, plateau())
    assert why.startswith("class U")
    why, _ = stuck_for(0, plateau(), memory, 410)
    assert why == "class F: given up, no step towards accuracy 0.9 in 310 s: 2.667 cores"


@pytest.mark.parametrize("values", [(), ((0.0, 0.2),)], ids=["never a word", "then silent"])
def test_a_silent_job_gives_up_too(values: tuple[tuple[float, float], ...]) -> None:
    silent = trainer("a", values, metric="accuracy", target=TARGET)
    assert stuck_for(310, silent)[0].startswith("class F: given up")


def test_a_step_brings_it_back_and_less_than_a_step_does_not() -> None:
    _, memory = stuck_for(310, plateau())
    assert stuck_for(0, plateau(0.51), memory, 420)[0].startswith("class F: given up")
    assert stuck_for(0, plateau(0.53), memory, 420)[0].startswith("class U")


@pytest.mark.long
def test_a_later_plateau_is_forgiven_for_as_long_as_the_way_so_far_took() -> None:
    _, memory = stuck_for(280, plateau(0.3))
    _, memory = stuck_for(280, plateau(0.4), memory, 390)
    _, memory = stuck_for(0, plateau(0.5), memory, 680)  # a step after 580 s
    assert stuck_for(570, plateau(0.5), memory, 690)[0].startswith("class U")
    assert stuck_for(590, plateau(0.5), memory, 690)[0].startswith("class F: given up")


@pytest.mark.long
def test_waiting_at_a_small_limit_is_not_held_against_a_job_but_hanging_is() -> None:
    assert stuck_for(1000, plateau(cores=0.4))[0].startswith("class U")  # a tenth of an equal share
    assert stuck_for(310, plateau(cores=4.0, used=0.0))[0].startswith("class F: given up")


# --------------------------------------------------------------------- memory, parameters
