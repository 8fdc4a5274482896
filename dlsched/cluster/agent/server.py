"""The agent's HTTPS server: a manager asks for reports and gives orders, and the one node that a
job moves to fetches its checkpoint.

Each caller shows a certificate of the cluster's own authority, as `certificates` has it: its O is
the cluster, its CN the node, and OU=swarm-manager makes a manager. That holds for certificates of
an operator's own authority too: those of managers need that OU.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from dlsched.api import server as api_server
from dlsched.api.sockets import open_tcp
from dlsched.api.stream import in_time
from dlsched.cluster.agent.agent import ClusterAgent
from dlsched.cluster.agent.ports import OrderRefused
from dlsched.cluster.certificates import CertificateError, Certificates, Peer, peer
from dlsched.cluster.https import own_headers, reason
from dlsched.cluster.wire import (
    LINE_CHARACTERS,
    ORDER_BYTES,
    WHOLE_MAX,
    WireError,
    read_order,
    read_request,
    report_bytes,
)
from dlsched.model.errors import DlschedError
from dlsched.model.spec import NAME
from dlsched.model.units import plain_text, render_bytes, shown

HANDSHAKES_MAX = 128
"""Handshakes under way; the oldest one makes room for the next, as a real one takes milliseconds.
Anybody on the network can begin one."""
AGAIN_S = 600.0
"""The same refusal is logged again after this time."""
LINES_MAX = 64
"""Refusals that are logged in that time, so that strangers cannot fill a disk."""


class Door:
    """What all connections share: the handshakes under way, and the refusals that were logged."""

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates
        self._entering: dict[asyncio.Transport, None] = {}
        self._logged: dict[tuple[str, str], float] = {}

    def enter(self, transport: asyncio.Transport) -> None:
        """A handshake begins."""
        if len(self._entering) >= HANDSHAKES_MAX:
            next(iter(self._entering)).abort()
            self.leave(next(iter(self._entering)))
        self._entering[transport] = None

    def leave(self, transport: asyncio.Transport) -> None:
        """A handshake has ended."""
        self._entering.pop(transport, None)

    def refuse(self, caller: str, why: str) -> None:
        """Log it, but the same one seldom."""
        now_s = time.monotonic()
        for key in [key for key, at_s in self._logged.items() if now_s - at_s > AGAIN_S]:
            del self._logged[key]
        if (caller, why) not in self._logged and len(self._logged) < LINES_MAX:
            self._logged[caller, why] = now_s
            log.warning("%s is refused: %s", caller, plain_text(why[:200]))


class TlsFront(asyncio.Protocol):
    """One connection until its handshake is done; from then on HTTP has it."""

    def __init__(self, door: Door, http: Callable[..., asyncio.Protocol], **more: Any) -> None:
        self._door = door
        self._make_http = partial(http, **more)
        self._early = b""
        """What the caller sent directly after the handshake."""
        self._lost = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast(asyncio.Transport, transport)
        # Else the handshake's first bytes could come here, before TLS is there to take them.
        plain.pause_reading()
        self._door.enter(plain)
        self._task = asyncio.get_running_loop().create_task(self._admit(plain))

    def data_received(self, data: bytes) -> None:
        self._early += data

    def connection_lost(self, _error: Exception | None) -> None:
        self._lost = True

    async def _admit(self, plain: asyncio.Transport) -> None:
        host = str((plain.get_extra_info("peername") or ("?",))[0])
        try:
            tls = await asyncio.get_running_loop().start_tls(
                plain,
                self,
                self._door.certificates.server_context(),
                server_side=True,
                ssl_handshake_timeout=api_server.ASK_WITHIN_S,
                # The end of an answer is still sent in this time.
                ssl_shutdown_timeout=api_server.ASK_WITHIN_S,
            )
            # None, or without a certificate: the connection was lost meanwhile.
            if tls is None or tls.get_extra_info("peercert") is None or self._lost:
                plain.abort()
                return
            with contextlib.ExitStack() as failed:
                failed.callback(tls.abort)
                peer(tls.get_extra_info("ssl_object"))
                failed.pop_all()
        except ConnectionError:  # lost, or too slow
            plain.abort()
            return
        except (OSError, CertificateError) as error:
            plain.abort()
            self._door.refuse(host, reason(error))
            return
        finally:
            self._door.leave(plain)
        http = self._make_http()
        tls.set_protocol(http)
        http.connection_made(tls)
        if self._early and not tls.is_closing():
            http.data_received(self._early)


log = logging.getLogger(__name__)

PEER_CONNECTIONS_MAX = 32
"""Of one node, at the same time."""
_CHECKPOINT = re.compile(rf"/v1/cluster/jobs/({NAME})/checkpoint")


class AgentServer:
    """Answers on one address, in a thread of its own."""

    def __init__(
        self,
        agent: ClusterAgent,
        certificates: Certificates,
        listen: tuple[str, int],
        now_s: Callable[[], float],
        instance: str = "",
    ) -> None:
        """`now_s`: the clock of the agent's reports; `instance`: of its jobs, for the answers."""
        door = Door(certificates)
        self._routes = _Routes(agent, certificates, now_s)
        self._listen = listen
        self._config = api_server.configured(self._routes.app(door), _caller, PEER_CONNECTIONS_MAX)
        self._config.headers = own_headers(instance)
        http = cast("Callable[..., asyncio.Protocol]", self._config.http)
        self._config.http = cast("type[asyncio.Protocol]", partial(TlsFront, door, http))
        self._server = _Server(self._config)
        self._sockets: list[socket.socket] = []
        self.problem: str | None = None
        """Why it does not answer, in one line; None: it answers."""
        self._thread = threading.Thread(target=self._serve, name="cluster-agent", daemon=True)

    def start(self) -> None:
        """Start answering. Raises SocketUnusable."""
        self._sockets = [open_tcp(*self._listen)]
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        for one in self._sockets:
            one.close()

    def address(self, node: str) -> str:
        """The IP address of a member, by the last request for a report; empty: not known."""
        return self._routes.nodes.get(node, "")

    def _serve(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=self._sockets))
        except Exception:  # jobs go on without the cluster
            log.exception(
                "the cluster's server on this node has ended: managers get no answer until "
                "dlsched is restarted"
            )
            self.problem = "the cluster's server on this node has ended: restart dlsched"


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closing TLS in order would wait for each caller."""
        for one in list(self.server_state.connections):
            one.transport.abort()
        await super().shutdown(sockets)


class _Gate:
    """ASGI middleware: managers of the own cluster may everything; other nodes of it may only ask
    for a checkpoint, which the agent grants or not."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        try:
            refused = self._refused(scope)
        except DlschedError as error:  # such as: its own certificate has expired
            await _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))(scope, receive, send)
            return
        if refused is None:
            await self._app(scope, receive, send)
        else:
            self._door.refuse(scope["state"]["caller"].name, refused)
            await _error(HTTPStatus.FORBIDDEN, refused)(scope, receive, send)

    def _refused(self, scope: Scope) -> str | None:
        caller, own = scope["state"]["caller"], self._door.certificates.own()
        if caller.organisation != own.organisation:
            return f"node {caller.name} is not a member of this cluster, {own.organisation}"
        if caller.is_manager:
            return None
        if scope["method"] == "GET" and _CHECKPOINT.fullmatch(scope["path"]):
            return None
        return f"node {caller.name} is not a manager: it may only ask for a checkpoint"


class _Routes:
    def __init__(
        self, agent: ClusterAgent, certificates: Certificates, now_s: Callable[[], float]
    ) -> None:
        self._agent, self._certificates, self._now_s = agent, certificates, now_s
        self.nodes: dict[str, str] = {}
        """The members that the last request for a report named, and their addresses. Replaced as a
        whole, so that any thread may read it."""

    def app(self, door: Door) -> Starlette:
        """Every error is `{"error": "one line"}`."""
        app = Starlette(
            middleware=[Middleware(_Gate, door=door)],
            routes=[
                Route("/v1/cluster/report", self.report, methods=["POST"]),
                Route("/v1/cluster/order", self.order, methods=["POST"]),
                Route("/v1/cluster/jobs/{job}/checkpoint", self.checkpoint, methods=["GET"]),
            ],
            exception_handlers={
                HTTPException: _refuse,
                ClientDisconnect: _no_answer,
                DlschedError: _not_now,
                Exception: _fail,
            },
        )
        app.router.redirect_slashes = False
        return app

    async def report(self, request: Request) -> Response:
        try:
            asked = read_request(await _body(request))
        except WireError as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"the request: {error}") from None
        self.nodes = dict(asked.nodes)
        report = self._agent.report(asked.placed, frozenset(asked.nodes), asked.heard_s)
        report = replace(report, name=self._certificates.own().name, now_s=self._now_s())
        return Response(report_bytes(report), media_type="application/json")

    async def order(self, request: Request) -> Response:
        try:
            order = read_order(await _body(request))
        except WireError as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, f"the order: {error}") from None
        own = self._certificates.own().name
        if order.node != own:
            detail = f"the order is for node {order.node}; this one is {own}"
            raise HTTPException(HTTPStatus.BAD_REQUEST, plain_text(detail))
        try:
            self._agent.follow(order)
        except OrderRefused as error:
            return _error(HTTPStatus.CONFLICT, str(error)[:LINE_CHARACTERS])
        return JSONResponse({}, HTTPStatus.ACCEPTED)

    async def checkpoint(self, request: Request) -> Response:
        job, name = request.path_params["job"], request.state.caller.name
        epoch = _epoch(request.query_params.get("epoch", ""))
        if name not in self.nodes:
            detail = f"node {name} is not one of the cluster's present members"
            raise HTTPException(HTTPStatus.FORBIDDEN, detail)
        path = self._agent.checkpoint(job, epoch, name)
        if path is None or not path.is_file():
            detail = f"this node keeps no checkpoint of {shown(job)}, epoch {epoch}, for {name}"
            raise HTTPException(HTTPStatus.NOT_FOUND, detail)
        return ArchiveResponse(path, request.state.abort)


class ArchiveResponse(FileResponse):
    """A file in blocks, never whole in memory. A caller who takes nothing is cut off; one whose
    file became shorter gets no end of the answer, so as not to take part of it for the whole."""

    chunk_size = 256 << 10

    def __init__(self, archive: Path, abort: Callable[[], None]) -> None:
        self._abort = abort
        super().__init__(
            archive, headers={"Cache-Control": "no-store"}, media_type="application/x-tar"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        in_time_only = in_time(send, api_server.ASK_WITHIN_S, self._abort)
        await super().__call__(scope, receive, in_time_only)


def _caller(transport: asyncio.Transport) -> Peer:
    return peer(transport.get_extra_info("ssl_object"))


async def _body(request: Request) -> bytes:
    """The whole body, if it is small and comes soon. Raises HTTPException, ClientDisconnect."""
    body = bytearray()
    try:
        async with asyncio.timeout(api_server.ASK_WITHIN_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > ORDER_BYTES:
                    detail = f"the request's body has more than {render_bytes(ORDER_BYTES)}"
                    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    except TimeoutError:
        raise HTTPException(
            HTTPStatus.REQUEST_TIMEOUT, "the request's body did not come in time"
        ) from None
    return bytes(body)


def _epoch(text: str) -> int:
    # Digits only: int() would also accept signs, spaces and underscores.
    if text.isascii() and text.isdigit() and len(text) < 17 and 1 <= int(text) <= WHOLE_MAX:
        return int(text)
    detail = f"epoch is {shown(text)}, must be a whole number from 1 to {WHOLE_MAX}"
    raise HTTPException(HTTPStatus.BAD_REQUEST, detail)


def _error(status: int, line: str) -> Response:
    # The connection ends with each error: half of a body may still come.
    return JSONResponse({"error": plain_text(line)}, status, {"Connection": "close"})


async def _refuse(_request: Request, error: Exception) -> Response:
    refused = cast(HTTPException, error)
    return _error(refused.status_code, refused.detail)


async def _no_answer(_request: Request, _error: Exception) -> Response:
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _not_now(_request: Request, error: Exception) -> Response:
    return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))


async def _fail(_request: Request, error: Exception) -> Response:
    line = f"the agent failed to answer: {type(error).__name__}"
    return _error(HTTPStatus.INTERNAL_SERVER_ERROR, line)
