"""The engine's list of our containers, kept fresh without the loop ever hanging on it.

Owns when to list and whom to inspect. It must not act on containers or read cgroups.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from dlsched.errors import DlschedError
from dlsched.runtime.docker.background import Patience, begin
from dlsched.runtime.docker.claims import Claims
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused
from dlsched.runtime.docker.labels import INSTANCE, Inspected, inspected

EVERY_S = 5.0
"""Events are hints and can be lost; a listing is the truth."""

AGAIN_S = 1.0
"""After a listing that failed."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Our containers at one moment."""

    at_s: float
    """When it was asked for (of the clock that `now_s` comes from)."""
    containers: Mapping[str, Inspected] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A listing that has been asked for."""

    future: Future[Listing]
    since_s: float
    shows: int


class Listings:
    """The last listing, and the next one under way."""

    def __init__(
        self,
        engine: Engine,
        instance: str,
        left_out: frozenset[str],
        patience: Patience,
        now_s: Callable[[], float],
    ) -> None:
        """`left_out`: ids of containers that are never ours, whatever labels they carry."""
        self._engine = engine
        self._instance = instance
        self._left_out = left_out
        self._claims = Claims(engine, instance)
        self._patience = patience
        self._now_s = now_s
        self._lock = threading.Lock()
        self._happened = 1
        """Counts what happened; a listing shows what had happened when it began."""
        self._suspects: set[str] | None = None
        """Whom to inspect although the list shows no change; None: everybody."""
        self._under_way: _UnderWay | None = None
        self._shown = 0
        self._tried_s = float("-inf")
        self.last: Listing | None = None
        self.trouble: str | None = "the Docker Engine has not answered yet"
        """Why there is no fresh listing; None: there is."""

    def want(self, container: str | None = None) -> None:
        """Something happened to that container (None: to any of them). From any thread."""
        with self._lock:
            self._happened += 1
            if container is None:
                self._suspects = None
            elif self._suspects is not None:
                self._suspects.add(container)

    def refresh(self) -> None:
        """Take in what the engine answered, after a short wait where something happened."""
        began_s = time.monotonic()
        # A listing under way may have begun before the last event: then one more shows it.
        for _ in range(2):
            self._begin_if_due()
            call, awaited = self._under_way, self._shown < self._happened
            if call is None:
                return
            if awaited:
                self._patience.wait(call.future, min(began_s, call.since_s))
            if not call.future.done():
                self._complain(call)
                return
            self._collect(call)
            if not awaited or self.trouble is not None:
                return

    def _begin_if_due(self) -> None:
        idle_s = self._now_s() - self._tried_s
        with self._lock:
            wanted = self._shown < self._happened
            due = wanted and (self.trouble is None or idle_s >= AGAIN_S)
            if self._under_way is not None or not (due or idle_s >= EVERY_S):
                return
            shows, suspects = self._happened, self._suspects
            self._suspects = set()
        self._tried_s = at_s = self._now_s()
        known: dict[str, Inspected] = {}
        if self.last is not None and suspects is not None:
            known = {k: v for k, v in self.last.containers.items() if k not in suspects}
        future = begin(lambda: self._list(at_s, known), "listing")
        self._under_way = _UnderWay(future, time.monotonic(), shows)

    def _list(self, at_s: float, known: Mapping[str, Inspected]) -> Listing:
        found: dict[str, Inspected] = {}
        listed = {one["Id"]: one for one in self._engine.containers({INSTANCE: self._instance})}
        for container, summary in listed.items():
            if container in self._left_out or not self._claims.names_a_job(summary):
                continue
            before = known.get(container)
            if before is None or before.state != summary.get("State"):
                before = self._inspect(container)
            if before is not None:
                found[container] = before
        names = {container: one.get("Names") or () for container, one in listed.items()}
        self._claims.forget_all_but(listed)
        return Listing(at_s, self._claims.rightful(found, names))

    def _inspect(self, container: str) -> Inspected | None:
        """What the engine says of it; None when it is gone, not ours, or beyond understanding."""
        try:
            body: Body = self._engine.inspect(container)
        except EngineRefused as error:
            if error.status != 404:
                raise
            return None
        try:
            described = inspected(body)
        except ValueError as error:
            self._claims.leave(container, str(error))
            return None
        return None if self._claims.inherited(body) else described

    def _complain(self, call: _UnderWay) -> None:
        late_s = time.monotonic() - call.since_s
        if self._patience.lost or late_s > AGAIN_S:
            self.trouble = (
                f"the Docker Engine at {self._engine.host} has not answered for {late_s:.1f} s"
            )

    def _collect(self, call: _UnderWay) -> None:
        self._under_way = None
        error = call.future.exception()
        if error is None:
            self.last, self._shown, self.trouble = call.future.result(), call.shows, None
            return
        with self._lock:
            self._happened += 1
            self._suspects = None
        known = isinstance(error, DlschedError)
        self.trouble = str(error) if known else f"the engine's answer is not understood: {error!r}"
