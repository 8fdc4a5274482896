"""Recognises stacks by image, metrics page and log lines, with presets as the data. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from dlsched.config.metrics.resolving import Contradiction, Presets
from dlsched.estimate.sketch import from_latencies, quantile_s
from dlsched.model.facts import LatencySketch
from dlsched.model.sources import DEFAULT_HTTP_PATH, LogPattern, MetricsEndpoint
from dlsched.runtime.docker.probe.probed import Reading
from dlsched.runtime.progress.exposition import samples_of
from dlsched.runtime.progress.log_pattern import Pattern

METRICS_PATHS = (DEFAULT_HTTP_PATH, "/metrics/", "/actuator/prometheus")
"""Where metrics pages commonly are."""

OTHER_PROTOCOLS = frozenset(
    {22, 25, 53, 139, 445, 1433, 1521, 1883, 2181, 3306, 4222, 5432, 5672, 6379, 9042, 9092, 11211}
    | {26257, 27017, 50000}
)
"""Ports of servers that speak no HTTP: a GET would stand in their logs as an error."""

PORTS_MAX = 12
"""Ports of one container that are asked at most."""

LEAST_FOR_TAIL = 20
"""With fewer requests the p95 is hardly more than the slowest one."""
TAIL = 0.95

HISTOGRAMS_MAX = 6
_TYPE_LINE = re.compile(
    rb"^# TYPE ([A-Za-z_:][A-Za-z0-9_:]{0,127}) (?:histogram|summary)\s*$", re.MULTILINE
)
_TIMED = re.compile(r"duration|latency|response_time|request_time|processing_time|took")
_PAGE_LINE = re.compile(rb"^(?:# TYPE [a-zA-Z_:]|[a-zA-Z_:][a-zA-Z0-9_:]*[{ ][^\n]*[0-9]$)", re.M)

_REGISTRIES = ("docker.io/library/", "docker.io/", "index.docker.io/", "library/")


@dataclass(frozen=True, slots=True)
class Stack:
    """One preset, with its source."""

    preset: str
    images: tuple[str, ...]
    derived: bool
    """Whether it reads something else of the same program as another preset."""
    endpoint: MetricsEndpoint | None = None
    log: LogPattern | None = None
    names: re.Pattern[bytes] | None = None
    """What begins a line of its metrics."""
    pattern: Pattern | None = field(default=None, compare=False)

    def made_from(self, image: str) -> bool:
        """Whether the image is one of its own."""
        for registry in _REGISTRIES:
            image = image.removeprefix(registry)
        return any(fnmatchcase(image, glob) for glob in self.images)

    @property
    def needs(self) -> str | None:
        """What the program must be started with."""
        source = self.endpoint or self.log
        return None if source is None else source.needs


def stacks_of(presets: Presets) -> tuple[Stack, ...]:
    """The presets that read a container by itself: not those that read its proxy."""
    return tuple(_stacks(presets))


def _stacks(presets: Presets) -> Iterator[Stack]:
    for name, preset in presets.by_name.items():
        try:
            fields, sources = presets.fields(preset.keys), presets.sources(preset.keys)
        except Contradiction:  # such as a proxy's, whose container is named at adoption
            continue
        for source in sources:
            stack = Stack(name, tuple(fields.get("image", ())), preset.keys.base is not None)
            if isinstance(source, MetricsEndpoint) and source.metrics and source.via is None:
                names = {one for each in source.metrics for one in samples_of(each).names}
                spelled = b"|".join(re.escape(one.encode()) for one in sorted(names, reverse=True))
                lines = re.compile(rb"^(?:%s)[{ \t]" % spelled, re.MULTILINE)
                yield Stack(stack.preset, stack.images, stack.derived, source, None, lines)
            elif isinstance(source, LogPattern):
                pattern = Pattern(source.pattern)
                yield Stack(stack.preset, stack.images, stack.derived, None, source, None, pattern)


# ---------------------------------------------------------------------- pages


def ports_to_ask(
    exposed: Iterable[int], image: str, stacks: Sequence[Stack]
) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Ports, each with the paths to try: of presets of this image, then those that the container
    exposes; where there is neither, those of all presets."""
    endpoints = [(stack, stack.endpoint) for stack in stacks if stack.endpoint is not None]
    own = [port for stack, one in endpoints if stack.made_from(image) for port in one.ports]
    shown = [port for port in sorted(set(exposed)) if port not in OTHER_PROTOCOLS]
    any_port = [port for _, one in endpoints for port in one.ports]
    ports = dict.fromkeys((own + shown) or ([] if set(exposed) else any_port))
    return tuple(
        (
            port,
            tuple(
                dict.fromkeys(
                    [one.http_path for _, one in endpoints if port in one.ports]
                    + list(METRICS_PATHS)
                )
            ),
        )
        for port in list(ports)[:PORTS_MAX]
    )


def is_page(page: bytes) -> bool:
    """Whether these bytes look like a metrics page."""
    return _PAGE_LINE.search(page) is not None


def speakers(page: bytes, image: str, port: int, stacks: Sequence[Stack]) -> tuple[Stack, ...]:
    """The stacks whose metrics stand on the page: those of this image first, then those of this
    port; what a program's other presets read comes last."""
    found = [one for one in stacks if one.names is not None and one.names.search(page)]

    def rank(stack: Stack) -> tuple[bool, bool, bool]:
        at_port = stack.endpoint is not None and port in stack.endpoint.ports
        return stack.derived, not stack.made_from(image), not at_port

    return tuple(sorted(found, key=rank))


def histograms(page: bytes) -> tuple[str, ...]:
    """Names of the page's histograms and summaries that seem to be latencies."""
    names = dict.fromkeys(match[1].decode("ascii") for match in _TYPE_LINE.finditer(page))
    return tuple(name for name in names if _TIMED.search(name))[:HISTOGRAMS_MAX]


def has_tail(page: bytes, stack_names: Iterable[str]) -> bool:
    """Whether quantiles can be read of these metrics: by buckets, or given as such."""
    spelled = b"|".join(re.escape(name.encode()) for name in stack_names)
    return re.search(rb"^(?:%s)(?:_bucket\{|\{[^\n]*quantile=)" % spelled, page, re.M) is not None


def latency_reading(sketch: LatencySketch, over_s: float | None, *, tail: bool) -> Reading | None:
    """The reading of these requests: their p95 where it is known, else the mean."""
    mean_s = sketch.mean_s
    if mean_s is None:
        return None
    if tail and sketch.count >= LEAST_FOR_TAIL:
        seconds = quantile_s(sketch, TAIL)
        return Reading("latency", seconds, TAIL, sketch.count, over_s)
    return Reading("latency", mean_s, None, sketch.count, over_s)


# ---------------------------------------------------------------------- log lines


def printed(
    lines: Sequence[bytes], image: str, stacks: Sequence[Stack]
) -> tuple[Stack, Reading] | None:
    """The stack whose lines these are, with what they say; None: of no stack. Stacks of this image
    come first, then those that match most lines."""
    found = []
    for stack in stacks:
        if stack.pattern is not None and stack.log is not None:
            reading = _read(lines, stack.pattern, stack.log)
            if reading is not None:
                found.append((stack.made_from(image), reading.lines or 0, stack, reading))
    if not found:
        return None
    _, _, best, reading = max(found, key=lambda one: one[:2])
    return best, reading


def _read(lines: Sequence[bytes], pattern: Pattern, source: LogPattern) -> Reading | None:
    """What the pattern reads of these lines; None: none of them matches."""
    latencies: list[float] = []
    metrics: dict[str, float] = {}
    step: int | None = None
    matched = 0
    for line in lines:
        try:
            numbers = pattern.read(line)
        except ValueError:  # a number that is none
            continue
        if not numbers or not _counts(numbers, source):
            continue
        matched += 1
        for name, value in numbers.items():
            if name == "step":
                step = int(value)
            elif name.startswith("latency_"):
                latencies.append(value)
            elif source.when is None or name not in source.when:
                metrics[name] = value
    if not matched:
        return None
    if latencies:
        one = latency_reading(from_latencies(latencies), None, tail=True)
        if one is not None:
            return Reading(
                one.kind,
                one.seconds,
                one.quantile,
                one.requests,
                lines=matched,
                of_lines=len(lines),
            )
    return Reading(
        "training", lines=matched, of_lines=len(lines), step=step, metrics=tuple(metrics.items())
    )


def _counts(numbers: Mapping[str, float], source: LogPattern) -> bool:
    if source.when is None:
        return True
    one, other = (numbers.get(name) for name in source.when)
    return one == other
