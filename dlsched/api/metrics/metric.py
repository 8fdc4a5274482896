"""What a metric is, and what its values are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from dlsched.api.cluster_schema import ClusterStatus
from dlsched.api.metrics.totals import Histogram, Totals
from dlsched.api.schema import JobStatus, Status

PREFIX = "dlsched_"

JOBS_MAX = 1000
"""Jobs with series of their own. A user's job files are bounded in number, root's are not."""

UNITS = ("bytes", "cores", "ratio", "seconds")
"""A metric's name ends in its unit; others have none."""


class Kind(StrEnum):
    """The types of metrics that are used here."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"
    """A gauge of 1, for its labels."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a metric is read from."""

    totals: Totals
    status: Status
    """What `ps` shows of that cycle."""
    jobs: tuple[JobStatus, ...]
    """The jobs that have series of their own."""
    cluster: ClusterStatus | None
    """What a cluster's controller on this host last reported; None: none has run, or it cannot be
    read."""


Series = tuple[tuple[str, ...], float | Histogram]
"""Values of a metric's labels, in its order, and the value."""

Read = Callable[[Scene], Iterable[Series]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. What is unknown has no series."""

    name: str
    """As on the page, without `PREFIX`."""
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    read: Read

    @property
    def full_name(self) -> str:
        """The name on the page."""
        return PREFIX + self.name

    @property
    def unit(self) -> str:
        """One of `UNITS`; empty: a plain number."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in UNITS else ""


def known(*series: tuple[tuple[str, ...], float | Histogram | None]) -> Iterable[Series]:
    """Those whose value is known."""
    return [(labels, value) for labels, value in series if value is not None]


def alone(value: Callable[[Scene], float | Histogram | None]) -> Read:
    """One series without labels, or none where the value is unknown."""
    return lambda scene: known(((), value(scene)))


def by_job(value: Callable[[JobStatus], float | None]) -> Read:
    """One series a job with a known value."""
    return within_job(lambda job: known(((), value(job))))


def within_job(series: Callable[[JobStatus], Iterable[Series]]) -> Read:
    """Several series a job: labels follow the job's name."""

    def read(scene: Scene) -> Iterable[Series]:
        for job in scene.jobs:
            for labels, value in series(job):
                yield (job.name, *labels), value

    return read
