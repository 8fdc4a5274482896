"""A job that lies about its progress gains no more than its bounds, and takes nobody's floor."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.control.guards import GuardOptions
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import Observation, Report
from dlsched.model.spec import Bounds, OwnerCeilings
from dlsched.runtime.progress.sidecar_line import BadLine, parse_line
from dlsched.simulation import run as simulator
from dlsched.simulation.node import SimulatedRuntime
from dlsched.simulation.trace import Recipe, generate
from tests.properties import examples
from tests.simulation.test_run_properties import EVERY_POLICY

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


def told(lines: list[dict[str, object]]) -> Iterator[tuple[Report, ...]]:
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
    reports = told(lines)

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
