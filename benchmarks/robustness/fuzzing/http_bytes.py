"""What comes in over the API's addresses: any bytes, in any pieces.

Promised: whole answers of HTTP, errors as one line of JSON, none that blames the daemon itself, and
nothing changed or read that this address is not for.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from logging.handlers import BufferingHandler
from random import Random

from uvicorn.server import ServerState

from benchmarks.robustness.fuzzing.trial import InFolder, Target, told_line
from dlsched.api.access import Caller
from dlsched.api.server import CONNECTIONS_MAX, ApiServer, HttpProtocol
from tests.mutation import WORDS, Broken, mutated
from tests.status_source import FakeSource, example_report

_PATHS = (
    b"/v1/about", b"/v1/jobs", b"/v1/jobs/digits-resnet",
    b"/v1/jobs/digits-resnet/why?limit=3", b"/v1/jobs/gone/why", b"/v1/jobs/typo/logs?tail=5",
    b"/v1/jobs/typo/logs?tail=5&follow=1", b"/v1/jobs/digits-resnet/stop", b"/v1/jobs/typo/start",
    b"/v1/release", b"/v1/resume", b"/", b"/v1/jobs/%2e%2e/why", b"/v1/jobs/%00",
    b"/v1/jobs/%ff%1b[2J", b"/v1/jobs//stop", b"*", b"http://[::1/", b"//", b"/v1/jobs/a%2fb/stop",
    b"/v1/about?\xff",
)  # fmt: skip
_METHODS = (
    b"GET", b"GET", b"GET", b"POST", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE",
    b"CONNECT", b"PATCH", b"get", b"G\xe9T", b"PRI",
)  # fmt: skip
_HEADERS = (
    b"Host: localhost", b"Host: 127.0.0.1:8000", b"Host: [::1]:1", b"Host: evil.example", b"Host:",
    b"Host: a\xff", b"Content-Length: 3", b"Content-Length: -1",
    b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked", b"Connection: close", b"Connection: upgrade",
    b"Upgrade: websocket", b"Expect: 100-continue", b"Accept: */*", b"X: "+b"y" * 200, b" folded",
    b"A\x00: b", b"Cookie: a=b", b"Range: bytes=0-",
)  # fmt: skip
_BODIES = (
    b"",
    b"abc",
    b"3\r\nabc\r\n0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"-1\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"{}",
)
_TAILS = (
    b"limit=0",
    b"limit=1000",
    b"limit=-1",
    b"limit=1e3",
    b"tail=%D9%A1",
    b"follow=2",
    b"&" * 200,
)
_SEEDS = tuple(
    method + b" " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for method, path in ((b"GET", _PATHS[3]), (b"GET", _PATHS[5]), (b"POST", _PATHS[9]))
)
_STATUS = frozenset({200, 202, 400, 403, 404, 405, 409, 503})
_ADDRESSES = (
    Caller("status.sock", "control.sock", uid=1000),
    Caller("control.sock", "control.sock", may_change=True, uid=0),
    Caller("127.0.0.1:8000", "control.sock"),
)
_LOG_THREAD = "api-log"
_ANSWER_S = 8.0
_LOGGERS = ("uvicorn.error", "asyncio", "dlsched")
_HEAD = re.compile(
    rb"HTTP/1\.1 (\d{3}) ([\x20-\x7e]*)\r\n((?:[\x21-\x7e]+: ?[\x20-\x7e]*\r\n)*)\r\n"
)


def make(rng: Random) -> bytes:
    data = b"".join(_request(rng) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    kind = rng.random()
    if kind < 0.03:
        data = rng.randbytes(rng.randrange(200))
    elif kind < 0.6:
        data = mutated(rng, data, _SEEDS, (*_HEADERS, *_BODIES, b"\r\n", b"\n", b" ", b"HTTP/1.0"))
    if rng.random() < 0.0005:
        data = data[:40] + rng.choice((b"x", b"\r\nA: b", b"%41")) * rng.randrange(40_000)
    return bytes([rng.randrange(len(_ADDRESSES))]) + data


def _request(rng: Random) -> bytes:
    path = rng.choice(_PATHS)
    if rng.random() < 0.3:
        joint = b"&" if b"?" in path else b"?"
        path += joint + rng.choice(_TAILS)
    if rng.random() < 0.1:
        path = mutated(rng, path, _PATHS, WORDS)
    headers = [
        b"Host: localhost",
        *(rng.choice(_HEADERS) for _ in range(rng.choice((0, 0, 1, 2, 4)))),
    ]
    version = rng.choice((b"HTTP/1.1",) * 8 + (b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.9", b""))
    lines = [b" ".join((rng.choice(_METHODS), path, version)), *headers, b"", b""]
    return b"\r\n".join(lines) + rng.choice(_BODIES)


class Connection(asyncio.Transport):
    """A connection's near end: keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"socket": None, "sockname": "fuzz", "peername": ""})
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed:
            raise Broken("an answer after the end of the connection")
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """All that comes has come."""

    resume_reading = pause_reading


class Api(InFolder):
    """The daemon's protocol and routes over a source that never changes, on a loop of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._source = FakeSource(example_report())
        self._config = ApiServer(self._source, self.folder)._server.config
        self._config.load()
        self._said = BufferingHandler(10**9)
        self._said.setLevel(logging.WARNING)
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self._said)
            logging.getLogger(name).propagate = False
        self._config.encoded_headers = []  # a date is no part of an answer that stays the same

    def answer(self, data: bytes) -> str:
        caller = _ADDRESSES[data[0] % len(_ADDRESSES)] if data else _ADDRESSES[0]
        self._source.asked.clear()
        self._said.buffer.clear()
        self._source.log = iter((b"one\n", b"two\n"))
        written = self._loop.run_until_complete(self._asked(caller, data[1:]))
        _await_log_readers()
        if self._said.buffer:
            line = self._said.buffer[0]
            what = f"{line.getMessage()} {line.exc_info and line.exc_info[1]!r}"
            raise Broken(f"a request fills the log: {what}")
        for what, *_ in self._source.asked:
            if what in ("stop", "start", "release", "resume") and not caller.may_change:
                raise Broken(f"{caller.address} was let change: {what}")
            if what == "logs" and not caller.may_read_logs(None):
                raise Broken(f"{caller.address} was let read logs")
        return "\n".join(_answers(written))

    async def _asked(self, caller: Caller, data: bytes) -> bytes:
        state, connection = ServerState(), Connection()
        protocol = HttpProtocol(
            lambda _: caller, CONNECTIONS_MAX, config=self._config, server_state=state, app_state={}
        )
        protocol.connection_made(connection)
        rng = Random(data)  # the same bytes always come in the same pieces
        at = 0
        while at < len(data) and not connection.closed:
            size = len(data) if rng.random() < 0.7 else rng.randrange(1, 40)
            protocol.data_received(data[at : at + size])
            at += size
            await _settled(state)
        await _settled(state)
        protocol.connection_lost(None)
        await _settled(state)
        return bytes(connection.written)

    def close(self) -> None:
        super().close()
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self._said)
            logging.getLogger(name).propagate = True
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        asyncio.set_event_loop(None)


def _await_log_readers() -> None:
    """Whoever asked for a log may be gone before it was opened: the next one is not to blame."""
    for thread in threading.enumerate():
        if thread.name == _LOG_THREAD:
            thread.join(_ANSWER_S)


async def _settled(state: ServerState) -> None:
    """Until nothing more is answered to what has come."""
    while state.tasks:
        await asyncio.wait(state.tasks)
        await asyncio.sleep(0)


def _answers(written: bytes) -> list[str]:
    """Each answer in short; raises Broken where one is none."""
    told = []
    while written:
        head = _HEAD.match(written)
        if head is None:
            raise Broken(f"no answer of HTTP: {written[:100]!r}")
        status, headers = int(head[1]), _fields(head[3])
        if status == 100:
            written = written[head.end() :]
            continue
        if status not in _STATUS:
            raise Broken(f"status {status}: {written[head.end() :][:200]!r}")
        body, written = _body(headers, written[head.end() :])
        kind = headers.get("content-type", "")
        if body and kind == "application/json":
            if not body.isascii():
                raise Broken("an answer that is not ASCII")
            content = json.loads(body)
            if status >= 400:
                told_line(content["error"])
        elif status >= 400 and body:
            told_line(body.decode())
        told.append(f"{status} {kind} {body!r}")
    return told


def _fields(lines: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines.decode().split("\r\n") if line)
    return {name.lower(): value.strip() for name, _, value in pairs}


def _body(headers: dict[str, str], rest: bytes) -> tuple[bytes, bytes]:
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while rest and not rest.startswith(b"HTTP/"):
            size, _, after = rest.partition(b"\r\n")
            length = int(size, 16)
            body, rest = body + after[:length], after[length + 2 :]
            if not length:
                break
        return body, rest
    length = int(headers.get("content-length", 0))
    # The answer to HEAD tells a length and has no body.
    if not rest or rest.startswith(b"HTTP/1.1 "):
        return b"", rest
    if "content-length" not in headers:
        return rest, b""
    if len(rest) < length:
        raise Broken(f"an answer of {len(rest)} bytes told {length}")
    return rest[:length], rest[length:]


def api() -> Target:
    reader = Api()
    return Target("api", make, reader.answer, 2.0, reader.close)
