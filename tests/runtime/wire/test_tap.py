"""The thread between rings and child: a child may die, hang or answer nonsense at any time."""

from __future__ import annotations

import http.server
import os
import signal
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from ipaddress import IPv4Address

import pytest

from dlsched.runtime.progress.listening import ListeningSocket
from dlsched.runtime.progress.sidecar_line import BadLine
from dlsched.runtime.wire import tap as module
from dlsched.runtime.wire.process import Child
from dlsched.runtime.wire.ring import Ring
from dlsched.runtime.wire.tap import NO_PORT, NO_RIGHT, SHARED_PORT, Tap
from dlsched.runtime.wire.traffic import PortTraffic, Watched, checked
from tools.waiting import until

pytestmark = pytest.mark.timed

CONTAINER = "c" * 64
NOTHING = {"count": 0, "sum": 0.0, "buckets": {}}
COUNTED = {
    **dict.fromkeys(("whole", "first", "gaps"), NOTHING),
    **{"arrivals": 0, "lost": 0, "connections": {}, "unmeasured": {}, "callers": {}},
}


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(500 if self.path == "/broken" else 200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A service on loopback, which counts as the container's."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    inode = str(os.fstat(server.fileno()).st_ino)
    socket = ListeningSocket(IPv4Address("127.0.0.1"), server.server_port, inode)
    monkeypatch.setattr(module, "listening_of", lambda *_: (socket,))
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def begin() -> Iterator[Callable[..., tuple[Tap, Watched]]]:
    """Begins to watch the service; ended with the test."""
    taps = []

    def begun(**parts: Callable[..., object]) -> tuple[Tap, Watched]:
        taps.append(tap := Tap(**parts))  # type: ignore[arg-type]
        return tap, tap.watch(os.getpid(), CONTAINER)

    yield begun
    for tap in taps:
        tap.close()


def ask(port: int, path: str = "/") -> None:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    connection.getresponse().read()
    connection.close()


def whole(traffic: tuple[PortTraffic, ...]) -> tuple[int, int]:
    """Answers, and failures."""
    sketches = [one.latency for port in traffic for one in port.whole if one.latency is not None]
    return sum(one.count for one in sketches), sum(one.errors for one in sketches)


def test_answers_and_failures_are_counted(
    port: int, begin: Callable[..., tuple[Tap, Watched]]
) -> None:
    _, watched = begin()
    until(lambda: watched.found == (port,) and watched.problem is None)
    found: list[PortTraffic] = []

    def counted() -> bool:
        ask(port)
        ask(port, "/broken")
        found.extend(watched.take(1.0))
        answers, failures = whole(tuple(found))
        return answers > 0 and failures > 0

    until(counted)
    assert {one.port for one in found} == {port}


def test_a_child_that_is_killed_is_started_again(
    port: int, begin: Callable[..., tuple[Tap, Watched]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", 0.0)
    children: list[Child] = []

    def start() -> Child:
        children.append(Child())
        return children[-1]

    _, watched = begin(start_child=start)
    until(lambda: bool(children))
    os.kill(children[0].pid, signal.SIGKILL)

    def counted() -> bool:
        ask(port)
        return len(children) > 1 and whole(watched.take(1.0))[0] > 0

    until(counted)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("print('nonsense', flush=True)", "not JSON"),
        ("print('[]', flush=True)", "without ports"),
        ("pass", "ended"),
    ],
)
def test_nonsense_of_the_child_is_no_number(
    port: int, begin: Callable[..., tuple[Tap, Watched]], says: str, why: str
) -> None:
    command = (
        sys.executable,
        "-c",
        f"{says}; import sys; sys.stdin.read() if 'print' in {says!r} else 0",
    )
    tap, watched = begin(start_child=lambda: Child(command))
    until(lambda: tap.problem is not None and why in tap.problem)
    assert whole(watched.take(1.0)) == (0, 0)


def test_without_the_right_the_reason_is_given(
    port: int, begin: Callable[..., tuple[Tap, Watched]]
) -> None:
    def refused(*_: object, **__: object) -> Ring:
        raise PermissionError(1, "Operation not permitted")

    _, watched = begin(open_ring=refused)
    until(lambda: watched.problem == NO_RIGHT)


def test_a_port_that_another_program_shares_is_not_measured(
    port: int, begin: Callable[..., tuple[Tap, Watched]]
) -> None:
    with socketserver.TCPServer(("127.0.0.2", port), socketserver.BaseRequestHandler):
        _, watched = begin()
        until(lambda: watched.problem == SHARED_PORT)
    assert watched.found == ()


def test_another_port_than_asked_for_is_named(port: int) -> None:
    tap = Tap()
    try:
        watched = tap.watch(os.getpid(), CONTAINER, (9999,))
        until(
            lambda: watched.problem == f"the container does not listen on port 9999, but on {port}"
        )
    finally:
        tap.close()


def test_a_container_that_listens_on_no_port_is_not_measured(
    begin: Callable[..., tuple[Tap, Watched]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "listening_of", lambda *_: ())
    _, watched = begin()
    until(lambda: watched.problem == NO_PORT)


def test_names_of_the_child_cannot_steer_a_terminal() -> None:
    named = checked(80, {**COUNTED, "callers": {"\x1b[2J": 1}})
    assert named.callers == {" [2J": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {**COUNTED, "whole": {"count": 5}},
        {**COUNTED, "first": {"count": 1, "sum": -1.0}},
        {**COUNTED, "arrivals": "many"},
        {**COUNTED, "arrivals": 10**12},
        {**COUNTED, "lost": True},
        {**COUNTED, "callers": {str(one): 1 for one in range(1000)}},
        {**COUNTED, "unmeasured": {"HTTP/2": 0.5}},
    ],
)
def test_counts_of_the_child_are_checked(wrong: object) -> None:
    assert checked(80, COUNTED).arrivals == 0
    with pytest.raises(BadLine):
        checked(80, wrong)


def test_a_wrong_table_of_the_child_names_whose_it_is_and_what_follows() -> None:
    with pytest.raises(BadLine, match=r"dlsched's packet reader reported callers.*starts it again"):
        checked(80, {**COUNTED, "callers": []})


def test_sockets_are_read_once_the_process_has_reported() -> None:
    watched = Watched(lambda _: None, 7, "c" * 64, (), "")
    watched.begins(10.0)
    assert not watched.is_read
    watched.covers(10.5)
    assert watched.is_read


def test_answers_are_owed_until_one_comes_to_what_is_measured() -> None:
    watched = Watched(lambda _: None, 7, "c" * 64, (), "")
    assert not watched.owes_answers
    watched.add(80, checked(80, {**COUNTED, "arrivals": 3, "lost": 3}))
    assert not watched.owes_answers, "no answer to a request that is not measured will come"
    watched.add(80, checked(80, {**COUNTED, "arrivals": 1}))
    assert watched.owes_answers
    watched.add(80, checked(80, {**COUNTED, "whole": {"count": 1, "sum": 0.25}}))
    assert not watched.owes_answers
