from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.model.decision import Decision
from dlsched.model.spec import AccuracyTarget, Bounds
from dlsched.model.state import JobState, JobView, Snapshot
from dlsched.policies.published.flowcon import FlowConJob, FlowConList, FlowConMemory
from dlsched.policies.registry import load
from tests.policies.plant import job, snapshot
from tests.policies.training import cores, trainer

NEW, WATCHING, COMPLETING = FlowConList.NEW, FlowConList.WATCHING, FlowConList.COMPLETING
N = 8.0


def losses(fall: float) -> list[tuple[float, float]]:
    """Mean loss 0.8 in the interval to 70 s, less by `fall` in the one to 100 s; 1.0 at first."""
    return [(10.0, 1.0), (50.0, 0.9), (60.0, 0.7), (80.0, 0.8 - fall), (90.0, 0.8 - fall)]


def growing(name: str, growth: float, **changes: object) -> JobView:
    """A job with that growth efficiency, using one core of eight."""
    return trainer(name, losses(growth * 30 / N), **changes)  # type: ignore[arg-type]


def listed(**lists: FlowConList) -> FlowConMemory:
    jobs = tuple(FlowConJob(name, "c1", 1, where, "loss", 1.0) for name, where in lists.items())
    return FlowConMemory(jobs, 30.0)


def lists(decision: Decision) -> dict[str, FlowConList]:
    return {one.name: one.stands for one in decision.memory.jobs}


def at(now_s: float, *jobs: JobView, wakes: tuple[str, ...] = ()) -> Snapshot:
    return snapshot(*jobs, now_s=now_s, capacity=N, wakes=wakes)


def decide(seen: Snapshot, memory: FlowConMemory | None = None) -> Decision:
    return load("flowcon").decide(seen, memory)


def test_unit_vector() -> None:
    seen = at(100, growing("a", 0.06), growing("b", 0.01), growing("c", 0.03 + 1e-12))
    decision = decide(seen, listed(a=NEW, b=COMPLETING, c=NEW))
    assert cores(decision) == pytest.approx([4.8, 2.0, 2.4])
    assert decision.why["a"] == "new, G 0.0600 of 0.1000: 4.800 cores"


@pytest.mark.parametrize(
    ("before", "growth", "after"),
    [
        (NEW, 0.02, WATCHING),
        (WATCHING, 0.02, COMPLETING),
        (COMPLETING, 0.02, COMPLETING),
        (NEW, 0.04, NEW),
        (WATCHING, 0.04, NEW),
        (COMPLETING, 0.04, NEW),
        (COMPLETING, -0.04, NEW),
    ],
)
def test_lists(before: FlowConList, growth: float, after: FlowConList) -> None:
    assert lists(decide(at(100, growing("a", growth)), listed(a=before))) == {"a": after}


def test_watching_is_left_unchanged() -> None:
    seen = at(100, growing("a", 0.06), growing("b", 0.01, cores=3.3))
    assert cores(decide(seen, listed(a=NEW, b=NEW))) == pytest.approx([0.06 / 0.07 * N, 3.3])


def test_completing_gets_its_growth_where_that_is_above_the_floor() -> None:
    seen = at(100, growing("a", 0.029), growing("b", 0.031))
    decision = decide(seen, listed(a=COMPLETING, b=NEW))
    assert cores(decision) == pytest.approx([0.029 / 0.06 * N, 0.031 / 0.06 * N])


def test_nobody_grows_so_nothing_is_done() -> None:
    seen = at(100, growing("a", 0.0, cores=3.0), growing("b", 0.0))
    assert cores(decide(seen, listed(a=NEW, b=COMPLETING))) == [3.0, None]


def test_when_all_were_completing_all_limits_are_lifted_even_if_one_grows_again() -> None:
    seen = at(100, growing("a", 0.06, cores=1.0), growing("b", 0.01, cores=1.0))
    decision = decide(seen, listed(a=COMPLETING, b=COMPLETING))
    assert cores(decision) == [None, None]
    assert lists(decision) == {"a": NEW, "b": COMPLETING}
    assert cores(decide(seen, decision.memory)) != [None, None]  # type: ignore[arg-type]


def test_the_period_doubles_while_all_are_completing_and_a_wake_takes_it_back() -> None:
    seen = at(100, growing("a", 0.01))
    memory = listed(a=WATCHING)
    periods = []
    for _ in range(4):
        decision = decide(seen, memory)
        memory = decision.memory
        periods.append(decision.next_s)
    assert periods == [60, 120, 240, 480]
    assert decide(at(100, growing("a", 0.01), wakes=("b: left",)), memory).next_s == 30
    assert decide(at(100, growing("a", 0.06)), memory).next_s == 30


def test_a_job_without_any_signal_stays_new_and_has_its_fair_share() -> None:
    memory = listed(a=NEW, b=NEW)
    silent = trainer("b")
    for now_s in (100.0, 100.5, 101.0):
        decision = decide(at(now_s, growing("a", 0.06), silent), memory)
        assert lists(decision)["b"] is NEW
        assert cores(decision) == pytest.approx([8.0, 4.0])
        memory = decision.memory
    assert decision.next_s == 30


def test_a_job_is_not_judged_before_it_has_reported_for_an_interval() -> None:
    young = trainer("a", [(75.0, 1.0), (99.0, 1.0)])
    assert lists(decide(at(100, young))) == {"a": NEW}
    assert lists(decide(at(106, young))) == {"a": WATCHING}  # no data before: G is 0


def test_one_that_falls_silent_grows_no_more() -> None:
    silent = trainer("a", [(10.0, 1.0)])
    assert lists(decide(at(100, silent), listed(a=WATCHING))) == {"a": COMPLETING}


def test_unread_usage_is_not_zero_growth() -> None:
    assert lists(decide(at(100, growing("a", 0.06, used=None)), listed(a=NEW))) == {"a": NEW}


def test_a_job_started_again_is_new_and_one_that_was_paused_is_not() -> None:
    memory = listed(a=COMPLETING)
    again = replace(growing("a", 0.01), starts=2, started_at_s=99.0)
    assert lists(decide(at(100, again), memory)) == {"a": NEW}
    paused = decide(at(100, growing("a", 0.01, state=JobState.PAUSED)), memory)
    assert lists(paused) == {"a": COMPLETING}
    assert lists(decide(at(100), memory)) == {}


def test_loss_is_a_ratio_of_the_largest_ever_seen() -> None:
    seen = at(100, growing("a", 0.06))
    memory = FlowConMemory((FlowConJob("a", "c1", 1, NEW, "loss", 4.0),), 30.0)
    assert "G 0.0150" in decide(seen, memory).why["a"]
    other = FlowConMemory((FlowConJob("a", "c1", 1, NEW, "accuracy", 4.0),), 30.0)
    assert "G 0.0600" in decide(seen, other).why["a"]  # remembered of another metric


@pytest.mark.parametrize(
    ("metric", "target", "falls"),
    [
        ("accuracy", None, False),
        ("accuracy", AccuracyTarget("f1", 0.9, 0.97), False),
        ("f1", AccuracyTarget("f1", 0.9, 0.97), False),
        ("error", AccuracyTarget("error", 0.1, 0.05), True),
        ("loss", AccuracyTarget("f1", 0.9, 0.97), True),
    ],
)
def test_the_signal_is_loss_or_else_one_less_accuracy(
    metric: str, target: AccuracyTarget | None, falls: bool
) -> None:
    values = [(at_s, one if falls else 1 - one) for at_s, one in losses(0.06 * 30 / N)]
    seen = trainer("a", values, metric=metric, target=target)
    assert "G 0.0600" in decide(at(100, seen), listed(a=NEW)).why["a"]


def test_a_latency_target_is_on_no_list_and_keeps_a_fair_share() -> None:
    seen = at(100, growing("a", 0.06), job("b", 0.05, [0.04]))
    decision = decide(seen, listed(a=NEW))
    assert cores(decision) == pytest.approx([8.0, 4.0])
    assert lists(decision) == {"a": NEW}
    assert decision.why["b"].startswith("latency target")
    lifted = decide(seen, listed(a=COMPLETING))
    assert cores(lifted) == [None, None]


def test_limits_stay_within_bounds_and_are_not_whole_cores() -> None:
    seen = at(100, growing("a", 0.06, bounds=Bounds(0.1, 2.5)), growing("b", 0.0301))
    assert cores(decide(seen, listed(a=NEW, b=NEW))) == pytest.approx([2.5, 0.0301 / 0.0901 * N])
