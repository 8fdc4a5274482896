"""Ceilings by what a job has used, in the manner of a vertical autoscaler.

Owns one rule. It must not look at targets: that is what it is compared for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import Limits
from dlsched.model.state import Snapshot

_FIRST_CORES, _GROWTH = 0.01, 1.05
"""Upper end of the first bucket of usage, and by how much each is wider than the one before."""
_FADED = 1e-3
"""Buckets with less weight than this are forgotten: so little moves no percentile."""


@dataclass(frozen=True, slots=True)
class VpaParameters:
    """The recommender's constants."""

    percentile: float = 0.9
    """Of usage, which the ceiling is made from."""
    margin: float = 0.15
    """What is added to that, as a ratio of it."""
    half_life_s: float = 30.0
    """After so many seconds a sample counts half. Its own is a day: these traces last minutes."""
    interval_s: float = 1.0
    """Seconds between decisions, as everybody's in these comparisons; its own are a minute."""


@dataclass(frozen=True, slots=True)
class VpaMemory:
    """Each job's histogram of usage, and when it was decided last."""

    usage: tuple[tuple[str, tuple[tuple[int, float], ...]], ...]
    """By job: (bucket, weight), sorted by bucket."""
    decided_at_s: float


class VpaPolicy:
    """Each job may use a tenth more or so than what it has mostly used lately.

    The recommender of Kubernetes' vertical pod autoscaler, reconstructed: a histogram of CPU use in
    exponential buckets whose samples fade, its 90th percentile, and a margin of 15 %. It knows no
    targets, and its ceilings may sum above the node. A job not seen using anything has no ceiling.
    """

    Parameters: ClassVar[type[VpaParameters]] = VpaParameters
    Memory: ClassVar[type[VpaMemory]] = VpaMemory
    traits: ClassVar[PolicyTraits] = PolicyTraits(heeds_progress=False)

    def __init__(self, parameters: VpaParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        rule = self.parameters
        known = memory if isinstance(memory, VpaMemory) else VpaMemory((), snapshot.now_s)
        fades = 0.5 ** ((snapshot.now_s - known.decided_at_s) / rule.half_life_s)
        usage = {name: dict(histogram) for name, histogram in known.usage}
        limits, why = {}, {}
        for job in snapshot.running:
            faded = {
                bucket: weight * fades
                for bucket, weight in usage.get(job.name, {}).items()
                if weight * fades > _FADED
            }
            if job.usage.cpu_cores is not None:
                bucket = bucket_of(job.usage.cpu_cores)
                faded[bucket] = faded.get(bucket, 0.0) + 1.0
            usage[job.name] = faded
            if not faded:
                limits[job.name], why[job.name] = Limits(), "nothing used yet: no ceiling"
                continue
            mostly = percentile_cores(faded, rule.percentile)
            limits[job.name] = Limits((1.0 + rule.margin) * mostly)
            why[job.name] = f"mostly used at most {mostly:.3f} cores"
        there = {job.name for job in snapshot.jobs}
        return Decision(
            limits=limits,
            why=why,
            memory=VpaMemory(
                tuple(
                    (name, tuple(sorted(histogram.items())))
                    for name, histogram in sorted(usage.items())
                    if name in there
                ),
                snapshot.now_s,
            ),
            next_s=rule.interval_s,
        )


def bucket_of(cores: float) -> int:
    if cores <= _FIRST_CORES:
        return 0
    return math.ceil(math.log(cores / _FIRST_CORES) / math.log(_GROWTH) - 1e-9)


def percentile_cores(histogram: Mapping[int, float], percentile: float) -> float:
    """The upper end of the bucket that this part of the weight lies in or below."""
    left = percentile * math.fsum(histogram.values())
    bucket = max(histogram)
    for bucket in sorted(histogram):
        left -= histogram[bucket]
        if left <= 1e-9:
            break
    return float(_FIRST_CORES * _GROWTH**bucket)
