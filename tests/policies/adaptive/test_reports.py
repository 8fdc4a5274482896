"""Reports that come rarely, not at all, or that cannot be true, under `adaptive`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.control.decider import NamedPolicy
from dlsched.estimate.sketch import from_latencies
from dlsched.model.decision import Decision
from dlsched.model.facts import LatencySketch, NodeFact, Usage
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView, Progress
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.policy import AdaptivePolicy
from dlsched.policies.registry import load
from dlsched.simulation.node.workloads import Fault, ServiceLoad, Trace
from dlsched.simulation.run import simulate
from tests.policies import plant
from tests.properties import examples
from tests.worlds.harm_worlds import CORES
from tests.worlds.open_worlds import simulated_job

SILENT_S = 190.0
"""After so long without a report nothing is believed of a service: 60 s until it is called blind,
and two minutes of the policy's."""


@pytest.mark.parametrize(
    "more",
    [
        {"start_up_work_core_s": 600.0},
        {"faults": (Fault("silent", 20.0),)},
        {"load": ServiceLoad(0.02, arrivals_per_s=1e-9)},
    ],
    ids=["loads for ten minutes", "works while silent", "asked for nothing"],
)
@pytest.mark.parametrize("mode", ["slo", "band"])
def test_a_silent_service_has_no_ceiling_and_its_usual_weight(
    more: dict[str, Any], mode: str
) -> None:
    # Beside closed loops that need more than there is.
    loops = [simulated_job(f"loop-{n}", LatencyTarget(0.04), ServiceLoad(0.02)) for n in range(6)]
    silent = replace(simulated_job("silent", LatencyTarget(0.1), ServiceLoad(0.02)), **more)
    trace = Trace(NodeFact(CORES, 1 << 34), (*loops, silent), SILENT_S + 30.0)
    decisions: list[Decision | None] = []
    policy = f"adaptive?mode={mode}"
    simulate(
        trace, NamedPolicy(policy, load(policy)), publish=lambda one: decisions.append(one.decision)
    )
    last = next(one for one in reversed(decisions) if one is not None)
    assert last.limits["silent"].cpu_cores is None
    assert last.weights["silent"] >= min(last.weights[f"loop-{n}"] for n in range(6))
    assert last.why["silent"].endswith("no limit is set")


# ---------------------------------------------------------------------- nonsense

WORK_CORE_S = 0.01
HONEST = ("a", "b", "c")


def view(name: str, now_s: float, used_core_s: float, progress: Progress) -> JobView:
    job = plant.job(name, 0.025, cores=None, used=1.0, throttled=0.0)
    return replace(
        job,
        starts=1,
        attained_core_s=used_core_s,
        started_at_s=0.0,
        usage=Usage(1.0, 1.0, throttled_ratio=0.0),
        progress=progress,
    )


def decided(
    nonsense: Callable[[float], tuple[LatencySketch, float]],
    *,
    mode: str,
    in_flight: int = 1,
    every_s: float = 1.0,
    capacity: float,
    looks: int = 40,
) -> list[Decision]:
    """A service that reports this nonsense (requests, and CPU time so far, by time), beside three
    honest closed loops that would use a core each."""
    policy, memory, found = AdaptivePolicy(AdaptiveParameters(mode=mode)), None, []
    for look in range(looks):
        now_s = (look + 1) * every_s
        count = round(every_s / WORK_CORE_S)
        true = Progress(fresh=LatencySketch(count, every_s), in_flight=1, as_of_s=now_s)
        sketch, used_core_s = nonsense(now_s)
        false = Progress(fresh=sketch, in_flight=in_flight, as_of_s=now_s, every_s=every_s)
        jobs = [view(name, now_s, now_s, true) for name in HONEST]
        jobs.append(view("nonsense", now_s, used_core_s, false))
        decision = policy.decide(plant.snapshot(*jobs, now_s=now_s, capacity=capacity), memory)
        memory = decision.memory
        found.append(decision)
    return found


MODES, ROOM = st.sampled_from(["slo", "band"]), st.sampled_from([2.0, 16.0])
TIMES = st.floats(-9.0, -0.05).map(lambda power: 10.0**power)


def no_ceiling(decisions: list[Decision], *words: str) -> None:
    assert {one.limits["nonsense"].cpu_cores for one in decisions} == {None}
    why = decisions[-1].why["nonsense"]
    assert all(word in why for word in words), why


@settings(max_examples=examples(75))
@given(mode=MODES, capacity=ROOM, ratio=TIMES)
def test_latencies_below_the_cpu_time_of_a_request_bring_no_ceiling(
    mode: str, capacity: float, ratio: float
) -> None:
    mean_s = ratio * WORK_CORE_S / max(capacity, plant.CAPACITY_CORES) / 2.0
    sketch = LatencySketch(100, 100 * mean_s)
    no_ceiling(
        decided(lambda now_s: (sketch, now_s), mode=mode, capacity=capacity),
        *("not believed", "shorter than the CPU time"),
    )


@settings(max_examples=examples(75))
@given(mode=MODES, capacity=ROOM, times=st.floats(2.1, 1e6))
def test_latencies_longer_than_the_service_runs_bring_no_ceiling(
    mode: str, capacity: float, times: float
) -> None:
    # A wall clock that steps while requests are under way.
    no_ceiling(
        decided(
            lambda now_s: (LatencySketch(3, 3 * times * now_s), now_s), mode=mode, capacity=capacity
        ),
        *("not believed", "longer than it has been running"),
    )


@settings(max_examples=examples(75))
@given(mode=MODES, capacity=ROOM, times=st.integers(4, 10**6))
def test_more_requests_than_one_client_can_ask_bring_no_ceiling(
    mode: str, capacity: float, times: int
) -> None:
    sketch = LatencySketch(100 * times, 1.0 * times)
    no_ceiling(
        decided(lambda now_s: (sketch, now_s), mode=mode, capacity=capacity),
        *("not believed", "more than the time"),
    )


@settings(max_examples=examples(30))
@given(mode=MODES, capacity=ROOM, count=st.sampled_from([1, 100, 10**6, 10**9]))
def test_requests_without_cpu_time_bring_no_ceiling(mode: str, capacity: float, count: int) -> None:
    sketch = LatencySketch(count, 0.01 * count)
    no_ceiling(
        decided(lambda _: (sketch, 5.0), mode=mode, capacity=capacity, in_flight=0),
        *("not believed", "has used no CPU time"),
    )


@settings(max_examples=examples(30))
@given(mode=MODES, capacity=ROOM, every_s=st.floats(121.0, 1e6))
def test_a_report_a_day_brings_no_ceiling(mode: str, capacity: float, every_s: float) -> None:
    sketch = LatencySketch(1000, 10.0)
    no_ceiling(
        decided(lambda now_s: (sketch, now_s), mode=mode, capacity=capacity, every_s=every_s),
        "too rarely for a limit",
    )


@pytest.mark.parametrize("mode", ["slo", "band"])
def test_no_requests_bring_no_ceiling(mode: str) -> None:
    no_ceiling(
        decided(lambda now_s: (LatencySketch(), now_s), mode=mode, capacity=2.0),
        "too few requests yet",
    )


def test_honest_reports_of_the_same_service_are_believed() -> None:
    sketch = LatencySketch(100, 1.0)
    decisions = decided(lambda now_s: (sketch, now_s), mode="band", capacity=2.0)
    assert any(one.limits["nonsense"].cpu_cores is not None for one in decisions)
    assert "believed" not in decisions[-1].why["nonsense"]


def test_a_service_that_begins_to_tell_nonsense_loses_its_ceiling_in_two_minutes() -> None:
    def told(now_s: float) -> tuple[LatencySketch, float]:
        return LatencySketch(100, 1.0 if now_s <= 30.0 else 1e-4), now_s

    decisions = decided(told, mode="band", capacity=2.0, looks=160)
    limits = [one.limits["nonsense"].cpu_cores for one in decisions]
    assert limits[29] is not None
    # One odd line takes no ceiling away.
    assert limits[34] is not None
    assert set(limits[152:]) == {None}


@pytest.mark.parametrize("mode", ["slo", "band"])
def test_quick_answers_bring_no_ceiling_while_most_fail(mode: str) -> None:
    policy, memory = AdaptivePolicy(AdaptiveParameters(mode=mode)), None
    for second in range(1, 60):
        quick = from_latencies([0.011] * 40)
        sick = replace(quick, errors=60 * (second > 30))
        jobs = []
        for name, fresh in (("sick", sick), ("well", quick)):
            progress = Progress(
                fresh=fresh, window=fresh, recent=fresh, in_flight=1, as_of_s=second
            )
            jobs.append(view(name, second, 0.4 * second, progress))
        snapshot = plant.snapshot(*jobs, now_s=second, capacity=4.0)
        decision = policy.decide(snapshot, memory)
        memory = decision.memory
    assert decision.limits["sick"].cpu_cores is None
    assert "more than 1 % of the job's requests fail; no limit is set" in decision.why["sick"]
    assert decision.weights["sick"] <= decision.weights["well"], "as under plain Docker"
