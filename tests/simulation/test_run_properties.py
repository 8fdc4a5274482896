"""What holds of whole runs, over days drawn at random and for every policy that is shipped; also of
jobs that lie about their progress: they gain no more than their bounds, and take nobody's floor.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.control.controller import NamedPolicy
from dlsched.control.guards import GuardOptions
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import Observation, Report
from dlsched.model.spec import Bounds, OwnerCeilings
from dlsched.policies.registry import load
from dlsched.runtime.progress.sidecar_line import BadLine, parse_line
from dlsched.simulation import run as simulator
from dlsched.simulation.node import SimulatedRuntime
from dlsched.simulation.node.workloads import Trace
from dlsched.simulation.run import compare
from dlsched.simulation.scoring import RunResult, rows
from dlsched.simulation.trace import Recipe, generate
from tests.properties import examples

EVERY_POLICY = (
    "none",
    "fair",
    "dqoes",
    "dqoes-published",
    "dqoes-published?reading=own",
    "flowcon",
    "tradl",
    "tradl?weights=closest",
)


def run(trace: Trace, policy: str) -> RunResult:
    return simulator.simulate(trace, policy, 1)


recipes = st.builds(
    Recipe,
    jobs=st.integers(1, 6),
    duration_s=st.sampled_from([40.0, 120.0]),
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["training", "inference", "mixed"]),
    schedule=st.sampled_from(["burst", "fixed", "random"]),
    cores=st.sampled_from([1.0, 4.0, 8.0]),
    demand=st.sampled_from([0.3, 0.7, 1.4, 3.0]),
    impossible_ratio=st.sampled_from([0.0, 0.5]),
    gap_s=st.just(7.0),
    stay_s=st.sampled_from([None, 25.0]),
)


@pytest.mark.parametrize("policy", EVERY_POLICY)
@settings(max_examples=examples(6))
@given(recipe=recipes)
def test_limits_hold_and_no_core_idles_that_somebody_may_use(policy: str, recipe: Recipe) -> None:
    trace, loaded = generate(recipe), load(policy)
    seen: list[SimulatedRuntime] = []

    class Watched(SimulatedRuntime):
        def __init__(self, trace: Trace, seed: int = 0) -> None:
            super().__init__(trace, seed)
            seen.append(self)

    def look(report: CycleReport) -> None:
        assert not report.alarms
        running = report.snapshot.running
        for job in running:
            ceiling = job.actual.cpu_cores
            assert ceiling is None or ceiling >= job.spec.bounds.floor_cores - 1e-9
        if loaded.traits.reserves:
            ceilings = [job.actual.cpu_cores or math.inf for job in running]
            assert math.fsum(ceilings) <= recipe.cores + 1e-6
        world = seen[0].world
        wanted = [
            process.load.wants_cores(process.quota_cores) for process in world._running.values()
        ]
        assert world.used_cores == pytest.approx(min(recipe.cores, math.fsum(wanted)))

    with patch.object(simulator, "SimulatedRuntime", Watched):
        simulator.simulate(trace, NamedPolicy(policy, loaded), 1, publish=look)


@settings(max_examples=examples(10))
@given(recipe=recipes)
def test_no_policy_beats_a_bound(recipe: Recipe) -> None:
    trace = generate(recipe)
    for row in rows(trace, compare(trace, EVERY_POLICY, [1])):
        if row.of_optimum is not None and row.metric.endswith("_s"):
            assert row.of_optimum >= 1.0 - 1e-9, row
        elif row.of_optimum is not None:
            assert row.of_optimum <= 1.0 + 1e-9, row


@pytest.mark.parametrize("policy", EVERY_POLICY)
@settings(max_examples=examples(5))
@given(seed=st.integers(0, 10_000), light=st.floats(0.01, 1.0))
def test_every_job_with_weight_finishes(policy: str, seed: int, light: float) -> None:
    trace = generate(Recipe(jobs=4, duration_s=60.0, kind="training", cores=4.0, seed=seed))
    first, *others = trace.jobs
    lighter = replace(first, spec=replace(first.spec, weight=light))
    trace = replace(trace, jobs=(lighter, *others), duration_s=20_000.0)
    assert run(trace, policy).metrics()["jct_reached_ratio"] == 1.0


@settings(max_examples=examples(5))
@given(recipe=recipes, policy=st.sampled_from(EVERY_POLICY), chance=st.randoms())
def test_over_any_day_a_run_repeats_whatever_the_order_of_jobs(
    recipe: Recipe, policy: str, chance: random.Random
) -> None:
    trace = generate(recipe)
    once = run(trace, policy)
    assert run(trace, policy) == once
    shuffled = list(trace.jobs)
    chance.shuffle(shuffled)
    other = run(replace(trace, jobs=tuple(shuffled)), policy)
    assert sorted(other.jobs, key=lambda job: job.name) == list(once.jobs)


CAPACITY_CORES = 4.0
LIAR, HONEST = 60001, 60002
LIARS_CORES = 1.5
"""What all jobs of the liar may have together."""

numbers = st.sampled_from([0, 1, -1, 1e-9, 0.05, 1e9, 1e300, 2**53]) | st.floats(0, 100)
lies = st.fixed_dictionaries(
    {},
    optional={
        "latency_s": st.lists(numbers, max_size=8),
        "latency": st.fixed_dictionaries(
            {"count": st.integers(0, 10**6), "sum": numbers},
            optional={
                "buckets": st.dictionaries(
                    st.integers(0, 1500).map(str), st.integers(0, 10**6), max_size=4
                ),
                "errors": st.integers(0, 10**6),
                "in_flight": st.integers(0, 10**6),
                "oldest_s": numbers,
            },
        ),
        "step": st.integers(0, 10**9),
        "accuracy": numbers,
        "loss": numbers,
        "w": st.sampled_from(["a", "b"]),
    },
)


def lied(lines: list[dict[str, object]]) -> Iterator[tuple[Report, ...]]:
    """Those lines over and over, as the agent would read them; what it refuses is silence."""
    for line in cycle(lines or [{}]):
        try:
            yield (parse_line(json.dumps(line).encode(), 0.0),)
        except BadLine:
            yield ()


@pytest.mark.parametrize("policy", EVERY_POLICY)
@settings(max_examples=examples(25))
@given(
    seed=st.integers(0, 1000), lines=st.lists(lies, max_size=6), cooldown_s=st.sampled_from([0, 20])
)
def test_whatever_a_job_reports_bounds_hold_and_floors_are_kept(
    policy: str, seed: int, lines: list[dict[str, object]], cooldown_s: float
) -> None:
    trace = generate(Recipe(jobs=5, duration_s=40.0, kind="mixed", cores=CAPACITY_CORES, seed=seed))
    # Two jobs are the liar's: bounded alone, and together; the others' have floors.
    liars = {job.name for job in trace.jobs[:2]}
    bounds = {True: Bounds(0.05, 1.0), False: Bounds(0.3, None)}
    jobs = tuple(
        replace(
            job,
            spec=replace(
                job.spec,
                bounds=bounds[job.name in liars],
                owner=LIAR if job.name in liars else HONEST,
            ),
        )
        for job in trace.jobs
    )
    reports = lied(lines)

    class Lied(SimulatedRuntime):
        def observe(self, now_s: float) -> Observation:
            seen = super().observe(now_s)
            facts = (
                replace(
                    fact, reports=tuple(replace(one, received_s=now_s) for one in next(reports))
                )
                if fact.job in liars
                else fact
                for fact in seen.containers
            )
            return replace(seen, containers=tuple(facts))

    def look(report: CycleReport) -> None:
        limits = {
            job.name: job.actual.cpu_cores if one is None else one.cpu_cores
            for job in report.snapshot.running
            for one in (report.limits.get(job.name),)
        }
        shown = f"{report.snapshot.cycle}: {limits}"
        for name, cores in limits.items():
            if name in liars:
                assert cores is not None and 0.05 - 1e-9 <= cores <= 1.0 + 1e-9, shown
            else:
                assert cores is None or cores >= 0.3 - 1e-9, shown
        theirs = [limits[name] or 0.0 for name in limits if name in liars]
        assert math.fsum(theirs) <= LIARS_CORES + 1e-6, shown
        if report.policy == "fair":
            assert (
                math.fsum(cores or math.inf for cores in limits.values()) <= CAPACITY_CORES + 1e-6
            )

    ceilings = OwnerCeilings(jobs=16, cpu_cores=LIARS_CORES, gpus=0)
    guards = GuardOptions(
        cooldown_s=cooldown_s, ceilings_of=lambda owner: ceilings if owner == LIAR else None
    )
    with patch.object(simulator, "SimulatedRuntime", Lied):
        simulator.simulate(
            replace(trace, jobs=jobs), policy, 1,
            guards=guards, publish=look,
        )  # fmt: skip
