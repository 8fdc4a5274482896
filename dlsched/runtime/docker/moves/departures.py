"""The jobs that leave this node for another one, and what becomes of their archives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dlsched.model.leaving import Leaving, LeavingPhase
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.carrying import Packed, remove_archive
from dlsched.runtime.docker.identity.labels import Inspected
from dlsched.runtime.docker.moves.steps import Departure

_log = logging.getLogger(__name__)


class Departures:
    """By job; only for the loop's thread."""

    def __init__(
        self,
        hide: Callable[[Set[str]], None] = lambda _: None,
        sweep: Callable[[str], None] = lambda _: None,
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
