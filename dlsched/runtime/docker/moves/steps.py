"""One job's way to other GPUs: how far it is, what it waits for, and what is told of it.

Owns what a step of the way looks at. It must not take one: `moves` does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from posixpath import normpath
from threading import Timer
from typing import Any

from dlsched.model.actions import Move
from dlsched.model.facts import CheckpointAck, ContainerFact, ContainerState
from dlsched.model.spec import Stop
from dlsched.runtime.allotment import Allotment
from dlsched.runtime.docker.engine import one_line
from dlsched.runtime.docker.identity.labels import Inspected
from dlsched.runtime.docker.listing import Listing

REPORT_WITHIN_S = 180.0
"""For the first report from the new container: importing a framework takes a minute on a busy host,
and loading a large model longer."""

REST_S = 5.0
"""After a call that failed, and after a SIGKILL that did not help."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a move goes back."""

    text: str
    agent_ended: bool = False
    """Whether it says nothing against the move itself, which may be tried again at any time."""

    def __str__(self) -> str:
        return self.text


CUT_SHORT = Reason("the agent ended in the middle of it", agent_ended=True)
AGENT_ENDS = Reason("the agent ends", agent_ended=True)


class Step(StrEnum):
    """What a move is waiting for."""

    FOUND = "found"
    ASKED = "asked"
    ENDING = "ending"
    MAKING = "making"
    WATCHED = "watched"
    CLEARING = "clearing"
    UNDOING = "undoing"
    RETURNING = "returning"


@dataclass(slots=True)
class Way:
    """One job's way."""

    job: str
    old: Inspected
    """The container that it is moved from, as last described."""
    step: Step
    since_s: float
    """When the step began."""
    action: Move | None = None
    """None: an agent that is gone began it."""
    failure: Reason | None = None
    """Why it goes back; None: it goes on."""
    call: Future[Any] = field(default_factory=Future)
    called_s: float = float("inf")
    """When the call ended: a listing from after that shows what came of it."""
    kill_at_s: float | None = None
    """None: nobody was told to end in this step."""
    before: Allotment | None = None
    """What the job was allotted when it was asked."""
    returns: int = 0
    look: Timer | None = None
    """What wakes the loop next to look for an acknowledgement."""

    @property
    def stop(self) -> Stop:
        """How its containers want to be ended."""
        return self.old.stop if self.action is None else self.action.start.spec.stop

    def failed(self) -> str | None:
        """Why the last call failed, in one line; None: it has not, or goes on."""
        error = self.call.exception() if self.call.done() else None
        return None if error is None else one_line(error) or repr(error)

    def rests(self, now_s: float) -> bool:
        """Whether its last call failed a moment ago, and is to be made again."""
        again = self.step is not Step.MAKING and self.failed() is not None
        return again and now_s < self.called_s + REST_S

    def shown_by(self, listing: Listing) -> bool:
        """Whether the listing shows what the last call has done."""
        return self.step is Step.FOUND or (self.call.done() and listing.at_s > self.called_s)


def acknowledged(way: Way, fact: ContainerFact | None) -> CheckpointAck | None:
    """The last checkpoint that it acknowledged since it was asked to save itself."""
    reports = fact.reports if fact is not None else ()
    told = [one.checkpoint for one in reports if one.received_s > way.since_s]
    return next((ack for ack in reversed(told) if ack is not None), None)


def is_below(path: str, folder: str) -> bool:
    """Whether what is saved there is what outlasts the container."""
    return PurePosixPath(normpath(path)).is_relative_to(normpath(folder))


def has_reported(fact: ContainerFact | None, heir: Inspected) -> bool:
    """Whether the new container has told something since this was asked last."""
    return fact is not None and fact.container_id == heir.container_id and bool(fact.reports)


def end_of(heir: Inspected) -> str:
    """How the new container ended, in a few words."""
    if heir.state is ContainerState.CREATED:
        return "was never started"
    if heir.exit_code is None:  # it runs again, so the engine says nothing of its end
        return "ended, and Docker started it again"
    return f"ended: exit code {heir.exit_code}" + (f": {heir.error}" if heir.error else "")


def in_words(way: Way, now_s: float, gpu_names: Callable[[tuple[str, ...]], str]) -> str:
    """Where it goes, and what is waited for."""
    gpus = "" if way.action is None else gpu_names(way.action.start.gpus)
    to = f"to {gpus}: " if gpus else ""
    back = f"back, since {way.failure}: "

    def left(until_s: float) -> str:
        return f"{max(0.0, until_s - now_s):.0f} s left"

    match way.step:
        case Step.ASKED:
            timeout_s = way.action.checkpoint.timeout_s if way.action is not None else 0.0
            return f"{to}saves itself ({left(way.since_s + timeout_s)})"
        case Step.ENDING:
            way_to = to if way.failure is None else back
            return f"{way_to}ends ({left(way.kill_at_s or now_s)})"
        case Step.MAKING:
            return f"{to}its new container is made"
        case Step.WATCHED:
            return f"{to}waits for its first report ({left(way.since_s + REPORT_WITHIN_S)})"
        case Step.CLEARING:
            return f"{to}its old container is removed"
        case Step.UNDOING:
            return f"{back}its new container is removed"
        case Step.RETURNING:
            return f"{back}it is started again"
    return f"on or back: {CUT_SHORT}"


STAYS_UP_S = 10.0
"""A job without a target need not report: it is back once it has run for so long."""

AGAIN_S = 600.0
"""A job that could not be moved is not asked again for so long: each try costs it a pause."""

RETURNS = 3
"""So often it is tried to start the old container again."""

LOOK_S = 0.25
"""While an acknowledgement is waited for, its job's reports are read so often: each step that it
makes after it is lost."""


RUNS = frozenset({ContainerState.RUNNING, ContainerState.RESTARTING, ContainerState.PAUSED})


def everything(listing: Listing) -> dict[str, Inspected]:
    return {**listing.containers, **listing.set_aside}


def heir_of(listing: Listing, way: Way) -> Inspected | None:
    """The container that takes the old one's place."""
    there = listing.containers.values()
    mine = (one for one in there if one.job == way.job and one.adopted is None)
    return next((one for one in mine if one.container_id != way.old.container_id), None)
