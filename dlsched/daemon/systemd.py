"""Notifications to systemd: ready, reloading, alive, stopping, and a status line. Sends datagrams
to NOTIFY_SOCKET. It has no thread or timer, as only the loop knows that it is alive."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Mapping

log = logging.getLogger(__name__)

NAME = "NOTIFY_SOCKET"

FEEDS = 3
"""The watchdog is fed this many times in its interval, so that one lost datagram does no harm."""

HEARD_WITHIN_S = 0.5
"""Send timeout: a receiver that does not read must not delay the loop."""


class Notify:
    """Sends notifications to the process that started the daemon, if NOTIFY_SOCKET is set."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """`environ` is as systemd sets it: NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID."""
        path = environ.get(NAME, "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._ready = self._unheard = False
        self._status = ""
        self.feed_s = _feed_s(environ) if path else math.inf
        """Maximum time between calls of `alive`; infinite: there is no watchdog."""

    def ready(self) -> None:
        """Report that the daemon works, at the start and after a reload."""
        if not self._ready:
            self._ready = self._send("READY=1")

    def reloading(self) -> None:
        """Report that settings are being read again. `ready` ends this."""
        self._ready = False
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def alive(self) -> None:
        """Report that the loop runs, if there is a watchdog."""
        if self.feed_s < math.inf:
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the daemon ends deliberately."""
        self._send("STOPPING=1")

    def status(self, line: str) -> None:
        """Set the line for `systemctl status`. Sent only when it changes."""
        # A line break would begin another message.
        text = " ".join(line.split())
        if text != self._status and self._send(f"STATUS={text}"):
            self._status = text

    def _send(self, *lines: str) -> bool:
        """False if the send failed, which is logged once."""
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as speaker:
                speaker.settimeout(HEARD_WITHIN_S)
                speaker.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._unheard:
                log.warning(
                    "the daemon's state cannot be reported to systemd (%s): %s", NAME, error
                )
            self._unheard = True
            return False
        self._unheard = False
        return True


def _feed_s(environ: Mapping[str, str]) -> float:
    try:
        watchdog_us = int(environ.get("WATCHDOG_USEC", "0"))
        meant_for = int(environ.get("WATCHDOG_PID", os.getpid()))
    except ValueError:
        return math.inf
    ours = watchdog_us > 0 and meant_for == os.getpid()
    return watchdog_us / 1e6 / FEEDS if ours else math.inf
