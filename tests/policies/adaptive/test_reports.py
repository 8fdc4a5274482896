"""Reports that come rarely, not at all, or that cannot be true, under `adaptive`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.control.decider import NamedPolicy
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision
from dlsched.model.facts import LatencySketch, NodeFact
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import JobView, Progress, Usage
from dlsched.policies.adaptive.parameters import AdaptiveParameters
from dlsched.policies.adaptive.policy import AdaptivePolicy
from dlsched.policies.registry import load
from dlsched.simulation.node.loops import Loop
from dlsched.simulation.node.workloads import Fault, ServiceLoad, SimulatedJob, Trace
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import RunResult
from dlsched.simulation.trace import Recipe, generate
from tests.lanes import but_the_first_long
from tests.policies import plant
from tests.policies.adaptive.test_room import CORES, neighbours
from tests.properties import examples
from tests.worlds.open_worlds import simulated_job

LINES = 40
LOOPS = 5
KEPT_RATIO = {5.0: 0.95, 10.0: 0.9, 30.0: 0.8}
"""Of the services at target with a report a second, by seconds between reports."""
SILENT_S = 190.0
"""After so long without a report nothing is believed of a service: 60 s until it is called blind,
and two minutes of the policy's."""


def played(trace: Trace, policy: str, seed: int) -> tuple[RunResult, list[Decision]]:
    decisions: list[Decision] = []

    def publish(report: CycleReport) -> None:
        if report.decision is not None:
            decisions.append(report.decision)

    named = NamedPolicy(policy, load(policy))
    return simulate(trace, named, seed, publish=publish), decisions


def reporting(trace: Trace, every_s: float, seed: int) -> Trace:
    """The same services, each with phases of its own and so many seconds between two reports."""
    chance = random.Random(seed)
    jobs = []
    for job in trace.jobs:
        assert isinstance(job.load, ServiceLoad)
        load_, start_up_s = replace(job.load, report_s=every_s), 1.0 + chance.random() * every_s
        jobs.append(replace(job, load=load_, start_up_s=start_up_s))
    return replace(trace, jobs=tuple(jobs))


def at_target(result: RunResult, mode: str) -> float:
    """Services at their target, mean over the time."""
    key = "satisfied_ratio" if mode == "band" else "met_ratio"
    return sum(getattr(job, key) or 0.0 for job in result.jobs)


@pytest.mark.parametrize(
    ("mode", "demand", "every_s"),
    but_the_first_long(
        [("band", 0.7, 5.0), ("band", 1.4, 10.0), ("slo", 1.4, 10.0), ("band", 1.4, 30.0)],
        spread=True,
    ),
)
def test_rare_reports_are_enough_for_closed_loops(mode: str, demand: float, every_s: float) -> None:
    recipe = Recipe(
        jobs=LOOPS,
        kind="inference",
        schedule="burst",
        duration_s=LINES * every_s,
        demand=demand,
        seed=7,
    )
    trace, policy = generate(recipe), f"adaptive?mode={mode}"
    often, rare = (
        at_target(played(reporting(trace, one_s, 7), policy, 7)[0], mode)
        for one_s in (1.0, every_s)
    )
    assert rare >= KEPT_RATIO[every_s] * often > 0.0


@pytest.mark.long
def test_rare_reports_of_open_loops_bring_no_ceilings_where_they_fit() -> None:
    load_ = ServiceLoad(0.02, loop=Loop("poisson", 10.0), report_s=30.0)
    jobs = [simulated_job(f"service-{n}", LatencyTarget(0.2), load_) for n in range(4)]
    trace = Trace(NodeFact(CORES, 1 << 34), (*jobs, *neighbours("two trainings")), 300.0)
    _, decisions = played(trace, "adaptive", 1)
    for job in jobs:
        assert {one.limits[job.name].cpu_cores for one in decisions if job.name in one.limits} == {
            None
        }
        # It is known, and said, what they are at.
        assert "too few requests" not in decisions[-1].why[job.name]


# ---------------------------------------------------------------------- silence


def crowd(mode: str) -> list[SimulatedJob]:
    """Closed loops that need more than there is."""
    loop = ServiceLoad(0.02)
    return [simulated_job(f"loop-{n}", LatencyTarget(0.04), loop) for n in range(6)]


SILENT: Mapping[str, Callable[[], SimulatedJob]] = {
    "loads for ten minutes": lambda: simulated_job(
        "silent", LatencyTarget(0.1), ServiceLoad(0.02), start_up_work_core_s=600.0
    ),
    "works while silent": lambda: simulated_job(
        "silent", LatencyTarget(0.1), ServiceLoad(0.02), faults=(Fault("silent", 20.0),)
    ),
    "asked for nothing": lambda: simulated_job(
        "silent", LatencyTarget(0.1), ServiceLoad(0.02, arrivals_per_s=1e-9)
    ),
}


@pytest.mark.parametrize("kind", SILENT)
@pytest.mark.parametrize("mode", ["slo", "band"])
def test_a_silent_service_has_no_ceiling_and_its_usual_weight(kind: str, mode: str) -> None:
    jobs = tuple(sorted([SILENT[kind](), *crowd(mode)], key=lambda job: job.name))
    trace = Trace(NodeFact(CORES, 1 << 34), jobs, SILENT_S + 30.0)
    _, decisions = played(trace, f"adaptive?mode={mode}", 1)
    last = decisions[-1]
    assert last.limits["silent"].cpu_cores is None
    assert last.weights["silent"] >= min(last.weights[f"loop-{n}"] for n in range(6))
    assert last.why["silent"].endswith("it has no ceiling")


def test_a_silent_service_has_no_ceiling_where_there_is_room() -> None:
    for make in SILENT.values():
        job = make()
        trace = Trace(NodeFact(CORES, 1 << 34), (job,), SILENT_S + 30.0)
        _, decisions = played(trace, "adaptive", 1)
        assert {one.limits["silent"].cpu_cores for one in decisions if one.limits} == {None}


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
        *("not believed", "less than its CPU time"),
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
        *("not believed", "longer than its service runs"),
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
        *("not believed", "without CPU time"),
    )


@settings(max_examples=examples(30))
@given(mode=MODES, capacity=ROOM, every_s=st.floats(121.0, 1e6))
def test_a_report_a_day_brings_no_ceiling(mode: str, capacity: float, every_s: float) -> None:
    sketch = LatencySketch(1000, 10.0)
    no_ceiling(
        decided(lambda now_s: (sketch, now_s), mode=mode, capacity=capacity, every_s=every_s),
        "too rare to go by",
    )


@pytest.mark.parametrize("mode", ["slo", "band"])
def test_no_requests_bring_no_ceiling(mode: str) -> None:
    no_ceiling(
        decided(lambda now_s: (LatencySketch(), now_s), mode=mode, capacity=2.0),
        "too few requests yet",
    )


@pytest.mark.parametrize("mode", ["slo", "band"])
def test_honest_reports_of_the_same_service_are_believed(mode: str) -> None:
    sketch = LatencySketch(100, 1.0)
    decisions = decided(lambda now_s: (sketch, now_s), mode=mode, capacity=2.0)
    assert any(one.limits["nonsense"].cpu_cores is not None for one in decisions)
    assert "believed" not in decisions[-1].why["nonsense"]


@pytest.mark.parametrize("mode", ["slo", "band"])
def test_a_service_that_begins_to_tell_nonsense_loses_its_ceiling_in_two_minutes(
    mode: str,
) -> None:
    def told(now_s: float) -> tuple[LatencySketch, float]:
        return LatencySketch(100, 1.0 if now_s <= 30.0 else 1e-4), now_s

    decisions = decided(told, mode=mode, capacity=2.0, looks=160)
    limits = [one.limits["nonsense"].cpu_cores for one in decisions]
    assert limits[29] is not None
    # One odd line takes no ceiling away.
    assert limits[34] is not None
    assert set(limits[152:]) == {None}
