"""What systemd is told of the daemon: ready, reloading, alive, stopping, and one line of status.

Owns the datagrams to NOTIFY_SOCKET. It must not know what alive means: only who runs the loop does,
so nothing here has a thread or a timer.
"""

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
"""The watchdog is fed so many times as often as it asks for: one that is lost costs nothing."""

HEARD_WITHIN_S = 0.5
"""Who does not read for so long is not told: the loop has other things to do."""


class Notify:
    """Speaks to whoever started the daemon; to nobody where there is no NOTIFY_SOCKET."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """`environ` as systemd sets it: NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID."""
        path = environ.get(NAME, "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._ready = self._unheard = False
        self._status = ""
        self.feed_s = _feed_s(environ) if path else math.inf
        """`alive` has to be told at least so often; infinite: nobody waits for it."""

    def ready(self) -> None:
        """The daemon does its work; told at the start, and when a reload is over."""
        if not self._ready:
            self._ready = self._tell("READY=1")

    def reloading(self) -> None:
        """The settings are being read again; `ready` ends it."""
        self._ready = False
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def alive(self) -> None:
        """The loop goes round; without a watchdog nothing is told."""
        if self.feed_s < math.inf:
            self._tell("WATCHDOG=1")

    def stopping(self) -> None:
        """The daemon ends on purpose."""
        self._tell("STOPPING=1")

    def status(self, line: str) -> None:
        """One line for `systemctl status`; told when it changed."""
        # A line break would begin another message.
        words = " ".join(line.split())
        if words != self._status and self._tell(f"STATUS={words}"):
            self._status = words

    def _tell(self, *lines: str) -> bool:
        """False when nobody took it; said once."""
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as speaker:
                speaker.settimeout(HEARD_WITHIN_S)
                speaker.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._unheard:
                log.warning("the daemon's state cannot be told to %s: %s", NAME, error)
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
