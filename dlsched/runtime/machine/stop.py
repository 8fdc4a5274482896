"""Stops a container: signal, grace, SIGKILL, removal. The engine's own stop would block for the
whole grace, so each event takes one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from dlsched.model.actions import Remove
from dlsched.model.facts import ContainerState, Operation, OperationKind
from dlsched.runtime.machine.calls import AskToEnd, Call, Kill, RemoveContainer
from dlsched.runtime.machine.inspected import RUNS, Inspected

KILL_AGAIN_S = 5.0


class Step(StrEnum):
    """What a stop is doing, or waiting for."""

    ASKING = "sends its signal"
    UNASKED = "the signal was not sent"
    GRACE = "waits for its end"
    KILLING = "sends SIGKILL"
    KILLED = "waits for its end, after SIGKILL"
    REMOVING = "removes it"
    REMOVED = "waits for a listing without it"
    UNREMOVED = "was not removed"
    OVER = "is over, or begins again with the next action of the plan"


class Sign(StrEnum):
    """What happened to the container or to the call under way."""

    DONE = "the call to the engine is done"
    FAILED = "the call to the engine failed"
    RUNS = "the container runs"
    OVERDUE = "the container runs past its grace time"
    ENDED = "the container has ended"
    GOING = "the engine is removing the container"


TABLE: Mapping[Step, Mapping[Sign, Step]] = {
    Step.ASKING: {Sign.DONE: Step.GRACE, Sign.FAILED: Step.UNASKED},
    Step.UNASKED: {Sign.RUNS: Step.OVER, Sign.ENDED: Step.REMOVING},
    Step.GRACE: {Sign.OVERDUE: Step.KILLING, Sign.ENDED: Step.REMOVING},
    Step.KILLING: {Sign.DONE: Step.KILLED, Sign.FAILED: Step.KILLED},
    Step.KILLED: {Sign.OVERDUE: Step.KILLING, Sign.ENDED: Step.REMOVING},
    Step.REMOVING: {Sign.DONE: Step.REMOVED, Sign.FAILED: Step.UNREMOVED},
    Step.REMOVED: {Sign.RUNS: Step.OVER},
    Step.UNREMOVED: {Sign.RUNS: Step.OVER, Sign.ENDED: Step.REMOVING},
}
"""What a listing shows, and is not here, changes nothing; it is shown again. A step with a call
under way ends with that call."""

CALLS = frozenset(step for step, row in TABLE.items() if Sign.DONE in row)
"""The steps with a call under way."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The stop of one container."""

    action: Remove
    begun_s: float
    step: Step
    call: Call
    """The last one that it made."""
    kill_at_s: float | None = None
    """None: its signal was not sent yet."""


def begin(action: Remove, described: Inspected, now_s: float) -> Stop:
    """The stop of a container that runs, or has ended."""
    if described.state in RUNS:
        return Stop(action, now_s, Step.ASKING, AskToEnd(action.container_id, action, described))
    return Stop(action, now_s, Step.REMOVING, RemoveContainer(action.container_id))


def sign_of(stop: Stop, described: Inspected, now_s: float) -> Sign:
    """What a listing shows of it."""
    if described.state is ContainerState.REMOVING:
        return Sign.GOING
    if described.state not in RUNS:
        return Sign.ENDED
    overdue = stop.kill_at_s is not None and now_s >= stop.kill_at_s
    return Sign.OVERDUE if overdue else Sign.RUNS


def step(stop: Stop, sign: Sign, now_s: float) -> Stop | None:
    """The stop after that; None: it is over. If its `call` is another one, that is to be made."""
    row = TABLE[stop.step]
    after = row[sign] if sign in (Sign.DONE, Sign.FAILED) else row.get(sign, stop.step)
    if after is Step.OVER:
        return None
    if after is Step.GRACE and stop.kill_at_s is None:
        # Not before: the call may have waited for others, or long for the engine.
        return replace(stop, step=after, kill_at_s=now_s + stop.action.stop.grace_s)
    if after is stop.step or after not in CALLS:
        return replace(stop, step=after)
    container = stop.action.container_id
    if after is Step.KILLING:
        return replace(stop, step=after, call=Kill(container), kill_at_s=now_s + KILL_AGAIN_S)
    return replace(stop, step=after, call=RemoveContainer(container), kill_at_s=None)


def operation(stop: Stop, now_s: float) -> Operation:
    """What is being done, for people."""
    if stop.step in (Step.REMOVING, Step.REMOVED, Step.UNREMOVED):
        return Operation(OperationKind.REMOVING, "removing")
    if stop.step in (Step.KILLING, Step.KILLED):
        return Operation(OperationKind.STOPPING, "stopping (killed: the grace time is over)")
    left_s = stop.action.stop.grace_s
    if stop.kill_at_s is not None:
        left_s = max(0.0, stop.kill_at_s - now_s)
    return Operation(OperationKind.STOPPING, f"stopping ({left_s:.0f} s of grace time left)")
