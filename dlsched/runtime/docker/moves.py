"""The jobs that are being moved, leave this node, or come from another one: begins that, shows the
machine what a listing shows of them, and says what keeps them busy. It must not decide which job
moves, or where to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dlsched.model import actions
from dlsched.model.actions import Outcome, Remove
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, ContainerState, Operation, OperationKind
from dlsched.model.leaving import Leaving, LeavingPhase
from dlsched.model.spec import Checkpoint, Limits
from dlsched.runtime.docker.carrying import Arrivals
from dlsched.runtime.docker.engine_calls import EngineCalls
from dlsched.runtime.docker.identity.labels import set_aside_name
from dlsched.runtime.docker.instance import Instance
from dlsched.runtime.docker.listing import Listings
from dlsched.runtime.docker.watch import Watches
from dlsched.runtime.machine.container import Machine
from dlsched.runtime.machine.inspected import Inspected, Listing
from dlsched.runtime.machine.move import (
    AGENT_ENDS,
    REST_S,
    Departure,
    Job,
    Move,
    Step,
    Turn,
    View,
    describe,
)

INSPECTED_S = 600.0
"""How often a kept volume is inspected: an operator may remove it by hand."""

_OVER = (LeavingPhase.REFUSED, LeavingPhase.ENDED)


@dataclass(slots=True, eq=False)
class Moves:
    """Those that this agent has begun or found; only for the loop's thread. Implements NodeJobs of
    `dlsched.cluster.agent.ports`, which says more."""

    instance: Instance
    machine: Machine
    calls: EngineCalls
    arrivals: Arrivals
    listings: Listings
    watches: Watches
    gpu_names: Callable[[tuple[str, ...]], str]
    """Readable names of UUIDs."""
    winding_up: bool = False
    """Whether the agent ends: early moves go back, and none begins."""
    _lost: Callable[[str, str], Path | None] = lambda *_: None
    _last_listing: Listing | None = None

    def turn(self, job: str, take: Callable[[Turn], None], now_s: float | None = None) -> Job:
        """Have a job take a turn."""
        before = self.machine.job(job)
        after = self.machine.turn(
            job, self.instance.clock.now_s() if now_s is None else now_s, take
        )
        if after.departure is not before.departure:
            hidden = {
                name
                for name, one in self.machine.jobs.items()
                if one.away is not None and not one.away.returns
            }
            self.listings.hide(hidden)
        return after

    # ------------------------------------------------------------------ what is there

    @property
    def _moves(self) -> Iterator[tuple[str, Move]]:
        return ((key, one.move) for key, one in self.machine.jobs.items() if one.move is not None)

    @property
    def moving(self) -> Set[str]:
        """The jobs that are being moved."""
        return {job for job, move in self._moves if not move.is_away}

    @property
    def unsettled(self) -> bool:
        """Whether some job has no container that will go on without the agent."""
        return any(move.step is not Step.WATCHED and not move.is_away for _, move in self._moves)

    def holds(self, job: str) -> bool:
        """Whether the job is being moved, or may turn out to be in the first listing."""
        return self.machine.job(job).move is not None or self._last_listing is None

    def kept(self, job: str, gpus: tuple[str, ...]) -> tuple[str, ...]:
        """The GPUs that the job needs beside `gpus`: its target's, and those it may return to."""
        move = self.machine.job(job).move
        if move is None:
            return ()
        target = move.action.start.gpus if move.action is not None else ()
        return tuple(sorted({*target, *move.old.gpus} - set(gpus)))

    def gpus_away(self) -> dict[str, tuple[str, ...]]:
        """The GPUs of jobs that have left, by job: a container that is set aside may return."""
        return {
            job: move.old.gpus
            for job, move in self._moves
            if (departure := move.departure) is not None
            and move.is_away
            and move.old.gpus
            and not (departure.cleared or departure.lost)
        }

    def alarms(self, now_s: float) -> tuple[Alarm, ...]:
        """Moves that failed, until they are tried again."""
        given_up = ((key, one.given_up) for key, one in self.machine.jobs.items())
        return tuple(
            Alarm(job, AlarmKey.MOVE_FAILED, f"{job}: {failed[1]}")
            for job, failed in given_up
            if failed is not None and now_s < failed[0]
        )

    def operation(self, job: str, now_s: float) -> Operation | None:
        """What its move is waiting for; None: it is not being moved."""
        move = self.machine.job(job).move
        if move is None or move.is_away:
            return None
        return Operation(OperationKind.MOVING, f"moving {describe(move, now_s, self.gpu_names)}")

    def bars_start(self, job: str) -> str | None:
        """Why the job must not get another container; None: it may."""
        one = self.machine.job(job)
        if one.move is not None and one.move.departure is not None and not one.move.is_away:
            return "the job is moving to another node, or back"
        return None if one.away is None or one.away.cleared else "the job moved to another node"

    # ------------------------------------------------------------------ what is done

    def begin(self, action: actions.Move, described: Inspected, now_s: float) -> Outcome:
        """Ask a running job to save itself; a second call changes nothing."""
        one = self.machine.job(action.job)
        if one.move is not None:
            return Outcome(action, "begun", str(self.operation(action.job, now_s) or ""))
        until_s, why = one.given_up or (0.0, "")
        if now_s < until_s:
            return Outcome(action, "failed", f"{why}; next try in {until_s - now_s:.0f} s")
        if described.state is not ContainerState.RUNNING or self.winding_up:
            why = AGENT_ENDS if self.winding_up else f"the container is {described.state}"
            return Outcome(action, "failed", why)
        self.turn(action.job, lambda turn: turn.begin(action, described), now_s)
        return Outcome(action, "begun", action.why)

    def find(self, listing: Listing, now_s: float) -> None:
        """Note the moves that an earlier agent began: containers that are set aside, and jobs that
        it asked to save themselves and that may have ended because of that. What it asked of one
        that runs on is withdrawn."""
        if listing is self._last_listing and not any(self._moves):
            return
        there, first = listing.all, self._last_listing is None
        for job in list(self.machine.jobs):
            self.turn(job, partial(Turn.forget, there=there.keys()))
        self._last_listing = listing
        for container, one in there.items():
            known = self.machine.job(one.job)
            if one.adopted is not None or container in known.forsaken or known.move is not None:
                continue
            aside = self._is_aside(one)
            asked = first and not aside and self.calls.was_asked(one.job)
            if aside or (asked and one.state is ContainerState.EXITED):
                away = self._departure_of(one) if aside else None
                self.turn(one.job, partial(Turn.find, one=one, departure=away), now_s)
            elif asked:
                self.turn(one.job, Turn.withdraw)
        if first:
            for left in list(self.machine.jobs.values()):
                if left.move is None and left.departure is not None and left.departure.over:
                    self.turn(left.name, partial(Turn.drop, departure=left.departure), now_s)

    def advance(self, listing: Listing, facts: Iterable[ContainerFact], now_s: float) -> None:
        """Take the next step of every move for which it is due."""
        for job in list(self.machine.jobs):
            self.turn(job, partial(Turn.settle, listing=listing), now_s)
        if not any(self._moves):
            return
        by_job = {fact.job: fact for fact in facts if fact.adopted is None}
        there = listing.all
        for job, move in list(self._moves):
            old = there.get(move.old.container_id)
            view = View(
                listing.at_s,
                old,
                _heir_of(listing, job, move.old),
                by_job.get(job),
                old is not None and self._is_aside(old),
                self.winding_up,
            )
            self.turn(job, partial(Turn.advance, view=view), now_s)

    def forsake(
        self, action: Remove, listing: Listing | None, now_s: float
    ) -> tuple[Inspected, ...] | Outcome:
        """The job's containers beside the action's own, as it is to be removed; an Outcome: not yet
        known."""
        move = self.machine.job(action.job).move
        if move is None or listing is None:
            return ()
        if self.turn(action.job, lambda turn: turn.forsake(listing.at_s)).move is not None:
            return Outcome(action, "begun", str(self.operation(action.job, now_s) or ""))
        others = (one for key, one in listing.all.items() if key != action.container_id)
        return tuple(one for one in others if one.job == action.job and one.adopted is None)

    def _departure_of(self, aside: Inspected) -> Departure | None:
        """The departure of a job of which a container is found set aside; None: it returns."""
        departure = self.machine.job(aside.job).away
        if departure is None and (archive := self._lost(aside.job, aside.source)) is not None:
            departure = self._left(aside.job, archive, lost=True)
        return departure

    def _is_aside(self, one: Inspected) -> bool:
        return one.adopted is None and one.name == set_aside_name(self.instance.name, one.job)

    # ------------------------------------------------------------------ to and from other nodes

    def keep_away(self, jobs: Mapping[str, Path], lost: Callable[[str, str], Path | None]) -> None:
        self._lost = lost
        for job, archive in jobs.items():
            self._left(job, archive)

    def _left(self, job: str, archive: Path, *, lost: bool = False) -> Departure:
        departure = Departure(archive, leaving=Leaving(LeavingPhase.AWAY), lost=lost)
        self.turn(job, lambda turn: turn.leave(departure))
        return departure

    def is_aside(self, job: str) -> bool:
        return self.machine.job(job).away is not None and self.holds(job)

    def leave(
        self,
        job: str,
        checkpoint: Checkpoint,
        archive: Path,
        most_bytes: int,
        limits: Limits | None = None,
    ) -> None:
        """A second call changes nothing, unless `leaving` has reported that the first attempt was
        refused, or that the job has ended."""
        before = self.machine.job(job).departure
        settled = before is not None and before.leaving.phase in _OVER and before.reported
        if before is not None and not (settled or before.over):
            return
        departure = Departure(archive, checkpoint, most_bytes, limits)
        described, ended = self.watches.of_job(job), LeavingPhase.ENDED
        if described is None or described.state in (ContainerState.EXITED, ContainerState.DEAD):
            self.turn(job, lambda turn: turn.refuse(departure, ended, "the job ended by itself"))
        elif (why := self._unable(described)) is not None:
            self.turn(job, lambda turn: turn.refuse(departure, LeavingPhase.REFUSED, why))
        else:
            self.turn(job, lambda turn: turn.depart(departure, described))

    def leaving(self, job: str) -> Leaving | None:
        departure = self.machine.job(job).departure
        if departure is None or departure.over:
            return None
        if departure.leaving.phase in _OVER and not departure.reported:
            self.turn(job, lambda turn: turn.report(departure))
        return departure.leaving

    def give_back(self, job: str) -> None:
        self.turn(job, partial(Turn.change, held=self.holds(job), cleared=False))

    def clear(self, job: str, *, keeps: bool = False) -> None:
        self._clear(job, keeps=keeps and self.has_volume(job))

    def _clear(self, job: str, *, keeps: bool) -> None:
        """`keeps`: its arrival is not forgotten."""
        self.turn(job, Turn.forget_start)
        if not keeps:
            with suppress(OSError):
                self.arrivals.forget(job)
        self.turn(job, partial(Turn.change, held=self.holds(job), cleared=True))

    def has_volume(self, job: str) -> bool:
        brought, now_s = self.arrivals.of(job), self.instance.clock.now_s()
        has = brought is not None and brought.filled and not brought.file
        if has and now_s - self.machine.job(job).inspected_s >= INSPECTED_S:
            self.turn(job, Turn.inspect_volume)
        return has

    def ended_with_engine(self, job: str) -> bool:
        described = self.watches.of_job(job)
        return described is not None and self.listings.ended_with_engine(described)

    def start_again(self, job: str) -> None:
        described, now_s = self.watches.of_job(job), self.instance.clock.now_s()
        if described is None or self.holds(job):
            return
        if now_s - self.machine.job(job).started_s >= REST_S:
            self.turn(job, partial(Turn.start_again, container=described.container_id))

    def bring(self, job: str, epoch: int, archive: Path, source: str = "") -> None:
        self._clear_before(job, epoch)
        self.arrivals.bring(job, epoch, archive, source)
        self.turn(job, Turn.sweep)

    def expect(self, job: str, epoch: int, file: str, size_bytes: int, source: str = "") -> None:
        self._clear_before(job, epoch)
        self.arrivals.expect(job, epoch, file, size_bytes, source)
        self.turn(job, Turn.sweep)

    def _clear_before(self, job: str, epoch: int) -> None:
        """Clear what left from here, and a failed start of an earlier epoch."""
        before = self.arrivals.of(job)
        if self.machine.job(job).away is not None:
            again = before is not None and before.filled and before.epoch >= epoch
            self._clear(job, keeps=again)
        if before is None or before.epoch < epoch:
            self.turn(job, Turn.forget_start)

    def _unable(self, described: Inspected) -> str | None:
        if described.adopted is not None:
            return "another program started the container"
        if described.state is not ContainerState.RUNNING:
            return f"the container is {described.state}"
        if self.winding_up:
            return AGENT_ENDS
        now_s = self.instance.clock.now_s()
        updating = self.machine.of(described.container_id).bars(now_s)
        if (operation := self.operation(described.job, now_s) or updating) is not None:
            return f"operation under way: {operation}"
        if self.holds(described.job):
            return "the old container of an earlier move is not removed yet"
        return self.machine.held


def _heir_of(listing: Listing, job: str, old: Inspected) -> Inspected | None:
    there = listing.containers.values()
    mine = (one for one in there if one.job == job and one.adopted is None)
    return next((one for one in mine if one.container_id != old.container_id), None)
