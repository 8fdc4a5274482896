"""The drawn worlds of `no-harm`, its rows, and whom it calls harmed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulated.no_harm import headline, table_of
from dlsched.model.facts import NodeFact
from dlsched.model.spec import LatencyTarget
from dlsched.simulation.node.loops import Loop
from dlsched.simulation.node.workloads import HostLoad, ServiceLoad, SimulatedJob, Trace
from tests.worlds.harm import busiest_ratio, harmed_trainings
from tests.worlds.harm_worlds import CORES, drawn, training
from tests.worlds.kinds import KINDS, hog, world
from tests.worlds.open_worlds import simulated_job
from tests.worlds.played import Row, play

WELL = Row(1, 0.5, 3, (), 0.0, kind="hog")
HARM = replace(WELL, seed=2, harmed=("a: 10.0 -> 13.0 ms",))
SLOW = replace(WELL, seed=4, slowed=("training: ends 10 -> 20 s",))
FULL = replace(HARM, seed=3, busiest_ratio=0.9)


def test_a_seed_draws_one_world_that_uses_what_it_says() -> None:
    for seed in range(20):
        one = drawn(seed)
        assert one == drawn(seed)
        loads = [job.load for job in one.trace().jobs if job.name.startswith("service")]
        used = sum(
            load.work_core_s * load.loop.rate_at(10.0)
            for load in loads
            if isinstance(load, ServiceLoad) and load.loop is not None
        )
        assert len(loads) == len(one.kinds)
        assert used <= one.use_ratio * CORES * 1.001


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_draws_one_world_of_each_kind_and_others_differ(kind: str) -> None:
    worlds = [world(kind, seed) for seed in range(6)]
    assert worlds == [world(kind, seed) for seed in range(6)]
    assert len({len(one.jobs) for one in worlds}) > 1
    assert all(
        any(isinstance(job.spec.target, LatencyTarget) for job in one.jobs) for one in worlds
    )


def test_worlds_without_room_are_not_counted() -> None:
    assert headline([WELL, FULL]).endswith(": reached")
    assert "harmed in 2 of 3 worlds" in headline([WELL, HARM, SLOW, FULL])
    assert headline([WELL, SLOW]).endswith("not reached")
    (row,) = table_of([WELL, HARM, SLOW, FULL])
    assert (row["draws"], row["fit"], row["others with somebody harmed"]) == (4, 3, 1)


def service(name: str, use_cores: float, target_s: float | None) -> SimulatedJob:
    load = ServiceLoad(use_cores / 10.0, noise=0.0001, loop=Loop("periodic", 10.0))
    return simulated_job(name, None if target_s is None else LatencyTarget(target_s), load)


def test_the_busiest_second_counts_requests_programs_and_small_containers() -> None:
    jobs = (service("a", 0.4, 1.0), service("b", 0.2, None), hog("hog", 8.0), hog("small", 0.5))
    trace = Trace(NodeFact(4.0, 1 << 34), jobs, 20.0, host=(HostLoad(5.0, 5.0, 1.0),))
    assert busiest_ratio(trace, play(trace, "none", 1).loads) == pytest.approx(2.1 / 4.0, rel=0.05)


def judged(target_s: float, factors: dict[str, float], end_s: float | None = None):
    """A node with two trainings and a hog, whose CPU is multiplied in a second run."""
    jobs = (hog("hog", 2.0), service("a", 0.2, target_s), training(1), training(2))
    trace = Trace(NodeFact(2.0, 1 << 34), jobs, 60.0)
    plain, own = play(trace, "none", 1), play(trace, "none", 1)
    for name, factor in factors.items():
        own.used_core_s[name] = [factor * used for used in own.used_core_s[name]]
    if end_s is not None:
        plain.loads["training-1"].completed_s = 40.0  # type: ignore[union-attr]
        own.loads["training-1"].completed_s = end_s  # type: ignore[union-attr]
    return harmed_trainings(trace, plain, own)


def names_of(found: tuple[list[str], list[str]]) -> tuple[list[str], list[str]]:
    return [one.partition(":")[0] for one in found[0]], [one.partition(":")[0] for one in found[1]]


@pytest.mark.parametrize(
    ("target_s", "factors", "end_s", "harmed", "reordered"),
    [
        (1.0, {}, None, [], []),
        (1.0, {"hog": 0.91}, None, [], []),
        (1.0, {"hog": 0.89}, None, ["hog"], []),
        (1.0, {"training-1": 0.8, "training-2": 1.2}, None, [], ["training-1"]),
        (1.0, {"training-1": 0.8}, None, ["training-1"], []),
        (0.001, {"hog": 0.5}, None, [], []),
        (1.0, {}, 41.9, [], []),
        (1.0, {}, 42.1, ["training-1"], []),
    ],
)
def test_a_training_is_harmed_by_a_later_end_or_less_cpu_while_no_service_misses(
    target_s: float,
    factors: dict[str, float],
    end_s: float | None,
    harmed: list[str],
    reordered: list[str],
) -> None:
    assert names_of(judged(target_s, factors, end_s)) == (harmed, reordered)
