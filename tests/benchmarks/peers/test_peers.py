"""Policies of others: what each does with jobs that are written down."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.peers.las import LasParameters, LasPolicy
from benchmarks.peers.parties import PartiesMemory
from benchmarks.peers.proportional import ProportionalMemory
from dlsched.estimate.sketch import from_latencies
from dlsched.model.decision import Decision
from dlsched.model.spec import AccuracyTarget, ContainerSpec, JobSpec, LatencyTarget, Limits
from dlsched.model.state import (
    JobState,
    JobView,
    NodeView,
    Progress,
    Snapshot,
)
from dlsched.policies.registry import load
from dlsched.simulation.run import simulate
from dlsched.simulation.trace import Recipe, generate

LAS = "benchmarks.peers.las:LasPolicy"


@pytest.mark.parametrize(
    ("attained_core_s", "queue"),
    [(0.0, 0), (99.9, 0), (100.0, 1), (399.0, 1), (400.0, 2), (1600.0, 3), (1e9, 3)],
)
def test_a_training_sinks_as_it_computes(attained_core_s: float, queue: int) -> None:
    assert LasPolicy(LasParameters()).queue(attained_core_s) == queue


def test_a_higher_queue_outweighs_the_next_and_nobody_has_a_ceiling() -> None:
    seen = snapshot(training("a", 0.0), training("b", 150.0), service("c", 1.0))
    decision = load(LAS).decide(seen, None)
    assert decision.weights == {"a": 1.0, "b": 1 / 50, "c": 1.0}
    assert {one.cpu_cores for one in decision.limits.values()} == {None}
    assert decision.why["b"] == "150 core-seconds: queue 2"


def test_who_comes_late_is_served_first_and_no_core_idles_that_somebody_can_use() -> None:
    recipe = Recipe(6, 240.0, 4, "training", "fixed", cores=4.0, demand=2.0, gap_s=30.0)
    trace = dataclasses.replace(generate(recipe), duration_s=2000.0)
    plain, las = (simulate(trace, name) for name in ("none", LAS))
    last = max(trace.jobs, key=lambda job: job.arrives_s).name
    assert las.times("tier1")[last] < 0.8 * plain.times("tier1")[last]
    assert las.metrics()["makespan_s"] <= 1.02 * plain.metrics()["makespan_s"]


PARTIES = "benchmarks.peers.parties:PartiesPolicy"
EQUAL = PartiesMemory((("a", 1.0), ("b", 1.0), ("c", 2.0)))
"""On four cores an equal share is 4/3, and a unit a tenth of that."""
UNIT = 0.4 / 3


def decide(memory: PartiesMemory | None, *jobs: JobView, now_s: float = 10.0) -> Decision:
    return load(PARTIES).decide(snapshot(*jobs, now_s=now_s), memory)


def cores(decision: Decision) -> list[float]:
    return [one.cpu_cores or 0.0 for one in decision.limits.values()]


def test_who_violates_most_gets_a_unit_from_who_has_most_slack() -> None:
    decision = decide(EQUAL, service("a", 2.0), service("b", 3.0), service("c", 0.5))
    assert cores(decision) == pytest.approx([1.0, 1.0 + UNIT, 2.0 - UNIT])
    assert "gives 0.133 to b" in decision.why["c"]


def test_what_nobody_has_is_given_first() -> None:
    free = PartiesMemory((("a", 1.0), ("b", 1.0), ("c", 1.9)))
    decision = decide(free, service("a", 2.0), service("b", 1.0), service("c", 0.5))
    assert cores(decision) == pytest.approx([1.0 + UNIT, 1.0, 1.9 - (UNIT - 0.1)])


def test_a_downsizing_that_does_harm_is_taken_back_and_not_tried_again_for_a_while() -> None:
    easy = [service("a", 0.9), service("b", 0.9), service("c", 0.7)]
    tried = decide(EQUAL, *easy)
    assert cores(tried) == pytest.approx([1.0, 1.0, 2.0 - UNIT])
    hurt = [service("a", 0.9), service("b", 0.9), service("c", 1.0)]
    assert isinstance(tried.memory, PartiesMemory)
    back = decide(tried.memory, *hurt, now_s=11.0)
    assert cores(back) == pytest.approx([1.0, 1.0, 2.0])
    assert "takes back" in back.why["c"]
    assert isinstance(back.memory, PartiesMemory)
    assert cores(decide(back.memory, *easy, now_s=20.0)) == pytest.approx([1.0, 1.0, 2.0])
    assert cores(decide(back.memory, *easy, now_s=42.0))[2] == pytest.approx(2.0 - UNIT)


PROPORTIONAL = "benchmarks.peers.proportional:ProportionalPolicy"
BEFORE = ProportionalMemory((("a", 1.0), ("b", 1.0)))


def test_a_ceiling_grows_with_lateness_and_shrinks_with_haste() -> None:
    seen = snapshot(service("a", 2.0), service("b", 0.5))
    decision = load(PROPORTIONAL).decide(seen, BEFORE)
    assert decision.limits["a"].cpu_cores == pytest.approx(2.0**0.7, rel=0.01)
    assert decision.limits["b"].cpu_cores == pytest.approx(0.5**0.7, rel=0.01)
    assert decision.next_s == 1.0


def test_what_does_not_fit_is_scaled_onto_the_node_above_the_floor() -> None:
    seen = snapshot(service("a", 8.0), service("b", 8.0), capacity=2.0)
    decision = load(PROPORTIONAL).decide(seen, ProportionalMemory((("a", 1.0), ("b", 0.05))))
    cores = [decision.limits[name].cpu_cores for name in "ab"]
    assert sum(one or 0.0 for one in cores) == pytest.approx(2.0)
    assert cores[1] is not None and cores[1] > 0.05, "nobody falls below the floor"


@pytest.mark.parametrize(("memory", "cores"), [(None, 2.0), (BEFORE, 1.0)])
def test_nothing_measured_changes_nothing_and_the_first_ceiling_is_a_fair_share(
    memory: ProportionalMemory | None, cores: float
) -> None:
    seen = snapshot(service("a", None), service("b", None))
    limits = load(PROPORTIONAL).decide(seen, memory).limits.values()
    assert [one.cpu_cores for one in limits] == [cores, cores]


def service(
    name: str,
    late: float | None,
    *,
    cores: float | None = None,
    quantile: float | None = None,
) -> JobView:
    """A service whose requests took so many times its target of 0.1 s; None: none came yet."""
    latencies_s = [] if late is None else [0.1 * late] * 20
    return JobView(
        spec=JobSpec(name, ContainerSpec("model"), target=LatencyTarget(0.1, quantile)),
        state=JobState.RUNNING,
        actual=Limits(cores),
        progress=Progress(window=from_latencies(latencies_s)),
    )


def training(name: str, attained_core_s: float) -> JobView:
    """A training that has had so much."""
    target = AccuracyTarget("accuracy", 0.9, 0.97)
    return JobView(
        spec=JobSpec(name, ContainerSpec("trainer"), target=target),
        state=JobState.RUNNING,
        attained_core_s=attained_core_s,
    )


def snapshot(*jobs: JobView, capacity: float = 4.0, now_s: float = 10.0) -> Snapshot:
    """These jobs on a node of that capacity."""
    return Snapshot(0, now_s, NodeView(capacity, capacity, 1 << 30), jobs)
