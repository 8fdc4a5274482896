"""Jobs that leave this node for another one, or come from there, as the node's agent asks it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class LeavingJobs:
    """Implements NodeJobs of `dlsched.cluster.agent.ports`, which says more; only for the loop's
    thread."""

    machine: Machine
    moves: Moves
    arrivals: Arrivals
    container: Callable[[str], Inspected | None]
    """A job's present container."""
    bars: Callable[[Inspected], str | None]
    """Why nothing can be done to it now, moves apart."""
    now_s: Callable[[], float]
    was_ended: Callable[[Inspected], bool]
    """Whether the engine ended it, and not itself."""
    looked_s: dict[str, float] = field(default_factory=dict)
    """When it was last looked for a job's volume, which anybody can remove."""
    starting_s: dict[str, float] = field(default_factory=dict)
    """When a job was last started again."""

    def keep_away(self, jobs: Mapping[str, Path], lost: Callable[[str, str], Path | None]) -> None:
        self.moves.keep(jobs, lost)

    def is_aside(self, job: str) -> bool:
        return self.machine.job(job).away is not None and self.moves.holds(job)

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
        departure = Departure(job, archive, checkpoint, most_bytes, limits)
        described, ended = self.container(job), LeavingPhase.ENDED
        if described is None or described.state in (ContainerState.EXITED, ContainerState.DEAD):
            self.moves.turn(job, lambda turn: turn.refuse(departure, ended, "it ended by itself"))
        elif (why := self._unable(described)) is not None:
            self.moves.turn(job, lambda turn: turn.refuse(departure, LeavingPhase.REFUSED, why))
        else:
            self.moves.turn(job, lambda turn: turn.depart(departure, described))

    def leaving(self, job: str) -> Leaving | None:
        departure = self.machine.job(job).departure
        if departure is None or departure.over:
            return None
        if departure.leaving.phase in _OVER and not departure.reported:
            self.moves.turn(job, lambda turn: turn.report(departure))
        return departure.leaving

    def give_back(self, job: str) -> None:
        if (departure := self.machine.job(job).departure) is not None:
            self._end(departure, withdrawn=True)

    def clear(self, job: str, *, keeps: bool = False) -> None:
        self._clear(job, keeps=keeps and self.has_volume(job))

    def _clear(self, job: str, *, keeps: bool) -> None:
        """`keeps`: its arrival is not forgotten."""
        self.moves.turn(job, Turn.forget_start)
        if not keeps:
            with suppress(OSError):
                self.arrivals.forget(job)
        if (departure := self.machine.job(job).departure) is not None:
            self._end(departure, cleared=True)
        else:
            self._sweep(job)

    def has_volume(self, job: str) -> bool:
        brought, now_s = self.arrivals.of(job), self.now_s()
        has = brought is not None and brought.filled and not brought.file
        if has and now_s - self.looked_s.get(job, -math.inf) >= LOOKED_S:
            self.looked_s[job] = now_s
            self._sweep(job)  # which notices that it is gone
        return has

    def ended_with_engine(self, job: str) -> bool:
        described = self.container(job)
        return described is not None and self.was_ended(described)

    def start_again(self, job: str) -> None:
        described, now_s = self.container(job), self.now_s()
        if described is None or self.moves.holds(job):
            return
        if now_s - self.starting_s.get(job, -math.inf) >= REST_S:
            self.starting_s[job] = now_s
            self.machine.do(FreeAct("", job, "start_again", (described.container_id,)))

    def bring(self, job: str, epoch: int, archive: Path, source: str = "") -> None:
        self._clear_before(job, epoch)
        self.arrivals.bring(job, epoch, archive, source)
        self._sweep(job)

    def expect(self, job: str, epoch: int, file: str, size_bytes: int, source: str = "") -> None:
        self._clear_before(job, epoch)
        self.arrivals.expect(job, epoch, file, size_bytes, source)
        self._sweep(job)

    def _clear_before(self, job: str, epoch: int) -> None:
        """Clear what left from here, and a failed start of an earlier epoch."""
        before = self.arrivals.of(job)
        if self.machine.job(job).away is not None:
            again = before is not None and before.filled and before.epoch >= epoch
            self._clear(job, keeps=again)
        if before is None or before.epoch < epoch:
            self.moves.turn(job, Turn.forget_start)

    def _unable(self, described: Inspected) -> str | None:
        if described.adopted is not None:
            return "another program started it"
        if described.state is not ContainerState.RUNNING:
            return f"it is {described.state}"
        if self.moves.winding_up:
            return "the agent ends"
        if (operation := self.moves.operation(described.job, self.now_s())) is not None:
            return f"operation under way: {operation}"
        if self.moves.holds(described.job):
            return "what an earlier move left of it is not removed yet"
        return self.bars(described)

    def _end(self, departure: Departure, **how: bool) -> None:
        """Nothing of it is under way: forget it. Else its next step sees what is wanted."""
        held = self.moves.holds(departure.job)
        self.moves.turn(departure.job, lambda turn: turn.change(departure, held=held, **how))

    def _sweep(self, job: str) -> None:
        self.machine.do(FreeAct("", job, "sweep", (job,)))
