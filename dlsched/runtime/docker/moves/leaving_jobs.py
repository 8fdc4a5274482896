"""Jobs that leave this node for another one, or come from there, as the node's agent asks it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from dlsched.model.facts import ContainerState
from dlsched.model.leaving import Leaving, LeavingPhase
from dlsched.model.spec import Checkpoint, Limits
from dlsched.runtime.docker.carrying import Arrivals
from dlsched.runtime.docker.moves.moves import Moves
from dlsched.runtime.machine.calls import FreeAct
from dlsched.runtime.machine.container import Machine
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.move import REST_S, Departure, Turn

LOOKED_S = 600.0

_OVER = (LeavingPhase.REFUSED, LeavingPhase.ENDED)


class LeavingJobs:
    """Implements NodeJobs of `dlsched.cluster.agent.ports`; only for the loop's thread."""

    def __init__(
        self,
        machine: Machine,
        moves: Moves,
        arrivals: Arrivals,
        container: Callable[[str], Inspected | None],
        bars: Callable[[Inspected], str | None],
        now_s: Callable[[], float],
        ended_with_engine: Callable[[Inspected], bool],
    ) -> None:
        """`container` returns a job's present container, `bars` why nothing can be done to it now,
        moves apart."""
        self._machine = machine
        self._moves = moves
        self._arrivals = arrivals
        self._container = container
        self._bars = bars
        self._now_s = now_s
        self._ended_with_engine = ended_with_engine
        self._looked_s: dict[str, float] = {}
        """When it was last looked for a job's volume, which anybody can remove."""
        self._starting: dict[str, float] = {}
        """When a job was last started again."""

    def keep_away(self, jobs: Mapping[str, Path], lost: Callable[[str, str], Path | None]) -> None:
        """Before the first cycle: jobs whose containers stay set aside, with their archives; `lost`
        returns the archive of another that is found set aside and is to stay so, by its name and
        the path of its file."""
        self._moves.keep(jobs, lost)

    def is_aside(self, job: str) -> bool:
        """Whether a container of it stays set aside."""
        return self._machine.job(job).away is not None and self._moves.holds(job)

    def leave(
        self,
        job: str,
        checkpoint: Checkpoint,
        archive: Path,
        most_bytes: int,
        limits: Limits | None = None,
    ) -> None:
        """Let a running job save a checkpoint under these limits (None: under its present ones),
        end it, set its container aside, pack what is below `checkpoint.path` into that file, unless
        it is shared. A second call changes nothing, unless `leaving` has reported that the first
        attempt was refused, or that the job has ended."""
        before = self._machine.job(job).departure
        settled = before is not None and before.leaving.phase in _OVER and before.reported
        if before is not None and not (settled or before.over):
            return
        departure = Departure(job, archive, checkpoint, most_bytes, limits)
        described, ended = self._container(job), LeavingPhase.ENDED
        if described is None or described.state in (ContainerState.EXITED, ContainerState.DEAD):
            self._moves.turn(job, lambda turn: turn.refuse(departure, ended, "it ended by itself"))
        elif (why := self._unable(described)) is not None:
            self._moves.turn(job, lambda turn: turn.refuse(departure, LeavingPhase.REFUSED, why))
        else:
            self._moves.turn(job, lambda turn: turn.depart(departure, described))

    def leaving(self, job: str) -> Leaving | None:
        """How far that is; None: it does not leave."""
        departure = self._machine.job(job).departure
        if departure is None or departure.over:
            return None
        if departure.leaving.phase in _OVER and not departure.reported:
            self._moves.turn(job, lambda turn: turn.report(departure))
        return departure.leaving

    def give_back(self, job: str) -> None:
        """Start the container that is set aside under its own name, or end the attempt to leave."""
        if (departure := self._machine.job(job).departure) is not None:
            self._end(departure, withdrawn=True)

    def clear(self, job: str, *, keeps: bool = False) -> None:
        """Remove the container that is set aside, its archive, and the volumes of earlier moves.
        `keeps`: but the one with which it last came here, which its next container gets, too; else
        that gets the volume of its spec again."""
        self._clear(job, keeps=keeps and self.has_volume(job))

    def _clear(self, job: str, *, keeps: bool) -> None:
        """`keeps`: its arrival is not forgotten."""
        self._moves.turn(job, Turn.forget_start)
        if not keeps:
            with suppress(OSError):
                self._arrivals.forget(job)
        if (departure := self._machine.job(job).departure) is not None:
            self._end(departure, cleared=True)
        else:
            self._sweep(job)

    def has_volume(self, job: str) -> bool:
        """Whether it has the volume with which it came here, which is its next container's, too."""
        brought, now_s = self._arrivals.of(job), self._now_s()
        has = brought is not None and brought.filled and not brought.file
        if has and now_s - self._looked_s.get(job, -math.inf) >= LOOKED_S:
            self._looked_s[job] = now_s
            self._sweep(job)  # which notices that it is gone
        return has

    def ended_with_engine(self, job: str) -> bool:
        """Whether its container did not end by itself: the engine ended it, and was started
        again."""
        described = self._container(job)
        return described is not None and self._ended_with_engine(described)

    def start_again(self, job: str) -> None:
        """Start its container again; a second call changes nothing for a while."""
        described, now_s = self._container(job), self._now_s()
        if described is None or self._moves.holds(job):
            return
        if now_s - self._starting.get(job, -math.inf) >= REST_S:
            self._starting[job] = now_s
            self._machine.do(FreeAct("", job, "start_again", (described.container_id,)))

    def bring(self, job: str, epoch: int, archive: Path, source: str = "") -> None:
        """The job's next new container gets a volume of its own at its checkpoint's mount, for this
        epoch, filled from that archive before it starts; later ones get the same volume, if they
        are made for the same `source`, the job's file. The same or a lower epoch changes nothing.
        Raises OSError: it is not durable."""
        self._clear_before(job, epoch)
        self._arrivals.bring(job, epoch, archive, source)
        self._sweep(job)

    def expect(self, job: str, epoch: int, file: str, size_bytes: int, source: str = "") -> None:
        """The job's next new container starts only if shared storage shows that file there with
        that size; later ones start anyway. Else as `bring`."""
        self._clear_before(job, epoch)
        self._arrivals.expect(job, epoch, file, size_bytes, source)
        self._sweep(job)

    def _clear_before(self, job: str, epoch: int) -> None:
        """Clear what left from here, and a failed start of an earlier epoch."""
        before = self._arrivals.of(job)
        if self._machine.job(job).away is not None:
            again = before is not None and before.filled and before.epoch >= epoch
            self._clear(job, keeps=again)
        if before is None or before.epoch < epoch:
            self._moves.turn(job, Turn.forget_start)

    def _unable(self, described: Inspected) -> str | None:
        if described.adopted is not None:
            return "another program started it"
        if described.state is not ContainerState.RUNNING:
            return f"it is {described.state}"
        if self._moves.winding_up:
            return "the agent ends"
        if (operation := self._moves.operation(described.job, self._now_s())) is not None:
            return f"operation under way: {operation}"
        if self._moves.holds(described.job):
            return "what an earlier move left of it is not removed yet"
        return self._bars(described)

    def _end(self, departure: Departure, **how: bool) -> None:
        """Nothing of it is under way: forget it. Else its next step sees what is wanted."""
        held = self._moves.holds(departure.job)
        self._moves.turn(departure.job, lambda turn: turn.change(departure, held=held, **how))

    def _sweep(self, job: str) -> None:
        self._machine.do(FreeAct("", job, "sweep", (job,)))
