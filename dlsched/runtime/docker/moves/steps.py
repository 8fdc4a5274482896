"""The state of one job's move, what its steps check, and the jobs that leave for another node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from posixpath import normpath
from threading import Timer
from typing import Any

from dlsched.model.actions import Move
from dlsched.model.facts import CheckpointAck, ContainerFact, ContainerState
from dlsched.model.leaving import Leaving, LeavingPhase
from dlsched.model.spec import Checkpoint, Limits, Stop
from dlsched.runtime.allotment import Allotment
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.carrying import Packed, remove_archive
from dlsched.runtime.docker.engine import one_line
from dlsched.runtime.machine.inspected import Inspected, Listing

_log = logging.getLogger(__name__)

REPORT_WITHIN_S = 180.0
"""Timeout for the first report from the new container: importing a framework takes a minute on a
busy host, and loading a large model longer."""

REST_S = 5.0
"""Pause after a failed call, and after a SIGKILL without effect."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a move goes back."""

    text: str
    agent_ended: bool = False
    """Whether it says nothing against the move itself, which may be tried again at any time."""

    def __str__(self) -> str:
        return self.text


GIVEN_BACK = Reason("it stays on this node", agent_ended=True)
CUT_SHORT = Reason("the agent ended in the middle of it", agent_ended=True)
AGENT_ENDS = Reason("the agent ends", agent_ended=True)


class Step(StrEnum):
    """What a move is waiting for.

    step       waits for                                   then
    ---------  ------------------------------------------  ------------------------------------
    asked      the job's acknowledgement                   ending; given up where none comes, but
                                                           for one that lost a GPU and saved before
    ending     the end of the old container                making, or packing
    making     the creation and the start of the new one   watched; undoing where it fails
    watched    the new one's first report                  clearing; undoing where none comes
    packing    its checkpoint's archive, where the job     away; returning where that fails
               leaves for another node
    away       the word that it stays there, or not        clearing, or returning
    clearing   the removal of the old container            over
    undoing    the end and the removal of the new one      returning
    returning  the old one's start under its own name      over: rolled back
    found      one cycle, in which it can be removed       the step that fits the containers
    """

    FOUND = "found"
    ASKED = "asked"
    ENDING = "ending"
    MAKING = "making"
    WATCHED = "watched"
    PACKING = "packing"
    AWAY = "away"
    CLEARING = "clearing"
    UNDOING = "undoing"
    RETURNING = "returning"


SAVING = Leaving(LeavingPhase.SAVING)


@dataclass(slots=True)
class Departure:
    """A job that leaves for another node."""

    job: str

    archive: Path
    """Where its checkpoint is packed."""
    checkpoint: Checkpoint | None = None
    """None: an earlier agent packed it."""
    most_bytes: int = 0
    """Of the archive."""
    limits: Limits | None = None
    """Under which it saves itself; None: under its present ones."""
    leaving: Leaving = SAVING
    file: str = ""
    """The checkpoint that it acknowledged, by its path in the container."""
    reported: bool = False
    """Whether a refusal or an end of it was asked for."""
    withdrawn: bool = False
    """Whether it is to return. Read by the thread that packs."""
    cleared: bool = False
    """Whether its container is to be removed."""
    lost: bool = False
    """Whether the cluster's file of it is lost: it may never be given back, or cleared."""

    @property
    def over(self) -> bool:
        """Whether it leaves no more."""
        return self.withdrawn or self.cleared

    @property
    def returns(self) -> bool:
        """Whether the job is to go on here."""
        return self.withdrawn and not self.cleared


class Departures:
    """The jobs that leave this node for another one, and what becomes of their archives. By job;
    only for the loop's thread."""

    def __init__(
        self,
        hide: Callable[[Set[str]], None],
        sweep: Callable[[str], None],
    ) -> None:
        """`hide` is given the jobs whose containers stay set aside although no other has taken
        their place; `sweep` is called from a thread for one whose container is removed."""
        self._hide = hide
        self._sweep = sweep
        self._all: dict[str, Departure] = {}
        self._lost: Callable[[str, str], Path | None] = lambda *_: None

    def keep(self, archives: Mapping[str, Path], lost: Callable[[str, str], Path | None]) -> None:
        """Jobs that left while an earlier agent ran, with their archives. `lost` returns the
        archive of another job that left, by its name and the path of its file."""
        self._lost = lost
        for job, archive in archives.items():
            self.begin(Departure(job, archive, leaving=Leaving(LeavingPhase.AWAY)))
        self.show()

    def begin(self, departure: Departure) -> None:
        self._all[departure.job] = departure

    def of(self, job: str) -> Departure | None:
        return self._all.get(job)

    def away(self, job: str) -> Departure | None:
        """The departure of a job that has left; None: it has not, or it is here again."""
        departure = self._all.get(job)
        gone = departure is not None and departure.leaving.phase is LeavingPhase.AWAY
        return departure if gone else None

    def found(self, aside: Inspected) -> Departure | None:
        """The departure of a job of which a container is found set aside; None: it returns."""
        departure = self.away(aside.job)
        if departure is None and (archive := self._lost(aside.job, aside.source)) is not None:
            departure = Departure(aside.job, archive, leaving=Leaving(LeavingPhase.AWAY), lost=True)
            self.begin(departure)
            self.show()
        return departure

    def left(self, departure: Departure, packed: Packed) -> None:
        """It has left, and its archive is whole or its file is in shared storage."""
        departure.leaving = replace(
            departure.leaving,
            phase=LeavingPhase.AWAY,
            sha256=packed.sha256,
            size_bytes=packed.size_bytes,
            file=packed.file,
        )
        _log.info("%s: left, its checkpoint has %d bytes", departure.job, packed.size_bytes)
        self.show()

    def stays(self, departure: Departure, phase: LeavingPhase, why: str) -> None:
        """It does not leave: it was refused or has ended, unless it was given back."""
        if departure.over:
            self.drop(departure)
            return
        departure.leaving = replace(departure.leaving, phase=phase, why=why)
        self._remove_archive(departure)
        self.show()

    def drop(self, departure: Departure) -> None:
        """Forget it, with its archive, and with its volumes where it is cleared."""
        if self._all.get(departure.job) is departure:
            del self._all[departure.job]
        self._remove_archive(departure)
        if departure.cleared:
            begin(lambda: self._sweep(departure.job), f"sweep-{departure.job}")
        self.show()

    def drop_all_over(self, moved: Set[str]) -> None:
        """Forget those that leave no more, and of which no container is being moved."""
        for departure in list(self._all.values()):
            if departure.over and departure.job not in moved:
                self.drop(departure)

    def show(self) -> None:
        """Hide those that have left, and no others."""
        self._hide({job for job in self._all if self._is_hidden(job)})

    def _is_hidden(self, job: str) -> bool:
        departure = self.away(job)
        return departure is not None and not departure.returns

    def _remove_archive(self, departure: Departure) -> None:
        # Not in the background, where it could hit the archive of the next attempt.
        with suppress(OSError):
            remove_archive(departure.archive)


@dataclass(slots=True)
class JobMove:
    job: str
    old: Inspected
    """The old container, as last described."""
    step: Step
    since_s: float
    """When the step began."""
    action: Move | None = None
    """None: it leaves, or an agent that is gone began it."""
    departure: Departure | None = None
    """None: it does not leave the node."""
    failure: Reason | None = None
    """Why it goes back; None: it goes on."""
    call: Future[Any] = field(default_factory=Future)
    called_s: float = float("inf")
    """When the call ended: a later listing shows its result."""
    kill_at_s: float | None = None
    """None: no container was signalled in this step yet."""
    before: Allotment | None = None
    """The job's allotment when it was asked."""
    returns: int = 0
    poll: Timer | None = None
    """Wakes the loop to check for an acknowledgement."""

    @property
    def is_away(self) -> bool:
        """Whether the job is no longer this node's. What is given back counts as being moved at
        once: else its container, which has ended, would be the end of the job."""
        if self.departure is None:
            return False
        stays_away = self.step is Step.AWAY and not self.departure.returns
        return stays_away or self.step is Step.CLEARING

    @property
    def checkpoint(self) -> Checkpoint | None:
        """How it is asked to save itself; None: an agent that is gone began this."""
        if self.departure is not None:
            return self.departure.checkpoint
        return None if self.action is None else self.action.checkpoint

    @property
    def stop(self) -> Stop:
        return self.old.stop if self.action is None else self.action.start.spec.stop

    def failed(self) -> str | None:
        """Why the last call failed, in one line; None: it did not, or is in progress."""
        error = self.call.exception() if self.call.done() else None
        return None if error is None else one_line(error) or repr(error)

    def rests(self, now_s: float) -> bool:
        """Whether to wait before the last call, which failed, is repeated."""
        once = self.step in (Step.MAKING, Step.PACKING)
        again = not once and self.failed() is not None
        return again and now_s < self.called_s + REST_S

    def shown_by(self, listing: Listing) -> bool:
        """Whether the listing shows the result of the last call."""
        return self.step is Step.FOUND or (self.call.done() and listing.at_s > self.called_s)


def acknowledged(move: JobMove, fact: ContainerFact | None) -> CheckpointAck | None:
    """The last checkpoint acknowledged since the job was asked."""
    reports = fact.reports if fact is not None else ()
    acks = [one.checkpoint for one in reports if one.received_s > move.since_s]
    return next((ack for ack in reversed(acks) if ack is not None), None)


def is_below(path: str, folder: str) -> bool:
    """Whether that path is in a folder that outlasts the container."""
    return PurePosixPath(normpath(path)).is_relative_to(normpath(folder))


def has_reported(fact: ContainerFact | None, heir: Inspected) -> bool:
    """Whether the new container has reported anything since the last check."""
    return fact is not None and fact.container_id == heir.container_id and bool(fact.reports)


def end_of(heir: Inspected) -> str:
    """A short text on how the new container ended."""
    if heir.state is ContainerState.CREATED:
        return "was never started"
    if heir.exit_code is None:  # it runs again, so its exit code is unknown
        return "ended, and Docker started it again"
    return f"ended: exit code {heir.exit_code}" + (f": {heir.error}" if heir.error else "")


def describe(move: JobMove, now_s: float, gpu_names: Callable[[tuple[str, ...]], str]) -> str:
    """Where it goes, and what it waits for."""
    gpus = "" if move.action is None else gpu_names(move.action.start.gpus)
    there = gpus if move.departure is None else "another node"
    to = f"to {there}: " if there else ""
    back = f"back, since {move.failure}: "

    def left(until_s: float) -> str:
        return f"{max(0.0, until_s - now_s):.0f} s left"

    match move.step:
        case Step.FOUND:
            return f"on or back: {CUT_SHORT}"
        case Step.ASKED:
            timeout_s = move.checkpoint.timeout_s if move.checkpoint is not None else 0.0
            return f"{to}saves itself ({left(move.since_s + timeout_s)})"
        case Step.ENDING:
            direction = to if move.failure is None else back
            return f"{direction}ends ({left(move.kill_at_s or now_s + move.stop.grace_s)})"
        case Step.WATCHED:
            return f"{to}waits for its first report ({left(move.since_s + REPORT_WITHIN_S)})"
        case Step.UNDOING | Step.RETURNING:
            return f"{back}{_WAITS[move.step]}"
    return f"{to}{_WAITS[move.step]}"


_WAITS = {
    Step.MAKING: "its new container is made",
    Step.PACKING: "its checkpoint is packed",
    Step.AWAY: "it is set aside",
    Step.CLEARING: "its old container is removed",
    Step.UNDOING: "its new container is removed",
    Step.RETURNING: "it is started again",
}


STAYS_UP_S = 10.0
"""A job without a target need not report: it counts as moved after running this long."""

AGAIN_S = 600.0
"""Time until a failed move is attempted again: each attempt costs the job a pause."""

RETURNS = 3
"""Attempts to start the old container again."""

POLL_S = 0.25
"""Polling interval for an acknowledgement: steps that the job makes after it are lost."""


def everything(listing: Listing) -> dict[str, Inspected]:
    return {**listing.containers, **listing.set_aside}


def heir_of(listing: Listing, move: JobMove) -> Inspected | None:
    there = listing.containers.values()
    mine = (one for one in there if one.job == move.job and one.adopted is None)
    return next((one for one in mine if one.container_id != move.old.container_id), None)
