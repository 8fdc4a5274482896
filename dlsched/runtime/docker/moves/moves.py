"""State machine that moves a job to other GPUs: checkpoint, stop, recreate, roll back on failure.

Half of it is also the way of a job that leaves for another node. It resumes what an earlier agent
began. Each cycle takes the next step, and engine calls run in the background, so no cycle waits;
`steps.Step` lists the steps. It must not decide which job moves, or where to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Set
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from threading import Timer

from dlsched.control.ports import Wake
from dlsched.model.actions import Move, Outcome, Remove
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, ContainerState, Operation, OperationKind
from dlsched.model.leaving import LeavingPhase
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.engine import one_line
from dlsched.runtime.docker.identity.labels import set_aside_name
from dlsched.runtime.docker.moves.relocation import Relocation
from dlsched.runtime.docker.moves.steps import (
    AGAIN_S,
    AGENT_ENDS,
    CUT_SHORT,
    GIVEN_BACK,
    POLL_S,
    REPORT_WITHIN_S,
    REST_S,
    RETURNS,
    STAYS_UP_S,
    Departure,
    Departures,
    JobMove,
    Reason,
    Step,
    acknowledged,
    describe,
    end_of,
    everything,
    has_reported,
    heir_of,
    is_below,
)
from dlsched.runtime.machine.inspected import RUNS, Inspected, Listing

_log = logging.getLogger(__name__)


class Moves:
    """The moves that this agent has begun or found; only for the loop's thread."""

    def __init__(
        self,
        acts: Relocation,
        instance: str,
        gate: AbstractContextManager[object],
        ended: Callable[[str | None, str], None],
        wake: Wake,
        now_s: Callable[[], float],
        gpu_names: Callable[[tuple[str, ...]], str],
        departures: Departures,
    ) -> None:
        """`ended` is called from a thread at the end of a call, and wakes the loop; `gpu_names`
        returns readable names of UUIDs."""
        self._acts = acts
        self._instance = instance
        self._gate = gate
        self._ended = ended
        self._wake = wake
        self._now_s = now_s
        self._gpu_names = gpu_names
        self.departures = departures
        self._moves: dict[str, JobMove] = {}
        self._given_up: dict[str, tuple[float, str]] = {}
        """By job: the time of the next attempt, and why the last one failed."""
        self._forsaken: set[str] = set()
        """Old containers whose jobs are being removed."""
        self._stale: list[str] = []
        """Jobs that an earlier agent asked to save themselves, without effect."""
        self._last_listing: Listing | None = None
        self.winding_up = False
        """Whether the agent ends: early moves go back, and none begins."""

    @property
    def moving(self) -> Set[str]:
        """The jobs that are being moved."""
        return {job for job, move in self._moves.items() if not move.is_away}

    @property
    def unsettled(self) -> bool:
        """Whether some job has no container that will go on without the agent."""
        moves = self._moves.values()
        return any(move.step is not Step.WATCHED and not move.is_away for move in moves)

    def kept(self, job: str, gpus: tuple[str, ...]) -> tuple[str, ...]:
        """The GPUs that the job needs beside `gpus`: its target's, and those it may return to."""
        move = self._moves.get(job)
        if move is None:
            return ()
        target = move.action.start.gpus if move.action is not None else ()
        return tuple(sorted({*target, *move.old.gpus} - set(gpus)))

    def gpus_away(self) -> dict[str, tuple[str, ...]]:
        """The GPUs of jobs that have left, by job: a container that is set aside may return."""
        return {
            job: move.old.gpus
            for job, move in self._moves.items()
            if (departure := move.departure) is not None
            and move.is_away
            and move.old.gpus
            and not (departure.cleared or departure.lost)
        }

    def alarms(self, now_s: float) -> tuple[Alarm, ...]:
        """Moves that failed, until they are tried again."""
        self._given_up = {job: entry for job, entry in self._given_up.items() if now_s < entry[0]}
        return tuple(
            Alarm(job, AlarmKey.MOVE_FAILED, f"{job}: {why}")
            for job, (_, why) in self._given_up.items()
        )

    def _cut_short(self, move: JobMove) -> Reason | None:
        """Why it should go back now; None: it goes on."""
        if move.departure is not None and move.departure.over:
            return GIVEN_BACK
        return AGENT_ENDS if self.winding_up else None

    def _enter(
        self, move: JobMove, step: Step, now_s: float, failure: Reason | None = None
    ) -> None:
        move.step, move.since_s, move.kill_at_s, move.failure = step, now_s, None, failure

    def _do(
        self,
        move: JobMove,
        act: Callable[[], object],
        gate: AbstractContextManager[object] | None = None,
    ) -> None:
        """Begin the step's next call."""
        move.called_s = float("inf")
        label = f"{move.job}: {move.step}"

        def over(call: Future[object]) -> None:
            if move.call is call:
                move.called_s = self._now_s()
            self._ended(move.old.container_id, label)

        move.call = begin(act, f"move-{move.job}", gate or self._gate)
        move.call.add_done_callback(over)

    def _poll_again(self, move: JobMove) -> None:
        if move.poll is None or not move.poll.is_alive():
            move.poll = Timer(POLL_S, self._wake, (f"{move.job}: saves itself",))
            move.poll.daemon = True
            with suppress(RuntimeError):  # no thread available: the next cycle retries
                move.poll.start()

    def _end_old_container(self, move: JobMove) -> None:
        old = move.old

        def end() -> None:
            self._acts.set_aside(old)
            self._end(move, old, soon=True)

        self._do(move, end)

    def _end(self, move: JobMove, one: Inspected, *, soon: bool = False) -> None:
        self._acts.end(one, move.stop, soon=soon)
        # Before, this may have waited at the gate, or long for the engine.
        move.kill_at_s = self._now_s() + move.stop.grace_s

    def _pack(self, move: JobMove, departure: Departure, now_s: float) -> None:
        self._enter(move, Step.PACKING, now_s)
        assert departure.checkpoint is not None
        if departure.checkpoint.shared:
            self._do(move, partial(self._acts.find, move.old, departure.file))
            return
        pack = partial(
            self._acts.pack,
            move.old,
            departure.checkpoint.path,
            departure.archive,
            departure.most_bytes,
            lambda: self._cut_short(move) is not None,
        )
        self._do(move, pack, nullcontext())  # it may take long, and forks nothing

    def _return(self, move: JobMove) -> None:
        move.returns += 1
        self._do(move, partial(self._acts.bring_back, move.old, move.before))

    def _go_back(self, move: JobMove, now_s: float, failure: Reason | None) -> None:
        self._enter(move, Step.RETURNING, now_s, failure)
        self._return(move)

    def _kill_old(self, move: JobMove) -> None:
        self._do(move, partial(self._acts.kill, move.old.container_id))

    def _clear(self, move: JobMove) -> None:
        act = self._acts.kill if move.old.state in RUNS else self._acts.remove
        self._do(move, partial(act, move.old.container_id))

    def _finish(self, move: JobMove, now_s: float) -> None:
        """Remove the old container: it is not needed any more."""
        self._enter(move, Step.CLEARING, now_s)
        self._clear(move)

    def _give_up(
        self,
        move: JobMove,
        why: str,
        again_s: float = AGAIN_S,
        phase: LeavingPhase = LeavingPhase.REFUSED,
    ) -> None:
        """It is where it was; what was asked of it is withdrawn. `phase`: of one that leaves."""
        del self._moves[move.job]
        if move.departure is not None:
            self.departures.stays(move.departure, phase, why)
        if move.departure is None or move.returns > RETURNS:
            self._given_up[move.job] = (self._now_s() + again_s, why)
        _log.warning("%s: %s", move.job, why)
        self._withdraw(move.job)

    def _withdraw(self, job: str) -> None:
        begin(partial(self._acts.withdraw, job), f"withdraw-{job}")

    def _over(self, move: JobMove) -> None:
        del self._moves[move.job]
        if move.departure is not None:
            if move.departure.over or move.step is Step.CLEARING:
                self.departures.drop(move.departure)
            elif move.step is not Step.AWAY:
                self.departures.stays(move.departure, LeavingPhase.ENDED, "its container is gone")
        elif move.step is Step.CLEARING:
            self._given_up.pop(move.job, None)
            _log.info("%s: moved", move.job)

    def _is_aside(self, one: Inspected) -> bool:
        return one.adopted is None and one.name == set_aside_name(self._instance, one.job)

    # ------------------------------------------------------------------ steps

    def begin(self, action: Move, described: Inspected, now_s: float) -> Outcome:
        """Ask a running job to save itself; a second call changes nothing."""
        if action.job in self._moves:
            return Outcome(action, "begun", str(self.operation(action.job, now_s) or ""))
        until_s, why = self._given_up.get(action.job, (0.0, ""))
        if now_s < until_s:
            return Outcome(action, "failed", f"{why}; not tried again for {until_s - now_s:.0f} s")
        if described.state is not ContainerState.RUNNING or self.winding_up:
            why = str(AGENT_ENDS) if self.winding_up else f"it is {described.state}"
            return Outcome(action, "failed", why)
        move = JobMove(action.job, described, Step.ASKED, now_s, action)
        self._moves[action.job] = move
        self._do(move, lambda: self._acts.ask(described, action.checkpoint))
        return Outcome(action, "begun", action.why)

    def depart(self, departure: Departure, old: Inspected, now_s: float) -> None:
        """Ask a running job, which is not being moved, to save itself and then leave the node."""
        move = JobMove(old.job, old, Step.ASKED, now_s, departure=departure)
        self._moves[old.job] = move
        if (checkpoint := departure.checkpoint) is not None:
            self._do(move, lambda: self._acts.ask(old, checkpoint, departure.limits))

    def find(self, listing: Listing, now_s: float) -> None:
        """Note the moves that an earlier agent began: containers that are set aside, and jobs that
        it asked to save themselves and that may have ended because of that. Changes nothing."""
        if listing is self._last_listing and not (self._moves or self._forsaken):
            return
        there, first = everything(listing), self._last_listing is None
        for move in list(self._moves.values()):
            if move.step is Step.FOUND and move.old.container_id not in there:
                del self._moves[move.job]
        self._forsaken &= there.keys()
        self._last_listing = listing
        for container, one in there.items():
            if one.adopted is not None or one.job in self._moves or container in self._forsaken:
                continue
            asked = first and not self._is_aside(one) and self._acts.was_asked(one.job)
            if self._is_aside(one) or (asked and one.state is ContainerState.EXITED):
                away = self.departures.found(one) if self._is_aside(one) else None
                step = Step.FOUND if away is None else Step.AWAY
                self._moves[one.job] = move = JobMove(one.job, one, step, now_s, departure=away)
                move.call.set_result(None)
                move.called_s = now_s
            elif asked:
                self._stale.append(one.job)
        if first:
            self.departures.drop_all_over(self._moves.keys())

    def advance(self, listing: Listing, facts: Iterable[ContainerFact], now_s: float) -> None:
        """Take the next step of every move for which it is due."""
        while self._stale:
            self._withdraw(self._stale.pop())
        if not self._moves:
            return
        by_job = {fact.job: fact for fact in facts if fact.adopted is None}
        there = everything(listing)
        for move in list(self._moves.values()):
            old, shown = there.get(move.old.container_id), move.shown_by(listing)
            if old is not None:
                move.old = old
                if move.step is Step.ASKED:
                    self._asked(move, by_job.get(move.job), now_s)
                elif shown and not move.rests(now_s):
                    self._go_on(move, heir_of(listing, move), by_job.get(move.job), now_s)
            elif shown:  # cleared, or removed by another program: the other container is the job's
                self._over(move)

    def forsake(
        self, action: Remove, listing: Listing | None, now_s: float
    ) -> tuple[Inspected, ...] | Outcome:
        """The job's containers beside the action's own, as it is to be removed; an Outcome: not yet
        known."""
        move = self._moves.get(action.job)
        if move is None or listing is None:
            return ()
        departure = move.departure
        if move.step is not Step.FOUND and not move.shown_by(listing):
            if departure is not None:
                departure.withdrawn = True  # packing may take long
            return Outcome(action, "begun", str(self.operation(action.job, now_s) or ""))
        del self._moves[action.job]
        self._forsaken.add(move.old.container_id)
        if departure is not None:
            self.departures.stays(departure, LeavingPhase.ENDED, "it was removed")
        others = (one for key, one in everything(listing).items() if key != action.container_id)
        return tuple(one for one in others if one.job == action.job and one.adopted is None)

    def holds(self, job: str) -> bool:
        """Whether the job is being moved, or may turn out to be in the first listing."""
        return job in self._moves or self._last_listing is None

    def bars_start(self, job: str) -> str | None:
        """Why the job must not get another container; None: it may."""
        move, away = self._moves.get(job), self.departures.away(job)
        if move is not None and move.departure is not None and not move.is_away:
            return "it is leaving for another node, or returns"
        return None if away is None or away.cleared else "it left for another node"

    def operation(self, job: str, now_s: float) -> Operation | None:
        """What its move is waiting for; None: it is not being moved."""
        move = self._moves.get(job)
        if move is None or move.is_away:
            return None
        return Operation(OperationKind.MOVING, f"moving {describe(move, now_s, self._gpu_names)}")

    def _go_on(
        self, move: JobMove, heir: Inspected | None, fact: ContainerFact | None, now_s: float
    ) -> None:
        match move.step:
            case Step.FOUND:
                self._found(move, heir, now_s)
            case Step.ENDING:
                self._ending(move, now_s)
            case Step.MAKING:
                self._making(move, heir, now_s)
            case Step.WATCHED:
                self._watched(move, heir, fact, now_s)
            case Step.PACKING if move.departure is not None:
                self._packing(move, move.departure, now_s)
            case Step.AWAY if move.departure is not None:
                self._away(move, move.departure, heir, now_s)
            case Step.CLEARING:
                self._clear(move)
            case Step.UNDOING:
                self._undoing(move, heir, now_s)
            case Step.RETURNING if heir is not None:
                # Its creation was abandoned, but succeeded later.
                self._undo(move, heir, now_s, move.failure)
            case Step.RETURNING:
                self._returning(move)

    def _found(self, move: JobMove, heir: Inspected | None, now_s: float) -> None:
        """Resume after one observation, in which the job may have been removed."""
        if now_s <= move.since_s:
            return
        if heir is not None:
            self._enter(move, Step.WATCHED, now_s)
        elif move.old.state in RUNS and not self._is_aside(move.old):
            self._give_up(move, f"not moved: {CUT_SHORT}", 0.0)  # the engine started it again
        elif move.old.state in RUNS:
            # It may have got its signal, and would end at any moment.
            self._enter(move, Step.ENDING, now_s, failure=CUT_SHORT)
            self._end_old_container(move)
        else:
            self._go_back(move, now_s, CUT_SHORT)

    def _asked(self, move: JobMove, fact: ContainerFact | None, now_s: float) -> None:
        checkpoint = move.checkpoint
        if not move.call.done():
            return
        if (cut := self._cut_short(move)) is not None:
            self._give_up(move, f"not moved: {cut}", 0.0)
        elif (saved := acknowledged(move, fact)) is not None and checkpoint is not None:
            if is_below(saved.path, checkpoint.path):
                if move.departure is not None:
                    move.departure.file = saved.path
                    move.departure.leaving = replace(move.departure.leaving, step=saved.step)
                self._end_old(move, now_s)
            else:
                where = f"{one_line(saved.path)[:200]}, not below {checkpoint.path}"
                self._give_up(move, f"not moved: it saved itself at {where}")
        elif checkpoint is None or move.old.state not in RUNS:
            self._give_up(move, "not moved: it ended by itself", 0.0, LeavingPhase.ENDED)
        elif (why := move.failed()) is not None:
            self._give_up(move, f"not moved: it cannot be asked to save itself: {why}")
        elif now_s >= max(move.since_s, move.called_s) + checkpoint.timeout_s:
            if move.action is not None and move.action.saved_before:
                # Without its GPU it saves nothing more, and further steps are lost.
                self._end_old(move, now_s)
                return
            waited = f"{checkpoint.timeout_s:g} s"
            self._give_up(move, f"not moved: it acknowledged no checkpoint within {waited}")
        else:
            self._poll_again(move)

    def _end_old(self, move: JobMove, now_s: float) -> None:
        move.before = move.call.result() if move.failed() is None else None
        self._enter(move, Step.ENDING, now_s)
        self._end_old_container(move)

    def _ending(self, move: JobMove, now_s: float) -> None:
        departure, cut = move.departure, self._cut_short(move)
        move.failure = move.failure or cut
        if move.old.state not in RUNS:
            if departure is not None and departure.cleared:
                self._finish(move, now_s)
            elif departure is not None and move.failure is None:
                self._pack(move, departure, now_s)
            elif move.action is None or move.failure is not None:
                self._go_back(move, now_s, move.failure)
            else:
                old, start = move.old, move.action.start
                self._enter(move, Step.MAKING, now_s)
                self._do(move, lambda: self._acts.replace(old, start))
        elif not self._is_aside(move.old):
            why = move.failed() or "it was renamed"
            self._give_up(move, f"not moved: its container cannot be set aside: {why}")
        elif move.failed() is not None:
            self._end_old_container(move)
        elif cut is not None or now_s >= (move.kill_at_s or 0.0):
            # The acknowledged checkpoint is safe, whatever it is doing now.
            move.kill_at_s = now_s + REST_S
            self._kill_old(move)

    def _packing(self, move: JobMove, departure: Departure, now_s: float) -> None:
        failure = self._cut_short(move)
        if failure is None and move.old.state in RUNS:
            failure = Reason("another program started it")
        if failure is None and (why := move.failed()) is not None:
            failure = Reason(f"its checkpoint cannot be handed over: {why}")
        if departure.cleared:
            self._finish(move, now_s)
        elif failure is not None:
            self._go_back(move, now_s, failure)
        else:
            self._enter(move, Step.AWAY, now_s)
            self.departures.left(departure, move.call.result())

    def _away(
        self, move: JobMove, departure: Departure, heir: Inspected | None, now_s: float
    ) -> None:
        if departure.cleared or (departure.withdrawn and heir is not None):
            self._finish(move, now_s)
        elif departure.withdrawn:
            self._go_back(move, now_s, GIVEN_BACK)
        elif move.old.state in RUNS:  # another node may run it by now
            self._kill_old(move)

    def _making(self, move: JobMove, heir: Inspected | None, now_s: float) -> None:
        if (why := move.failed()) is None:
            self._enter(move, Step.WATCHED, now_s)
        else:
            failure = Reason(f"its new container cannot be started: {why}")
            self._undo(move, heir, now_s, failure)

    def _watched(
        self, move: JobMove, heir: Inspected | None, fact: ContainerFact | None, now_s: float
    ) -> None:
        up_s, failure = now_s - move.since_s, None
        target = move.action is None or move.action.start.spec.target is not None
        if heir is None:
            failure = "its new container is gone"
        elif heir.state is ContainerState.EXITED and heir.exit_code == 0:
            self._finish(move, now_s)  # the job has finished there
        elif heir.state not in RUNS or heir.restarts > 0:
            failure = f"its new container {end_of(heir)}"
        elif has_reported(fact, heir) or (up_s >= STAYS_UP_S and not target):
            self._finish(move, now_s)
        elif up_s >= REPORT_WITHIN_S:
            failure = f"its new container reported nothing within {REPORT_WITHIN_S:g} s"
        elif move.old.state in RUNS:  # started by another program: there must not be two
            self._kill_old(move)
        if failure is not None:
            self._undo(move, heir, now_s, Reason(failure))

    def _undo(
        self, move: JobMove, heir: Inspected | None, now_s: float, failure: Reason | None
    ) -> None:
        self._enter(move, Step.UNDOING, now_s, failure)
        self._undoing(move, heir, now_s)

    def _undoing(self, move: JobMove, heir: Inspected | None, now_s: float) -> None:
        if heir is None:
            move.returns = 0
            self._go_back(move, now_s, move.failure)
        elif heir.state not in RUNS:
            self._do(move, partial(self._acts.remove, heir.container_id))
        elif move.kill_at_s is None:
            self._do(move, partial(self._end, move, heir))
        elif self.winding_up or now_s >= move.kill_at_s:
            move.kill_at_s = now_s + REST_S
            self._do(move, partial(self._acts.kill, heir.container_id))

    def _returning(self, move: JobMove) -> None:
        why = move.failed()
        if why is None:
            # That an agent ended says nothing against the move.
            agent_ended = move.failure is not None and move.failure.agent_ended
            again_s = 0.0 if agent_ended else AGAIN_S
            self._give_up(move, f"moved back: {move.failure}", again_s)
        elif move.returns < RETURNS:
            self._return(move)
        else:
            if move.returns == RETURNS:
                move.returns += 1
                move.failure = Reason(f"{move.failure}; and it cannot be started again: {why}")
            self._do(move, partial(self._acts.name, move.old))
