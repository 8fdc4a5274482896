"""Jobs as a peer sees them, small enough to write down."""

from __future__ import annotations

from dlsched.estimate.sketch import from_latencies
from dlsched.model.spec import AccuracyTarget, ContainerSpec, JobSpec, LatencyTarget, Limits
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot, Usage


def service(
    name: str,
    late: float | None,
    *,
    cores: float | None = None,
    used: float | None = None,
    quantile: float | None = None,
) -> JobView:
    """A service whose requests took so many times its target of 0.1 s; None: none came yet."""
    latencies_s = [] if late is None else [0.1 * late] * 20
    return JobView(
        spec=JobSpec(name, ContainerSpec("model"), target=LatencyTarget(0.1, quantile)),
        state=JobState.RUNNING,
        actual=Limits(cores),
        usage=Usage(cpu_cores=used),
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
