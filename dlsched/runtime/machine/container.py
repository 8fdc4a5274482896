"""One container: all that was begun with it and is not over, and how events change that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from dlsched.model.actions import Outcome, Remove, Start
from dlsched.model.facts import Begun, Operation, OperationKind
from dlsched.runtime.machine import limits
from dlsched.runtime.machine import start as starts
from dlsched.runtime.machine import stop as stops
from dlsched.runtime.machine.calls import (
    Act,
    Call,
    Ended,
    Examine,
    Instruction,
    Pulls,
    SetRestart,
    StartJob,
    Tidy,
)
from dlsched.runtime.machine.inspected import Inspected, Listing
from dlsched.runtime.machine.limits import Refused
from dlsched.runtime.machine.move import Job, Turn
from dlsched.runtime.machine.stop import Sign, Stop
from dlsched.runtime.originals import Original

POLICY_AFTER_S = 5.0
"""A stop that is still wanted has begun again by then. Also the time between two attempts."""

STORY = 1000
"""Transitions that are kept for people."""


@dataclass(frozen=True, slots=True)
class Unwanted:
    """The plan removes it."""

    action: Remove
    described: Inspected


@dataclass(frozen=True, slots=True)
class Listed:
    """What is known of the container, in every cycle."""

    described: Inspected | None
    """As last listed; None: it is not there."""
    listed_s: float
    """When the listing was asked for."""
    moves: bool = False
    """Whether its job is being moved."""
    managed: bool = True
    """Whether it belongs to a job, or is about to."""
    original: Original | None = None
    """The record of what it had."""
    held: bool = False
    """Whether everything was given back, and nothing may be changed any more."""
    answers: bool = True
    """Whether the engine answers."""

    @property
    def altered(self) -> bool:
        """Whether it does not have what it had."""
        return self.original is not None and not self.original.given_back


Event = Unwanted | Call | Listed | Ended
"""A call as an event is to be made: that nothing bars it was asked before."""


@dataclass(frozen=True, slots=True)
class Container:
    """All that was begun with one container."""

    container_id: str
    calls: tuple[Call, ...] = ()
    """Those under way."""
    stop: Stop | None = None
    refused: Refused | None = None
    """Why it is left as it is."""
    strays_since_s: float | None = None
    """Since when its restart policy is not that of its spec, and nothing else is done to it."""
    missing_s: float | None = None
    """Since when it has a record and is not managed; later where its record was just settled."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is left to be remembered."""
        return self == Container(self.container_id)

    @property
    def updating(self) -> bool:
        return any(call.updates for call in self.calls)

    def bars(self, now_s: float) -> Operation | None:
        """What is being done to it, so that nothing else may be; None: it may be changed."""
        if self.updating:
            return Operation(OperationKind.UPDATING, "updating")
        return None if self.stop is None else stops.operation(self.stop, now_s)

    def operation(self, described: Inspected, now_s: float) -> Operation | None:
        """What is being done to it, or why nothing is; None: it may be changed."""
        if self.stop is not None:
            return stops.operation(self.stop, now_s)
        if self.refused is not None and self.refused.bars(described, now_s) and not self.updating:
            return Operation(OperationKind.REFUSED, self.refused.why)
        return self.bars(now_s)


Handled = tuple[Container, tuple[Call, ...]]


def handle(one: Container, event: Event, now_s: float) -> Handled:
    """The container after that event, and the calls to be made."""
    match event:
        case Unwanted(action, described):
            return _stopped(one, one.stop or stops.begin(action, described, now_s))
        case Call():
            return _with(one, event)
        case Listed():
            return _listed(one, event, now_s)
        case Ended():
            return _ended(one, event)


def validate(one: Container) -> None:
    """Raise AssertionError where it contradicts itself."""
    assert all(call.container == one.container_id for call in one.calls)
    assert sum(call.updates for call in one.calls) <= 1
    if one.stop is not None:
        assert (one.stop.call in one.calls) == (one.stop.step in stops.CALLS)
        assert one.strays_since_s is None


def _with(one: Container, call: Call) -> Handled:
    return replace(one, calls=(*one.calls, call)), (call,)


def _ended(one: Container, event: Ended) -> Handled:
    left = tuple(call for call in one.calls if call is not event.call)
    if len(left) == len(one.calls):
        raise ValueError(f"{event.call} is not under way")
    one = replace(one, calls=left, refused=limits.refused_after(one.refused, event))
    if one.stop is not None and one.stop.call is event.call:
        sign = Sign.DONE if event.error is None else Sign.FAILED
        return _stopped(one, stops.step(one.stop, sign, event.at_s))
    return one, ()


def _stopped(one: Container, stop: Stop | None) -> Handled:
    before, one = one.stop, replace(one, stop=stop, strays_since_s=None)
    if stop is None or (before is not None and before.call is stop.call):
        return one, ()
    return _with(one, stop.call)


def _listed(one: Container, event: Listed, now_s: float) -> Handled:
    made: tuple[Call, ...] = ()
    for part in (_stop_listed, _refusal_listed, _record_listed, _policy_listed):
        one, calls = part(one, event, now_s)
        made += calls
    return one, made


def _stop_listed(one: Container, event: Listed, now_s: float) -> Handled:
    stop = one.stop
    if stop is not None and event.described is not None:
        sign = stops.sign_of(stop, event.described, now_s)
        return _stopped(one, stops.step(stop, sign, now_s))
    if stop is not None and event.listed_s > stop.begun_s:
        return _stopped(one, None)
    return one, ()


def _refusal_listed(one: Container, event: Listed, now_s: float) -> Handled:
    before, described = one.refused, event.described
    if before is None or not event.answers:
        return one, ()
    if described is None or not event.managed:
        return replace(one, refused=None), ()
    one = replace(one, refused=before.after(described, now_s, altered=event.altered))
    again = one.refused is not None and one.refused.at_s != before.at_s
    return _with(one, Examine(one.container_id, described)) if again else (one, ())


def _record_listed(one: Container, event: Listed, now_s: float) -> Handled:
    """Settle the record of one that is not managed any more, or was changed late."""
    original = event.original
    if not event.answers:
        return one, ()
    missing_s = None
    if original is not None and not event.managed:
        missing_s = now_s if one.missing_s is None else one.missing_s
    one = replace(one, missing_s=missing_s)
    if original is None or any(isinstance(call, Tidy) for call in one.calls):
        return one, ()
    # A listing older than the container does not show it.
    missing = missing_s is not None and missing_s < event.listed_s
    if missing or (event.held and event.altered):
        one = replace(one, missing_s=None if event.managed else now_s + limits.SWEEP_S)
        return _with(one, Tidy(one.container_id, original))
    return one, ()


def _policy_listed(one: Container, event: Listed, now_s: float) -> Handled:
    """Give it back the restart policy that a stop set to `no`, of an agent that ended then."""
    there, hindered = event.described, event.moves or event.held or not event.answers
    policy = None if there is None or not there.restart_strays else there.restart
    if there is None or policy is None or not there.alive or there.risks_gpus:
        return replace(one, strays_since_s=None), ()
    if hindered or one.bars(now_s) is not None:
        return replace(one, strays_since_s=None), ()
    since_s = now_s if one.strays_since_s is None else one.strays_since_s
    if now_s - since_s < POLICY_AFTER_S:
        return replace(one, strays_since_s=since_s), ()
    one = replace(one, strays_since_s=now_s)
    return _with(one, SetRestart(one.container_id, policy))


class Machine:
    """The containers and jobs with which something was begun; only for the loop's thread."""

    def __init__(self, do: Callable[[Instruction], None]) -> None:
        """`do` begins a call, or does what else is asked for; it waits for nothing."""
        self.do = do
        self.busy: dict[str, Container] = {}
        """The containers that are not at rest, by id."""
        self.jobs: dict[str, Job] = {}
        """The jobs that are not at rest, by name."""
        self._story: deque[tuple[float, str, object, object]] = deque(maxlen=STORY)

    def post(self, container: str, event: Event, now_s: float) -> Container:
        """Handle an event, and have its calls made; returns the container after it."""
        before = self.of(container)
        one, calls = handle(before, event, now_s)
        if one.at_rest:
            self.busy.pop(container, None)
        else:
            self.busy[container] = one
        if one != before:
            self._story.append((now_s, container, event, one))
        for call in calls:
            self.do(call)
        return one

    def turn(self, job: str, now_s: float, take: Callable[[Turn], None]) -> Job:
        """Have a job take a turn, and do what it asks for; returns the job after it."""
        before = self.job(job)
        turn = Turn(before, now_s)
        take(turn)
        if turn.job == Job(job):
            self.jobs.pop(job, None)
        else:
            self.jobs[job] = turn.job
        if turn.job != before:
            self._story.append((now_s, job, take, turn.job))
        for one in turn.made:
            self.do(one)
        return turn.job

    def take(self, events: Iterable[Ended | Pulls]) -> None:
        """Handle the ends of calls, and what is known of those under way."""
        for one in events:
            if isinstance(one.call, Act | StartJob):
                at_s = one.at_s if isinstance(one, Ended) else 0.0
                self.turn(one.call.job, at_s, partial(Turn.end, ended=one))
            elif isinstance(one, Ended):
                self.post(one.call.container, one, one.at_s)

    def start(self, action: Start, now_s: float) -> Outcome:
        """Begin to start a job, unless that is under way."""
        begun = starts.begin(self.job(action.job).start, action)
        if isinstance(begun, Outcome):
            return begun
        others = {key: one.start for key, one in self.jobs.items() if key != action.job}
        for job in starts.surplus({key: one for key, one in others.items() if one is not None}):
            self.turn(job, now_s, Turn.forget_start)
        self.turn(action.job, now_s, partial(Turn.start, attempt=begun))
        return Outcome(action, "begun")

    def begun(self, listing: Listing | None) -> tuple[Begun, ...]:
        """Starts under way or failed, without those that a later listing shows as done."""
        attempts = (one.start for one in self.jobs.values() if one.start is not None)
        return tuple(starts.begun(one) for one in attempts if not starts.is_shown(one, listing))

    def of(self, container: str) -> Container:
        return self.busy.get(container) or Container(container)

    def job(self, name: str) -> Job:
        return self.jobs.get(name) or Job(name)

    def story(self, name: str) -> Iterator[str]:
        """The last transitions of a container or a job, one a line, for people."""
        for now_s, whose, event, one in self._story:
            if whose == name:
                yield f"{now_s:.3f} {event} -> {one}"
