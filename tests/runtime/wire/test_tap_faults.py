"""What the tap does where packets are dropped, or its child answers what it must not."""

from __future__ import annotations

import json
import os
import resource
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from itertools import pairwise
from typing import Any

import pytest

from dlsched.runtime.progress.listening import ListeningSocket
from dlsched.runtime.progress.sidecar_line import BadLine
from dlsched.runtime.wire import tap
from dlsched.runtime.wire.child import BLOCK, LINE_BYTES_MAX, lines_of
from dlsched.runtime.wire.networks import Network, Networks
from dlsched.runtime.wire.process import ANSWER_S, READS_MAX, START_S, Child, is_whole
from dlsched.runtime.wire.ring import BLOCKS_MOST, RingCounts
from dlsched.runtime.wire.tap import (
    BACKOFF_S,
    CALM_TICKS,
    ONE_OF_MAX,
    Tap,
    _by_interface,
    _Pump,
)
from dlsched.runtime.wire.traffic import Watched

LATENCY = {"count": 2, "sum": 0.006, "buckets": {"400": 2}}
PORT = {
    **dict.fromkeys(("whole", "first", "gaps"), LATENCY),
    **dict.fromkeys(("arrivals", "lost"), 0),
    **{name: {} for name in ("connections", "unmeasured", "callers")},
}


@dataclass
class FakeRing:
    """A ring whose counts are given."""

    blocks: int = 16
    one_of: int = 1
    dropped: int = 0
    left: int = 0
    ready_blocks: list[bytes] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def counts(self) -> RingCounts:
        dropped, self.dropped = self.dropped, 0
        return RingCounts(dropped, dropped)

    def ready(self) -> Iterator[bytes]:
        yield from self.ready_blocks

    def unread(self) -> int:
        return self.left

    def filter(self, ports: object, one_of: int = 1) -> None:
        self.one_of = one_of

    def close(self) -> None:
        self.log.append("close")


@dataclass
class FakeChild:
    sent: list[bytes] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)
    patience_s: float = START_S

    def reports(self) -> list[dict[str, Any]]:
        return self.said

    def send(self, kind: int, ring: int, data: bytes) -> bool:
        self.sent.append(data)
        return True

    def close(self) -> None:
        pass


class Scene:
    """A pump with one watched container on one ring."""

    def __init__(self, ring: FakeRing) -> None:
        self.ring, self.child = ring, FakeChild()
        self.opened: list[FakeRing] = []
        self.tap = Tap(open_ring=self.open)  # type: ignore[arg-type]
        self.pump = _Pump(self.tap)
        self.watched = Watched(self.tap.forget, 1, "c", (80,), "")
        self.watched.found, self.watched.interfaces = (80,), ("lo",)
        self.pump._known = (self.watched,)
        self.pump._rings = {"lo": ring}  # type: ignore[dict-item]
        self.pump._ports = {"lo": (80,)}
        self.pump._numbers = {1: (self.watched, 80), 2: (self.watched, 81)}
        self.pump._ticks.append(1.5)
        self.watched.begins(0.0)

    def open(self, interface: str, ports: object, **options: int) -> FakeRing:
        self.ring.log.append("open")
        self.opened.append(FakeRing(**options))
        return self.opened[-1]

    def tick(self) -> None:
        self.pump._count_drops(self.child)  # type: ignore[arg-type]

    def dropped(self) -> list[int]:
        return [one.dropped for one in self.watched.take(0.0)]


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The sockets of each network, whose process is the container's."""
    found: dict[str, Any] = {}
    known: dict[int, Network] = {}

    def of(_: object, pid: int, now_s: float, *, soon: bool) -> Network:
        sockets = tuple(ListeningSocket(IPv4Address(0), port, "7") for port in found[str(pid)])
        fresh = Network(str(pid), sockets, b"")
        if known.get(pid) != fresh:
            known[pid] = fresh
        return known[pid]

    monkeypatch.setattr(Networks, "of", of)
    monkeypatch.setattr(tap, "listening_of", lambda _pid, _name, _proc, there: there)
    monkeypatch.setattr(tap, "interfaces_of", lambda pid, *_: (f"veth{pid}",))
    return found


def test_what_is_watched_follows_the_networks(networks: dict[str, Any]) -> None:
    scene = Scene(FakeRing())
    one, other = (Watched(scene.tap.forget, pid, "c", (), "") for pid in (1, 2))
    networks |= {"1": [80], "2": [80]}
    scene.pump._discover((one, other), 0.0)
    assert (one.found, other.found) == ((80,), (80,))
    networks["2"] = [80, 81]
    scene.pump._discover((one, other), 10.0)
    assert (one.found, other.found) == ((80,), (80, 81))
    scene.pump._discover((one,), 15.0)
    assert list(scene.pump._rings) == ["veth1"]
    scene.pump._rings.clear()  # the interface is down
    scene.pump._discover((one,), 20.0)
    assert list(scene.pump._rings) == ["veth1"]


def test_a_fault_while_rings_are_set_is_not_the_end_of_it(
    networks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(FakeRing())
    one = Watched(scene.tap.forget, 1, "c", (), "")
    networks["1"], scene.pump._known = [80], (one,)
    with monkeypatch.context() as broken, pytest.raises(ZeroDivisionError):
        broken.setattr(scene.pump, "_set_ring", lambda *_: 1 / 0)
        scene.pump._discover((one,), 0.0)
    scene.pump._discover((one,), 5.0)
    assert list(scene.pump._rings) == ["veth1"]


def test_one_interface_that_fails_leaves_the_others(
    networks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(FakeRing())
    one = Watched(scene.tap.forget, 1, "c", (), "")
    networks["1"], broken = [80], {"eth1"}
    monkeypatch.setattr(tap, "interfaces_of", lambda *_: ("eth0", "eth1"))

    def opened(interface: str, ports: object, **options: int) -> FakeRing:
        if interface in broken:
            raise OSError(19, "No such device")
        return FakeRing(**options)

    scene.tap.ring = opened  # type: ignore[assignment]
    scene.pump._discover((one,), 0.0)
    assert one.problem is None
    assert one.partial == "packets on eth1 cannot be read: No such device"
    assert [port for _, port in scene.pump._numbers.values()] == [80]
    broken.add("eth0")
    scene.pump._rings.clear()
    scene.pump._discover((one,), 5.0)
    assert one.problem is not None and one.partial is None
    broken.clear()
    scene.pump._discover((one,), 10.0)
    assert (one.problem, one.partial, len(scene.pump._rings)) == (None, None, 2)


def test_a_port_of_two_containers_leaves_their_other_ports(networks: dict[str, Any]) -> None:
    scene = Scene(FakeRing())
    one, other = (Watched(scene.tap.forget, pid, "c", (), "") for pid in (1, 1))
    networks["1"] = [80]
    scene.pump._discover((one, other), 0.0)
    assert (
        one.problem
        == other.problem
        == "two containers seem to have port 80 on veth1: neither is measured"
    )
    other.ports = (81,)
    other.network = one.network = None
    networks["1"] = [80, 81]
    scene.pump._discover((one, other), 5.0)
    assert (one.problem, other.partial) == (None, None)
    assert (
        one.partial
        == other.problem
        == "two containers seem to have port 81 on veth1: neither is measured"
    )


def test_a_larger_ring_opens_before_the_other_closes() -> None:
    scene = Scene(FakeRing(dropped=7, left=5, ready_blocks=[b"block"]))
    scene.tick()
    assert scene.ring.log == ["open", "close"]
    assert [one.blocks for one in scene.opened] == [64]
    assert scene.child.sent == [b"block"]
    assert scene.dropped() == [12]


def test_without_memory_the_small_ring_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(FakeRing(dropped=7))

    def refuse(*_: object, **__: object) -> FakeRing:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(scene.tap, "ring", refuse)
    scene.tick()
    assert scene.ring.log == []
    assert scene.dropped() == [7]


def test_the_largest_ring_measures_half_of_the_connections() -> None:
    scene = Scene(FakeRing(blocks=BLOCKS_MOST, dropped=7))
    scene.tick()
    assert scene.opened == []
    assert (scene.ring.one_of, scene.watched.one_of) == (2, 2)


def test_without_drops_more_connections_are_measured_again() -> None:
    scene = Scene(FakeRing(blocks=BLOCKS_MOST, one_of=4))
    for _ in range(CALM_TICKS - 1):
        scene.tick()
    assert scene.ring.one_of == 4
    scene.tick()
    assert (scene.ring.one_of, scene.watched.one_of) == (2, 2)
    scene.tick()
    assert scene.ring.one_of == 2


def test_some_connections_are_measured_whatever_is_dropped() -> None:
    scene = Scene(FakeRing(blocks=BLOCKS_MOST))
    for _ in range(40):
        scene.ring.dropped = 1
        scene.tick()
    assert scene.ring.one_of == ONE_OF_MAX


def test_what_no_child_read_is_left_out_and_reported() -> None:
    scene = Scene(FakeRing(dropped=7, ready_blocks=[b"old"]))
    scene.tap.child = lambda: scene.child  # type: ignore[method-assign,return-value,assignment]
    assert scene.pump._begin_child(0.0)
    scene.tick()
    assert scene.child.sent == [b"{}"]
    assert scene.opened == []
    assert scene.dropped() == [7]


def watched_on(scene: Scene, ports: Iterable[int]) -> Watched:
    one = Watched(scene.tap.forget, 1, "c", (), "")
    one.found, one.interfaces = tuple(ports), ("lo",)
    return one


def test_a_container_with_many_ports_keeps_out_no_other() -> None:
    scene, problems = Scene(FakeRing()), dict[int, str | None]()
    many, few = watched_on(scene, range(1000, 1060)), watched_on(scene, (80,))
    found = _by_interface((many, few), problems)
    assert found == {"lo": {80: few}}
    assert [str(problems[id(many)])[:26]] == ["there are more than 60 por"]
    assert id(few) not in problems


def test_a_number_is_never_of_another_container() -> None:
    scene = Scene(FakeRing())
    scene.pump._numbers = {}
    numbers = set[int]()
    for _ in range(3):
        scene.pump._number({"lo": {80: watched_on(scene, (80,))}}, 0.0)
        numbers |= scene.pump._numbers.keys()
        scene.pump._number({}, 0.0)
    assert len(numbers) == 3


def test_of_interfaces_that_are_gone_nothing_is_kept() -> None:
    scene = Scene(FakeRing())
    for count in range(3):
        scene.pump._set_ring(f"veth{count}", {80: scene.watched})
        scene.pump._index(f"veth{count}")
        scene.pump._discover((), float(count))
    kept = (scene.pump._rings, scene.pump._ports, scene.pump._indices)
    assert [len(one) for one in kept] == [0, 0, 0]
    assert scene.pump._index("eth0") == 3


@pytest.mark.timed
def test_an_unforeseen_fault_is_shown_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, calls = Scene(FakeRing()), list[int]()

    def fault() -> None:
        calls.append(1)
        scene.tap.ended = len(calls) > 1
        raise ValueError("nobody thought of this")

    monkeypatch.setattr(scene.pump, "_once", fault)
    scene.pump.run()
    assert len(calls) == 2
    assert "nobody thought of this" in str(scene.tap.problem)


@pytest.mark.timed
def test_a_report_with_one_wrong_port_is_refused_whole() -> None:
    scene = Scene(FakeRing())
    with pytest.raises(BadLine):
        scene.pump._take({"ports": {"1": PORT, "2": {**PORT, "arrivals": -1.5}}, "packets": 9})
    assert scene.watched.take(0.0) == ()
    scene.pump._take({"ports": {"1": PORT}})
    (port,) = scene.watched.take(0.0)
    assert [one.latency.count for one in port.whole if one.latency] == [2]
    assert scene.watched.covered_s == 0.0, "of other ports more may come"
    scene.pump._take({"ports": {}, "packets": 9})
    scene.watched.take(0.0)
    assert scene.watched.covered_s == 1.5


def test_a_large_report_is_in_short_lines() -> None:
    full = {"count": 2001 * 10**6, "sum": 1e15, "buckets": dict.fromkeys(range(2001), 10**6)}
    callers = {f"fd00:1111:2222:3333:4444:5555:6666:{one:04x}": 10**6 for one in range(65)}
    port = {**PORT, "whole": full, "first": full, "gaps": full, "callers": callers}
    ports = {**{str(one): port for one in range(9)}, **{str(one): PORT for one in range(9, 2000)}}
    lines = list(lines_of({"ports": ports, "packets": 7, "bad": 0}))
    assert max(map(len, lines)) <= LINE_BYTES_MAX
    assert len(lines) < 20
    decoded = [json.loads(line) for line in lines]
    assert [number for one in decoded for number in one["ports"]] == list(ports)
    assert [is_whole(one) for one in decoded] == [False] * (len(lines) - 1) + [True]
    assert list(lines_of({"ports": {}, "packets": 0})) == [b'{"ports":{},"packets":0}\n']


@pytest.mark.timed
def test_what_a_child_did_not_report_before_its_end_is_missed_once() -> None:
    scene = Scene(FakeRing())
    scene.tap.child = lambda: scene.child  # type: ignore[method-assign,return-value,assignment]

    def times() -> tuple[float, float]:
        scene.watched.take(0.0)
        return scene.watched.covered_s, scene.watched.missed_s

    scene.pump._take({"ports": {"1": PORT}, "packets": 9})
    assert times() == (1.5, 0.0)
    scene.pump._failed("the container has ended", 3.0)
    assert not scene.pump._begin_child(3.5)
    assert times() == (1.5, 0.0), "not before it is known how long that was"
    assert scene.pump._begin_child(6.25)
    assert times() == (1.5, 4.75)
    scene.pump._ticks.append(7.25)
    scene.pump._take({"ports": {}, "packets": 9})
    assert times() == (2.5, 4.75)


@pytest.mark.timed
def test_the_time_without_a_port_is_neither_covered_nor_missed() -> None:
    scene = Scene(FakeRing())
    scene.pump._number({}, 400.0)
    scene.pump._ticks[0] = 500.0
    scene.pump._take({"ports": {}, "packets": 9})
    scene.pump._number({"lo": {80: scene.watched}}, 1000.0)
    scene.tap.child = lambda: scene.child  # type: ignore[method-assign,return-value,assignment]
    assert scene.pump._begin_child(1000.0)
    scene.watched.take(0.0)
    assert (scene.watched.covered_s, scene.watched.missed_s) == (0.0, 0.0)


@pytest.mark.timed
def test_a_report_that_was_not_asked_for_is_refused() -> None:
    scene = Scene(FakeRing())
    scene.pump._ticks.clear()
    scene.pump._child = scene.child  # type: ignore[assignment]
    scene.child.said = [{"ports": {"1": PORT}, "packets": 9}]
    with pytest.raises(BadLine, match="not asked for"):
        scene.pump._carry([], 0.0)
    assert scene.watched.take(0.0) == ()


@pytest.mark.timed
@pytest.mark.parametrize("number", ["\u00b2", "7", "-1", "9" * 5000, ""])
def test_a_port_that_nobody_asked_for_is_left_out(number: str) -> None:
    scene = Scene(FakeRing())
    scene.pump._take({"ports": {number: PORT}})
    assert scene.watched.take(0.0) == ()


def test_a_child_that_never_reports_is_started_ever_less_often() -> None:
    scene = Scene(FakeRing())
    starts: list[float] = []
    scene.tap.child = lambda: starts.append(now_s) or FakeChild()  # type: ignore[method-assign,return-value,func-returns-value]
    for now_s in map(float, range(70)):
        if scene.pump._begin_child(now_s):
            scene.pump._failed("no report", now_s)
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert gaps == [BACKOFF_S, 2.0, 4.0, 8.0, 16.0, 32.0]


@pytest.mark.timed
def test_a_child_that_is_asked_for_nothing_is_not_silent() -> None:
    scene = Scene(FakeRing())
    scene.pump._child, scene.child.patience_s = scene.child, ANSWER_S  # type: ignore[assignment]
    scene.pump._rings, scene.pump._known = {}, ()
    scene.pump._poll_again = lambda: None  # type: ignore[method-assign]
    scene.pump._ticked_s = float("-inf")
    scene.pump._once()
    scene.pump._carry([], scene.pump._heard_s + ANSWER_S)


@pytest.mark.timed
def test_what_is_dropped_while_a_child_begins_is_no_sign_of_too_many_packets() -> None:
    scene = Scene(FakeRing())
    scene.tap.child = lambda: scene.child  # type: ignore[method-assign,assignment,return-value]
    assert scene.pump._begin_child(100.0)
    scene.ring.dropped = 5
    scene.pump._carry([], 101.0)
    scene.child.said = [{"ports": {}, "packets": 0}]
    scene.pump._carry([], 101.5)
    assert (scene.dropped(), scene.opened) == ([5], [])
    scene.child.said, scene.ring.dropped = [], 7
    scene.pump._carry([], 102.0)
    assert (scene.dropped(), len(scene.opened)) == ([7], 1)


@pytest.mark.timed
def test_a_child_may_take_longer_to_begin_than_later() -> None:
    scene = Scene(FakeRing())
    scene.tap.child = lambda: scene.child  # type: ignore[method-assign,assignment,return-value]
    assert scene.pump._begin_child(100.0)
    scene.pump._carry([], 100.0 + START_S - 1.0)
    scene.child.said = [{"ports": {}, "packets": 0}]
    scene.pump._carry([], 100.0 + START_S)
    scene.child.said = []
    scene.pump._carry([], 100.0 + START_S + ANSWER_S)
    with pytest.raises(TimeoutError, match="the process wrote no report"):
        scene.pump._carry([], 100.0 + START_S + ANSWER_S + 1.0)


def child(program: str) -> Any:
    return closing(Child((sys.executable, "-I", "-S", "-c", "import os\n" + program)))


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("while True: os.write(1, b'{\"ports\":{}}\\n' * 4096)", "lines at a time"),
        ("while True: os.write(1, b'[' * 65536)", "a line of more than"),
    ],
)
def test_a_child_that_writes_without_end_is_refused(program: str, why: str) -> None:
    with child(program) as one, pytest.raises(BadLine, match=why):
        while True:
            list(one.reports())


@pytest.mark.process
def test_a_child_that_takes_nothing_is_waited_for_as_long_as_it_may_take_to_begin() -> None:
    most = 1 << 21  # no pipe holds so much
    with child("os.read(0, 1)\nwhile os.read(0, 1 << 20): pass") as one:
        assert one.patience_s == START_S
        assert one.send(BLOCK, 0, bytes(most))
    with child("import signal\nsignal.pause()") as one:
        one.patience_s = 0.0
        assert not one.send(BLOCK, 0, bytes(most))


@pytest.mark.process
def test_one_read_of_a_flood_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlsched.runtime.wire.process.LINES_MAX", 10**9)
    with child("while True: os.write(1, b'{\"ports\":{}}\\n' * 64)") as one:
        most = READS_MAX * LINE_BYTES_MAX // len(b'{"ports":{}}\n')
        assert all(len(list(one.reports())) <= most for _ in range(50))


@pytest.mark.process
def test_a_line_that_a_child_did_not_end_costs_itself_alone() -> None:
    taken: list[Any] = []
    says = b'{"ports":{},"a":1}\n{"ports":{},"a":2}\n{"ports":{"3'
    with (
        child(f"os.write(1, {says!r})") as one,
        pytest.raises(BrokenPipeError, match="has ended"),
    ):
        while True:
            taken += one.reports()
    assert [line["a"] for line in taken] == [1, 2]


@pytest.mark.process
def test_a_full_pipe_is_waited_for_beside_many_descriptors() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2048, most[0]), max(2048, most[1])))
    with ExitStack() as many:
        low = os.open(os.devnull, os.O_RDONLY)
        many.callback(os.close, low)
        for _ in range(1100):
            many.callback(os.close, os.dup(low))
        with child("while os.read(0, 1 << 20): pass") as one:
            assert one.frames > 1023
            assert one.send(BLOCK, 0, bytes(8 << 20))
    resource.setrlimit(resource.RLIMIT_NOFILE, most)


@pytest.mark.process
def test_a_frame_larger_than_the_pipe_arrives_whole() -> None:
    data = bytes(range(256)) * 12_000
    program = (
        "import sys, zlib\n"
        "data = sys.stdin.buffer.read(12 + 256 * 12_000)[12:]\n"
        'os.write(1, b\'{"ports":{},"sum":%d}\\n\' % zlib.crc32(data))\n'
        "sys.stdin.read()"
    )
    with child(program) as one:
        assert one.send(BLOCK, 0, data)
        reports: list[Any] = []
        while not reports:
            reports = list(one.reports())
    assert reports == [{"ports": {}, "sum": zlib.crc32(data)}]
