"""Watches the listening ports of containers: owns the rings, and the child that reads them.

One thread copies blocks of packets from the rings to the child, and takes its reports. It never
looks into a packet. The loop only calls `Watched.take`, which never waits. The child may die, hang
or answer nonsense at any time: its reports are checked, and it is started again.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlsched.model.errors import unexpected
from dlsched.model.units import plain_text
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.progress.http_page import PROBES
from dlsched.runtime.progress.listening import ListeningSocket, listening_of
from dlsched.runtime.progress.sidecar_line import BadLine
from dlsched.runtime.wire.callers import Callers
from dlsched.runtime.wire.child import BLOCK, TICK, TIME, WATCH
from dlsched.runtime.wire.interfaces import LOOPBACK, NotVisible, interfaces_of
from dlsched.runtime.wire.networks import Networks
from dlsched.runtime.wire.process import ANSWER_S, Child, is_whole
from dlsched.runtime.wire.ring import BLOCKS_LEAST, BLOCKS_MOST, BLOCKS_SHARED, PORTS_MAX, Ring
from dlsched.runtime.wire.traffic import TICK_S, Watched, checked

GATHER_S = 0.005
"""Once a block is ready, further ones are waited for so long: to wake up costs more than to copy.
At 10,000 requests a second 70 KiB come in this time, a quarter of the smallest ring."""
DISCOVER_S = 5.0
"""Which ports are listened on, and where, is looked up so often."""
BACKOFF_S = 1.0
BACKOFF_MAX_S = 60.0
ONE_OF_MAX = 1024
"""One in so many connections is measured at least: of the 28,232 client ports of Linux some 27."""
CALM_TICKS = 300
"""Ticks without a dropped packet after which twice as many connections are tried: if these are too
many, that costs one or two seconds in these five minutes."""

NO_RIGHT = "dlsched may not read packets: its systemd unit needs CAP_NET_RAW"
NO_PORT = "the container listens on no TCP port"
PORTS_SHOWN = 8
SHARED_PORT = "another program listens on the same port, at another address"
"""A filter and a connection know the port alone: the other's requests would count as its own."""


def _not_listening(wanted: tuple[int, ...], own: Iterable[ListeningSocket]) -> str:
    """Why there is nothing to measure: with the ports on which it does listen."""
    ports = sorted({each.port for each in own})
    if not ports:
        return NO_PORT
    asked, found = (", ".join(map(str, some)) for some in (wanted, ports[:PORTS_SHOWN]))
    return f"the container does not listen on port {asked}, but on {found}"


class Tap:
    """All watched containers of the host."""

    def __init__(
        self,
        *,
        proc: Path = PROC,
        start_child: Callable[[], Child] = Child,
        open_ring: Callable[..., Ring] = Ring,
    ) -> None:
        self.proc = proc
        self.child = start_child
        self.ring = open_ring
        self._lock = threading.Lock()
        self._watched: list[Watched] = []
        self._thread: threading.Thread | None = None
        self.wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.ended = False
        self.callers = Callers(proc)
        self.problem: str | None = None
        """Why nothing is measured now, in one line."""

    def watch(
        self,
        pid: int,
        container: str,
        ports: tuple[int, ...] = (),
        paths: Iterable[str] = (),
    ) -> Watched:
        """Measure this start of a container from now on; to be closed. `ports`: (): all on which
        it listens. `paths`: requests for these do not count, as those of health checks."""
        skip = "|".join((PROBES, *(re.escape(path) for path in paths)))
        watched = Watched(self.forget, pid, container, ports, skip)
        with self._lock:
            self._watched.append(watched)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_Pump(self).run, name="dlsched-wire", daemon=True
                )
                try:
                    self._thread.start()
                except RuntimeError as error:
                    self._thread, self.problem = None, f"not measured: {error}"
        self.wake()
        return watched

    def forget(self, watched: Watched) -> None:
        with self._lock:
            if watched in self._watched:
                self._watched.remove(watched)
        self.wake()

    def wake(self) -> None:
        with suppress(OSError):
            os.write(self._wake_write, b"x")

    def close(self) -> None:
        """End the thread and the child."""
        self.ended = True
        self.wake()
        if self._thread is not None:
            self._thread.join(timeout=ANSWER_S)

    def all(self) -> tuple[Watched, ...]:
        with self._lock:
            return tuple(self._watched)


def _by_interface(
    watched: Iterable[Watched], problems: dict[int, str | None]
) -> dict[str, dict[int, Watched]]:
    """The ports to watch on each interface, and whose they are. `problems`, by id, gets why a
    container is left out: one with many ports must not keep out the others, nor one whose network
    is not what it seems take the requests of another one."""
    found: dict[str, dict[int, Watched]] = {}
    claims: dict[tuple[str, int], set[int]] = {}
    for one in sorted(watched, key=lambda one: len(one.found)):
        for interface in one.interfaces:
            ports = found.setdefault(interface, {})
            for port in one.found:
                claims.setdefault((interface, port), set()).add(id(one))
            if len({*ports, *one.found}) > PORTS_MAX:
                problems[id(one)] = (
                    f"there are more than {PORTS_MAX} ports on {interface}: name those to measure, "
                    "such as dlsched.wire=8000"
                )
            else:
                ports.update(dict.fromkeys(one.found, one))
    for (interface, port), theirs in claims.items():
        if len(theirs) > 1:
            found[interface].pop(port, None)
            why = f"two containers seem to have port {port} on {interface}: neither is measured"
            problems.update(dict.fromkeys(theirs, why))
    return {interface: ports for interface, ports in found.items() if ports}


def _hand(child: Child, kind: int, data: bytes, ring: int = 0) -> None:
    """Hand the child a frame. Raises OSError where it is gone or does not take it."""
    if not child.send(kind, ring, data):
        raise TimeoutError("it hangs")


class _Pump:
    """The tap's thread."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._child: Child | None = None
        self._networks = Networks(tap.proc)
        self._rings: dict[str, Ring] = {}
        self._indices: dict[str, int] = {}
        """What the child knows an interface by."""
        self._ports: dict[str, tuple[int, ...]] = {}
        """Of each ring."""
        self._calm: dict[str, int] = {}
        """Ticks since a packet was dropped, of each ring."""
        self._polled: tuple[Child | None, dict[str, Ring]] = None, {}
        """What `_poll` waits for, beside the tap itself."""
        self._poll = select.poll()
        self._by_descriptor: dict[int, str] = {}
        self._numbers: dict[int, tuple[Watched, int]] = {}
        """What the child's numbers stand for: a container's port."""
        self._unused_numbers = itertools.count(1)
        """None is used again: a report that is under way may still be about the one before."""
        self._unused_indices = itertools.count()
        self._asked: dict[str, Any] = {}
        """What the child was asked to watch."""
        self._retry_s = 0.0
        self._backoff_s = BACKOFF_S
        self._discovered_s = float("-inf")
        self._ticked_s = float("-inf")
        self._ticks: deque[float] = deque()
        """When the child was asked for each report that it has not made yet."""
        self._heard_s = float("-inf")
        self._known: tuple[Watched, ...] = ()

    def run(self) -> None:
        """Until the tap is closed."""
        try:
            while not self._tap.ended:
                try:
                    self._once()
                except Exception as error:  # noqa: BLE001 - must be shown, and not look like silence
                    self._failed(unexpected(error), time.monotonic())
                    self._ticked_s = self._discovered_s = time.monotonic()
        finally:
            self._end_child()
            for ring in self._rings.values():
                ring.close()

    def _once(self) -> None:
        if self._polled != (self._child, self._rings):
            self._poll_again()
        now_s = time.monotonic()
        events = self._poll.poll(max(0.0, 1e3 * (self._ticked_s + TICK_S - now_s)))
        if any(descriptor in self._by_descriptor for descriptor, _ in events):
            time.sleep(GATHER_S)
        with suppress(BlockingIOError):
            os.read(self._tap.wake_read, 4096)
        now_s = time.monotonic()
        watched = self._tap.all()
        if watched != self._known or now_s - self._discovered_s >= DISCOVER_S:
            self._discover(watched, now_s)
            self._known, self._discovered_s = watched, now_s
        if not self._rings:
            self._ticked_s = self._heard_s = now_s  # it is asked for no report
            return
        if self._child is None and not self._begin_child(now_s):
            self._ticked_s = now_s
            return
        try:
            self._carry(events, now_s)
        except (OSError, BadLine) as error:
            self._failed(str(error), now_s)

    def _poll_again(self) -> None:
        """Wait for these rings and this child from now on; without a child, for no ring."""
        self._polled = self._child, dict(self._rings)
        self._poll = select.poll()
        self._poll.register(self._tap.wake_read, select.POLLIN)
        self._by_descriptor = {}
        if self._child is not None:
            self._poll.register(self._child.lines, select.POLLIN)
            self._by_descriptor = {ring.fileno(): name for name, ring in self._rings.items()}
            for descriptor in self._by_descriptor:
                self._poll.register(descriptor, select.POLLIN)

    def _carry(self, events: list[tuple[int, int]], now_s: float) -> None:
        """Hand blocks to the child, and take its reports. Raises OSError, BadLine."""
        child = self._child
        assert child is not None
        for descriptor, event in events:
            name = self._by_descriptor.get(descriptor)
            if name is None or name not in self._rings:
                continue
            if event & ~select.POLLIN:  # the interface is down or gone
                self._rings.pop(name).close()
                self._discovered_s = float("-inf")
                continue
            self._hand_blocks(child, name, self._rings[name])
        for report in child.reports():
            if not self._ticks:
                raise BadLine("the process wrote a report that was not asked for")
            self._take(report)
            if is_whole(report):
                self._ticks.popleft()
                self._heard_s, self._backoff_s = now_s, BACKOFF_S
                if child.patience_s != ANSWER_S:
                    child.patience_s = ANSWER_S
                    self._forgive_drops()
        if now_s - self._ticked_s >= TICK_S:
            self._ticked_s = now_s
            if child.patience_s == ANSWER_S:
                self._count_drops(child)
            self._ticks.append(now_s)
            _hand(child, TICK, TIME.pack(time.time_ns()))
            if now_s - self._heard_s > child.patience_s:
                raise TimeoutError(f"the process wrote no report for {child.patience_s:g} s")

    def _hand_blocks(self, child: Child, interface: str, ring: Ring) -> None:
        """Hand what is ready to the child. Raises OSError."""
        for block in ring.ready():
            _hand(child, BLOCK, block, self._index(interface))

    def _take(self, report: dict[str, Any]) -> None:
        """Keep a line of a report, if all of it is right. Raises BadLine."""
        found = [
            (one, checked(port, counted))
            for number, (one, port) in self._numbers.items()
            if (counted := report["ports"].get(str(number))) is not None
        ]
        callers = self._tap.callers
        clients = {client for _, counted in found for client in counted.callers}
        ports = {port for _, port in self._numbers.values()}
        callers.resolve(clients, ports, time.monotonic())
        for one, counted in found:
            named: Counter[str] = Counter()
            for client, requests in counted.callers.items():
                named[callers.name(client)] += requests
            one.add(counted.port, replace(counted, callers=dict(named)))
        if is_whole(report):  # of ports that it leaves out nothing is to be said
            for one in self._measured():
                one.covers(self._ticks[0])

    def _measured(self) -> Iterable[Watched]:
        return {id(one): one for one, _ in self._numbers.values()}.values()

    # ------------------------------------------------------------------ the child

    def _begin_child(self, now_s: float) -> bool:
        if now_s < self._retry_s:
            return False
        try:
            self._child = self._tap.child()
            self._heard_s = now_s
            self._ticks.clear()
            self._skip_unread()
            _hand(self._child, WATCH, json.dumps(self._asked).encode())
            for one in self._measured():
                one.begins(now_s)
        except OSError as error:
            self._failed(str(error), now_s)
            return False
        self._tap.problem = None
        return True

    def _skip_unread(self) -> None:
        """Leave out what came while nothing read it: it is old, and no sign of too many packets.
        Raises OSError."""
        for ring in self._rings.values():
            for _ in ring.ready():
                pass
        self._forgive_drops()

    def _forgive_drops(self) -> None:
        """Report what was dropped while nothing read it. Raises OSError."""
        for interface, ring in self._rings.items():
            self._add_dropped(interface, ring.counts().dropped)

    def _failed(self, why: str, now_s: float) -> None:
        """The child is of no use any more: start another one a little later."""
        self._tap.problem = f"dlsched's process that reads packets failed: {plain_text(why)}"
        self._end_child()
        self._retry_s = now_s + self._backoff_s
        self._backoff_s = min(2.0 * self._backoff_s, BACKOFF_MAX_S)

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    # ------------------------------------------------------------------ what is watched

    def _discover(self, watched: tuple[Watched, ...], now_s: float) -> None:
        """Find on which ports and interfaces these containers are visible, and watch them there."""
        for one in watched:
            self._find(one, now_s)
        problems = {id(one): one.hidden for one in watched}
        by_interface = _by_interface(watched, problems)
        self._networks.keep(one.network.name for one in watched if one.network is not None)
        for gone in self._rings.keys() - by_interface.keys():
            self._rings.pop(gone).close()
        for known in (self._ports, self._indices, self._calm):
            for gone in known.keys() - by_interface.keys():
                del known[gone]
        for interface, ports in by_interface.items():
            if (problem := self._set_ring(interface, ports)) is not None:
                problems |= {id(one): problem for one in ports.values()}
        visible = {id(one) for name in self._rings for one in by_interface[name].values()}
        for one in watched:
            why = problems[id(one)]
            one.problem, one.partial = (None, why) if id(one) in visible else (why, None)
        self._set_parts(watched)
        self._number(by_interface, now_s)

    def _find(self, one: Watched, now_s: float) -> None:
        """Find where it is visible, if that may have changed."""
        network = None
        with suppress(OSError):
            network = self._networks.of(one.pid, now_s, soon=not one.found)
        if network is not None and network is one.network:
            return
        one.network, one.hidden, one.interfaces = network, None, ()
        there = () if network is None else network.sockets
        own = listening_of(one.pid, one.container, self._tap.proc, there)
        sockets = tuple(each for each in own if not one.ports or each.port in one.ports)
        others = {each.port for each in there if each not in own}
        shared = [each for each in sockets if each.port in others]
        sockets = tuple(each for each in sockets if each not in shared)
        one.found = tuple(sorted({each.port for each in sockets}))
        if not one.found:
            one.hidden = SHARED_PORT if shared else _not_listening(one.ports, own)
            return
        try:
            one.interfaces = interfaces_of(one.pid, sockets, self._tap.proc)
        except NotVisible as why:
            one.hidden = f"the container's packets cannot be read: {why}"

    def _set_ring(self, interface: str, ports: Mapping[int, Watched]) -> str | None:
        """Watch these ports there; why that is not possible, in one line."""
        wanted = tuple(sorted(ports))
        try:
            ring = self._rings.get(interface)
            if ring is None:
                blocks = BLOCKS_SHARED if interface == LOOPBACK else BLOCKS_LEAST
                self._rings[interface] = self._tap.ring(interface, wanted, blocks=blocks)
            elif self._ports.get(interface) != wanted:
                ring.filter(wanted, ring.one_of)
        except PermissionError:
            return NO_RIGHT
        except OSError as error:
            for one in ports.values():
                one.network = None
            return f"packets on {interface} cannot be read: {error.strerror or error}"
        self._ports[interface] = wanted
        return None

    def _number(self, by_interface: Mapping[str, Mapping[int, Watched]], now_s: float) -> None:
        """Give each container's port its number, and ask the child for them."""
        numbers = {(id(one), port): number for number, (one, port) in self._numbers.items()}
        before = {id(one): one for one in self._measured()}
        self._numbers = {}
        asked: dict[str, dict[str, int]] = {}
        skips: dict[str, str] = {}
        for interface, ports in by_interface.items():
            if interface not in self._rings:
                continue
            for port, one in ports.items():
                number = numbers.get((id(one), port))
                if number is None:
                    number = numbers[id(one), port] = next(self._unused_numbers)
                self._numbers[number] = one, port
                asked.setdefault(str(self._index(interface)), {})[str(port)] = number
                skips[str(number)] = one.skip
        after = {id(one): one for one in self._measured()}
        for gone in before.keys() - after.keys():
            before[gone].ends()
        if self._child is not None:
            for new in after.keys() - before.keys():
                after[new].begins(now_s)
        whole = {"ports": asked, "skips": skips}
        if whole != self._asked:
            self._asked = whole
            if self._child is not None:
                with suppress(OSError):  # the next frame shows it
                    _hand(self._child, WATCH, json.dumps(whole).encode())

    def _count_drops(self, child: Child) -> None:
        """Report packets that the kernel had no room for, and make room: by a larger ring, then by
        fewer connections, as long as that is needed. Raises OSError."""
        for interface, ring in list(self._rings.items()):
            dropped = ring.counts().dropped
            self._calm[interface] = 0 if dropped else self._calm.get(interface, 0) + 1
            if dropped:
                self._add_dropped(interface, dropped)
                if ring.blocks < BLOCKS_MOST:
                    self._enlarge(child, interface, ring)
                elif ring.one_of < ONE_OF_MAX:
                    self._sample(interface, ring, 2 * ring.one_of)
            elif self._calm[interface] >= CALM_TICKS and ring.one_of > 1:
                self._sample(interface, ring, ring.one_of // 2)

    def _sample(self, interface: str, ring: Ring, one_of: int) -> None:
        """Measure one of so many connections there. Raises OSError."""
        ring.filter(self._ports[interface], one_of)
        self._calm[interface] = 0
        self._set_parts(self._known)

    def _add_dropped(self, interface: str, packets: int) -> None:
        for one in self._known:
            if interface in one.interfaces:
                one.add_dropped(packets)

    def _enlarge(self, child: Child, interface: str, ring: Ring) -> None:
        """Go on with a larger ring. Raises OSError."""
        blocks = min(4 * ring.blocks, BLOCKS_MOST)
        try:  # before the other one is closed: what both have is known by its number
            larger = self._tap.ring(
                interface, self._ports[interface], blocks=blocks, one_of=ring.one_of
            )
        except OSError:  # no memory for it: this one has to do
            return
        self._rings[interface] = larger
        try:
            self._hand_blocks(child, interface, ring)
        finally:
            dropped = ring.counts().dropped
            self._add_dropped(interface, dropped + ring.unread())
            ring.close()

    def _set_parts(self, watched: Iterable[Watched]) -> None:
        """Note which part of its connections each one is measured by."""
        for one in watched:
            rings = [self._rings[each] for each in one.interfaces if each in self._rings]
            one.one_of = max((ring.one_of for ring in rings), default=1)

    def _index(self, interface: str) -> int:
        if interface not in self._indices:
            self._indices[interface] = next(self._unused_indices)
        return self._indices[interface]
