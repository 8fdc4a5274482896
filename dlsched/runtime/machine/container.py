"""One container: all that was begun with it and is not over, and how events change that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
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
    GiveBack,
    Instruction,
    Pulls,
    ReleaseContainer,
    Remember,
    Say,
    SetLimits,
    SetMemory,
    SetRestart,
    StartJob,
    Tidy,
)
from dlsched.runtime.machine.inspected import Inspected, Listing
from dlsched.runtime.machine.limits import Refused
from dlsched.runtime.machine.move import Job, Turn
from dlsched.runtime.machine.stop import Sign, Stop
from dlsched.runtime.originals import Original

SWEEP_S = 30.0
"""Time between two checks of a container that has a record and is not managed."""

POLICY_AFTER_S = 5.0
"""A stop that is still wanted has begun again by then. Also the time between two attempts."""


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
    """Whether the machine is held."""
    answers: bool = True
    """Whether the engine answers."""

    @property
    def altered(self) -> bool:
        """Whether it does not have what it had."""
        return self.original is not None and not self.original.given_back


Event = Unwanted | Call | Listed | Ended
"""A call as an event is to be made."""


class Busy(StrEnum):
    """What may be under way with a container."""

    UPDATE = "a call that updates it"
    STOP = "its stop"


BARRED_BY: Mapping[type[Unwanted | Call], frozenset[Busy]] = {
    SetLimits: frozenset(Busy),
    SetMemory: frozenset(Busy),
    GiveBack: frozenset(Busy),
    SetRestart: frozenset(Busy),
    Remember: frozenset({Busy.UPDATE}),
    Unwanted: frozenset({Busy.UPDATE}),
    Tidy: frozenset({Busy.UPDATE}),
    Examine: frozenset(),
    ReleaseContainer: frozenset(),
}
"""Beside what each is not begun. The last two may begin beside anything: the first reads. The other
is the agent's last one and has no next cycle, so it waits, in its thread, for the writer's lock of
the container, which a call that updates it holds."""


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
    settle_after_s: float | None = None
    """Its record is settled by a listing that was asked for after this, if it is still not managed;
    None: it has no record, or is managed."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is left to be remembered."""
        return self == Container(self.container_id)

    @property
    def updating(self) -> bool:
        return any(call.updates for call in self.calls)

    def bars(self, now_s: float, what: type[Unwanted | Call] = SetLimits) -> Operation | None:
        """What is being done to it, so that this may not begin; None: it may."""
        barred_by = BARRED_BY[what]
        if self.updating and Busy.UPDATE in barred_by:
            return Operation(OperationKind.UPDATING, "updating")
        if self.stop is not None and Busy.STOP in barred_by:
            return stops.operation(self.stop, now_s)
        return None

    def operation(self, described: Inspected, now_s: float) -> Operation | None:
        """What is being done to it, or why nothing is; None: it may be changed."""
        if self.stop is not None:
            return stops.operation(self.stop, now_s)
        if self.refused is not None and self.refused.bars(described, now_s) and not self.updating:
            return Operation(OperationKind.REFUSED, self.refused.why)
        return self.bars(now_s)


Handled = tuple[Container, tuple[Instruction, ...]]


def handle(one: Container, event: Event, now_s: float) -> Handled:
    """The container after that event, and what is to be done. What is barred is not begun, and
    changes nothing."""
    if isinstance(event, Unwanted | Call) and one.bars(now_s, type(event)) is not None:
        return one, ()
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
        call, short = type(event.call).__name__, one.container_id[:12]
        text = f"container {short}: the result of a call ({call}) that was not under way is ignored"
        return one, (Say(text, warns=True),)
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
    made: tuple[Instruction, ...] = ()
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
    after_s = None
    if original is not None and not event.managed:
        after_s = now_s if one.settle_after_s is None else one.settle_after_s
    one = replace(one, settle_after_s=after_s)
    if original is None or one.bars(now_s, Tidy) is not None:
        return one, ()
    # A listing older than the container does not show it.
    missing = after_s is not None and after_s < event.listed_s
    if missing or (event.held and event.altered):
        one = replace(one, settle_after_s=None if event.managed else now_s + SWEEP_S)
        return _with(one, Tidy(one.container_id, original))
    return one, ()


def _policy_listed(one: Container, event: Listed, now_s: float) -> Handled:
    """Give it back the restart policy that a stop set to `no`, of an agent that ended then."""
    there, hindered = event.described, event.moves or event.held or not event.answers
    policy = None if there is None or not there.restart_strays else there.restart
    if there is None or policy is None or not there.alive or there.risks_gpus:
        return replace(one, strays_since_s=None), ()
    if hindered or one.bars(now_s, SetRestart) is not None:
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
        self.held: str | None = None
        """Why nothing may be changed: all was given back, or this is a dry run. None: it may."""

    def post(self, container: str, event: Event, now_s: float) -> Container:
        """Handle an event, and do what it asks for; returns the container after it."""
        one, made = handle(self.of(container), event, now_s)
        if one.at_rest:
            self.busy.pop(container, None)
        else:
            self.busy[container] = one
        for instruction in made:
            self.do(instruction)
        return one

    def turn(self, job: str, now_s: float, take: Callable[[Turn], None]) -> Job:
        """Have a job take a turn, and do what it asks for; returns the job after it."""
        turn = Turn(self.job(job), now_s)
        take(turn)
        if turn.job == Job(job):
            self.jobs.pop(job, None)
        else:
            self.jobs[job] = turn.job
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
