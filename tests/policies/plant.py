"""A job and a node as a policy sees them."""

from __future__ import annotations

from dlsched.estimate.sketch import from_latencies
from dlsched.model.facts import Usage
from dlsched.model.spec import Bounds, ContainerSpec, JobSpec, LatencyTarget, Limits
from dlsched.model.state import JobState, JobView, NodeView, Progress, Snapshot

WINDOW_S = 30.0
CAPACITY_CORES = 2.0
UNBOUNDED = Bounds()


def job(
    name: str,
    target_s: float | None = 0.05,
    latencies_s: list[float] | None = None,
    *,
    cores: float | None = 0.25,
    used: float | None = None,
    throttled: float | None = 1.0,
    quantile: float | None = None,
    oldest_s: float = 0.0,
    changed_at_s: float | None = 0.0,
    bounds: Bounds = UNBOUNDED,
    weight: float = 1.0,
    in_flight: int = 1,
) -> JobView:
    """A running job as a policy sees it; it uses all of its quota unless told otherwise."""
    window = from_latencies(latencies_s or [])
    return JobView(
        spec=JobSpec(
            name,
            ContainerSpec(image="model"),
            bounds=bounds,
            weight=weight,
            target=None if target_s is None else LatencyTarget(target_s, quantile),
        ),
        state=JobState.RUNNING,
        desired=Limits(cores),
        actual=Limits(cores),
        usage=Usage(
            cpu_cores=cores if used is None else used,
            window_cores=cores if used is None else used,
            throttled_ratio=throttled,
        ),
        progress=Progress(window=window, recent=window, in_flight=in_flight, oldest_s=oldest_s),
        started_at_s=0.0,
        changed_at_s=changed_at_s,
    )


def snapshot(
    *jobs: JobView,
    now_s: float = 10.0,
    capacity: float = CAPACITY_CORES,
    foreign: float | None = 0.0,
    wakes: tuple[str, ...] = (),
) -> Snapshot:
    """These jobs on a node of that capacity."""
    node = NodeView(capacity, max(capacity, CAPACITY_CORES), 1 << 30, foreign_cores=foreign)
    return Snapshot(0, now_s, node, jobs, WINDOW_S, wakes)
