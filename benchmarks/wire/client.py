"""An HTTP/1 client with an open loop and a clock of its own, in a process of its own.

It imports nothing but the standard library, so that no fault of dlsched can hide in it. A request
is due by chance (Poisson), whether or not others are answered. On a connection of its own a
request's time begins when the connection is asked for; on one that is kept, when the last byte of
the request has been handed to the kernel. Prints one line of JSON.

    python -I client.py '{"host": "127.0.0.1", "port": 80, ...}'     the fields of `Plan`
"""

from __future__ import annotations

import collections
import errno
import json
import math
import os
import random
import select
import signal
import socket
import ssl
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

PATIENCE_S = 15.0
"""How long after the last request answers are waited for."""
CONNECTIONS_MAX = 800
"""Unanswered at a time; a request that finds so many is counted and not sent."""
_CHUNK = 1 << 20
_CONNECTING, _SHAKING, _SENDING, _READING, _IDLE, _GONE = range(6)


@dataclass
class Plan:
    """What to ask, and how often."""

    host: str
    port: int
    rate_per_s: float
    count: int
    """Requests in all."""
    seed: int = 1
    keep: bool = True
    """Whether connections are kept; else each request has its own."""
    tls: bool = False
    method: str = "GET"
    path: str = "/"
    body_bytes: int = 0
    body: str = ""
    """Instead of `body_bytes` zeros."""
    send_buffer_bytes: int = 0
    """A small one keeps the moment of the last `send` close to that of the last packet."""

    def request(self) -> bytes:
        """All bytes of one request."""
        body = self.body.encode() or bytes(self.body_bytes)
        head = [f"{self.method} {self.path} HTTP/1.1", f"Host: {self.host}", "User-Agent: truth"]
        head.append("Accept-Encoding: gzip")
        if body:
            head += [f"Content-Length: {len(body)}", "Content-Type: application/json"]
        if not self.keep:
            head.append("Connection: close")
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@dataclass
class Tally:
    """What was seen, in nanoseconds."""

    whole: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    """To the first byte of the body."""
    gaps: list[int] = field(default_factory=list)
    """Between reads of one body."""
    sent: int = 0
    failed: int = 0
    unsent: int = 0


class Connection:
    """One connection, and the request on it."""

    __slots__ = (
        "answer", "began_ns", "body_at", "chunked", "connect_ns", "descriptor", "end", "first_ns",
        "fresh", "last_ns", "left", "size", "sock", "state",
    )  # fmt: skip

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.descriptor = sock.fileno()
        self.state = _CONNECTING
        self.fresh = True
        self.began_ns = 0
        self.connect_ns = 0
        """How long the connection took."""

    def begin(self) -> None:
        self.answer = bytearray()
        self.left = memoryview(b"")
        self.first_ns = self.last_ns = 0
        self.body_at = -1
        self.end = -1
        self.size = 0
        self.chunked = False


class OpenLoop:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.request = plan.request()
        self.tally = Tally()
        self.poll = select.epoll()
        self.open: dict[int, Connection] = {}
        self.idle: collections.deque[Connection] = collections.deque()
        self.busy = 0
        self.context: ssl.SSLContext | None = None
        if plan.tls:
            self.context = ssl.create_default_context()
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE
        self.family = socket.AF_INET6 if ":" in plan.host else socket.AF_INET

    def ask_all(self) -> None:
        """Ask all that is planned, and wait for what is under way."""
        chance = random.Random(self.plan.seed)
        due_s = time.monotonic() + 0.1
        asked = 0
        until_s = math.inf
        while True:
            now_s = time.monotonic()
            while asked < self.plan.count and due_s <= now_s:
                asked += 1
                self.ask()
                due_s += chance.expovariate(self.plan.rate_per_s)
            if asked >= self.plan.count:
                until_s = min(until_s, now_s + PATIENCE_S)
                if not self.busy or now_s >= until_s:
                    break
            wait_s = (due_s if asked < self.plan.count else until_s) - time.monotonic()
            for descriptor, _ in self.poll.poll(max(0.0, wait_s), 256):
                connection = self.open.get(descriptor)
                if connection is not None:
                    self.go_on(connection)
        self.tally.failed += self.busy

    def end(self) -> None:
        """Ask nothing more."""
        self.plan.count = 0

    def close(self) -> None:
        for connection in list(self.open.values()):
            self.drop(connection)
        self.poll.close()

    def ask(self) -> None:
        if self.busy >= CONNECTIONS_MAX:
            self.tally.unsent += 1
            return
        self.busy += 1
        self.tally.sent += 1
        while self.idle:
            connection = self.idle.pop()
            if connection.state == _IDLE:
                connection.fresh = False
                self.send(connection)
                self.go_on(connection)
                return
        sock = socket.socket(self.family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.plan.send_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.plan.send_buffer_bytes)
        connection = Connection(sock)
        connection.began_ns = time.monotonic_ns()
        code = sock.connect_ex((self.plan.host, self.plan.port))
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self.busy -= 1
            self.tally.failed += 1
            return
        self.open[connection.descriptor] = connection
        self.poll.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

    def go_on(self, connection: Connection) -> None:
        try:
            if connection.state == _CONNECTING:
                try:
                    connection.sock.getpeername()
                except OSError:
                    if connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        self.fail(connection)
                    return  # not yet
                connection.connect_ns = time.monotonic_ns() - connection.began_ns
                if self.context is not None:
                    connection.sock = self.context.wrap_socket(
                        connection.sock, do_handshake_on_connect=False
                    )
                    connection.state = _SHAKING
                else:
                    self.send(connection)
            if connection.state == _SHAKING:
                connection.sock.do_handshake()  # type: ignore[attr-defined]
                self.send(connection)
            if connection.state == _SENDING:
                self.push(connection)
            if connection.state in (_READING, _SENDING):
                self.read(connection)
            elif connection.state == _IDLE and not connection.sock.recv(1):
                self.drop(connection)  # the server closed it
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            self.fail(connection)

    def send(self, connection: Connection) -> None:
        """Let the request go out from now on."""
        connection.begin()
        connection.left = memoryview(self.request)
        connection.state = _SENDING
        if not connection.fresh:
            connection.began_ns = time.monotonic_ns()

    def push(self, connection: Connection) -> None:
        whole = len(connection.left) <= 4096
        while connection.left:
            # A request in one packet begins when it is handed over: the server may answer before
            # this process goes on. Of an upload the last part counts.
            if not whole:
                connection.began_ns = time.monotonic_ns()
                connection.began_ns -= connection.connect_ns if connection.fresh else 0
            connection.left = connection.left[connection.sock.send(connection.left) :]
        connection.state = _READING

    def read(self, connection: Connection) -> None:
        while True:
            data = connection.sock.recv(_CHUNK)
            now_ns = time.monotonic_ns()
            if not data:
                if connection.body_at >= 0 and connection.end < 0 and not connection.chunked:
                    self.answered(connection, now_ns)
                    return
                raise OSError
            connection.size += len(data)
            if connection.body_at < 0:
                connection.answer += data
                if not self.parse(connection):
                    continue
                if connection.size > connection.body_at:
                    connection.first_ns = connection.last_ns = now_ns
            else:
                if connection.chunked:
                    connection.answer += data
                if connection.first_ns:
                    self.tally.gaps.append(now_ns - connection.last_ns)
                else:
                    connection.first_ns = now_ns
                connection.last_ns = now_ns
            if self.is_whole(connection):
                self.answered(connection, now_ns)
                return

    @staticmethod
    def parse(connection: Connection) -> bool:
        """Whether the head of the answer is there."""
        end = connection.answer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(connection.answer[:end]).lower() + b"\r\n"
        if head[9:10] not in b"23":
            raise OSError  # a failure
        connection.body_at = end + 4
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            connection.end = end + 4 + int(head[at + 17 : head.index(b"\r", at + 2)])
        connection.chunked = b"\r\ntransfer-encoding: chunked" in head
        return True

    @staticmethod
    def is_whole(connection: Connection) -> bool:
        if connection.chunked:
            return connection.answer.endswith(b"\r\n0\r\n\r\n")
        return 0 <= connection.end <= connection.size

    def answered(self, connection: Connection, now_ns: int) -> None:
        tally = self.tally
        # What begins a connection over TLS is the handshake; that is no part of any request.
        if not (self.plan.tls and self.plan.keep and connection.fresh):
            tally.whole.append(now_ns - connection.began_ns)
            tally.first.append(connection.first_ns - connection.began_ns)
        self.busy -= 1
        connection.answer = bytearray()
        if self.plan.keep:
            connection.state = _IDLE
            self.idle.append(connection)
        else:
            self.drop(connection)

    def fail(self, connection: Connection) -> None:
        if connection.state != _IDLE:
            self.busy -= 1
            self.tally.failed += 1
        self.drop(connection)

    def drop(self, connection: Connection) -> None:
        connection.state = _GONE
        self.open.pop(connection.descriptor, None)
        connection.sock.close()


def quantile_ms(values_ns: list[int], quantile: float) -> float | None:
    """By nearest rank."""
    if not values_ns:
        return None
    ordered = sorted(values_ns)
    return ordered[max(1, math.ceil(quantile * len(ordered))) - 1] / 1e6


def be_prompt() -> None:
    """Run before everything else, so that what is measured is not this process' own waiting."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except OSError:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    be_prompt()
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    loop = OpenLoop(plan)
    signal.signal(signal.SIGTERM, lambda *_: loop.end())
    loop.ask_all()
    tally = loop.tally
    took_s = time.monotonic() - began_s
    found = {
        "answered": len(tally.whole),
        "sent": tally.sent,
        "failed": tally.failed,
        "unsent": tally.unsent,
        "seconds": took_s,
        "cpu_ratio": (time.process_time() - began_cpu_s) / took_s,
    }
    for name in ("whole", "first", "gaps"):
        values = getattr(tally, name)
        found |= {f"{name}_p50": quantile_ms(values, 0.5), f"{name}_p95": quantile_ms(values, 0.95)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
