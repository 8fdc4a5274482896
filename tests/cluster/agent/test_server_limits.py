"""How much one caller may take of an agent's server."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dlsched.api import server as api_server
from dlsched.cluster.agent import server as tls_module
from dlsched.cluster.agent.server import PEER_CONNECTIONS_MAX, AgentServer
from dlsched.cluster.certificates import Certificates
from dlsched.cluster.wire import ORDER_BYTES
from tests.cluster.agent.serving import (
    CHECKPOINT,
    REFUSED,
    REPORT,
    FakeAgent,
    answered,
    asked,
    connected,
    named,
    said,
)
from tests.waiting import until

pytestmark = pytest.mark.process


@pytest.mark.parametrize("says_so", [True, False])
def test_a_body_that_is_too_large_is_refused(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates, says_so: bool
) -> None:
    body = b" " * (ORDER_BYTES + 1)
    if says_so:
        answer = asked(manager, port, REPORT, body, size_bytes=1 << 40)
    else:
        with connected(manager, port) as tls:
            tls.sendall(
                f"{REPORT} HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            )
            tls.sendall(f"{len(body):x}\r\n".encode() + body)
            answer = answered(tls)
    assert said(answer) == (413, "the request's body has more than 256 KiB")
    assert agent.placed == []


def test_a_body_that_comes_too_slowly_is_refused(
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    manager: Certificates,
    lose_patience: Callable[[], None],
) -> None:
    with connected(manager, port) as tls:
        until(lambda: server._server.server_state.connections, "a connection is open")
        lose_patience()
        tls.sendall(f"{REPORT} HTTP/1.1\r\nHost: n\r\nContent-Length: 1000\r\n\r\n".encode())
        tls.settimeout(0.1)
        answer = b""
        for _ in range(300):
            tls.sendall(b" ")
            with contextlib.suppress(TimeoutError):
                answer = tls.recv(1)
                break
        tls.settimeout(30.0)
        while block := tls.recv(4096):
            answer += block
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the request's body did not come in time" in answer
    assert agent.placed == []


def test_half_a_handshake_does_not_stay(
    server: AgentServer, port: int, lose_patience: Callable[[], None]
) -> None:
    lose_patience()
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(("127.0.0.1", port), timeout=30.0) as plain,
    ):
        plain.sendall(b"\x16\x03\x01")
        assert plain.recv(1) == b""


def test_many_half_handshakes_keep_no_manager_out(
    server: AgentServer, port: int, manager: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "HANDSHAKES_MAX", 4)
    monkeypatch.setattr(api_server, "ASK_WITHIN_S", 60.0)
    with contextlib.ExitStack() as opened:
        half = [
            opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30.0))
            for _ in range(6)
        ]
        for one in half[:2]:
            with contextlib.suppress(ConnectionError):
                assert one.recv(1) == b"", "the oldest made room"
        assert asked(manager, port, REPORT, named("node-1"))[0] == 200


def test_a_node_has_a_limit_of_connections_and_others_are_not_concerned(
    server: AgentServer,
    port: int,
    manager: Certificates,
    worker: Certificates,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than this test waits, so that only the limit closes a connection.
    monkeypatch.setattr(api_server, "ASK_WITHIN_S", 60.0)
    with contextlib.ExitStack() as opened:
        held = [opened.enter_context(connected(worker, port)) for _ in range(PEER_CONNECTIONS_MAX)]
        for one in held:
            one.sendall(b"GET / HTTP/1.1\r\n")
        until(
            lambda: len(server._server.server_state.connections) == PEER_CONNECTIONS_MAX,
            "as many as allowed are open",
        )
        with pytest.raises(REFUSED):
            answered(opened.enter_context(connected(worker, port)))
        assert asked(manager, port, REPORT, named("node-1"))[0] == 200
    until(lambda: not server._server.server_state.connections, "all are closed")
    assert asked(worker, port, "GET /")[0] == 403


def test_a_node_that_takes_nothing_of_a_checkpoint_is_cut_off(
    server: AgentServer,
    archive: Path,
    port: int,
    worker: Certificates,
    lose_patience: Callable[[], None],
) -> None:
    with archive.open("wb") as stream:
        stream.truncate(256 << 20)
    until(lambda: not server._server.server_state.connections, "all are closed")
    with connected(worker, port) as tls:
        until(lambda: server._server.server_state.connections, "a connection is open")
        lose_patience()
        tls.sendall(f"{CHECKPOINT} HTTP/1.1\r\nHost: n\r\n\r\n".encode())
        until(lambda: not server._server.server_state.connections, "all are closed")


def test_a_checkpoint_that_becomes_shorter_is_cut(
    archive: Path, port: int, worker: Certificates
) -> None:
    with archive.open("wb") as stream:
        stream.truncate(256 << 20)
    received = 0
    with connected(worker, port) as tls:
        tls.sendall(f"{CHECKPOINT} HTTP/1.1\r\nHost: n\r\n\r\n".encode())
        with contextlib.suppress(*REFUSED):
            while block := tls.recv(1 << 16):
                received += len(block)
                os.truncate(archive, 0)
    assert received < 255 << 20
