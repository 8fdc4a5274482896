"""What happens on the watched ports of a container, as the tap hands it to the loop."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from dlsched.model.facts import LatencySketch, Report
from dlsched.model.units import plain_text, shown
from dlsched.runtime.progress.sidecar_line import BadLine, latency_in
from dlsched.runtime.wire.networks import Network

TICK_S = 1.0
"""A report is asked for so often."""
TAKEN_MAX = 120
"""Reports that are kept for a loop that does not take them."""
CALLERS_MAX = 256


@dataclass(frozen=True, slots=True)
class PortTraffic:
    """What one port did in the time of some reports."""

    port: int
    whole: tuple[Report, ...] = ()
    """Latencies of whole answers."""
    first: tuple[Report, ...] = ()
    """Until the first byte of the body."""
    gaps: tuple[Report, ...] = ()
    """Between the parts of one answer."""
    arrivals: int = 0
    lost: int = 0
    """Requests that are not measured, as in `WireFact`."""
    dropped: int = 0
    """Packets that the kernel had no room for, of all ports on the same interfaces."""
    connections: Mapping[str, int] = field(default_factory=dict)
    """New ones that are measured, by protocol: http, tls, turns."""
    unmeasured: Mapping[str, int] = field(default_factory=dict)
    """Those that are not, by reason."""
    callers: Mapping[str, int] = field(default_factory=dict)
    """Requests by client: a container's name, or an address."""


class Watched:
    """The traffic of one start of a container; `take` is called by the loop."""

    def __init__(
        self,
        forget: Callable[[Watched], None],
        pid: int,
        container: str,
        ports: tuple[int, ...],
        skip: str,
    ) -> None:
        self._forget = forget
        self.pid = pid
        self.container = container
        self.ports = ports
        """Those to watch; (): all on which it listens."""
        self.skip = skip
        """An expression for the paths of requests that do not count."""
        self.found: tuple[int, ...] = ()
        """The ports that are watched now."""
        self.interfaces: tuple[str, ...] = ()
        self.problem: str | None = None
        """Why it is not measured now, in one line."""
        self.partial: str | None = None
        """Why it is measured on some of its ports or interfaces alone, in one line."""
        self.hidden: str | None = None
        """Why it cannot be, as far as its network says."""
        self.network: Network | None = None
        """In which it was found; None: to be looked up again."""
        self.one_of = 1
        """Of so many connections one is measured."""
        self.covered_s = 0.0
        """Seconds of which all that happened is reported, or that nothing did, as of `take`."""
        self.missed_s = 0.0
        """Seconds of which it will not be, since the process that read them ended; as of `take`."""
        self._lock = threading.Lock()
        self._until_s: float | None = None
        """Until when it is covered, or missed; None: it is not measured."""
        self._covered_s = self._missed_s = 0.0
        self._traffic: dict[int, list[PortTraffic]] = {}
        self._dropped = 0

    def add(self, port: int, counted: PortTraffic) -> None:
        """Keep what the child reported; called by the tap's thread."""
        with self._lock:
            kept = self._traffic.setdefault(port, [])
            kept.append(counted)
            del kept[:-TAKEN_MAX]

    def covers(self, until_s: float) -> None:
        """All that happened until then is reported; called by the tap's thread."""
        with self._lock:
            if self._until_s is not None and until_s > self._until_s:
                self._covered_s += until_s - self._until_s
                self._until_s = until_s

    def begins(self, at_s: float) -> None:
        """A process reads it from then on: what another one did not report is missed; called by the
        tap's thread."""
        with self._lock:
            if self._until_s is not None:
                self._missed_s += at_s - self._until_s
            self._until_s = at_s

    @property
    def is_read(self) -> bool:
        """Whether the process that reads its packets has reported, be it that nothing happened."""
        with self._lock:
            return self._covered_s > 0.0

    @property
    def owes_answers(self) -> bool:
        """Whether a port was asked since `take`, and no answer to what is measured came yet."""
        with self._lock:
            return any(map(_owes, self._traffic.values()))

    def ends(self) -> None:
        """It is not measured any more; called by the tap's thread."""
        self._until_s = None

    def add_dropped(self, packets: int) -> None:
        """Keep how many packets were lost; called by the tap's thread."""
        with self._lock:
            self._dropped += packets

    def take(self, now_s: float) -> tuple[PortTraffic, ...]:
        """What happened since the last call, stamped `now_s`."""
        with self._lock:
            traffic, self._traffic = self._traffic, {}
            dropped, self._dropped = self._dropped, 0
            self.covered_s, self.missed_s = self._covered_s, self._missed_s
        if dropped:
            traffic = {**{port: [] for port in self.found}, **traffic}
        return tuple(_traffic(port, each, now_s, dropped) for port, each in sorted(traffic.items()))

    def close(self) -> None:
        self._forget(self)


def _owes(reported: Iterable[PortTraffic]) -> bool:
    open_ = 0
    for one in reported:
        latency = one.whole[0].latency or LatencySketch()
        if latency.count:
            return False
        open_ += one.arrivals - one.lost - latency.errors
    return open_ > 0


def _traffic(port: int, reported: Sequence[PortTraffic], now_s: float, dropped: int) -> PortTraffic:
    def stamped(parts: Iterable[tuple[Report, ...]]) -> tuple[Report, ...]:
        return tuple(
            replace(one, received_s=now_s, writer=f"wire:{port}") for part in parts for one in part
        )

    return PortTraffic(
        port,
        stamped(one.whole for one in reported),
        stamped(one.first for one in reported),
        stamped(one.gaps for one in reported),
        sum(one.arrivals for one in reported),
        sum(one.lost for one in reported),
        dropped,
        _sum(one.connections for one in reported),
        _sum(one.unmeasured for one in reported),
        _sum(one.callers for one in reported),
    )


def _sum(tables: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    whole: Counter[str] = Counter()
    for table in tables:
        whole.update(table)
    return dict(islice(whole.items(), CALLERS_MAX))


def checked(port: int, counted: object) -> PortTraffic:
    """One port's counts, as the child reported them. Raises BadLine."""
    if not isinstance(counted, dict):
        raise BadLine("no object")
    return PortTraffic(
        port,
        (_report(counted.get("whole")),),
        (_report(counted.get("first")),),
        (_report(counted.get("gaps")),),
        _number(counted.get("arrivals")),
        _number(counted.get("lost")),
        connections=_table(counted, "connections"),
        unmeasured=_table(counted, "unmeasured"),
        callers=_table(counted, "callers"),
    )


def _report(latency: object) -> Report:
    sketch, in_flight, oldest_s = latency_in({"latency": latency})
    return Report(0.0, latency=sketch, in_flight=in_flight, oldest_s=oldest_s, span_s=TICK_S)


def _table(counted: Mapping[str, object], name: str) -> Mapping[str, int]:
    table = counted.get(name)
    if not isinstance(table, dict) or len(table) > CALLERS_MAX:
        raise BadLine(
            f"dlsched's packet reader reported {name} that are not at most {CALLERS_MAX} numbers; "
            "dlsched starts it again"
        )
    return {plain_text(key[:64]): _number(one) for key, one in table.items()}


def _number(value: object) -> int:
    if type(value) is not int or not -(10**9) <= value <= 10**9:
        raise BadLine(f"{shown(repr(value))} was reported, must be a whole number of requests")
    return value
