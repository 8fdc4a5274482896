"""The order of the jobs, and which of them are shown. Equal ones stay in the daemon's order."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from dlsched.api.schema import JobStatus
from dlsched.cli.top.feed import View

ORDERS = ("worst first", "by name", "by CPU")

BAND = 1.1
"""Up to 10 % above the target a latency is within its band."""

_OVER = ("finished", "stopped", "stopping")


def ordered(view: View, order: str, wanted: str) -> Sequence[JobStatus]:
    """The jobs whose name or state has `wanted` in it."""
    wanted = wanted.lower()
    jobs = [job for job in view.status.jobs if wanted in job.name.lower() or wanted in job.state]
    if order == "by name":
        return sorted(jobs, key=lambda job: job.name)
    if order == "by CPU":
        return sorted(jobs, key=lambda job: -(job.cpu.usage_cores or 0.0))
    return sorted(jobs, key=lambda job: _badness(job, view.means.get(job.name)))


class _Rank(IntEnum):
    """What comes first."""

    FAILED = 0
    MISSED = 1
    UNKNOWN = 2
    """Blind, or not running."""
    IN_BAND = 3
    OPEN = 4
    """A training without a result yet, or a service with too few requests."""
    MET = 5
    OTHER = 6


def _badness(job: JobStatus, mean: float | None) -> tuple[_Rank, float]:
    """State of the target, then how far above it the job was in the last 30 s."""
    if job.state == "failed" or job.diverged is not None:
        return _Rank.FAILED, 0.0
    if job.state in _OVER:
        return _Rank.OTHER, 0.0
    if mean is not None:
        rank = _Rank.MISSED if mean > BAND else _Rank.IN_BAND if mean > 1 else _Rank.MET
        return rank, -mean
    if job.state != "running" or job.blind is not None:
        return _Rank.UNKNOWN, 0.0
    return (_Rank.OTHER if job.target is None else _Rank.OPEN), 0.0
