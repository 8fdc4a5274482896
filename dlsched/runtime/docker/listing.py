"""The engine's list of our containers and of those adopted, kept fresh without the loop ever
hanging on it, and the thread that listens to the engine's events.

Owns when to list and whom to inspect. An event is a hint, and one may be lost, so a new connection
counts as an event for every container. It must not act on containers or read cgroups."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from dlsched.config.metrics.resolving import Presets
from dlsched.control.ports import Wake
from dlsched.model.errors import DlschedError, EngineUnavailable, unexpected
from dlsched.model.facts import ContainerState
from dlsched.model.units import plain_text
from dlsched.runtime.docker.background import Patience, begin
from dlsched.runtime.docker.engine import Body, EngineRefused
from dlsched.runtime.docker.identity.claims import Claims
from dlsched.runtime.docker.identity.labels import (
    DEFAULT_INSTANCE,
    ENABLE,
    INSTANCE,
    JOB,
    compose_service,
    set_aside_name,
)
from dlsched.runtime.docker.instance import Instance
from dlsched.runtime.machine.inspected import RUNS, Inspected, Listing
from dlsched.runtime.machine.outcomes import one_line

log = logging.getLogger(__name__)

EVERY_S = 5.0
"""Events are hints and can be lost; a listing is the truth."""

AGAIN_S = 1.0
"""After a listing that failed."""

SILENT_S = 2.0
"""An engine that does not even answer a ping for so long is lost. While it starts containers a ping
takes up to 0.1 s on two cores, and an inspection of one of them as long as its start."""

LATE_S = 30.0
"""An inspection that was late is repeated after this time for each container that was late, since
each holds up the listing of all others; earlier where the list shows another state or name."""

NAME_CHARACTERS = 128
"""Longer names of containers that are not ours are cut: the engine has no bound for them."""


@dataclass(slots=True)
class _Pending:
    """A listing under way, and whether the engine answers at all meanwhile: a ping waits for no
    container."""

    future: Future[Listing]
    since_s: float
    shows: int
    ping: Future[None] | None = None
    silent_s: float = 0.0
    """When it was first pinged without an answer so far."""


class Listings:
    """The last listing, and the next one under way."""

    def __init__(self, instance: Instance, patience: Patience, booted: str = "") -> None:
        """`booted`: when the host was booted, as the engine writes times, to the second."""
        self._instance = instance
        self._engine, self._adoptions = instance.engine, instance.adoptions
        self._now_s = instance.clock.now_s
        self._claims = Claims(instance)
        self._patience = patience
        instance.busy.over = self.want
        self._lock = threading.Lock()
        self._happened = 1
        """Counts what happened; a listing shows what had happened when it began."""
        self._suspects: set[str] | None = None
        """Whom to inspect although the list shows no change; None: everybody."""
        self._late: dict[str, tuple[object, float]] = {}
        """Containers whose inspection was late: their state and names then, and when to repeat it.
        Only for the listing's thread."""
        self._pending: _Pending | None = None
        self._shown = 0
        self._tried_s = float("-inf")
        # Containers with the time stamps of their starts: those that ran when the engine was lost,
        # and those that have ended since.
        self._at_risk: Set[tuple[str, str]] = frozenset()
        self._fallen: Set[tuple[str, str]] = frozenset()
        self._lost_s = float("-inf")
        self._booted = booted
        self._wanted_names: frozenset[str] = frozenset()
        self._hidden: Set[str] = frozenset()
        self._taken: Listing | None = None
        """The last listing, with the hidden ones."""
        self.last: Listing | None = None
        self.problem: str | None = "the containers of the Docker Engine are not listed yet"
        """Why there is no fresh listing; None: there is."""

    @property
    def presets(self) -> Presets | None:
        """Those that labels may name; None: those of the package."""
        return self._claims.presets

    def use(self, presets: Presets) -> None:
        """Apply other presets, to all containers."""
        self._claims.presets = presets
        self.want()

    def hide(self, jobs: Set[str]) -> None:
        """Containers of these jobs that are set aside do not stand for them, although no others
        have taken their place; those of all other jobs do."""
        if jobs != self._hidden:
            self._hidden = jobs
            self.last = self._without_hidden()

    def ended_with_engine(self, one: Inspected) -> bool:
        """Whether a container ran before the engine was lost, and had ended when that came back, or
        ended by a reboot of the host at the latest."""
        if one.state is not ContainerState.EXITED:
            return False
        rebooted = "" < one.started_at[: len(self._booted)] < self._booted
        return rebooted or (one.container_id, one.started_at) in self._fallen

    def engine_lost(self) -> None:
        """The engine may have been killed. From any thread."""
        with self._lock:
            self._lost_s = self._now_s()
            if self._taken is not None:
                self._at_risk |= _starts(self._taken, RUNS)

    def want(self, container: str | None = None) -> None:
        """Something happened to that container (None: to any of them). From any thread."""
        with self._lock:
            self._happened += 1
            if container is None:
                self._suspects = None
            elif self._suspects is not None:
                self._suspects.add(container)

    def want_names(self, containers: frozenset[str]) -> None:
        """Include the names of these containers, which are not ours, in each listing."""
        new = containers - self._wanted_names
        self._wanted_names = containers
        if new:
            self.want(min(new))

    def refresh(self) -> None:
        """Take in what the engine answered, after a short wait where something happened."""
        began_s = self._now_s()
        # A listing under way may have begun before the last event: then one more shows it.
        for _ in range(2):
            self._begin_if_due()
            call, awaited = self._pending, self._shown < self._happened
            if call is None:
                return
            if awaited:
                self._patience.wait(call.future, min(began_s, call.since_s))
            if not call.future.done():
                self._complain(call)
                return
            self._collect(call)
            if not awaited or self.problem is not None:
                return

    def _begin_if_due(self) -> None:
        idle_s = self._now_s() - self._tried_s
        with self._lock:
            wanted = self._shown < self._happened
            due = wanted and (self.problem is None or idle_s >= AGAIN_S)
            if self._pending is not None or not (due or idle_s >= EVERY_S):
                return
            shows, suspects = self._happened, self._suspects
            self._suspects = set()
        self._tried_s = at_s = self._now_s()
        asked = self._wanted_names
        self._claims.doubt(suspects)
        last = {} if self.last is None else self.last.all
        doubted = last if suspects is None else suspects
        known = {key: one for key, one in last.items() if key not in doubted}
        future = begin(lambda: self._list(at_s, known, last, asked), "listing")
        self._pending = _Pending(future, at_s, shows)

    def _list(
        self,
        at_s: float,
        known: Mapping[str, Inspected],
        last: Mapping[str, Inspected],
        asked: Set[str],
    ) -> Listing:
        found: dict[str, Inspected] = {}
        undescribed: set[str] = set()
        # The engine's filters are ANDed: what carries one label or the other takes two lists.
        ours = {one["Id"]: one for one in self._engine.containers({INSTANCE: self._instance.name})}
        every = self._adoptions.any or bool(asked)
        others = self._engine.containers({} if every else {ENABLE: "true"})
        listed = {**{one["Id"]: one for one in others}, **ours}
        if self._adoptions.any:
            self._adoptions.forget(listed)
        self._late = {key: late for key, late in self._late.items() if key in listed}
        for container, summary in listed.items():
            if container in self._instance.left_out:
                continue
            if not self._claims.may_be_ours(summary, listed, instances=container in ours):
                continue
            before = known.get(container)
            if before is None or container in self._late or _changed(before, summary):
                before = self._inspect(summary, last.get(container), listed, undescribed)
            if before is not None:
                found[container] = before
        names = {container: one.get("Names") or () for container, one in listed.items()}
        rightful, aside = self._claims.rightful(found, names)
        named = {(one.get("Labels") or {}).get(JOB) for one in listed.values()}
        return Listing(
            at_s,
            rightful,
            aside,
            self._claims.left_alone(listed),
            frozenset(filter(None, named)),
            {key: _plain_name(names[key]) for key in asked & names.keys() if names[key]},
            frozenset(undescribed - found.keys()),
        )

    def _inspect(
        self,
        summary: Body,
        last: Inspected | None,
        there: Collection[str],
        undescribed: set[str],
    ) -> Inspected | None:
        """What the engine says of it; None when it is gone, not ours, or beyond understanding.

        One that the engine cannot describe stays as it was `last` known, and hides no other; where
        it may be described later, it is added to `undescribed`.
        """
        container, listed = summary["Id"], (summary.get("State"), summary.get("Names"))
        late, again_s = self._late.get(container, (None, 0.0))
        if container in self._instance.busy or (listed == late and self._now_s() < again_s):
            undescribed.add(container)
            return last
        self._late.pop(container, None)
        try:
            return self._claims.judge(container, self._engine.inspect(container), there)
        except EngineRefused as error:
            if error.status == 404:
                return None
            if last is None:
                self._claims.leave(
                    container, f"the engine cannot describe the container: {error.reason}"
                )
            return last
        except EngineUnavailable:
            self._engine.ping()  # raises it too, unless only this container keeps the engine busy
            self._late[container] = listed, self._now_s() + LATE_S * (len(self._late) + 1)
            undescribed.add(container)
            return last
        except DlschedError:
            raise
        except Exception as error:  # one container's labels never hide the others
            log.debug("%s: its description cannot be judged", container, exc_info=True)
            why = (
                "the container's description cannot be read, by a fault of dlsched "
                f"({unexpected(error)})"
            )
            self._claims.leave(container, f"{why}: please report this")
            return last

    def _complain(self, call: _Pending) -> None:
        late_s = self._now_s() - call.since_s
        if (self._patience.lost or late_s > AGAIN_S) and self._is_silent(call):
            # Without the time, which would make another alarm of it in every cycle.
            self.problem = f"the Docker Engine at {self._engine.host} does not answer"

    def _is_silent(self, call: _Pending) -> bool:
        """Whether the last ping failed, or has been waiting for `SILENT_S`. Begins the next one
        where none is under way; waits for nothing."""
        now_s, ping = self._now_s(), call.ping
        if ping is not None and not ping.done():
            return now_s - call.silent_s > SILENT_S
        failed = ping is not None and ping.exception() is not None
        if not failed:
            call.silent_s = now_s
        call.ping = begin(self._engine.ping, "ping")
        return failed

    def _collect(self, call: _Pending) -> None:
        self._pending = None
        error = call.future.exception()
        if error is None:
            self._take(call.future.result())
            self._shown, self.problem = call.shows, None
            self.last = self._without_hidden()
            return
        if isinstance(error, EngineUnavailable):
            self.engine_lost()
        with self._lock:
            self._happened += 1
            self._suspects = None
        known = isinstance(error, DlschedError)
        self.problem = str(error) if known else f"the engine's answer is not understood: {error!r}"

    def _take(self, taken: Listing) -> None:
        with self._lock:
            self._taken = taken
            if risked := self._fallen | self._at_risk:
                self._fallen = risked & _starts(taken, (ContainerState.EXITED,))
            if taken.at_s >= self._lost_s:  # else it may show what was before
                self._at_risk = frozenset()

    def _without_hidden(self) -> Listing | None:
        taken = self._taken
        if taken is None or not self._hidden:
            return taken
        hidden = {
            container: one
            for container, one in taken.containers.items()
            if one.job in self._hidden
            and one.adopted is None
            and one.name == set_aside_name(self._instance.name, one.job)
        }
        shown = {key: one for key, one in taken.containers.items() if key not in hidden}
        return replace(taken, containers=shown, set_aside={**taken.set_aside, **hidden})


def _starts(listing: Listing, states: Collection[ContainerState]) -> frozenset[tuple[str, str]]:
    """The containers in one of these states, with the time stamps of their starts."""
    found = listing.all.values()
    return frozenset((one.container_id, one.started_at) for one in found if one.state in states)


def _plain_name(names: Collection[str]) -> str:
    """The container's own name; others are those of links, as /OTHER/ALIAS."""
    own = min(names, key=lambda name: (name.count("/"), name))
    return plain_text(own.removeprefix("/"))[:NAME_CHARACTERS]


def _changed(before: Inspected, summary: Body) -> bool:
    """Whether the list shows another state or name."""
    renamed = f"/{before.name}" not in (summary.get("Names") or ())
    return renamed or before.state != summary.get("State")


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
                self._wake("the Docker Engine sends no more events")
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
