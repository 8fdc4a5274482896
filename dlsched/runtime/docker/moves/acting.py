"""How a move acts: it begins calls, enters steps, and ends. `moves` has the steps themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from threading import Timer

from dlsched.control.ports import Wake
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.leaving import LeavingPhase
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.carrying import Packed
from dlsched.runtime.docker.identity.labels import RUNS, Inspected, set_aside_name
from dlsched.runtime.docker.listing import Listing
from dlsched.runtime.docker.moves.departures import Departures
from dlsched.runtime.docker.moves.relocation import Relocation
from dlsched.runtime.docker.moves.steps import (
    AGAIN_S,
    AGENT_ENDS,
    GIVEN_BACK,
    POLL_S,
    RETURNS,
    Departure,
    JobMove,
    Reason,
    Step,
)

_log = logging.getLogger(__name__)


class Acting:
    """The moves under way, and what every step of them may do; only for the loop's thread."""

    def __init__(
        self,
        acts: Relocation,
        instance: str,
        gate: AbstractContextManager[object],
        ended: Callable[[str | None, str], None],
        wake: Wake,
        now_s: Callable[[], float],
        gpu_names: Callable[[tuple[str, ...]], str] = ", ".join,
        departures: Departures | None = None,
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
        self.departures = departures or Departures()
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
    def idle(self) -> bool:
        """Whether no container is being moved."""
        return all(move.is_away for move in self._moves.values())

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
            move.poll.start()

    def _end_old_container(self, move: JobMove, now_s: float) -> None:
        old, stop = move.old, move.stop
        move.kill_at_s = now_s + stop.grace_s

        def end() -> None:
            self._acts.set_aside(old)
            self._acts.end(old, stop, soon=True)

        self._do(move, end)

    def _pack(self, move: JobMove, departure: Departure) -> None:
        assert departure.checkpoint is not None
        path, archive = departure.checkpoint.path, departure.archive
        bound = departure.most_bytes
        old, saved = move.old, departure.file
        if departure.checkpoint.shared:
            self._do(move, lambda: self._acts.find(old, saved))
            return

        def pack() -> Packed:
            return self._acts.pack(
                old, path, archive, bound, lambda: self._cut_short(move) is not None
            )

        self._do(move, pack, nullcontext())  # it may take long, and forks nothing

    def _return(self, move: JobMove) -> None:
        move.returns += 1
        self._do(move, partial(self._acts.bring_back, move.old, move.before))

    def _clear(self, move: JobMove) -> None:
        act = self._acts.kill if move.old.state in RUNS else self._acts.remove
        self._do(move, partial(act, move.old.container_id))

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
