"""What one node's agent reports to the cluster's controller, and how it follows from the node's own
view of a job."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

from dlsched.cluster.core.records import STRICT, FirstProblem, Holding
from dlsched.cluster.core.snapshot import EVALUATIONS_MAX, Evaluation, Left, Sharing
from dlsched.estimate.learning import TOTAL_STEPS
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import JobView

PACE_REPORTS_MIN = 3
"""A pace counts after so many reports: the first one also contains the start of the process."""
_HALF_WIDTH = 0.5
"""Relative half-width of the interval of remaining work after one report; it falls with the root of
their number."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """One running job of the cluster, as its node measured it."""

    __pydantic_config__ = STRICT
    name: str
    granted_cores: float = 0.0
    used_core_s: float = 0.0
    """CPU time since it began on this node."""
    step: int | None = None
    reports: int = 0
    """Evaluations since it began on this node."""
    left: Left | None = None
    """Work until its last step, in core-seconds of this node; None: it does not say how many steps
    it takes, or has not reported yet."""
    steps_per_core_s: float | None = None
    """None: too few reports."""
    evaluations: Annotated[tuple[Evaluation, ...], FirstProblem()] = ()
    """The latest, the oldest first."""
    unmovable: str | None = None
    """Why its node cannot let it go; None: it can."""
    pause_s: float = 0.0
    """How long a move would stop it, as far as its node knows."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One answer of a node's agent."""

    __pydantic_config__ = STRICT
    node: str
    capacity_cores: float
    foreign_cores: float = 0.0
    memory_free_bytes: int | None = None
    gpus_free: int = 0
    images: Annotated[frozenset[str], FirstProblem()] = frozenset()
    sharing: Sharing = Sharing.SHORTEST
    age_s: float = 0.0
    now_s: float = 0.0
    """The node's clock as this is sent, by which evaluations have their times."""
    holdings: Annotated[tuple[Holding, ...], FirstProblem()] = ()
    jobs: Annotated[tuple[JobReport, ...], FirstProblem()] = ()
    """Those whose container runs."""

    def holding(self, job: str) -> Holding | None:
        return next((one for one in self.holdings if one.job == job), None)


def job_report(view: JobView, as_of_s: float, now_s: float, began_step: int = 0) -> JobReport:
    """The report on a running job now, by the node's view of it at `as_of_s`; the job began on this
    node at that step."""
    target = view.spec.target
    metric = target.metric if isinstance(target, AccuracyTarget) else ""
    samples = view.progress.samples
    used = view.usage.window_cores
    report = JobReport(
        view.name,
        granted_cores=(view.usage.cpu_cores if used is None else used) or 0.0,
        used_core_s=view.attained_core_s,
        step=samples[-1].step if samples else None,
        reports=len(samples),
        evaluations=tuple(
            Evaluation(one.received_s, value)
            for one in samples[-EVALUATIONS_MAX:]
            if (value := dict(one.metrics).get(metric)) is not None
        ),
    )
    if report.step is None:
        return report
    cores, last = view.usage.cpu_cores or 0.0, samples[-1]
    until_core_s = report.used_core_s - cores * max(as_of_s - last.received_s, 0.0)
    if report.step <= began_step or until_core_s <= 0.0:
        return report
    work_core_s = until_core_s / (report.step - began_step)
    left, total = None, dict(last.metrics).get(TOTAL_STEPS)
    if total is not None:
        since_core_s = cores * max(now_s - last.received_s, 0.0)
        mid_core_s = max((total - report.step) * work_core_s - since_core_s, 0.0)
        half = mid_core_s * _HALF_WIDTH / math.sqrt(report.reports)
        left = Left(mid_core_s - half, mid_core_s, mid_core_s + half)
    pace = 1.0 / work_core_s if report.reports >= PACE_REPORTS_MIN else None
    return replace(report, left=left, steps_per_core_s=pace)
