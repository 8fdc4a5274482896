"""Who may ask an agent what, over real TLS, and how much one caller may take."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlsched.api import server as api_server
from dlsched.cluster.agent import tls as tls_module
from dlsched.cluster.agent.ports import OrderRefused
from dlsched.cluster.agent.server import PEER_CONNECTIONS_MAX, AgentServer
from dlsched.cluster.certificates import MANAGER, Certificates
from dlsched.cluster.core.records import Order, Saved, Verb
from dlsched.cluster.wire import ORDER_BYTES, order_bytes, read_report
from tests.cluster.agent.serving import (
    NODE_S,
    FakeAgent,
    answered,
    asked,
    connected,
    free_port,
    named,
    said,
    serving,
    until,
)
from tests.cluster.authority import Authority

pytestmark = pytest.mark.process

REPORT = "POST /v1/cluster/report"
CHECKPOINT = "GET /v1/cluster/jobs/train/checkpoint?epoch=8"
LEAVE = Order(Verb.LEAVE, "node-1", "train", 7, target="node-2")
REFUSED = (ssl.SSLError, ConnectionError, BrokenPipeError)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority")).make()


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificates:
    return authority.node("node-1")


@pytest.fixture(scope="module")
def worker(authority: Authority) -> Certificates:
    return authority.node("node-2")


@pytest.fixture(scope="module")
def manager(authority: Authority) -> Certificates:
    return authority.node("boss", MANAGER)


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def server(agent: FakeAgent, own: Certificates, port: int) -> Iterator[AgentServer]:
    with serving(agent, own, port) as made:
        yield made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "ASK_WITHIN_S", 0.5)


# ---------------------------------------------------------------------- what it answers


def test_a_manager_gets_the_report(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates
) -> None:
    status, body = asked(manager, port, REPORT, named("node-1", "node-2", train=7))
    assert status == 200
    report, now_s = read_report(body)
    assert (report.node, now_s) == ("node-1", NODE_S)
    assert agent.placed == [{"train": 7}]
    assert agent.nodes == {"node-1", "node-2"}
    assert server.address("node-2") == "127.0.0.1"
    assert server.address("node-3") == ""


def test_a_manager_gives_an_order(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates
) -> None:
    head = "POST /v1/cluster/jobs/train/leave"
    assert asked(manager, port, head, order_bytes(LEAVE)) == (202, b"{}")
    assert agent.orders == [LEAVE]


@pytest.mark.parametrize(
    ("refusal", "status", "body"),
    [
        (OrderRefused("overtaken", 409, 9), 409, b'{"error":"overtaken","epoch":9}'),
        (
            OrderRefused("a.yaml:1:2: x\na.yaml:2:1: \x1by", 422),
            422,
            b'{"error":"a.yaml:1:2: x","problems":["a.yaml:1:2: x","a.yaml:2:1:  y"]}',
        ),
    ],
)
def test_an_order_is_refused(
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    manager: Certificates,
    refusal: OrderRefused,
    status: int,
    body: bytes,
) -> None:
    agent.refuses = refusal
    head = "POST /v1/cluster/jobs/train/leave"
    assert asked(manager, port, head, order_bytes(LEAVE)) == (status, body)


@pytest.mark.parametrize(
    ("path", "order", "line"),
    [
        ("train/arrive", LEAVE, "the order is leave train, not 'arrive' 'train'"),
        ("other/leave", LEAVE, "the order is leave train, not 'leave' 'other'"),
        (
            "train/leave",
            Order(Verb.LEAVE, "node-2", "train", 7),
            "the order is for node node-2; this one is node-1",
        ),
    ],
)
def test_an_order_for_another_job_verb_or_node_is_refused(
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    manager: Certificates,
    path: str,
    order: Order,
    line: str,
) -> None:
    answer = asked(manager, port, f"POST /v1/cluster/jobs/{path}", order_bytes(order))
    assert said(answer) == (400, line)
    assert agent.orders == []


def test_the_node_that_a_job_moves_to_gets_its_checkpoint(
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    manager: Certificates,
    worker: Certificates,
    tmp_path: Path,
) -> None:
    archive = tmp_path / "train-e8.tar"
    archive.write_bytes(bytes(range(256)) * 4096 * 3)
    agent.archives["train", 8, "node-2"] = archive
    # Before any report request, no member is known.
    line = "node-2 is not among the cluster's present members"
    assert said(asked(worker, port, CHECKPOINT)) == (403, line)
    asked(manager, port, REPORT, named("node-1", "node-2"))
    assert asked(worker, port, CHECKPOINT) == (200, archive.read_bytes())
    # A node that was removed from the cluster still has its certificate.
    asked(manager, port, REPORT, named("node-1"))
    assert said(asked(worker, port, CHECKPOINT)) == (403, line)


@pytest.mark.parametrize(
    ("query", "status", "line"),
    [
        ("train/checkpoint?epoch=7", 404, "no checkpoint of 'train', epoch 7, is kept for node-2"),
        ("other/checkpoint?epoch=8", 404, "no checkpoint of 'other', epoch 8, is kept for node-2"),
        ("train/checkpoint", 400, "epoch is '', must be a whole number"),
        ("train/checkpoint?epoch=-8", 400, "epoch is '-8', must be a whole number"),
        ("train/checkpoint?epoch=99999999999999999999", 400, "epoch is '9999"),
        ("..%2f..%2fetc/checkpoint?epoch=8", 403, "node-2 is no manager"),
    ],
)
def test_other_checkpoints_are_refused(
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    manager: Certificates,
    worker: Certificates,
    tmp_path: Path,
    query: str,
    status: int,
    line: str,
) -> None:
    agent.archives["train", 8, "node-2"] = tmp_path
    asked(manager, port, REPORT, named("node-1", "node-2"))
    answer = said(asked(worker, port, f"GET /v1/cluster/jobs/{query}"))
    assert answer[0] == status
    assert answer[1].startswith(line)


@pytest.mark.parametrize("kind", ["absent", "folder", "link"])
def test_only_a_plain_file_is_sent(
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    manager: Certificates,
    worker: Certificates,
    tmp_path: Path,
    kind: str,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path = {"absent": tmp_path / "x", "folder": tmp_path, "link": tmp_path / "link"}[kind]
    (tmp_path / "link").symlink_to(secret)
    agent.archives["train", 8, "node-2"] = path
    asked(manager, port, REPORT, named("node-2"))
    assert said(asked(worker, port, CHECKPOINT))[0] == 404


# ---------------------------------------------------------------------- who is let in


@pytest.mark.parametrize(
    "head",
    [
        REPORT,
        "POST /v1/cluster/jobs/train/leave",
        "POST /v1/cluster/jobs/train/checkpoint?epoch=8",
        "HEAD /v1/cluster/jobs/train/checkpoint?epoch=8",
        "GET /v1/cluster/jobs/train/checkpoint/x?epoch=8",
        "GET /v1/report",
        "GET /",
    ],
)
def test_a_worker_may_nothing_but_ask_for_a_checkpoint(
    server: AgentServer, agent: FakeAgent, port: int, worker: Certificates, head: str
) -> None:
    status, body = asked(worker, port, head, order_bytes(LEAVE))
    assert status == 403
    if not head.startswith("HEAD"):
        assert b"node-2 is no manager: it may only ask for a checkpoint" in body
    assert (agent.placed, agent.orders) == ([], [])


def test_another_organisation_is_refused_even_as_a_manager(
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stranger = authority.node("stranger", MANAGER, organisation="cluster-2")
    line = "stranger is not of this cluster, cluster-1"
    assert said(asked(stranger, port, REPORT, named("node-1"))) == (403, line)
    assert said(asked(stranger, port, CHECKPOINT)) == (403, line)
    assert agent.placed == []
    assert caplog.messages == [f"stranger is refused: {line}"]


def without_certificate(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca)
    return context


def of_another_authority(authority: Authority) -> ssl.SSLContext:
    other = Authority(authority.folder / "other").make()
    context = other.node("boss", MANAGER).client_context()
    context.load_verify_locations(authority.ca)
    return context


def expired(authority: Authority) -> ssl.SSLContext:
    return authority.node("late", MANAGER, days=0).client_context()


def without_a_name(authority: Authority) -> ssl.SSLContext:
    return authority.node("a/CN=b", MANAGER, as_name="two").client_context()


@pytest.mark.parametrize(
    ("stranger", "line"),
    [
        (without_certificate, "127.0.0.1 is refused: TLS: peer did not return a certificate"),
        (of_another_authority, "127.0.0.1 is refused: its certificate is refused: "),
        (expired, "127.0.0.1 is refused: its certificate is refused: certificate has expired"),
        (without_a_name, "127.0.0.1 is refused: the peer's certificate does not name one node"),
    ],
)
def test_a_caller_without_a_fit_certificate_is_refused_and_logged_once(
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    stranger: Callable[[Authority], ssl.SSLContext],
    line: str,
) -> None:
    caplog.set_level(logging.WARNING)
    context = stranger(authority)
    for _ in range(3):
        with pytest.raises(REFUSED):
            asked(context, port, REPORT, named("node-1"))
    until(lambda: caplog.messages)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(line)
    assert agent.placed == []


def test_plain_http_is_refused(server: AgentServer, agent: FakeAgent, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30.0) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: n\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in plain.recv(1000)
    assert agent.placed == []


# ---------------------------------------------------------------------- how much one may take


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
    assert said(answer) == (413, "the body has more than 256 KiB")
    assert agent.placed == []


@pytest.mark.usefixtures("impatient")
def test_a_body_that_comes_too_slowly_is_refused(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates
) -> None:
    with connected(manager, port) as tls:
        tls.sendall(f"{REPORT} HTTP/1.1\r\nHost: n\r\nContent-Length: 1000\r\n\r\n".encode())
        for _ in range(4):
            time.sleep(0.2)
            tls.sendall(b" ")
        assert said(answered(tls)) == (408, "the body did not come in time")
        assert tls.recv(1) == b""
    assert agent.placed == []


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("half", [b"", b"POST /v1/clu"])
def test_half_a_request_does_not_stay(
    server: AgentServer, port: int, manager: Certificates, half: bytes
) -> None:
    with connected(manager, port) as tls:
        tls.sendall(half)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            assert tls.recv(1) == b""


@pytest.mark.usefixtures("impatient")
def test_half_a_handshake_does_not_stay(server: AgentServer, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30.0) as plain:
        plain.sendall(b"\x16\x03\x01")
        with contextlib.suppress(ConnectionError):
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


@pytest.mark.parametrize(
    "garbage", [b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"x" * 100_000]
)
def test_what_is_not_http_is_refused(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates, garbage: bytes
) -> None:
    with connected(manager, port) as tls:
        tls.sendall(garbage)
        assert answered(tls)[0] == 400
    assert asked(manager, port, REPORT, named("node-1"))[0] == 200


def test_bodies_that_are_no_messages_are_refused_in_one_line(
    server: AgentServer, port: int, manager: Certificates
) -> None:
    for body in (b"", b"{", b"\xff", b'{"v":2}', b"[" * 10_000):
        status, line = said(asked(manager, port, REPORT, body))
        assert status == 400
        assert line.startswith("the request: ")
        status, line = said(asked(manager, port, "POST /v1/cluster/jobs/train/leave", body))
        assert status == 400
        assert line.startswith("the order: ")


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
        until(lambda: len(server._server.server_state.connections) == PEER_CONNECTIONS_MAX)
        with pytest.raises(REFUSED):
            answered(opened.enter_context(connected(worker, port)))
        assert asked(manager, port, REPORT, named("node-1"))[0] == 200
    until(lambda: not server._server.server_state.connections)
    assert asked(worker, port, "GET /")[0] == 403


@pytest.mark.usefixtures("impatient")
def test_a_node_that_takes_nothing_of_a_checkpoint_is_cut_off(
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    manager: Certificates,
    worker: Certificates,
    tmp_path: Path,
) -> None:
    archive = tmp_path / "train-e8.tar"
    with archive.open("wb") as stream:
        stream.truncate(256 << 20)
    agent.archives["train", 8, "node-2"] = archive
    asked(manager, port, REPORT, named("node-2"))
    with connected(worker, port) as tls:
        tls.sendall(f"{CHECKPOINT} HTTP/1.1\r\nHost: n\r\n\r\n".encode())
        until(lambda: server._server.server_state.connections)
        until(lambda: not server._server.server_state.connections)


@pytest.mark.parametrize("change", ["shorter", "removed"])
def test_a_checkpoint_that_changes_is_cut(
    change: str,
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    manager: Certificates,
    worker: Certificates,
    tmp_path: Path,
) -> None:
    archive = tmp_path / "train-e8.tar"
    with archive.open("wb") as stream:
        stream.truncate(256 << 20)
    agent.archives["train", 8, "node-2"] = archive
    asked(manager, port, REPORT, named("node-2"))
    received = 0
    with connected(worker, port) as tls:
        tls.sendall(f"{CHECKPOINT} HTTP/1.1\r\nHost: n\r\n\r\n".encode())
        with contextlib.suppress(*REFUSED):
            while block := tls.recv(1 << 16):
                received += len(block)
                if change == "removed":
                    archive.unlink(missing_ok=True)
                else:
                    os.truncate(archive, 0)
    assert received < 255 << 20


# ---------------------------------------------------------------------- over time


def test_it_uses_new_certificates_while_it_serves(
    agent: FakeAgent, port: int, tmp_path: Path
) -> None:
    authority = Authority(tmp_path).make()
    own, manager = authority.node("node-1"), authority.node("boss", MANAGER)
    with serving(agent, own, port):
        assert asked(manager, port, REPORT, named("node-1"))[0] == 200
        with connected(manager, port) as tls:
            before = tls.getpeercert(binary_form=True)
        authority.node("node-1")
        with connected(manager, port) as tls:
            assert tls.getpeercert(binary_form=True) != before
        assert asked(manager, port, REPORT, named("node-1"))[0] == 200
        # A whole new cluster: another authority under the same paths.
        old = manager.client_context()
        authority.make()
        authority.node("node-1")
        with pytest.raises(REFUSED):
            asked(old, port, REPORT, named("node-1"))
        new = authority.node("boss", MANAGER)
        assert asked(new, port, REPORT, named("node-1"))[0] == 200


def test_it_ends_within_seconds_and_its_address_is_free_again(
    own: Certificates, manager: Certificates, port: int
) -> None:
    for _ in range(2):
        with serving(FakeAgent(), own, port) as server:
            tls = connected(manager, port)
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 5.0
        assert server.problem is None
        tls.close()


def test_an_agent_that_fails_is_an_error_of_one_line(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates
) -> None:
    def fails() -> None:
        raise RuntimeError("secret")

    agent.wait = fails
    line = "the agent failed to answer: RuntimeError"
    assert said(asked(manager, port, REPORT, named("node-1"))) == (500, line)


def test_saved_reaches_the_agent(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates
) -> None:
    order = Order(Verb.ARRIVE, "node-1", "train", 8, "node-2", Saved(3, "ab" * 32, 9), text="a: b")
    assert asked(manager, port, "POST /v1/cluster/jobs/train/arrive", order_bytes(order))[0] == 202
    assert agent.orders == [order]
