"""Samples all running containers concurrently, within a few seconds, and changes none.

Of the engine it asks for lists, descriptions and the last lines of logs; of the kernel, where a
container listens and what it uses; of a container's own address, metrics pages by GET, each once.
Ports are those on which the container listens; where the kernel does not say, those that it exposes
or that presets name. Nothing is followed, and every answer is bounded in time and size.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from dlsched.config.metrics.resolving import Presets
from dlsched.model.errors import DlschedError
from dlsched.model.sources import Metric, MetricsEndpoint
from dlsched.runtime import host
from dlsched.runtime.cgroup.read import CgroupReader
from dlsched.runtime.docker.background import begin, begin_all
from dlsched.runtime.docker.engine import Body, Engine
from dlsched.runtime.docker.identity.labels import (
    ENABLE,
    INSTANCE,
    forbids_wire,
    inspected,
    labels_in,
)
from dlsched.runtime.docker.probe import recognition
from dlsched.runtime.docker.probe.probed import NO_REQUEST, HostUse, Probed
from dlsched.runtime.docker.probe.recognition import PageExtract, Stack
from dlsched.runtime.docker.progress_readers import locate
from dlsched.runtime.gpu.inventory import Inventory
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.outcomes import one_line
from dlsched.runtime.progress.exposition import Pages
from dlsched.runtime.progress.http_page import ANSWER_S, OtherStatus, Unanswered, fetch
from dlsched.runtime.progress.listening import listening_of, shows_sockets
from dlsched.runtime.progress.scrape import named
from dlsched.runtime.progress.sidecar import READ_BYTES
from dlsched.runtime.wire.tap import Tap
from dlsched.runtime.wire.traffic import Watched

HTTP_S = 4.0
"""Time for all pages of one container together."""
PORT_S = 1.0
"""Time for each request at least while there is that much left, as a large page of a busy server
takes; at most `ANSWER_S`. A server that accepts connections and speaks no HTTP must not use up the
time of the ports after it."""
GPU_S = 5.0
"""How long the GPU driver is waited for, while containers are sampled: an unused one takes seconds
to initialise."""
POLL_S = 0.05
OWED_S = 5.0
"""How much longer than asked for is measured while requests come and no answer does: where other
containers use all CPU, an answer can take seconds."""
LOG_LINES = 200
LOG_BYTES = READ_BYTES // 2
"""Of the end of a log; as much as is read of it in one cycle, and not cut there."""
LOG_READ_BYTES = 1 << 20
"""Of these lines at most: what is beyond is left out."""
CONCURRENT = 64
"""Containers sampled at a time: they mostly wait for one another's answers."""
ENGINE_CALLS = 8
"""Calls of the engine at a time."""
WHOLE_S = 30.0
"""A container that does not answer in this time, before or after sampling, is left out."""

_ID_CHARACTERS = 12
"""Of an id, as a daemon shows it."""


class UnknownContainer(DlschedError):
    """No running container has that name."""


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    names: tuple[str, ...] = ()
    """Only these; (): all."""
    http: bool = True
    """Whether metrics pages are asked for."""
    over_s: float = 2.0
    """Time in which requests and CPU time are counted."""
    left_out: frozenset[str] = frozenset()
    """Ids of containers that are not sampled: dlsched's own."""
    tap: Tap | None = None
    """What measures response times at their sockets; None: nothing does."""


def probe(
    engine: Engine,
    presets: Presets,
    options: ProbeOptions,
    managed: Mapping[str, str] | None = None,
    now_s: Callable[[], float] = time.monotonic,
) -> tuple[Probed, ...]:
    """Every running container, by name. `managed`: how a daemon manages containers, by id. Raises
    UnknownContainer, EngineUnavailable."""
    listed = [
        one
        for one in engine.containers({})
        if one.get("State") == "running" and one.get("Id") not in options.left_out
    ]
    chosen = _chosen(listed, options.names)
    stacks = recognition.stacks_of(presets)
    gate = threading.BoundedSemaphore(ENGINE_CALLS)
    samples = [
        _Sample(engine, gate, str(one["Id"]), _name(one), stacks, options, managed or {}, now_s)
        for one in chosen
    ]
    until_s = now_s() + WHOLE_S
    held = begin(_held_on_gpus, "probe-gpus")
    _all([one.begin for one in samples], until_s, now_s)
    begun_s = max((one.begun_s for one in samples), default=now_s())
    # The process that reads packets starts in tenths of a second, on a busy host in many seconds.
    if _await(lambda: all(one.is_read for one in samples), until_s, now_s):
        begun_s = now_s()
    before, busy_s = host.busy_core_s(), now_s()
    time.sleep(max(0.0, begun_s + options.over_s - now_s()))
    _await(lambda: not any(one.owes_answers for one in samples), now_s() + OWED_S, now_s)
    use = _host_use(before, host.busy_core_s(), now_s() - busy_s)
    until_s = now_s() + WHOLE_S
    _all([one.end for one in samples], until_s, now_s)
    on_gpus: Mapping[str, int] = {}
    with suppress(TimeoutError, DlschedError):
        on_gpus = held.result(max(0.0, until_s - now_s()))
    whole = [
        replace(
            one.found,
            gpu_memory_bytes=on_gpus.get(one.found.container_id),
            host=None if one.found.ports is None else use,
        )
        for one in samples
    ]
    return tuple(sorted(whole, key=lambda one: one.name))


def _await(is_so: Callable[[], bool], until_s: float, now_s: Callable[[], float]) -> bool:
    """Wait until it is so, until then at most; returns whether it was not at once."""
    waited = False
    while not is_so() and now_s() < until_s:
        waited = True
        time.sleep(POLL_S)
    return waited


def _host_use(before: float | None, after: float | None, over_s: float) -> HostUse | None:
    """What the host used between these counts of core-seconds; None: not known."""
    if before is None or after is None or over_s <= 0.0:
        return None
    return HostUse(max(after - before, 0.0) / over_s, host.threads())


def _held_on_gpus() -> dict[str, int]:
    """The memory that each container's processes hold on all GPUs, in bytes by its id."""
    inventory = Inventory(first_wait_s=GPU_S)
    try:
        gpus = inventory.poll(0.0).devices
    finally:
        inventory.close()
    held: dict[str, int] = {}
    for one in (each for gpu in gpus for each in gpu.processes):
        if one.container_id is not None and one.memory_bytes is not None:
            held[one.container_id] = held.get(one.container_id, 0) + one.memory_bytes
    return held


def _all(calls: Sequence[Callable[[], None]], until_s: float, now_s: Callable[[], float]) -> None:
    for future in begin_all(calls, "probe", CONCURRENT):
        with suppress(TimeoutError):
            future.result(max(0.0, until_s - now_s()))


def _name(one: Body) -> str:
    names = one.get("Names") or ()
    return str(names[0]).lstrip("/") if names else str(one.get("Id", ""))[:12]


def _chosen(listed: Sequence[Body], names: Collection[str]) -> list[Body]:
    """Those of these names, or whose id begins so."""
    if not names:
        return list(listed)
    chosen = []
    for name in names:
        found = [
            one
            for one in listed
            if _name(one) == name or (len(name) >= 4 and str(one["Id"]).startswith(name))
        ]
        if not found:
            raise UnknownContainer(f"no running container {one_line(name)[:80]!r}")
        chosen += [one for one in found if one not in chosen]
    return chosen


class _Sample:
    """One container, sampled at two moments."""

    def __init__(
        self,
        engine: Engine,
        gate: threading.BoundedSemaphore,
        container_id: str,
        name: str,
        stacks: Sequence[Stack],
        options: ProbeOptions,
        managed: Mapping[str, str],
        now_s: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._watched: Watched | None = None
        self._gate = gate
        self._stacks = stacks
        self._options = options
        self._managed = managed
        self._now_s = now_s
        self._group: CgroupReader | None = None
        self._forbids_wire = False
        self._cpu: tuple[float, float] | None = None
        """A moment, and the CPU time then."""
        self.begun_s = now_s()
        self.found = Probed(
            name, container_id, "", None, unread="the container did not answer in time"
        )

    @property
    def is_read(self) -> bool:
        """Whether its sockets are measured now, or cannot be."""
        watched = self._watched
        return watched is None or self._wire_problem(watched) is not None or watched.is_read

    @property
    def owes_answers(self) -> bool:
        """Whether its sockets were asked, and no answer was measured yet."""
        return self._watched is not None and self._watched.owes_answers

    def _wire_problem(self, watched: Watched) -> str | None:
        """Why its sockets are not measured; None: they are, or will be."""
        tap = self._options.tap
        return watched.problem or (None if tap is None else tap.problem)

    # ------------------------------------------------------------------ the first moment

    def begin(self) -> None:
        """Recognise it, and read a first time."""
        try:
            with self._gate:
                body = self._engine.inspect(self.found.container_id)
            one = inspected(body)
            labels = labels_in(body)
            self._forbids_wire = forbids_wire(labels)
        except (DlschedError, ValueError, TypeError) as error:
            self.found = replace(self.found, unread=one_line(error))
            return
        self.found = replace(
            self.found,
            image=one.image,
            managed=self._managed.get(one.container_id[:_ID_CHARACTERS]) or _by_labels(labels),
            limit_cores=one.limit_cores,
            unread=None,
        )
        self._begin_group(one)
        unread = self._read_page(one, body) if self._options.http else None
        self.begun_s = self._now_s()
        if self.found.reading is None:
            self._read_log(one)
        if self.found.reading is None and self.found.where is None:
            self._say_why_unread(one, unread)

    def _begin_group(self, one: Inspected) -> None:
        group = CgroupReader(one.pid, container=one.container_id)
        read = group.read()
        if read.usage_core_s is None:
            group.close()
        else:
            self._group = group
        self._cpu = self._used()
        ports = None
        if shows_sockets(one.pid, one.container_id):
            ports = recognition.by_port(listening_of(one.pid, one.container_id))
        self.found = replace(self.found, memory_bytes=read.usage.memory_bytes, ports=ports)
        if self._options.tap is not None and ports and not self._forbids_wire:
            asked = {
                stack.endpoint.http_path for stack in self._stacks if stack.endpoint is not None
            }
            self._watched = self._options.tap.watch(
                one.pid, one.container_id, paths=sorted({*asked, *recognition.METRICS_PATHS})
            )

    def _used(self) -> tuple[float, float] | None:
        """The moment, and its CPU time; None: the kernel does not say."""
        used = None if self._group is None else self._group.read().usage_core_s
        return None if used is None else (self._now_s(), used)

    def _read_page(self, one: Inspected, body: Body) -> str | None:
        """Read the first metrics page that answers; returns why none does."""
        until_s = self._now_s() + HTTP_S
        why = "the container listens on no port" if self.found.ports == () else None
        exposed = recognition.exposed_ports(body)
        listening = None if self.found.ports is None else {at.port for at in self.found.ports}
        to_ask = recognition.ports_to_ask(listening, exposed, one.image, self._stacks)
        for turn, (port, paths) in enumerate(to_ask):
            try:
                address = self._address(one, port)
            except Unanswered as error:
                why = why or f"port {port}: {error}"
                continue
            for path in paths:
                left_s = until_s - self._now_s()
                if left_s <= 0.0:
                    return why or f"the metrics page did not answer within {HTTP_S:g} s"
                within_s = min(left_s, ANSWER_S, max(PORT_S, left_s / (len(to_ask) - turn)))
                extract = PageExtract(self._stacks)
                try:
                    fetch(address, port, path, extract.feed, within_s)
                except Unanswered as error:
                    why = why or f"port {port}: {error}"
                    if not isinstance(error, OtherStatus):
                        break  # another path of the same port answers no better
                    continue
                if lines := extract.lines():
                    self._recognise(one, port, path, lines)
                    if extract.refused is not None:
                        self.found = replace(self.found, reading=None, unread=extract.refused)
                    return None
        return why

    def _address(self, one: Inspected, port: int) -> str:
        """Where to ask for that port; raises Unanswered."""
        address = locate(one, port, lambda: self._described(one.network_of or ""))
        for at in self.found.ports or ():
            if at.port == port and not recognition.answers(at, address):
                where = ", ".join(at.addresses)
                raise Unanswered(f"the container listens on {where} only, not on {address}")
        return address

    def _described(self, container: str) -> Inspected:
        try:
            with self._gate:
                return inspected(self._engine.inspect(container))
        except (DlschedError, ValueError) as error:
            raise Unanswered(one_line(error)) from error

    def _recognise(self, one: Inspected, port: int, path: str, page: bytes) -> None:
        """Take a page: whose it is, and what it says since the server began."""
        speakers = recognition.speakers(page, one.image, port, self._stacks)
        if speakers and (endpoint := speakers[0].endpoint) is not None:
            preset = speakers[0].preset
            typical = port in endpoint.ports and path == endpoint.http_path
            sources = (preset,) if typical else recognition.options_of(preset, port, path, None)
            self.found = replace(self.found, preset=preset, sources=sources)
            endpoint = replace(endpoint, ports=(port,), http_path=path)
        else:
            names = recognition.histograms(page)
            first = names[0] if names else None
            self.found = replace(
                self.found,
                histograms=names,
                sources=recognition.options_of(None, port, path, first),
            )
            endpoint = MetricsEndpoint((port,), path, (Metric(name=first),) if first else ())
        self.found = replace(self.found, where=f"port {port}")
        if endpoint.metrics:
            self._read_counts(endpoint, page)

    def _read_counts(self, endpoint: MetricsEndpoint, page: bytes) -> None:
        """Take what was counted since the server began."""
        pages = Pages(named(endpoint, None), from_end=False, hint=endpoint.hint)
        delta = pages.take(page, time.time())
        counted, reading = delta.latency is not None, None
        if delta.latency is not None:
            reading = recognition.latency_reading(delta.latency)
        unread = delta.problem or (NO_REQUEST if counted else None)
        self.found = replace(
            self.found, reading=reading, unread=None if reading is not None else unread
        )

    def _read_log(self, one: Inspected) -> None:
        try:
            with self._gate:
                log = _last_lines(self._engine, one.container_id)
        except DlschedError as error:
            if self.found.where is None:
                self.found = replace(
                    self.found, unread=f"the container's log cannot be read: {error}"
                )
            return
        found = recognition.printed(log, one.image, self._stacks)
        if found is None:
            return
        stack, reading = found
        self.found = replace(
            self.found,
            preset=stack.preset,
            where="its log",
            sources=(stack.preset,),
            reading=reading,
            unread=None,
            histograms=(),
        )

    def _say_why_unread(self, one: Inspected, page: str | None) -> None:
        """Say why a container of a known image is not read, and what it needs."""
        known = [stack for stack in self._stacks if stack.made_from(one.image)]
        if not known:
            return
        best = min(known, key=lambda stack: stack.derived)
        if best.endpoint is None:
            why = self.found.unread or f"none of the log's last {LOG_LINES} lines fits the preset"
        elif not self._options.http:
            why = "the container's metrics page was not read: leave out --no-http"
        else:
            why = page or "the container's metrics page was not read: no port to ask is known"
        if best.needs is not None:
            why = f"{why}; start the program with {best.needs}"
        self.found = replace(self.found, preset=best.preset, unread=why)

    # ------------------------------------------------------------------ the second moment

    def end(self) -> None:
        """Read again: what happened in between."""
        before = self._cpu
        if before is not None and (after := self._used()) is not None and after[0] > before[0]:
            cores = max(0.0, after[1] - before[1]) / (after[0] - before[0])
            self.found = replace(self.found, cpu_cores=cores)
        if self._group is not None:
            self._group.close()
        if self._watched is not None:
            self._end_times(self._watched)

    def _end_times(self, watched: Watched) -> None:
        """Take what was measured at its sockets; it goes before what a page counted until now."""
        timed = recognition.timed(self.found.ports or (), watched)
        watched.close()
        self.found = replace(self.found, ports=timed)
        nothing = self.found.reading is None and self.found.where is None
        if not watched.covered_s and nothing and self.found.unread is None:
            why = self._wire_problem(watched)
            why = why or "dlsched's process that reads packets did not start in time"
            self.found = replace(
                self.found, unread=f"the container's sockets are not measured: {why}"
            )
        busiest = recognition.busiest(timed)
        read = self.found.reading
        if busiest is None or (read is not None and read.kind != "latency"):
            return
        port, reading = busiest
        self.found = replace(self.found, reading=reading, timed=port, sources=(), unread=None)


def _by_labels(labels: Mapping[str, str]) -> str | None:
    if INSTANCE in labels and labels.get(ENABLE) != "true":
        return "the container is already a job of dlsched"
    return "the container's labels already adopt it" if labels.get(ENABLE) == "true" else None


def _last_lines(engine: Engine, container_id: str) -> bytes:
    """The last lines of its log, bounded."""
    log, left = bytearray(), LOG_READ_BYTES
    for chunk in engine.logs(container_id, LOG_LINES, follow=False):
        log += chunk[:left]
        left -= len(chunk)
        if left <= 0:
            break
    whole = len(log) <= LOG_BYTES
    last = bytes(log[-LOG_BYTES:])
    return (last if whole else last.partition(b"\n")[2]) + b"\n"
