"""Jobs and days to simulate, and the cycles that come of them, also changed on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dlsched.model.cycle import CycleReport
from dlsched.model.facts import NodeFact
from dlsched.model.spec import ContainerSpec, JobSpec, Target
from dlsched.model.state import JobView
from dlsched.simulation.node.workloads import Load, SimulatedJob, Trace
from dlsched.simulation.run import simulate


def job(name: str, load: Load, target: Target | None, **changes: Any) -> SimulatedJob:
    spec = JobSpec(
        name, ContainerSpec("simulated"), target=target, container_digest=name, digest=name
    )
    return replace(SimulatedJob(spec, load), **changes)


def day(*jobs: SimulatedJob, cores: float = 4.0, duration_s: float = 300.0, **more: Any) -> Trace:
    jobs = tuple(sorted(jobs, key=lambda one: one.name))
    return Trace(NodeFact(cores, 8 << 30), jobs, duration_s, **more)


def run(trace: Trace, policy: str = "none", seed: int = 1) -> list[CycleReport]:
    """Every cycle of that trace under that policy."""
    reports: list[CycleReport] = []
    simulate(trace, policy, seed, publish=reports.append)
    return reports


def seen(report: CycleReport, change: Callable[[JobView], JobView], **more: Any) -> CycleReport:
    """The report with every job's view changed, and `more` of its snapshot."""
    views = tuple(map(change, report.snapshot.jobs))
    return replace(report, snapshot=replace(report.snapshot, jobs=views, **more))


def asked(view: JobView, target: Target | None) -> JobView:
    """The view of the same job with another target."""
    return replace(view, spec=replace(view.spec, target=target))
