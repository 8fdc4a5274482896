"""Training jobs as a policy sees them, small enough to write down."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.control.ledger.tiers import TierProgress, advanced, settled
from dlsched.model.decision import Decision
from dlsched.model.facts import Sample, Usage
from dlsched.model.spec import AccuracyTarget, Bounds, ContainerSpec, JobSpec, Limits, Target
from dlsched.model.state import JobState, JobView, Progress, Tiers

UNBOUNDED = Bounds()
TARGET = AccuracyTarget("accuracy", 0.9, 0.97)


def trainer(
    name: str,
    values: Iterable[tuple[float, float]] = (),
    *,
    metric: str = "loss",
    cores: float | None = None,
    used: float | None = 1.0,
    target: Target | None = None,
    bounds: Bounds = UNBOUNDED,
    weight: float = 1.0,
    state: JobState = JobState.RUNNING,
    container_id: str = "c1",
    starts: int = 1,
    in_a_row: int = 3,
) -> JobView:
    """A job that reported these (time, value) pairs of one metric, with the tiers they reach."""
    spec = JobSpec(
        name, ContainerSpec(image="trainer"), bounds=bounds, weight=weight, target=target
    )
    samples = tuple(Sample(at_s, None, ((metric, value),)) for at_s, value in values)
    return JobView(
        spec,
        state,
        container_id=container_id,
        desired=Limits(cores),
        actual=Limits(cores),
        usage=Usage(cpu_cores=used, window_cores=used),
        progress=Progress(samples=samples),
        started_at_s=0.0,
        starts=starts,
        tiers=_reached(samples, target, in_a_row),
    )


def _reached(samples: Iterable[Sample], target: Target | None, in_a_row: int) -> Tiers:
    if not isinstance(target, AccuracyTarget):
        return Tiers()
    progress = TierProgress("c1", target)
    for sample in samples:
        progress = advanced(progress, sample, in_a_row)
    return settled(progress).tiers


def cores(decision: Decision) -> list[float | None]:
    """The limits by name."""
    return [decision.limits[name].cpu_cores for name in sorted(decision.limits)]
