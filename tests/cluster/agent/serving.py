"""An agent's server on loopback, and peers that ask it."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path

from dlsched.cluster.agent.ports import OrderRefused
from dlsched.cluster.agent.server import AgentServer
from dlsched.cluster.certificates import Certificates
from dlsched.cluster.core.records import Order
from dlsched.cluster.core.reports import NodeReport
from dlsched.cluster.wire import ReportRequest, request_bytes

REPORT = "POST /v1/cluster/report"
CHECKPOINT = "GET /v1/cluster/jobs/train/checkpoint?epoch=8"
REFUSED = (ssl.SSLError, ConnectionError, BrokenPipeError)
NODE_S = 1000.0
"""What the node's clock says."""


@dataclass
class FakeAgent:
    """In place of an agent: it notes what it is asked."""

    node: str = "node-1"
    placed: list[Mapping[str, int]] = field(default_factory=list)
    nodes: frozenset[str] = frozenset()
    heard_s: list[float | None] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    refuses: OrderRefused | None = None
    archives: dict[tuple[str, int, str], Path] = field(default_factory=dict)
    report_as: NodeReport | None = None
    wait: Callable[[], object] = lambda: None

    def report(
        self, placed: Mapping[str, int], nodes: frozenset[str], heard_s: float | None = None
    ) -> NodeReport:
        self.wait()
        self.placed.append(placed)
        self.nodes = nodes
        self.heard_s.append(heard_s)
        return self.report_as or NodeReport(self.node, 8.0)

    def follow(self, order: Order) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.orders.append(order)

    def checkpoint(self, job: str, epoch: int, peer: str) -> Path | None:
        return self.archives.get((job, epoch, peer))


def free_port() -> int:
    """One that is free on all loopback addresses, as the nodes of a test share it."""
    with socket.socket() as one:
        one.bind(("", 0))
        return int(one.getsockname()[1])


@contextmanager
def serving(
    agent: FakeAgent,
    certificates: Certificates,
    port: int,
    address: str = "127.0.0.1",
    instance: str = "",
) -> Iterator[AgentServer]:
    server = AgentServer(agent, certificates, (address, port), lambda: NODE_S, instance)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def stage(
    port: int, own: Certificates, answer: Callable[[socket.socket], object]
) -> Iterator[threading.Thread]:
    """A node that answers one request in that way."""

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            plain = listening.accept()[0]
            with own.server_context().wrap_socket(plain, server_side=True) as tls:
                tls.settimeout(30.0)
                tls.recv(1 << 16)
                answer(tls)

    with socket.create_server(("127.0.0.1", port)) as listening:
        listening.settimeout(30.0)
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield thread
        finally:
            thread.join(30.0)


def connected(
    certificates: Certificates | ssl.SSLContext,
    port: int,
    name: str = "node-1",
    address: str = "127.0.0.1",
) -> ssl.SSLSocket:
    is_context = isinstance(certificates, ssl.SSLContext)
    context = certificates if is_context else certificates.client_context()
    plain = socket.create_connection((address, port), timeout=30.0)
    try:
        return context.wrap_socket(plain, server_hostname=name)
    except BaseException:
        plain.close()
        raise


def asked(
    certificates: Certificates | ssl.SSLContext,
    port: int,
    head: str,
    body: bytes = b"",
    *,
    size_bytes: int | None = None,
    to: str = "node-1",
) -> tuple[int, bytes]:
    """Status and body of the answer to that request."""
    size = len(body) if size_bytes is None else size_bytes
    with connected(certificates, port, to) as tls:
        tls.sendall(f"{head} HTTP/1.1\r\nHost: n\r\nContent-Length: {size}\r\n\r\n".encode() + body)
        return answered(tls, head.split(maxsplit=1)[0])


def answered(tls: ssl.SSLSocket, method: str = "GET") -> tuple[int, bytes]:
    with HTTPResponse(tls, method=method) as answer:
        answer.begin()
        return answer.status, answer.read()


def said(answer: tuple[int, bytes]) -> tuple[int, str]:
    """Status and line of an error."""
    return answer[0], json.loads(answer[1])["error"]


def named(*nodes: str, **placed: int) -> bytes:
    """A report request that names these members."""
    return request_bytes(ReportRequest(placed, dict.fromkeys(nodes, "127.0.0.1")))
