"""Who may ask an agent what, over real TLS."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from dlsched.cluster.agent.ports import OrderRefused
from dlsched.cluster.agent.server import AgentServer
from dlsched.cluster.certificates import MANAGER, Certificates
from dlsched.cluster.core.records import Order, Verb
from dlsched.cluster.wire import order_bytes, read_report
from tests.cluster.agent.serving import (
    CHECKPOINT,
    NODE_S,
    REFUSED,
    REPORT,
    FakeAgent,
    asked,
    connected,
    named,
    said,
    serving,
)
from tests.cluster.authority import Authority
from tests.waiting import until

pytestmark = pytest.mark.process

GIVES = "POST /v1/cluster/order"
LEAVE = Order(Verb.LEAVE, "node-1", "train", 7, target="node-2")


# ---------------------------------------------------------------------- what it answers


def test_a_manager_gets_the_report(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates
) -> None:
    status, body = asked(manager, port, REPORT, named("node-1", "node-2", train=7))
    assert status == 200
    report = read_report(body)
    assert (report.name, report.now_s) == ("node-1", NODE_S)
    assert agent.placed == [{"train": 7}]
    assert agent.nodes == {"node-1", "node-2"}
    assert server.address("node-2") == "127.0.0.1"
    assert server.address("node-3") == ""


def test_a_manager_gives_an_order(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates
) -> None:
    assert asked(manager, port, GIVES, order_bytes(LEAVE)) == (202, b"{}")
    assert agent.orders == [LEAVE]


def test_an_order_is_refused_in_one_line(
    server: AgentServer, agent: FakeAgent, port: int, manager: Certificates
) -> None:
    agent.refuses = OrderRefused("a.yaml:1:2: \x1bx")
    assert said(asked(manager, port, GIVES, order_bytes(LEAVE))) == (409, "a.yaml:1:2:  x")


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
    line = "node node-2 is not one of the cluster's present members"
    assert said(asked(worker, port, CHECKPOINT)) == (403, line)
    asked(manager, port, REPORT, named("node-1", "node-2"))
    assert asked(worker, port, CHECKPOINT) == (200, archive.read_bytes())
    # A node that was removed from the cluster still has its certificate.
    asked(manager, port, REPORT, named("node-1"))
    assert said(asked(worker, port, CHECKPOINT)) == (403, line)


def test_a_checkpoint_whose_file_is_gone_is_none(
    archive: Path, port: int, worker: Certificates
) -> None:
    assert said(asked(worker, port, CHECKPOINT))[0] == 404


# ---------------------------------------------------------------------- who may ask


BOSS, WORKER = "boss", "node-2"
JOBS = "/v1/cluster/jobs"
OTHERS = Order(Verb.LEAVE, "node-2", "train", 7)
BODIES = (b"", b"{", b"\xff", b'{"v":1}', b"[" * 10_000)
ONLY = "node node-2 is not a manager: it may only ask for a checkpoint"


@pytest.mark.parametrize(
    ("caller", "head", "body", "status", "line"),
    [
        (BOSS, GIVES, OTHERS, 400, "the order is for node node-2; this one is node-1"),
        # Other checkpoints than the one that is kept for it.
        (
            WORKER,
            f"GET {JOBS}/train/checkpoint?epoch=7",
            b"",
            404,
            "this node keeps no checkpoint of 'train', ",
        ),
        (
            WORKER,
            f"GET {JOBS}/other/checkpoint?epoch=8",
            b"",
            404,
            "this node keeps no checkpoint of 'other', ",
        ),
        (WORKER, f"GET {JOBS}/train/checkpoint", b"", 400, "epoch is '', must be a whole"),
        (WORKER, f"GET {JOBS}/train/checkpoint?epoch=-8", b"", 400, "epoch is '-8', must be"),
        (WORKER, f"GET {JOBS}/train/checkpoint?epoch={'9' * 20}", b"", 400, "epoch is '9999"),
        (WORKER, f"GET {JOBS}/..%2f..%2fetc/checkpoint?epoch=8", b"", 403, ONLY),
        # A worker may do nothing but ask for one.
        (WORKER, REPORT, LEAVE, 403, ONLY),
        (WORKER, GIVES, LEAVE, 403, ONLY),
        (WORKER, f"POST {JOBS}/train/checkpoint?epoch=8", LEAVE, 403, ONLY),
        (WORKER, f"HEAD {JOBS}/train/checkpoint?epoch=8", LEAVE, 403, ""),
        (WORKER, f"GET {JOBS}/train/checkpoint/x?epoch=8", LEAVE, 403, ONLY),
        (WORKER, "GET /v1/report", LEAVE, 403, ONLY),
        (WORKER, "GET /", LEAVE, 403, ONLY),
        # Bodies that are no messages.
        *((BOSS, REPORT, body, 400, "the request: ") for body in BODIES),
        *((BOSS, GIVES, body, 400, "the order: ") for body in BODIES),
    ],
)
def test_a_request_is_refused_in_one_line(
    archive: Path,
    agent: FakeAgent,
    port: int,
    manager: Certificates,
    worker: Certificates,
    caller: str,
    head: str,
    body: bytes | Order,
    status: int,
    line: str,
) -> None:
    archive.write_bytes(b"checkpoint")
    agent.placed.clear()
    message = order_bytes(body) if isinstance(body, Order) else body
    answer = asked(manager if caller == BOSS else worker, port, head, message)
    assert answer[0] == status
    assert line == "" or said(answer)[1].startswith(line)
    assert (agent.placed, agent.orders) == ([], [])


def test_another_organisation_is_refused_even_as_a_manager(
    server: AgentServer,
    agent: FakeAgent,
    port: int,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stranger = authority.node("stranger", MANAGER, organisation="cluster-2")
    line = "node stranger is not a member of this cluster, cluster-1"
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
        (of_another_authority, "127.0.0.1 is refused: the peer's certificate is refused: "),
        (
            expired,
            "127.0.0.1 is refused: the peer's certificate is refused: certificate has expired",
        ),
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
    until(lambda: caplog.messages, "a line is logged")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(line)
    assert agent.placed == []


def test_plain_http_is_refused(server: AgentServer, agent: FakeAgent, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30.0) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: n\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in plain.recv(1000)
    assert agent.placed == []


# ---------------------------------------------------------------------- over time


def test_it_ends_within_seconds_and_its_address_is_free_again(
    own: Certificates, manager: Certificates, port: int
) -> None:
    for _ in range(2):
        with serving(FakeAgent(), own, port) as server:
            tls = connected(manager, port)
        server._thread.join(30.0)
        assert not server._thread.is_alive(), "it waits for no caller"
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
