"""Jobs that move to other GPUs.

State machine that moves a job to other GPUs: checkpoint, stop, recreate, roll back on failure; it
also takes up moves that an earlier agent began. Each cycle takes the next step, and every engine
call is made in the background, so no cycle waits. It must not decide which job moves, or where to.

    step       what is waited for                          then
    ---------  ------------------------------------------  ------------------------------------
    asked      the job's acknowledgement                   ending; given up where none comes, but
                                                           for one that lost a GPU and saved before
    ending     the end of the old container                making
    making     the creation and the start of the new one   watched; undoing where it fails
    watched    the new one's first report                  clearing; undoing where none comes
    clearing   the removal of the old container            over
    undoing    the end and the removal of the new one      returning
    returning  the old one's start under its own name      over: rolled back
    found      one cycle, in which it can be removed       whatever stands calls for
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from threading import Timer

from dlsched.control.ports import Wake
from dlsched.model.actions import Move, Outcome, Remove
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, ContainerState, Operation, OperationKind
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.engine import one_line
from dlsched.runtime.docker.identity.labels import Inspected, set_aside_name
from dlsched.runtime.docker.listing import Listing
from dlsched.runtime.docker.moves.relocation import Relocation
from dlsched.runtime.docker.moves.steps import (
    AGAIN_S,
    AGENT_ENDS,
    CUT_SHORT,
    LOOK_S,
    REPORT_WITHIN_S,
    REST_S,
    RETURNS,
    RUNS,
    STAYS_UP_S,
    Reason,
    Step,
    Way,
    acknowledged,
    end_of,
    everything,
    has_reported,
    heir_of,
    in_words,
    is_below,
)

_log = logging.getLogger(__name__)


class Moves:
    """The moves that this agent has begun or found; only the loop's thread uses it."""

    def __init__(
        self,
        acts: Relocation,
        instance: str,
        gate: AbstractContextManager[object],
        ended: Callable[[str | None, str], None],
        wake: Wake,
        now_s: Callable[[], float],
        gpu_names: Callable[[tuple[str, ...]], str] = ", ".join,
    ) -> None:
        """`ended` is told from a thread that a call is over, and wakes the loop; `gpu_names` tells
        of UUIDs what a person calls those GPUs."""
        self._acts = acts
        self._instance = instance
        self._gate = gate
        self._ended = ended
        self._wake = wake
        self._now_s = now_s
        self._gpu_names = gpu_names
        self._ways: dict[str, Way] = {}
        self._given_up: dict[str, tuple[float, str]] = {}
        """By job, until when it is not asked again, and why."""
        self._forsaken: set[str] = set()
        """Old containers whose jobs are being removed: nobody's way any more."""
        self._stale: list[str] = []
        """Jobs that an earlier agent asked to save themselves, to no end."""
        self._looked_at: Listing | None = None
        """The last listing that nothing was left over of."""
        self.winding_up = False
        """Whether the agent ends: what has not come far goes back, and nothing is begun."""

    def begin(self, action: Move, described: Inspected, now_s: float) -> Outcome:
        """Ask a running job to save itself; asking again changes nothing."""
        if action.job in self._ways:
            return Outcome(action, "begun", str(self.operation(action.job, now_s) or ""))
        until_s, why = self._given_up.get(action.job, (0.0, ""))
        if now_s < until_s:
            return Outcome(action, "failed", f"{why}; not tried again for {until_s - now_s:.0f} s")
        if described.state is not ContainerState.RUNNING or self.winding_up:
            why = str(AGENT_ENDS) if self.winding_up else f"it is {described.state}"
            return Outcome(action, "failed", why)
        way = Way(action.job, described, Step.ASKED, now_s, action)
        self._ways[action.job] = way
        self._do(way, lambda: self._acts.ask(described, action.checkpoint))
        return Outcome(action, "begun", action.why)

    def find(self, listing: Listing, now_s: float) -> None:
        """Note the moves that an earlier agent began: containers that are set aside, and jobs that
        it asked to save themselves and that may have ended because of that. Changes nothing."""
        if listing is self._looked_at and not (self._ways or self._forsaken):
            return
        there, first = everything(listing), self._looked_at is None
        for way in list(self._ways.values()):
            if way.step is Step.FOUND and way.old.container_id not in there:
                del self._ways[way.job]
        self._forsaken &= there.keys()
        self._looked_at = listing
        for container, one in there.items():
            if one.adopted is not None or one.job in self._ways or container in self._forsaken:
                continue
            asked = first and not self._is_aside(one) and self._acts.was_asked(one.job)
            if self._is_aside(one) or (asked and one.state is ContainerState.EXITED):
                self._ways[one.job] = way = Way(one.job, one, Step.FOUND, now_s)
                way.call.set_result(None)
                way.called_s = now_s
            elif asked:
                self._stale.append(one.job)

    def advance(self, listing: Listing, facts: Iterable[ContainerFact], now_s: float) -> None:
        """Take the next step of each way whose time for it has come."""
        while self._stale:
            self._withdraw(self._stale.pop())
        if not self._ways:
            return
        by_job = {fact.job: fact for fact in facts if fact.adopted is None}
        there = everything(listing)
        for way in list(self._ways.values()):
            old, shown = there.get(way.old.container_id), way.shown_by(listing)
            if old is not None:
                way.old = old
                if way.step is Step.ASKED:
                    self._asked(way, by_job.get(way.job), now_s)
                elif shown and not way.rests(now_s):
                    self._go_on(way, heir_of(listing, way), by_job.get(way.job), now_s)
            elif shown:  # cleared, or somebody removed it: what is left stands for the job
                self._over(way)

    def forsake(
        self, action: Remove, listing: Listing | None, now_s: float
    ) -> tuple[Inspected, ...] | Outcome:
        """The job is to be removed, wherever its move has come to: its containers beside the
        action's own; or what has to end before anybody can tell which those are."""
        way = self._ways.get(action.job)
        if way is None or listing is None:
            return ()
        if way.step is not Step.FOUND and not way.shown_by(listing):
            return Outcome(action, "begun", str(self.operation(action.job, now_s) or ""))
        del self._ways[action.job]
        self._forsaken.add(way.old.container_id)
        others = (one for key, one in everything(listing).items() if key != action.container_id)
        return tuple(one for one in others if one.job == action.job and one.adopted is None)

    @property
    def idle(self) -> bool:
        """Whether no job is being moved."""
        return not self._ways

    def operation(self, job: str, now_s: float) -> Operation | None:
        """What its move is waiting for; None: it is not being moved."""
        way = self._ways.get(job)
        if way is None:
            return None
        text = f"moving {in_words(way, now_s, self._gpu_names)}"
        return Operation(OperationKind.MOVING, text)

    def kept(self, job: str, gpus: tuple[str, ...]) -> tuple[str, ...]:
        """The GPUs that the job needs beside `gpus`: where it goes, and where it may go back to."""
        way = self._ways.get(job)
        if way is None:
            return ()
        target = way.action.start.gpus if way.action is not None else ()
        return tuple(sorted({*target, *way.old.gpus} - set(gpus)))

    def alarms(self, now_s: float) -> tuple[Alarm, ...]:
        """Moves that failed, until they are tried again."""
        self._given_up = {job: word for job, word in self._given_up.items() if now_s < word[0]}
        return tuple(
            Alarm(job, AlarmKey.MOVE_FAILED, f"{job}: {why}")
            for job, (_, why) in self._given_up.items()
        )

    @property
    def unsettled(self) -> bool:
        """Whether a job has no container now that will run on by itself."""
        return any(way.step is not Step.WATCHED for way in self._ways.values())

    def _go_on(
        self, way: Way, heir: Inspected | None, fact: ContainerFact | None, now_s: float
    ) -> None:
        match way.step:
            case Step.FOUND:
                self._found(way, heir, now_s)
            case Step.ENDING:
                self._ending(way, now_s)
            case Step.MAKING:
                self._making(way, heir, now_s)
            case Step.WATCHED:
                self._watched(way, heir, fact, now_s)
            case Step.CLEARING:
                self._clear(way)
            case Step.UNDOING:
                self._undoing(way, heir, now_s)
            case Step.RETURNING if heir is not None:
                # Its creation was given up, and came to an end all the same.
                self._enter(way, Step.UNDOING, now_s, failure=way.failure)
                self._undoing(way, heir, now_s)
            case Step.RETURNING:
                self._returning(way)

    def _found(self, way: Way, heir: Inspected | None, now_s: float) -> None:
        """One observation after it was found: whoever wants the job removed has said so by now."""
        if now_s <= way.since_s:
            return
        if heir is not None:
            self._enter(way, Step.WATCHED, now_s)
        elif way.old.state in RUNS and not self._is_aside(way.old):
            self._give_up(way, f"not moved: {CUT_SHORT}", 0.0)  # the engine started it again
        elif way.old.state in RUNS:
            # It may have been told to end, and then does so at any moment.
            self._enter(way, Step.ENDING, now_s, failure=CUT_SHORT)
            self._tell_old(way, now_s)
        else:
            self._enter(way, Step.RETURNING, now_s, failure=CUT_SHORT)
            self._return(way)

    def _asked(self, way: Way, fact: ContainerFact | None, now_s: float) -> None:
        checkpoint = way.action.checkpoint if way.action is not None else None
        if not way.call.done():
            return
        if self.winding_up:
            self._give_up(way, f"not moved: {AGENT_ENDS}", 0.0)
        elif (saved := acknowledged(way, fact)) is not None and checkpoint is not None:
            if is_below(saved.path, checkpoint.path):
                self._end_old(way, now_s)
            else:
                where = f"{one_line(saved.path)[:200]}, not below {checkpoint.path}"
                self._give_up(way, f"not moved: it saved itself at {where}")
        elif checkpoint is None or way.old.state not in RUNS:
            self._give_up(way, "not moved: it ended by itself", 0.0)
        elif (why := way.failed()) is not None:
            self._give_up(way, f"not moved: it cannot be asked to save itself: {why}")
        elif now_s >= max(way.since_s, way.called_s) + checkpoint.timeout_s:
            if way.action is not None and way.action.saved_before:
                # Without its GPU it saves nothing more, and each step that it made since is lost.
                self._end_old(way, now_s)
                return
            waited = f"{checkpoint.timeout_s:g} s"
            self._give_up(way, f"not moved: it acknowledged no checkpoint within {waited}")
        else:
            self._look_again(way)

    def _look_again(self, way: Way) -> None:
        if way.look is None or not way.look.is_alive():
            way.look = Timer(LOOK_S, self._wake, (f"{way.job}: saves itself",))
            way.look.daemon = True
            way.look.start()

    def _end_old(self, way: Way, now_s: float) -> None:
        way.before = way.call.result() if way.failed() is None else None
        self._enter(way, Step.ENDING, now_s)
        self._tell_old(way, now_s)

    def _tell_old(self, way: Way, now_s: float) -> None:
        old, stop = way.old, way.stop
        way.kill_at_s = now_s + stop.grace_s

        def tell() -> None:
            self._acts.set_aside(old)
            self._acts.end(old, stop, soon=True)

        self._do(way, tell)

    def _ending(self, way: Way, now_s: float) -> None:
        if self.winding_up and way.failure is None:
            way.failure = AGENT_ENDS
        if way.old.state not in RUNS:
            if way.action is None or way.failure is not None:
                self._enter(way, Step.RETURNING, now_s, failure=way.failure)
                self._return(way)
            else:
                old, start = way.old, way.action.start
                self._enter(way, Step.MAKING, now_s)
                self._do(way, lambda: self._acts.replace(old, start))
        elif not self._is_aside(way.old):
            why = way.failed() or "it was renamed"
            self._give_up(way, f"not moved: its container cannot be set aside: {why}")
        elif way.failed() is not None:
            self._tell_old(way, now_s)
        elif self.winding_up or now_s >= (way.kill_at_s or 0.0):
            # What it has acknowledged is saved, whatever it is doing now.
            way.kill_at_s = now_s + REST_S
            self._do(way, partial(self._acts.kill, way.old.container_id))

    def _making(self, way: Way, heir: Inspected | None, now_s: float) -> None:
        if (why := way.failed()) is None:
            self._enter(way, Step.WATCHED, now_s)
        else:
            failure = Reason(f"its new container cannot be started: {why}")
            self._enter(way, Step.UNDOING, now_s, failure=failure)
            self._undoing(way, heir, now_s)

    def _watched(
        self, way: Way, heir: Inspected | None, fact: ContainerFact | None, now_s: float
    ) -> None:
        up_s, failure = now_s - way.since_s, None
        target = way.action is None or way.action.start.spec.target is not None
        if heir is None:
            failure = "its new container is gone"
        elif heir.state is ContainerState.EXITED and heir.exit_code == 0:
            self._enter(way, Step.CLEARING, now_s)  # it has come to its end there
            self._clear(way)
        elif heir.state not in RUNS or heir.restarts > 0:
            failure = f"its new container {end_of(heir)}"
        elif has_reported(fact, heir) or (up_s >= STAYS_UP_S and not target):
            self._enter(way, Step.CLEARING, now_s)
            self._clear(way)
        elif up_s >= REPORT_WITHIN_S:
            failure = f"its new container told nothing within {REPORT_WITHIN_S:g} s"
        elif way.old.state in RUNS:  # somebody started it: there must not be two
            self._do(way, partial(self._acts.kill, way.old.container_id))
        if failure is not None:
            self._enter(way, Step.UNDOING, now_s, failure=Reason(failure))
            self._undoing(way, heir, now_s)

    def _undoing(self, way: Way, heir: Inspected | None, now_s: float) -> None:
        if heir is None:
            self._enter(way, Step.RETURNING, now_s, failure=way.failure)
            way.returns = 0
            self._return(way)
        elif heir.state not in RUNS:
            self._do(way, partial(self._acts.remove, heir.container_id))
        elif way.kill_at_s is None:
            way.kill_at_s = now_s + way.stop.grace_s
            self._do(way, partial(self._acts.end, heir, way.stop))
        elif self.winding_up or now_s >= way.kill_at_s:
            way.kill_at_s = now_s + REST_S
            self._do(way, partial(self._acts.kill, heir.container_id))

    def _returning(self, way: Way) -> None:
        why = way.failed()
        if why is None:
            # That an agent ended says nothing against the move.
            agent_ended = way.failure is not None and way.failure.agent_ended
            again_s = 0.0 if agent_ended else AGAIN_S
            self._give_up(way, f"moved back: {way.failure}", again_s)
        elif way.returns < RETURNS:
            self._return(way)
        else:
            if way.returns == RETURNS:
                way.returns += 1
                way.failure = Reason(f"{way.failure}; and it cannot be started again: {why}")
            self._do(way, partial(self._acts.name, way.old))

    def _return(self, way: Way) -> None:
        way.returns += 1
        self._do(way, partial(self._acts.bring_back, way.old, way.before))

    def _clear(self, way: Way) -> None:
        old = way.old.container_id
        self._do(way, partial(self._acts.kill if way.old.state in RUNS else self._acts.remove, old))

    def _enter(self, way: Way, step: Step, now_s: float, failure: Reason | None = None) -> None:
        way.step, way.since_s, way.kill_at_s, way.failure = step, now_s, None, failure

    def _do(self, way: Way, act: Callable[[], object]) -> None:
        """Begin the step's next call."""
        way.called_s = float("inf")
        told = f"{way.job}: {way.step}"

        def over(call: Future[object]) -> None:
            if way.call is call:
                way.called_s = self._now_s()
            self._ended(way.old.container_id, told)

        way.call = begin(act, f"move-{way.job}", self._gate)
        way.call.add_done_callback(over)

    def _give_up(self, way: Way, why: str, again_s: float = AGAIN_S) -> None:
        """It is where it was; what was asked of it is withdrawn."""
        del self._ways[way.job]
        self._given_up[way.job] = (self._now_s() + again_s, why)
        _log.warning("%s: %s", way.job, why)
        self._withdraw(way.job)

    def _withdraw(self, job: str) -> None:
        begin(partial(self._acts.withdraw, job), f"withdraw-{job}")

    def _over(self, way: Way) -> None:
        del self._ways[way.job]
        if way.step is Step.CLEARING:
            self._given_up.pop(way.job, None)
            _log.info("%s: moved", way.job)

    def _is_aside(self, one: Inspected) -> bool:
        return one.adopted is None and one.name == set_aside_name(self._instance, one.job)
