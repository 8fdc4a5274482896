"""Where a job's progress is read from: labels, job files and `dlsched adopt` all give this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DEFAULT_HTTP_PATH = "/metrics"

Kind = Literal["histogram", "summary", "ratio"]
Step = Literal["carried", "follows", "evaluations"]
"""Where the step of an evaluation comes from, if not from its own line: the last step printed
before the metric, the next one after it, or the number of evaluations so far."""
When = tuple[str, str]
"""Two groups: a line counts only if they have the same number."""


@dataclass(frozen=True, slots=True)
class LabelFilter:
    """Which series count, by one label. A label that a series lacks has the value ''."""

    label: str
    pattern: str
    """An RE2 expression for the whole value."""
    excludes: bool = False
    """Whether the series that match are left out, in place of the others."""
    otherwise: str | None = None
    """An RE2 expression for the values that are known not to match; None: all others."""

    def __str__(self) -> str:
        return f"{self.label}: {'!' if self.excludes else ''}{self.pattern}"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of a Prometheus page, and how it is read."""

    name: str | None = None
    """A histogram, summary or gauge; None: `total` over `count`, or the target's metric."""
    kind: Kind | None = None
    """None: whatever the page has under that name."""
    total: str | None = None
    """Of a ratio: the counter of all latencies together."""
    count: str | None = None
    """Of a ratio: the counter of requests."""
    beside: str | None = None
    """Another metric that stands on the pages of this one's program, where the name alone would be
    ambiguous; None: it is not, or the owner chose it."""
    errors: str | None = None
    """The counter of failed requests; of one with a label of `failed`, only the series that match
    count."""
    errors_timed: bool = False
    """Whether the latency metric has the requests that `errors` counts, too."""
    unit_s: float | None = None
    """The unit of its values in seconds; None: the name's suffix gives it, else seconds."""
    where: tuple[LabelFilter, ...] = ()
    per: str | None = None
    """The label that separates models: several of them are never read as one."""
    failed: tuple[LabelFilter, ...] = ()
    """Which series are of failed requests: those with any of these. (): a common status label
    says it, if there is one and no `errors`."""


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """A file in the container, in the sidecar's format."""

    path: str


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """A Prometheus endpoint on the container's own address, or on its proxy's."""

    ports: tuple[int, ...]
    """They are tried in this order."""
    http_path: str = DEFAULT_HTTP_PATH
    metrics: tuple[Metric, ...] = ()
    """The first one that the page has is read; (): the target's metric, or the one that a
    preset knows."""
    needs: str | None = None
    """What the program needs to be started with, for when it does not answer."""
    hint: str | None = None
    """What helps when its series are refused."""
    via: str | None = None
    """The name of the proxy's container; None: its own endpoint."""
    answers: bool = False
    """Whether its latency is the time of whole HTTP answers, which the sockets show, too."""


@dataclass(frozen=True, slots=True)
class LogPattern:
    """A regular expression for the lines that the container prints."""

    pattern: str
    step: Step | None = None
    """None: from the metric's own line."""
    when: When | None = None
    """Which of the matching lines count; None: all."""
    metric: str | None = None
    """The group that stands for the target's metric, where none has its name."""
    needs: str | None = None
    failed: tuple[LabelFilter, ...] = ()
    """Which matching lines are of failed requests: those with any of these groups, whose text is no
    number. (): none is known to be."""
    answers: bool = False
    """As of an endpoint."""


ProgressSource = MetricsFile | MetricsEndpoint | LogPattern
