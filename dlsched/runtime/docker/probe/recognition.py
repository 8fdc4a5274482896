"""Recognises stacks by image, metrics page and log lines, with presets as the data. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from ipaddress import ip_address
from itertools import islice
from typing import Any

from dlsched.config.metrics.resolving import Contradiction, Presets
from dlsched.estimate.sketch import from_latencies, measured_s, merge, quantile_bounds
from dlsched.model.facts import LatencySketch
from dlsched.model.sources import DEFAULT_HTTP_PATH, LogPattern, MetricsEndpoint
from dlsched.runtime.docker.probe.probed import PortTimes, ProbedPort, ProbeReading
from dlsched.runtime.progress.exposition import Candidate
from dlsched.runtime.progress.listening import ListeningSocket
from dlsched.runtime.progress.log_lines import LogBatch, LogLines
from dlsched.runtime.progress.page_lines import PageFilter, wanted_lines
from dlsched.runtime.wire.traffic import PortTraffic, Watched

METRICS_PATHS = (DEFAULT_HTTP_PATH, "/metrics/", "/actuator/prometheus")
"""Where metrics pages commonly are."""

OTHER_PROTOCOLS = frozenset(
    {22, 25, 53, 139, 445, 1433, 1521, 1883, 2181, 3306, 4222, 5432, 5672, 6379, 9042, 9092, 11211}
    | {26257, 27017, 50000}
)
"""Ports of servers that speak no HTTP: a GET would stand in their logs as an error."""

PORTS_MAX = 12
"""Ports of one container that are asked at most."""

SOCKETS_MAX = 1024
"""Listening sockets of one container that count at most: a program may open one on each port."""

LEAST_FOR_TAIL = 20
"""With fewer requests the p95 is hardly more than the slowest one."""
TAIL = 0.95

HISTOGRAMS_MAX = 6
_TIMED = "duration|latency|response_time|request_time|processing_time|took"
_OF_ITSELF = (
    "(?:^|_)(?:gc|scrapes?|sched|fsync|wal|compactions?|eventloop|client|reloads?|reconcile|sync"
    "|workqueue|queue|poll|pause|tsdb|sd|rule|notifications|peer|slow)(?:_|$)"
)
"""Times of a program's own work, or as a client: no one waits for its answer to these."""
_TYPE = re.compile(rb"\n# TYPE [^\n]*")
_TYPE_LINE = re.compile(
    rb"^# TYPE ([A-Za-z_:][A-Za-z0-9_:]{0,127}) (?:histogram|summary)\s*$", re.MULTILINE
)
_TIMED_LINE = re.compile(
    rb"\n[A-Za-z_:][A-Za-z0-9_:]{0,127}?(?:%b)[A-Za-z0-9_:]{0,127}[{ \t][^\n]*" % _TIMED.encode()
)
_PROCESS = "process_start_time_seconds"
"""By this a page says which process answers."""

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
    lines: re.Pattern[bytes] | None = None
    """A line of its metrics."""
    beside: re.Pattern[bytes] | None = None
    """What else begins a line of its pages, where other programs have metrics of that name."""

    def made_from(self, image: str) -> bool:
        for registry in _REGISTRIES:
            image = image.removeprefix(registry)
        return any(fnmatchcase(image, glob) for glob in self.images)

    def stands_on(self, page: bytes) -> bool:
        """Whether the page has its metrics, as the container's own."""
        if self.lines is None or (self.beside is not None and not self.beside.search(page)):
            return False
        return any(not _is_relayed(line[0]) for line in self.lines.finditer(page))

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
            images, derived = tuple(fields.get("image", ())), preset.keys.base is not None
            if isinstance(source, MetricsEndpoint) and source.metrics and source.via is None:
                yield Stack(name, images, derived, source, None, *_read_by(source))
            elif isinstance(source, LogPattern):
                yield Stack(name, images, derived, None, source)


def _read_by(endpoint: MetricsEndpoint) -> tuple[re.Pattern[bytes], re.Pattern[bytes] | None]:
    """A line of the endpoint's metrics, and one that must stand beside them."""
    candidates = [Candidate(one) for one in endpoint.metrics]
    beside = {name for one in candidates for name in one.beside}
    read = {name for one in candidates for name in one.names}
    return _line_of(read), _line_of(beside) if beside else None


def _line_of(names: Iterable[str]) -> re.Pattern[bytes]:
    spelled = b"|".join(re.escape(one.encode()) for one in sorted(names, reverse=True))
    return re.compile(rb"^(?:%s)[{ \t][^\n]*" % spelled, re.MULTILINE)


def _is_relayed(line: bytes) -> bool:
    """Whether the line is another program's: collectors that publish metrics again (a federated
    Prometheus, the Pushgateway, OpenTelemetry's) add these two labels."""
    return all(re.search(rb'[{,]%s="' % one, line) for one in (b"job", b"instance"))


def options_of(preset: str | None, port: int, path: str, name: str | None) -> tuple[str, ...]:
    """Options of `adopt --metrics` that read a page there."""
    given = [] if preset is None else [preset]
    given.append(f"port={port}")
    if path != METRICS_PATHS[0]:
        given.append(f"http_path={path}")
    if name is not None:
        given.append(f"name={name}")
    return tuple(given)


# ---------------------------------------------------------------------- ports


def by_port(listening: Iterable[ListeningSocket]) -> tuple[ProbedPort, ...]:
    """The ports of these sockets, each with the addresses, in order: the first `SOCKETS_MAX`."""
    addresses: dict[int, dict[str, None]] = {}
    for one in islice(sorted(listening, key=lambda one: one.port), SOCKETS_MAX):
        addresses.setdefault(one.port, {})[str(one.address)] = None
    return tuple(ProbedPort(port, tuple(given)) for port, given in addresses.items())


def answers(at: ProbedPort, address: str) -> bool:
    """Whether a connection to that address reaches the port."""
    return any(
        ListeningSocket(ip_address(one), at.port, "").answers_on(address) for one in at.addresses
    )


# ---------------------------------------------------------------------- pages


def exposed_ports(body: Mapping[str, Any]) -> list[int]:
    """The TCP ports that a container exposes, as the engine describes it."""
    ports: Mapping[str, object] = (body.get("Config") or {}).get("ExposedPorts") or {}
    found = []
    for name in ports:
        digits, _, protocol = str(name).partition("/")
        if digits.isdecimal() and 0 < int(digits[:6]) < 65536 and protocol in ("", "tcp"):
            found.append(int(digits))
    return found


def ports_to_ask(
    listening: Collection[int] | None, exposed: Iterable[int], image: str, stacks: Sequence[Stack]
) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Ports, each with the paths to try: those on which the container listens, the likely ones
    first. Where that is not known (None), those of presets of this image, then those that the
    container exposes; where there is neither, those of all presets."""
    endpoints = [(stack, stack.endpoint) for stack in stacks if stack.endpoint is not None]
    own = [port for stack, one in endpoints if stack.made_from(image) for port in one.ports]
    shown = [port for port in sorted(set(exposed)) if port not in OTHER_PROTOCOLS]
    any_port = [port for _, one in endpoints for port in one.ports]
    if listening is None:
        ports = dict.fromkeys((own + shown) or ([] if set(exposed) else any_port))
    else:
        speak_http = [port for port in sorted(set(listening)) if port not in OTHER_PROTOCOLS]
        likely = [port for port in own + any_port + shown if port in speak_http]
        ports = dict.fromkeys(likely + speak_http)
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


class PageExtract:
    """Keeps of a page, while it arrives, what the stacks read, and what looks like latencies."""

    def __init__(self, stacks: Sequence[Stack]) -> None:
        names = {_PROCESS}
        for stack in stacks:
            if stack.endpoint is not None:
                for one in map(Candidate, stack.endpoint.metrics):
                    names.update(one.names, one.beside)
        wanted = (wanted_lines(names), _TYPE, _TIMED_LINE)
        self._filters = [PageFilter(one) for one in wanted]

    def feed(self, chunk: bytes) -> None:
        for one in self._filters:
            one.feed(chunk)

    def lines(self) -> bytes:
        """All lines kept; empty for what is no metrics page."""
        kept = dict.fromkeys(line for one in self._filters for line in one.end())
        return b"".join(line + b"\n" for line in kept)

    @property
    def refused(self) -> str | None:
        """Why the lines kept are not all of them, so that no number of theirs is read."""
        return next((one.refused for one in self._filters if one.refused is not None), None)


def speakers(page: bytes, image: str, port: int, stacks: Sequence[Stack]) -> tuple[Stack, ...]:
    """The stacks whose metrics stand on the page: those of this image first, then those with names
    of their own before frameworks on which others are built, then those of this port; what a
    program's other presets read comes last."""
    found = [one for one in stacks if one.stands_on(page)]

    def rank(stack: Stack) -> tuple[bool, ...]:
        at_port = stack.endpoint is not None and port in stack.endpoint.ports
        ambiguous = stack.beside is not None
        return stack.derived, not stack.made_from(image), ambiguous, not at_port

    return tuple(sorted(found, key=rank))


def histograms(page: bytes) -> tuple[str, ...]:
    """Names of the page's histograms and summaries that seem to be latencies of requests: those
    that say so first."""
    names = dict.fromkeys(match[1].decode("ascii") for match in _TYPE_LINE.finditer(page))
    timed = [one for one in names if re.search(_TIMED, one) and not re.search(_OF_ITSELF, one)]
    timed.sort(key=lambda one: "request" not in one)
    return tuple(timed[:HISTOGRAMS_MAX])


def latency_reading(sketch: LatencySketch) -> ProbeReading | None:
    """The reading of these requests: their p95 where something bounds it, else the mean."""
    if not sketch.count:
        return None
    # By buckets alone: a target between their bounds could not be judged by the next requests.
    tail = quantile_bounds(sketch, TAIL, by_sum=False)
    if sketch.count < LEAST_FOR_TAIL or tail is None or tail.most_s is None:
        mean_s = measured_s(sketch, None)
        if mean_s is None:
            return None
        return ProbeReading("latency", mean_s, requests=sketch.count)
    above_s = None if tail.is_exact else tail.lowest_s
    return ProbeReading("latency", tail.highest_s, above_s, TAIL, sketch.count)


# ---------------------------------------------------------------------- sockets


DROPPED = "more packets than dlsched can read"


def times_of(traffic: PortTraffic, over_s: float) -> PortTimes:
    """What was measured at a port's socket in that time."""
    whole, first = (
        replace(merge(*(one.latency for one in kind if one.latency)), missed=traffic.dropped)
        for kind in (traffic.whole, traffic.first)
    )

    def of(sketch: LatencySketch, quantile: float) -> float | None:
        return measured_s(sketch, quantile) if sketch.count else None

    p50_s = of(whole, 0.5)
    uncertain = whole.count and p50_s is None
    return PortTimes(
        requests=traffic.arrivals,
        over_s=over_s,
        answers=whole.count,
        failed=whole.errors,
        p50_s=p50_s,
        p95_s=of(whole, TAIL) if whole.count >= LEAST_FOR_TAIL else None,
        first_p50_s=of(first, 0.5),
        first_p95_s=of(first, TAIL) if first.count >= LEAST_FOR_TAIL else None,
        gaps=sum(one.latency.count for one in traffic.gaps if one.latency is not None),
        unmeasured=(*traffic.unmeasured, *((DROPPED,) if uncertain else ())),
        lost=traffic.lost,
    )


def timed(ports: Iterable[ProbedPort], watched: Watched) -> tuple[ProbedPort, ...]:
    """The ports, each with what was measured at its socket in the time that reports cover: what
    came after the last one is in none."""
    traffic = {one.port: one for one in watched.take(0.0)}
    if not watched.covered_s:
        return tuple(ports)
    return tuple(
        replace(at, times=times_of(traffic[at.port], watched.covered_s))
        if at.port in traffic
        else at
        for at in ports
    )


def busiest(ports: Iterable[ProbedPort]) -> tuple[int, ProbeReading] | None:
    """The port with most answers, as a reading; None: none has answered, or none surely so."""
    found = [(at.times.answers, at.port, at.times) for at in ports if at.times and at.times.p50_s]
    answers, port, times = max(found, default=(0, 0, None), key=lambda one: one[:2])
    if times is None or not answers:
        return None
    tail = times.p95_s is not None
    seconds = times.p95_s if tail else times.p50_s
    return port, ProbeReading(
        "latency",
        seconds,
        quantile=TAIL if tail else 0.5,
        requests=answers,
        over_s=times.over_s,
    )


# ---------------------------------------------------------------------- log lines


def printed(log: bytes, image: str, stacks: Sequence[Stack]) -> tuple[Stack, ProbeReading] | None:
    """The stack that printed these lines, with what they say; None: none did. Stacks of this image
    come first, then those that match most lines."""
    found = [
        (stack, reading)
        for stack in stacks
        if stack.log is not None and (reading := _read(log, stack.log)) is not None
    ]

    def rank(one: tuple[Stack, ProbeReading]) -> tuple[bool, int]:
        stack, reading = one
        return stack.made_from(image), reading.lines or 0

    return max(found, key=rank, default=None)


def _read(log: bytes, source: LogPattern) -> ProbeReading | None:
    """What the pattern reads of these lines; None: nothing."""
    lines = LogLines(source.pattern, source.step, source.when, failed=source.failed)
    batch = LogBatch()
    lines.take(log, lines.parsed(log), 0.0, batch)
    fact = lines.fact
    whole = partial(ProbeReading, lines=fact.matched, of_lines=fact.lines)
    if batch.latencies_s:
        one = latency_reading(from_latencies(batch.latencies_s))
        if one is not None:
            return whole("latency", one.seconds, one.above_s, one.quantile, one.requests)
    metrics: dict[str, float] = {}
    for sample in batch.samples:
        metrics.update(sample.metrics)
        metrics.update((name, float(value)) for name, value in sample.diverged)
    if not metrics:
        return None
    if source.metric in metrics:  # the one that a target would name
        metrics = {source.metric: metrics[source.metric], **metrics}
    # A count of the evaluations among the last lines is no step of the training.
    counted = source.step == "evaluations" or "(?P<step>" not in source.pattern
    last = None if counted else batch.samples[-1].step
    return whole("training", step=last, metrics=tuple(metrics.items()))
