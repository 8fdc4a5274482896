"""Closed loops beside processes outside that come and go, and beside a job with a `cpus.min`."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from benchmarks.judge.satisfaction import MET, Watch, judge
from benchmarks.simulated.adaptive_inference import SCENARIOS, trace_of
from dlsched.model.actions import Resize
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import Bounds
from dlsched.simulation.node.workloads import HostLoad, Trace
from dlsched.simulation.run import simulate
from dlsched.simulation.scoring import PLAIN
from tests.worlds.harm_worlds import training

FEASIBLE = next(one for one in SCENARIOS if one.name == "feasible")
JOBS, SEED, BEGINS_S, JUDGED_FROM_S = 8, 49, 20, 60.0
PROMISED_SEED, PROMISED_CORES = 2, 1.6
SHARES = 1024 * JOBS


@pytest.mark.parametrize(
    ("lasts_s", "every_s", "part"), [(4.0, 12, 0.5), (7.0, 20, 0.375), (20.0, 60, 0.5)]
)
def test_services_meet_more_than_under_plain_docker(
    lasts_s: float, every_s: int, part: float
) -> None:
    trace = trace_of(FEASIBLE, JOBS, SEED)
    cores = part * trace.node.cores
    begins = range(BEGINS_S, int(trace.duration_s), every_s)
    trace = replace(trace, host=tuple(HostLoad(at, lasts_s, cores, SHARES) for at in begins))
    plain_jobs, _ = _played(trace, PLAIN)
    met_jobs, updates_per_min = _played(trace, "adaptive")
    assert met_jobs > plain_jobs
    # Every 12 s, changes of all eight when the load comes and when it goes would be 80 a minute.
    assert updates_per_min < 40.0


def test_a_job_beside_them_gets_the_cores_that_it_was_promised() -> None:
    trace = trace_of(
        replace(FEASIBLE, recipe=replace(FEASIBLE.recipe, demand=0.95)), JOBS, PROMISED_SEED
    )
    batch = training(1)
    batch = replace(batch, spec=replace(batch.spec, bounds=Bounds(PROMISED_CORES)))
    trace = replace(trace, jobs=(*trace.jobs, batch))
    used_cores = []

    def publish(report: CycleReport) -> None:
        if report.snapshot.now_s >= JUDGED_FROM_S:
            job = next(one for one in report.snapshot.jobs if one.name == batch.name)
            used_cores.append(job.usage.cpu_cores or 0.0)

    simulate(trace, "adaptive", PROMISED_SEED, publish=publish)
    assert fmean(used_cores) > 0.98 * PROMISED_CORES


def _played(trace: Trace, policy: str) -> tuple[float, float]:
    """How many services are not slower than their targets, and updates a minute once settled."""
    watch, updated_s = Watch(), list[float]()

    def publish(report: CycleReport) -> None:
        updated_s.extend(
            report.snapshot.now_s
            for outcome in report.outcomes
            if isinstance(outcome.action, Resize)
        )

    simulate(trace, policy, SEED, publish=publish, inspect=watch.look)
    met = judge(trace, watch, MET, [job.name for job in trace.jobs]).jobs
    late = sum(at_s >= JUDGED_FROM_S for at_s in updated_s)
    return met, 60.0 * late / (trace.duration_s - JUDGED_FROM_S)
