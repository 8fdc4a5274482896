"""Least attained service: queues by what was had, and a run in which who comes late gains."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.peers.las import LasParameters, LasPolicy
from dlsched.control.decider import NamedPolicy
from dlsched.policies.registry import load
from dlsched.simulation.run import simulate
from dlsched.simulation.trace import Recipe, generate
from tests.benchmarks.peers.seen import service, snapshot, training

NAME = "benchmarks.peers.las:LasPolicy"


@pytest.mark.parametrize(
    ("attained_core_s", "queue"),
    [(0.0, 0), (99.9, 0), (100.0, 1), (399.0, 1), (400.0, 2), (1600.0, 3), (1e9, 3)],
)
def test_a_training_sinks_as_it_computes(attained_core_s: float, queue: int) -> None:
    assert LasPolicy(LasParameters()).queue(attained_core_s) == queue


def test_a_higher_queue_outweighs_the_next_and_nobody_has_a_ceiling() -> None:
    seen = snapshot(training("a", 0.0), training("b", 150.0), service("c", 1.0))
    decision = load(NAME).decide(seen, None)
    assert decision.weights == {"a": 1.0, "b": 1 / 50, "c": 1.0}
    assert {one.cpu_cores for one in decision.limits.values()} == {None}
    assert decision.why["b"] == "150 core-seconds: queue 2"


def test_who_comes_late_is_served_first_and_no_core_idles_that_somebody_can_use() -> None:
    recipe = Recipe(6, 240.0, 4, "training", "fixed", cores=4.0, demand=2.0, gap_s=30.0)
    trace = dataclasses.replace(generate(recipe), duration_s=2000.0)
    plain, las = (simulate(trace, NamedPolicy(name, load(name))) for name in ("none", NAME))
    last = max(trace.jobs, key=lambda job: job.arrives_s).name
    assert las.times("tier1")[last] < 0.8 * plain.times("tier1")[last]
    assert las.metrics()["makespan_s"] <= 1.02 * plain.metrics()["makespan_s"]
