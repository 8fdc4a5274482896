"""A thread that listens to the engine's events and does nothing but wake.

Owns that thread and its reconnecting. It must not read what changed: an event is a hint, and one
may be lost, so a new connection counts as an event for every container.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dlsched.control.ports import Wake
from dlsched.model.errors import DlschedError
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.identity.labels import (
    DEFAULT_INSTANCE,
    ENABLE,
    INSTANCE,
    JOB,
    compose_service,
)
from dlsched.runtime.docker.instance import Instance
from dlsched.runtime.machine.outcomes import one_line

KINDS = ("create", "start", "die", "oom", "pause", "unpause", "rename", "destroy")
"""What changes a container's state; our own updates are not among them."""

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 10.0


class Events:
    """The listening thread."""

    def __init__(
        self,
        instance: Instance,
        want: Callable[[str | None], None],
        wake: Wake,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`want` is called with the container that something happened to, then `wake`; `lost` when
        the engine's events end."""
        self._instance, self._want, self._wake, self._lost = instance, want, wake, lost
        self._ended = threading.Event()
        self._stream: Any = None

    def start(self) -> None:
        begin(self._listen, "events")

    def close(self) -> None:
        """End the thread; does not wait for it."""
        self._ended.set()
        # The stream may be in the middle of a read: that ends it, in whatever way.
        with suppress(Exception):
            if self._stream is not None:
                self._stream.close()

    def _listen(self) -> None:
        retry_s = FIRST_RETRY_S
        lost = False
        while not self._ended.is_set():
            try:
                # The engine's filters are ANDed: no label filter lets both own and adopted through.
                self._stream = self._instance.engine.events(KINDS)
                self._want(None)
                if lost:
                    self._wake("the Docker Engine answers again")
                lost = False
                retry_s = FIRST_RETRY_S
                for event in self._stream:
                    self._take(event)
            except DlschedError:
                pass
            except Exception:  # noqa: BLE001 - a broken stream breaks in many ways: connect again
                retry_s = FIRST_RETRY_S
            if self._ended.is_set():
                return
            if not lost:
                self._lost()
                self._want(None)
                self._wake("the Docker Engine's events ended")
            lost = True
            self._ended.wait(retry_s)
            retry_s = min(2 * retry_s, LAST_RETRY_S)

    def _take(self, event: Body) -> None:
        actor = event.get("Actor") or {}
        labels = actor.get("Attributes") or {}
        if not self._concerns_us(actor.get("ID", ""), labels):
            return
        job = labels.get(JOB) or labels.get("name", "?")
        self._want(actor.get("ID"))
        self._wake(f"{job}: {one_line(event.get('Action', 'event'))}")

    def _concerns_us(self, container: str, labels: Body) -> bool:
        """Whether it is about a container that may be ours, by its labels or adopted by command."""
        names = (labels.get("name", ""), labels.get("oldName", "").lstrip("/"))
        if self._instance.adoptions.asks(container, names, compose_service(labels)):
            return True
        if labels.get(INSTANCE, DEFAULT_INSTANCE) != self._instance.name:
            return False
        return JOB in labels or labels.get(ENABLE) == "true"
