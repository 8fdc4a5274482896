"""One container: all that was begun with it and is not over, and how events change that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dlsched.model.actions import Remove
from dlsched.model.facts import Operation, OperationKind
from dlsched.runtime.machine import stop as stops
from dlsched.runtime.machine.calls import Call, SetRestart
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.stop import Sign, Stop

POLICY_AFTER_S = 5.0
"""A stop that is still wanted has begun again by then. Also the time between two attempts."""

STORY = 1000
"""Transitions that are kept for people."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An action of the plan."""

    action: Remove
    described: Inspected


@dataclass(frozen=True, slots=True)
class Listed:
    """The container in the last listing, in every cycle; None: it is not there."""

    described: Inspected | None
    listed_s: float
    """When the listing was asked for."""
    repairs: bool = False
    """Whether what an earlier agent left undone may be repaired now."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A call has ended."""

    call: Call
    at_s: float
    error: BaseException | None = None
    """None: it succeeded."""


Event = Wanted | Listed | Ended


@dataclass(frozen=True, slots=True)
class Container:
    """All that was begun with one container."""

    container_id: str
    calls: tuple[Call, ...] = ()
    """Those under way."""
    stop: Stop | None = None
    strays_since_s: float | None = None
    """Since when its restart policy is not that of its spec, and nothing else is done to it."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is left to be remembered."""
        return self == Container(self.container_id)

    @property
    def updating(self) -> bool:
        return any(call.updates for call in self.calls)

    def operation(self, now_s: float) -> Operation | None:
        """What is being done to it; None: it may be changed."""
        if self.stop is not None:
            return stops.operation(self.stop, now_s)
        return Operation(OperationKind.UPDATING, "updating") if self.updating else None


def handle(one: Container, event: Event, now_s: float) -> tuple[Container, tuple[Call, ...]]:
    """The container after that event, and the calls to be made."""
    match event:
        case Wanted():
            return _stopped(one, one.stop or stops.begin(event.action, event.described, now_s))
        case Listed():
            return _listed(one, event, now_s)
        case Ended():
            return _ended(one, event)


def validate(one: Container) -> None:
    """Raise AssertionError where it contradicts itself."""
    assert len(set(map(id, one.calls))) == len(one.calls)
    assert all(call.container == one.container_id for call in one.calls)
    if one.stop is not None:
        assert (one.stop.call in one.calls) == (one.stop.step in stops.CALLS)
        assert one.strays_since_s is None


def _listed(one: Container, event: Listed, now_s: float) -> tuple[Container, tuple[Call, ...]]:
    described = event.described
    if one.stop is not None and described is not None:
        sign = stops.sign_of(one.stop, described, now_s)
        return _stopped(one, stops.step(one.stop, sign, now_s))
    if one.stop is not None:
        return _stopped(one, None if event.listed_s > one.stop.begun_s else one.stop)
    return _repaired(one, event, now_s)


def _ended(one: Container, event: Ended) -> tuple[Container, tuple[Call, ...]]:
    left = tuple(call for call in one.calls if call is not event.call)
    if len(left) == len(one.calls):
        raise ValueError(f"{event.call} is not under way")
    one = replace(one, calls=left)
    if one.stop is not None and one.stop.call is event.call:
        sign = Sign.DONE if event.error is None else Sign.FAILED
        return _stopped(one, stops.step(one.stop, sign, event.at_s))
    return one, ()


def _stopped(one: Container, stop: Stop | None) -> tuple[Container, tuple[Call, ...]]:
    new = () if stop is None or (one.stop and one.stop.call is stop.call) else (stop.call,)
    return replace(one, stop=stop, strays_since_s=None, calls=(*one.calls, *new)), new


def _repaired(one: Container, event: Listed, now_s: float) -> tuple[Container, tuple[Call, ...]]:
    """Give it back the restart policy that a stop set to `no`, of an agent that ended then."""
    described = event.described
    strays = described is not None and described.restart_strays and described.alive
    if described is None or not strays or described.restart is None or described.risks_gpus:
        return replace(one, strays_since_s=None), ()
    if one.updating or not event.repairs:
        return replace(one, strays_since_s=None), ()
    since_s = now_s if one.strays_since_s is None else one.strays_since_s
    if now_s - since_s < POLICY_AFTER_S:
        return replace(one, strays_since_s=since_s), ()
    call = SetRestart(one.container_id, described.restart)
    return replace(one, strays_since_s=now_s, calls=(*one.calls, call)), (call,)


class Machine:
    """The containers with which something was begun; only for the loop's thread."""

    def __init__(self, begin: Callable[[Call], None]) -> None:
        """`begin` has a call made, and waits for nothing."""
        self._begin = begin
        self._containers: dict[str, Container] = {}
        self._story: deque[tuple[float, Event, Container]] = deque(maxlen=STORY)

    def post(self, container: str, event: Event, now_s: float) -> Container:
        """Handle an event, and have its calls made; returns the container after it."""
        before = self.of(container)
        one, calls = handle(before, event, now_s)
        if one.at_rest:
            self._containers.pop(container, None)
        else:
            self._containers[container] = one
        if one != before:
            self._story.append((now_s, event, one))
        for call in calls:
            self._begin(call)
        return one

    def of(self, container: str) -> Container:
        return self._containers.get(container) or Container(container)

    @property
    def busy(self) -> frozenset[str]:
        """The containers that are not at rest."""
        return frozenset(self._containers)

    def story(self, container: str) -> Iterator[str]:
        """Its last transitions, one a line, for people."""
        for now_s, event, one in self._story:
            if one.container_id == container:
                yield f"{now_s:.3f} {event} -> {one}"
