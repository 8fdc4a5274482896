"""HTTPS requests to other nodes' agents: one connection each, so that every request uses the
certificates as they are then."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import h11

from dlsched import __version__
from dlsched.cluster.certificates import CertificateError, Certificates, Peer, peer
from dlsched.model.errors import DlschedError
from dlsched.model.units import plain_text, render_address

PORT = 7373
"""Where agents listen, if nothing else is configured."""
_HEAD_BYTES = 16 << 10
"""Limit of an answer's status line and headers."""
_BLOCK_BYTES = 256 << 10
_LINE_CHARACTERS = 300
_NAME_CHARACTERS = 64

_VERSION, _INSTANCE = b"dlsched-version", b"dlsched-instance"
"""Headers of every answer of an agent."""


class NotAnswered(DlschedError):
    """No whole answer came from a node, in one line."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A node's agent."""

    node: str
    """Which its certificate must name."""
    address: str
    port: int


class Answer:
    """The head of an answer, and its body as it comes."""

    def __init__(self, to: Destination, http: h11.Connection, reader: asyncio.StreamReader) -> None:
        self._to, self._http, self._reader = to, http, reader
        self.status = 0
        self.size_bytes: int | None = None
        """Of the body; None: the answer does not say."""
        self.version = self.instance = ""
        """Of the dlsched that answers; empty: it does not say."""

    async def begin(self) -> None:
        """Wait for the head. Raises NotAnswered."""
        event = await self._next()
        if not isinstance(event, h11.Response):
            raise NotAnswered("the answer is not from a dlsched agent")
        self.status = event.status_code
        said = dict(event.headers)
        self.version = _said(said.get(_VERSION))
        self.instance = _said(said.get(_INSTANCE))
        lengths = [value for name, value in event.headers if name == b"content-length"]
        # h11 has checked that it is one whole number.
        self.size_bytes = int(lengths[0]) if lengths else None

    async def blocks(self) -> AsyncIterator[bytes]:
        """The body to its end. Raises NotAnswered, also where it is cut off."""
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def body(self, most_bytes: int) -> bytes:
        """The whole body. Raises NotAnswered, also for one that is longer."""
        body = bytearray()
        async for block in self.blocks():
            body += block
            if len(body) > most_bytes:
                raise NotAnswered(f"the answer has more than {most_bytes} bytes")
        return bytes(body)

    async def _next(self) -> Any:
        with _answering(self._to):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(_BLOCK_BYTES))
            return event


class HttpsClient:
    """Asks agents, with the certificate of this node; for one thread."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates

    @asynccontextmanager
    async def ask(
        self, to: Destination, method: str, target: str, body: bytes = b""
    ) -> AsyncIterator[Answer]:
        """The answer of that node, and of no other. Raises NotAnswered. Waits without limit: the
        caller sets a timeout."""
        with _answering(to):
            cluster = self._certificates.own().organisation
            context = self._certificates.client_context()
            reader, writer = await asyncio.open_connection(to.address, to.port, limit=_BLOCK_BYTES)
        plain = writer.transport
        try:
            with _answering(to):
                # In two steps: asyncio leaves a connection open whose TLS is cancelled early.
                await writer.start_tls(context, server_hostname=to.node)
                _check(peer(writer.get_extra_info("ssl_object")), to, cluster)
                http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
                writer.write(_request(http, to, method, target, body))
            answer = Answer(to, http, reader)
            await answer.begin()
            yield answer
        finally:
            writer.transport.abort()
            plain.abort()


class LoopThread:
    """A thread with an event loop."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        """Begin it there, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def stop(self) -> None:
        """Cancel all that is under way there, and end the thread."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout=5.0)
        elif not self.loop.is_closed():
            self.loop.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop().run_forever()


@contextmanager
def _answering(to: Destination) -> Iterator[None]:
    """Raises NotAnswered for all that can go wrong with a connection."""
    try:
        yield
    except h11.ProtocolError as error:
        raise NotAnswered(_line(f"the answer is broken: {error}")) from error
    except (OSError, ValueError, CertificateError) as error:
        where = render_address(to.address, to.port)
        raise NotAnswered(_line(f"{where}: {reason(error)}")) from error


def refusal(status: int, body: bytes) -> str:
    """What an agent says in an error."""
    try:
        line = str(json.loads(body)["error"])
    except (LookupError, RecursionError, TypeError, ValueError):
        return f"the node answered with HTTP status {status}, without a reason"
    return f"refused ({status}): {_line(line)}"


def reason(error: BaseException) -> str:
    """What went wrong with a connection, without the addresses and source lines of libraries."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _check(found: Peer, to: Destination, cluster: str) -> None:
    """Raises CertificateError unless that node of this cluster answered."""
    if found.name != to.node:
        raise CertificateError(f"node {found.name} answers at this address, not node {to.node}")
    if found.organisation != cluster:
        raise CertificateError(f"{to.node} is of another cluster: {found.organisation}")


def _request(http: h11.Connection, to: Destination, method: str, target: str, body: bytes) -> bytes:
    headers = [("Host", to.node), ("Connection", "close")]
    if body:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    sent = http.send(h11.Request(method=method, target=target, headers=headers)) or b""
    if body:
        sent += http.send(h11.Data(body)) or b""
    return sent + (http.send(h11.EndOfMessage()) or b"")


def own_headers(instance: str) -> list[tuple[str, str]]:
    """What an agent says of itself in every answer."""
    said = {_VERSION: __version__, _INSTANCE: instance}
    return [(key.decode(), value) for key, value in said.items() if value]


def _said(value: bytes | None) -> str:
    return plain_text((value or b"")[:_NAME_CHARACTERS].decode("ascii", "replace"))


def _line(text: str) -> str:
    return plain_text(text[:_LINE_CHARACTERS])
