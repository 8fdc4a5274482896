"""Moves a job to other GPUs: checkpoint, stop, recreate, roll back on failure. Half of it is also
the way of a job that leaves for another node. It resumes what an earlier agent began."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from posixpath import normpath

from dlsched.model import actions
from dlsched.model.facts import CheckpointAck, ContainerFact, ContainerState
from dlsched.model.leaving import Leaving, LeavingPhase
from dlsched.model.spec import Checkpoint, Limits, Stop
from dlsched.runtime.allotment import Allotment
from dlsched.runtime.machine import start as starts
from dlsched.runtime.machine.calls import (
    Abandon,
    Act,
    ActName,
    DropArchive,
    Ended,
    Instruction,
    Pulls,
    Say,
)
from dlsched.runtime.machine.inspected import RUNS, Inspected, Listing
from dlsched.runtime.machine.outcomes import Packed, failure_of, one_line
from dlsched.runtime.machine.start import Attempt

REPORT_WITHIN_S = 180.0
"""Timeout for the first report from the new container: importing a framework takes a minute on a
busy host, and loading a large model longer."""

REST_S = 5.0
"""Pause after a failed call, and after a SIGKILL without effect."""

STAYS_UP_S = 10.0
"""A job without a target need not report: it counts as moved after running this long."""

AGAIN_S = 600.0
"""Time until a failed move is attempted again: each attempt costs the job a pause."""

RETURNS = 3
"""Attempts to start the old container again."""


class Step(StrEnum):
    """What a move is waiting for."""

    FOUND = "one cycle, in which its job can be removed"
    ASKED = "the job saves itself"
    ENDING = "the old container ends"
    MAKING = "dlsched makes the new container"
    WATCHED = "dlsched waits for the first report of the new container"
    PACKING = "dlsched packs the checkpoint"
    AWAY = "the job is stopped until the other node has it"
    CLEARING = "dlsched removes the old container"
    UNDOING = "dlsched removes the new container"
    RETURNING = "dlsched starts the old container again"


TABLE: Mapping[Step, frozenset[Step]] = {
    Step.FOUND: frozenset({Step.WATCHED, Step.ENDING, Step.RETURNING}),
    Step.ASKED: frozenset({Step.ENDING}),
    Step.ENDING: frozenset({Step.MAKING, Step.PACKING, Step.CLEARING, Step.RETURNING}),
    Step.MAKING: frozenset({Step.WATCHED, Step.UNDOING}),
    Step.WATCHED: frozenset({Step.CLEARING, Step.UNDOING}),
    Step.PACKING: frozenset({Step.AWAY, Step.CLEARING, Step.RETURNING}),
    Step.AWAY: frozenset({Step.CLEARING, Step.RETURNING}),
    Step.CLEARING: frozenset(),
    Step.UNDOING: frozenset({Step.RETURNING}),
    Step.RETURNING: frozenset({Step.UNDOING}),
}
"""The steps that may follow each; from any of them the move may be over. One that an earlier agent
began is found, away or not; packing and away are of a job that leaves for another node."""


GIVEN_BACK = "the job stays on this node"
CUT_SHORT = "dlsched ended in the middle of the move"
AGENT_ENDS = "dlsched is ending"
ANY_TIME = frozenset({GIVEN_BACK, CUT_SHORT, AGENT_ENDS})
"""They say nothing against the move itself, which may be tried again at any time."""


SAVING = Leaving(LeavingPhase.SAVING)


@dataclass(frozen=True, slots=True)
class Departure:
    """A job that leaves for another node."""

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
    """Whether it is to return."""
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

    @property
    def away(self) -> bool:
        """Whether it has left, and is not here again."""
        return self.leaving.phase is LeavingPhase.AWAY


@dataclass(frozen=True, slots=True)
class Move:
    """One move under way."""

    old: Inspected
    """The old container, as last described."""
    step: Step
    since_s: float
    """When the step began."""
    action: actions.Move | None = None
    """None: it leaves, or an agent that is gone began it."""
    departure: Departure | None = None
    """None: it does not leave the node."""
    failure: str | None = None
    """Why it goes back; None: it goes on."""
    call: Act | None = None
    """The last one."""
    ended: Ended | None = None
    """Its end; None: it is under way."""
    called_s: float = math.inf
    """When it ended: a later listing shows its result."""
    kill_at_s: float | None = None
    """None: no container was signalled in this step yet."""
    before: Allotment | None = None
    """The job's allotment when it was asked."""
    returns: int = 0
    polls: bool = False
    """Whether the loop will be woken to check for an acknowledgement."""

    @property
    def is_away(self) -> bool:
        """Whether the job is no longer this node's. What is given back counts as being moved
        immediately: else its container, which has ended, would be the end of the job."""
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

    @property
    def failed(self) -> str | None:
        """Why the last call failed, in one line; None: it did not, or is under way."""
        return None if self.ended is None else failure_of(self.ended.error)

    def rests(self, now_s: float) -> bool:
        """Whether to wait before the last call, which failed, is repeated."""
        once = self.step in (Step.MAKING, Step.PACKING)
        return not once and self.failed is not None and now_s < self.called_s + REST_S

    def shown_by(self, listed_s: float) -> bool:
        """Whether a listing of then shows the result of the last call."""
        return self.step is Step.FOUND or listed_s > self.called_s


@dataclass(frozen=True, slots=True)
class Job:
    """All that was begun with one job's containers together."""

    name: str
    move: Move | None = None
    departure: Departure | None = None
    """The last one; its move may still be that of an earlier one."""
    given_up: tuple[float, str] | None = None
    """The time of the next attempt, and why the last one failed."""
    start: Attempt | None = None
    """Its last start, until a listing shows that it is done."""
    forsaken: frozenset[str] = frozenset()
    """Old containers of moves, as long as they are there, since the job is being removed."""
    inspected_s: float = -math.inf
    """When its volume, which anybody can remove, was last inspected."""
    started_s: float = -math.inf
    """When its container was last started again."""

    @property
    def away(self) -> Departure | None:
        """Its departure, where it has left; None: it has not, or it is here again."""
        return self.departure if self.departure is not None and self.departure.away else None


@dataclass(frozen=True, slots=True)
class View:
    """What one cycle shows of a job that is being moved."""

    listed_s: float
    """When the listing was asked for."""
    old: Inspected | None
    """The old container; None: it is gone."""
    heir: Inspected | None
    """The job's other container."""
    fact: ContainerFact | None
    """The container that stands for the job, as observed."""
    aside: bool
    """Whether the old one has the name of one that is set aside."""
    winding_up: bool
    """Whether the agent ends: early moves go back, and none begins."""


class Turn:
    """How one event changes a job: `job` is what it becomes, `made` what is to be done."""

    def __init__(self, job: Job, now_s: float) -> None:
        self.job = job
        self.now_s = now_s
        self.made: list[Instruction] = []

    # ------------------------------------------------------------------ events

    def start(self, attempt: Attempt) -> None:
        """Start it."""
        self.job = replace(self.job, start=attempt)
        self.made.append(attempt.call)

    def forget_start(self) -> None:
        """Forget its last start, if it has ended."""
        if self.job.start is not None and self.job.start.ended is not None:
            self.job = replace(self.job, start=None)

    def settle(self, listing: Listing) -> None:
        """Forget what is over: a start that is shown to be done, and a failure of long ago."""
        if self.job.start is not None and starts.is_shown(self.job.start, listing):
            self.forget_start()
        if self.job.given_up is not None and self.now_s >= self.job.given_up[0]:
            self.job = replace(self.job, given_up=None)

    def begin(self, action: actions.Move, old: Inspected) -> None:
        """Ask a running job to save itself."""
        self.job = replace(self.job, move=Move(old, Step.ASKED, self.now_s, action))
        self._do("ask", old, action.checkpoint)

    def depart(self, departure: Departure, old: Inspected) -> None:
        """Ask a running job, which is not being moved, to save itself and then leave the node."""
        move = Move(old, Step.ASKED, self.now_s, departure=departure)
        self.job = replace(self.job, move=move, departure=departure)
        self._do("ask", old, departure.checkpoint, departure.limits)

    def find(self, one: Inspected, departure: Departure | None) -> None:
        """Note that an earlier agent began to move it."""
        step = Step.FOUND if departure is None else Step.AWAY
        move = Move(one, step, self.now_s, departure=departure, called_s=self.now_s)
        self.job = replace(self.job, move=move)

    def leave(self, departure: Departure) -> None:
        """It leaves, or has left."""
        self.job = replace(self.job, departure=departure)

    def forget(self, there: Collection[str]) -> None:
        """Forget containers that were found or forsaken, and are not there any more."""
        move = self.job.move
        if move is not None and move.step is Step.FOUND and move.old.container_id not in there:
            self.job = replace(self.job, move=None)
        if not self.job.forsaken.issubset(there):
            self.job = replace(self.job, forsaken=self.job.forsaken.intersection(there))

    def withdraw(self) -> None:
        """Withdraw what an earlier agent asked of it, without effect."""
        self._beside("withdraw")

    def sweep(self) -> None:
        """Remove the volumes of its earlier moves."""
        self._beside("sweep")

    def inspect_volume(self) -> None:
        """Find out whether its present volume is there, as `sweep` notices that it is gone."""
        self.job = replace(self.job, inspected_s=self.now_s)
        self.sweep()

    def start_again(self, container: str) -> None:
        """Start its container, which has ended, again."""
        self.job = replace(self.job, started_s=self.now_s)
        self.made.append(Act("", self.job.name, "start_again", (container,)))

    def report(self, departure: Departure) -> None:
        """What became of its departure was asked for."""
        self._departure(departure, reported=True)

    def end(self, ended: Ended | Pulls) -> None:
        """A call has ended, or is longer under way."""
        move, call = self.job.move, ended.call
        if self.job.start is not None:
            self.job = replace(self.job, start=starts.after(self.job.start, ended))
        if isinstance(ended, Pulls):
            return
        if move is None or not isinstance(call, Act):
            return
        if call.act == "poll":
            self._set(polls=False)
        elif call is move.call and move.ended is None:
            self._set(ended=ended, called_s=ended.at_s)
            if call.act in ("end", "end_old") and ended.error is None:
                # Not before: it may have waited for other calls, or long for the engine.
                self._set(kill_at_s=ended.at_s + move.stop.grace_s)

    def forsake(self, listed_s: float) -> None:
        """The job is to be removed: end its move, or what keeps that from ending."""
        move = self._move
        if not move.shown_by(listed_s):
            if move.departure is not None:
                self._departure(move.departure, withdrawn=True)
                self._abandon()
            return
        forsaken = self.job.forsaken | {move.old.container_id}
        self.job = replace(self.job, move=None, forsaken=forsaken)
        if move.departure is not None:
            self._stays(move.departure, LeavingPhase.ENDED, "the job was removed")

    def change(self, *, held: bool, cleared: bool) -> None:
        """What leaves, or has left, is to be removed where it is cleared; else it is to return.
        `held`: something of it is under way, or may turn out to be; else it is forgotten."""
        if (departure := self.job.departure) is not None:
            how = {"cleared": True} if cleared else {"withdrawn": True}
            departure = self._departure(departure, **how)
            self._abandon()
            if not held:
                self.drop(departure)
        elif cleared:
            self.sweep()

    def refuse(self, departure: Departure, phase: LeavingPhase, why: str) -> None:
        """It does not leave."""
        self.leave(departure)
        self._stays(departure, phase, why)

    def advance(self, view: View) -> None:
        """Take the next step, if it is due."""
        move, shown = self._move, self._move.shown_by(view.listed_s)
        if view.old is None:
            if shown:  # cleared, or removed by another program: the other one is the job's
                self._over()
            return
        self._set(old=view.old)
        if view.winding_up:
            self._abandon()
        if move.step is Step.ASKED:
            self._asked(view)
        elif shown and not move.rests(self.now_s):
            self._go_on(view)

    def drop(self, departure: Departure) -> None:
        """Forget it, with its archive, and with its volumes where it is cleared."""
        if self.job.departure is departure:
            self.job = replace(self.job, departure=None)
        self.made.append(DropArchive(departure.archive))
        if departure.cleared:
            self.sweep()

    # ------------------------------------------------------------------ parts

    @property
    def _move(self) -> Move:
        assert self.job.move is not None
        return self.job.move

    def _set(self, **changes: object) -> None:
        self.job = replace(self.job, move=replace(self._move, **changes))  # type: ignore[arg-type]

    def _departure(self, departure: Departure, **changes: object) -> Departure:
        after = replace(departure, **changes)  # type: ignore[arg-type]
        if self.job.departure is departure:
            self.job = replace(self.job, departure=after)
        if self.job.move is not None and self.job.move.departure is departure:
            self._set(departure=after)
        return after

    def _enter(self, step: Step, failure: str | None = None) -> None:
        if step not in TABLE[self._move.step]:
            raise ValueError(f"{step} does not follow {self._move.step}")
        self._set(step=step, since_s=self.now_s, kill_at_s=None, failure=failure)

    def _do(self, act: ActName, *args: object) -> None:
        """Begin the step's next call."""
        move, job = self._move, self.job.name
        call = Act(move.old.container_id, job, act, args, f"{job}: {move.step.name.lower()}")
        self.made.append(call)
        self._set(call=call, ended=None, called_s=math.inf)

    def _beside(self, act: ActName, label: str = "") -> None:
        """Begin a call whose end no step waits for."""
        self.made.append(Act("", self.job.name, act, (self.job.name,), label))

    def _cut_short(self, winding_up: bool) -> str | None:
        """Why it should go back now; None: it goes on."""
        departure = self._move.departure
        if departure is not None and departure.over:
            return GIVEN_BACK
        return AGENT_ENDS if winding_up else None

    def _abandon(self) -> None:
        """Its archive is not wanted any more: packing may take long."""
        move = self.job.move
        if move is not None and move.step is Step.PACKING and move.call and move.ended is None:
            self.made.append(Abandon(move.call))

    def _end_old(self) -> None:
        self._enter(Step.ENDING, self._move.failure)
        self._do("end_old", self._move.old, self._move.stop)

    def _return(self) -> None:
        self._set(returns=self._move.returns + 1)
        self._do("bring_back", self._move.old, self._move.before)

    def _go_back(self, failure: str | None) -> None:
        self._enter(Step.RETURNING, failure)
        self._return()

    def _kill_old(self) -> None:
        self._do("kill", self._move.old.container_id)

    def _clear(self) -> None:
        old = self._move.old
        self._do("kill" if old.state in RUNS else "remove", old.container_id)

    def _finish(self) -> None:
        """Remove the old container: it is not needed any more."""
        self._enter(Step.CLEARING)
        self._clear()

    def _give_up(
        self, why: str, again_s: float = AGAIN_S, phase: LeavingPhase = LeavingPhase.REFUSED
    ) -> None:
        """It is where it was; what was asked of it is withdrawn. `phase`: of one that leaves."""
        move = self._move
        self.withdraw()
        self.job = replace(self.job, move=None)
        if move.departure is not None:
            self._stays(move.departure, phase, why)
        if move.departure is None or move.returns > RETURNS:
            self.job = replace(self.job, given_up=(self.now_s + again_s, why))
        self.made.append(Say(f"{self.job.name}: {why}", warns=True))

    def _over(self) -> None:
        move, departure = self._move, self._move.departure
        self.job = replace(self.job, move=None)
        if departure is not None:
            if departure.over:
                self.drop(departure)
            elif move.step is not Step.AWAY:
                self._stays(departure, LeavingPhase.ENDED, "the job's container is gone")
        elif move.step is Step.CLEARING:
            self.job = replace(self.job, given_up=None)
            self.made.append(Say(f"{self.job.name}: moved"))

    def _stays(self, departure: Departure, phase: LeavingPhase, why: str) -> None:
        """It does not leave: it was refused or has ended, unless it was given back."""
        if departure.over:
            self.drop(departure)
            return
        self._departure(departure, leaving=replace(departure.leaving, phase=phase, why=why))
        self.made.append(DropArchive(departure.archive))

    # ------------------------------------------------------------------ steps

    def _go_on(self, view: View) -> None:
        match self._move.step:
            case Step.FOUND:
                self._found(view)
            case Step.ENDING:
                self._ending(view)
            case Step.MAKING:
                self._making(view)
            case Step.WATCHED:
                self._watched(view)
            case Step.PACKING:
                self._packing(view)
            case Step.AWAY:
                self._away(view)
            case Step.CLEARING:
                self._clear()
            case Step.UNDOING:
                self._undoing(view)
            case Step.RETURNING if view.heir is not None:
                # Its creation was abandoned, but succeeded later.
                self._undo(view, self._move.failure)
            case Step.RETURNING:
                self._returning()

    def _found(self, view: View) -> None:
        """Resume after one observation, in which the job may have been removed."""
        if self.now_s <= self._move.since_s:
            return
        if view.heir is not None:
            self._enter(Step.WATCHED)
        elif self._move.old.state in RUNS and not view.aside:
            self._give_up(f"not moved: {CUT_SHORT}", 0.0)  # the engine started it again
        elif self._move.old.state in RUNS:
            # It may have got its signal, and would end at any moment.
            self._set(failure=CUT_SHORT)
            self._end_old()
        else:
            self._go_back(CUT_SHORT)

    def _asked(self, view: View) -> None:
        move, checkpoint = self._move, self._move.checkpoint
        if move.ended is None:
            return
        if (cut := self._cut_short(view.winding_up)) is not None:
            self._give_up(f"not moved: {cut}", 0.0)
        elif (saved := _acknowledged(move, view.fact)) is not None and checkpoint is not None:
            if is_below(saved.path, checkpoint.path):
                self._saved(saved)
            else:
                where = f"{one_line(saved.path)[:200]}, not below {checkpoint.path}"
                self._give_up(f"not moved: the job saved itself at {where}")
        elif checkpoint is None or move.old.state not in RUNS:
            self._give_up("not moved: the job ended by itself", 0.0, LeavingPhase.ENDED)
        elif (why := move.failed) is not None:
            self._give_up(f"not moved: the job cannot be asked to save itself: {why}")
        elif self.now_s >= max(move.since_s, move.called_s) + checkpoint.timeout_s:
            if move.action is not None and move.action.saved_before:
                self._saved(None)  # without its GPU it saves nothing more
                return
            waited = f"{checkpoint.timeout_s:g} s"
            self._give_up(f"not moved: the job acknowledged no checkpoint within {waited}")
        elif not move.polls:
            self._set(polls=True)
            self._beside("poll", f"{self.job.name}: saves itself")

    def _saved(self, saved: CheckpointAck | None) -> None:
        move, ended = self._move, self._move.ended
        if move.departure is not None and saved is not None:
            leaving = replace(move.departure.leaving, step=saved.step)
            self._departure(move.departure, file=saved.path, leaving=leaving)
        asked = ended is not None and isinstance(ended.result, Allotment)
        self._set(before=ended.result if ended is not None and asked else None)
        self._end_old()

    def _ending(self, view: View) -> None:
        cut = self._cut_short(view.winding_up)
        self._set(failure=self._move.failure or cut)
        move, departure = self._move, self._move.departure
        if move.old.state not in RUNS:
            if departure is not None and departure.cleared:
                self._finish()
            elif departure is not None and move.failure is None:
                self._pack(departure)
            elif move.action is None or move.failure is not None:
                self._go_back(move.failure)
            else:
                self._enter(Step.MAKING)
                self._do("replace", move.old, move.action.start)
        elif not view.aside:
            why = move.failed or "another program renamed the container"
            self._give_up(f"not moved: the job's container cannot be renamed: {why}")
        elif move.failed is not None:
            self._do("end_old", move.old, move.stop)
        elif cut is not None or self.now_s >= (move.kill_at_s or 0.0):
            # The acknowledged checkpoint is safe, whatever it is doing now.
            self._set(kill_at_s=self.now_s + REST_S)
            self._kill_old()

    def _pack(self, departure: Departure) -> None:
        self._enter(Step.PACKING)
        old, checkpoint = self._move.old, departure.checkpoint
        assert checkpoint is not None
        if checkpoint.shared:
            self._do("find", old, departure.file)
            return
        self._do("pack", old, checkpoint.path, departure.archive, departure.most_bytes)

    def _packing(self, view: View) -> None:
        move, departure = self._move, self._move.departure
        failure = self._cut_short(view.winding_up)
        if failure is None and move.old.state in RUNS:
            failure = "another program started the container"
        if failure is None and (why := move.failed) is not None:
            failure = f"the job's checkpoint cannot be handed over: {why}"
        assert departure is not None and move.ended is not None
        if departure.cleared:
            self._finish()
        elif failure is not None:
            self._go_back(failure)
        else:
            packed = move.ended.result
            assert isinstance(packed, Packed)
            self._enter(Step.AWAY)
            leaving = replace(
                departure.leaving,
                phase=LeavingPhase.AWAY,
                sha256=packed.sha256,
                size_bytes=packed.size_bytes,
                file=packed.file,
            )
            self._departure(departure, leaving=leaving)
            bytes_ = packed.size_bytes
            self.made.append(
                Say(f"{self.job.name}: the job left for another node with {bytes_} bytes to carry")
            )

    def _away(self, view: View) -> None:
        departure = self._move.departure
        assert departure is not None
        if departure.cleared or (departure.withdrawn and view.heir is not None):
            self._finish()
        elif departure.withdrawn:
            self._go_back(GIVEN_BACK)
        elif self._move.old.state in RUNS:  # another node may run it by now
            self._kill_old()

    def _making(self, view: View) -> None:
        if (why := self._move.failed) is None:
            self._enter(Step.WATCHED)
        else:
            self._undo(view, f"the job's new container cannot be started: {why}")

    def _watched(self, view: View) -> None:
        move, heir = self._move, view.heir
        up_s, failure = self.now_s - move.since_s, None
        target = move.action is None or move.action.start.spec.target is not None
        if heir is None:
            failure = "the job's new container disappeared"
        elif heir.state is ContainerState.EXITED and heir.exit_code == 0:
            self._finish()  # the job has finished there
        elif heir.state not in RUNS or heir.restarts > 0:
            failure = _end_of(heir)
        elif _has_reported(view.fact, heir) or (up_s >= STAYS_UP_S and not target):
            self._finish()
        elif up_s >= REPORT_WITHIN_S:
            failure = f"the job's new container reported nothing within {REPORT_WITHIN_S:g} s"
        elif move.old.state in RUNS:  # started by another program: there must not be two
            self._kill_old()
        if failure is not None:
            self._undo(view, failure)

    def _undo(self, view: View, failure: str | None) -> None:
        self._enter(Step.UNDOING, failure)
        self._undoing(view)

    def _undoing(self, view: View) -> None:
        move, heir = self._move, view.heir
        if heir is None:
            self._set(returns=0)
            self._go_back(move.failure)
        elif heir.state not in RUNS:
            self._do("remove", heir.container_id)
        elif move.kill_at_s is None:
            self._do("end", heir, move.stop)
        elif view.winding_up or self.now_s >= move.kill_at_s:
            self._set(kill_at_s=self.now_s + REST_S)
            self._do("kill", heir.container_id)

    def _returning(self) -> None:
        move, why = self._move, self._move.failed
        if why is None:
            # That an agent ended says nothing against the move.
            again_s = 0.0 if move.failure in ANY_TIME else AGAIN_S
            self._give_up(f"moved back: {move.failure}", again_s)
        elif move.returns < RETURNS:
            self._return()
        else:
            if move.returns == RETURNS:
                failure = f"{move.failure}; and the old container cannot be started again: {why}"
                self._set(returns=move.returns + 1, failure=failure)
            self._do("name", move.old)


def describe(move: Move, now_s: float, gpu_names: Callable[[tuple[str, ...]], str]) -> str:
    """Where it goes, and what it waits for."""
    if move.step is Step.FOUND:
        return f"to the new container or back to the old one: {CUT_SHORT}"
    gpus = "" if move.action is None else gpu_names(move.action.start.gpus)
    there = gpus if move.departure is None else "another node"
    to = f"to {there}: " if there else "to a new container: "
    if move.step in (Step.UNDOING, Step.RETURNING) or (
        move.step is Step.ENDING and move.failure is not None
    ):
        to = f"back, since {move.failure}: "
    timeout_s = move.checkpoint.timeout_s if move.checkpoint is not None else 0.0
    until_s = {
        Step.ASKED: move.since_s + timeout_s,
        Step.ENDING: move.kill_at_s or now_s + move.stop.grace_s,
        Step.WATCHED: move.since_s + REPORT_WITHIN_S,
    }.get(move.step)
    left = "" if until_s is None else f" ({max(0.0, until_s - now_s):.0f} s left)"
    return f"{to}{move.step}{left}"


def is_below(path: str, folder: str) -> bool:
    """Whether that path is in a folder that outlasts the container."""
    return PurePosixPath(normpath(path)).is_relative_to(normpath(folder))


def _acknowledged(move: Move, fact: ContainerFact | None) -> CheckpointAck | None:
    """The last checkpoint acknowledged since the job was asked."""
    reports = fact.reports if fact is not None else ()
    acks = [one.checkpoint for one in reports if one.received_s > move.since_s]
    return next((ack for ack in reversed(acks) if ack is not None), None)


def _has_reported(fact: ContainerFact | None, heir: Inspected) -> bool:
    """Whether the new container has reported anything since the last check."""
    return fact is not None and fact.container_id == heir.container_id and bool(fact.reports)


def _end_of(heir: Inspected) -> str:
    """A short text on how the new container ended."""
    if heir.state is ContainerState.CREATED:
        return "the job's new container was never started"
    if heir.exit_code is None:  # it runs again, so its exit code is unknown
        return "the job's new container ended, and Docker started it again"
    error = f": {heir.error}" if heir.error else ""
    return f"the job's new container ended with exit code {heir.exit_code}{error}"
