"""Progress sources in a container's labels (`dlsched.metrics.*`), and the readers' protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from dlsched.model.spec import AccuracyTarget, Target
from dlsched.model.units import shown
from dlsched.runtime.progress.pattern import check_pattern
from dlsched.runtime.progress.samples import Step, When, step_from, when
from dlsched.runtime.progress.sidecar import SourceReading

FILE = "dlsched.metrics.path"
PORT = "dlsched.metrics.port"
HTTP_PATH = "dlsched.metrics.http_path"
NAME = "dlsched.metrics.name"
PATTERN = "dlsched.metrics.pattern"
STEP = "dlsched.metrics.step"
WHEN = "dlsched.metrics.when"

DEFAULT_HTTP_PATH = "/metrics"
PATH_CHARACTERS = 256
NAME_CHARACTERS = 128

_HTTP_PATH = re.compile(r"/[A-Za-z0-9/_.~%+:?&=-]*")
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


class Source(Protocol):
    """Reads one container start; created when it starts, closed after it ended."""

    def read(self, now_s: float) -> SourceReading:
        """What arrived since the previous read; never raises for a container, never blocks."""
        ...

    def close(self) -> None:
        """Release all resources; no read follows."""
        ...


@dataclass(frozen=True, slots=True)
class MetricsFile:
    """A file in the container, in the sidecar's format."""

    path: str


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """A Prometheus endpoint on the container's own address."""

    port: int
    http_path: str = DEFAULT_HTTP_PATH
    name: str | None = None
    """The metric to read; None: that of a known server."""


@dataclass(frozen=True, slots=True)
class LogPattern:
    """A regular expression for the lines that the container prints."""

    pattern: str
    step: Step | None = None
    """Where steps come from; None: from the metric's own line."""
    when: When | None = None
    """Which of the matching lines count; None: all."""


ProgressSource = MetricsFile | MetricsEndpoint | LogPattern


def read_sources(labels: Mapping[str, str]) -> tuple[ProgressSource, ...]:
    """The sources that a container's labels name, if any. Raises ValueError, in one line: the
    label, its value and the bound."""
    sources: list[ProgressSource] = []
    if FILE in labels:
        sources.append(MetricsFile(_file_path(labels[FILE])))
    if PORT in labels:
        sources.append(_endpoint(labels))
    else:
        for label in (HTTP_PATH, NAME):
            if label in labels:
                raise ValueError(f"{label}: has no effect without {PORT}")
    if PATTERN in labels:
        sources.append(_log_pattern(labels))
    else:
        for label in (STEP, WHEN):
            if label in labels:
                raise ValueError(f"{label}: has no effect without {PATTERN}")
    return tuple(sources)


def check_target(sources: Sequence[ProgressSource], target: Target | None) -> None:
    """Raise ValueError, in one line, where a log is the only source, and its pattern cannot tell
    the target's measure."""
    if target is None or len(sources) != 1 or not isinstance(sources[0], LogPattern):
        return
    only = sources[0]
    pattern = check_pattern(only.pattern, only.step, only.when)
    groups = ", ".join(sorted(pattern.groups))
    if isinstance(target, AccuracyTarget):
        if target.metric not in pattern.metrics:
            wanted = f"the target's metric {shown(target.metric)}"
            raise ValueError(f"{PATTERN}: its groups ({groups}) lack {wanted}")
    elif not pattern.has_latency:
        wanted = "a latency: latency_s, latency_ms, latency_us or latency"
        raise ValueError(f"{PATTERN}: its groups ({groups}) lack {wanted}")


def _log_pattern(labels: Mapping[str, str]) -> LogPattern:
    label = STEP
    try:
        step = step_from(labels[STEP]) if STEP in labels else None
        label = WHEN
        only = when(labels[WHEN]) if WHEN in labels else None
        label = PATTERN
        check_pattern(labels[PATTERN], step, only)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
    return LogPattern(labels[PATTERN], step, only)


def _file_path(value: str) -> str:
    path = PurePosixPath(value)
    if (
        not path.is_absolute()
        or len(path.parts) < 2
        or ".." in path.parts
        or len(value) > PATH_CHARACTERS
        or not value.isprintable()
    ):
        most = f"an absolute path without '..', at most {PATH_CHARACTERS} printable characters"
        raise ValueError(f"{FILE}: {shown(value)}: {most}")
    return str(path)


def _endpoint(labels: Mapping[str, str]) -> MetricsEndpoint:
    digits = labels[PORT]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65536):
        raise ValueError(f"{PORT}: {shown(digits)}: a port, 1 to 65535")
    http_path = labels.get(HTTP_PATH, DEFAULT_HTTP_PATH)
    if len(http_path) > PATH_CHARACTERS or not _HTTP_PATH.fullmatch(http_path):
        wanted = f"a path such as {DEFAULT_HTTP_PATH}, at most {PATH_CHARACTERS} characters"
        raise ValueError(f"{HTTP_PATH}: {shown(http_path)}: {wanted}")
    name = labels.get(NAME)
    if name is not None and (len(name) > NAME_CHARACTERS or not _NAME.fullmatch(name)):
        wanted = f"a Prometheus metric's name, at most {NAME_CHARACTERS} characters"
        raise ValueError(f"{NAME}: {shown(name)}: {wanted}")
    return MetricsEndpoint(int(digits), http_path, name)
