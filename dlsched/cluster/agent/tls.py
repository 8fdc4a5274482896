"""The TLS in front of the agent's HTTP: who may begin to speak, and for how long it may take."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from dlsched.api import server as api_server
from dlsched.cluster.certificates import CertificateError, Certificates, peer
from dlsched.cluster.https import reason
from dlsched.model.units import plain_text

log = logging.getLogger(__name__)

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
