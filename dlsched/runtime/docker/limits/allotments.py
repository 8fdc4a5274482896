"""Keeps the allotment files of own jobs consistent with their containers.

A change of limits updates the file itself; this repairs it after an agent was killed in between.
Shares of GPU time need no repair: they are only in the file, and decided again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path

from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, ContainerState
from dlsched.model.units import same_cores
from dlsched.runtime.allotment import IN_FOLDER, change_allotment, job_dir, read_allotment
from dlsched.store.atomic import clear_unfinished

_HAS_LIMITS = frozenset({ContainerState.RUNNING, ContainerState.PAUSED})


class Allotments:
    """The allotments of own containers; only for the loop's thread."""

    def __init__(self, state_dir: Path, *, read_only: bool = False) -> None:
        self._state_dir = state_dir
        self._reported: dict[str, float | None] = {}
        """The ceiling certainly in the file, by container."""
        for folder in () if read_only else (state_dir / IN_FOLDER).glob("*/"):
            clear_unfinished(folder)

    def follow(self, facts: Iterable[ContainerFact]) -> tuple[Alarm, ...]:
        """Update each job's file to its actual ceiling and GPUs; returns what failed."""
        reported, alarms = self._reported, []
        self._reported = {}
        for fact in facts:
            if fact.adopted is not None or fact.state not in _HAS_LIMITS or fact.cpu_idle:
                continue  # in the idle class the file keeps the ceiling that applies after it
            container, cores = fact.container_id, fact.actual.cpu_cores
            if container not in reported or not same_cores(reported[container], cores):
                if fact.operation is not None:
                    continue  # the change in progress also updates the file
                try:
                    self._report(fact)
                except (OSError, ValueError) as error:
                    text = f"{fact.job}: its allotment cannot be updated: {error}"
                    alarms = [Alarm(fact.job, AlarmKey.JOB_NOT_NOTIFIED, text)]
                    continue
            self._reported[container] = cores
        return tuple(alarms)

    def sweep(self, jobs: Set[str]) -> None:
        """Remove the files of all jobs but these, which have a container or are getting one."""
        with suppress(OSError):  # they only take up space
            for folder in (self._state_dir / IN_FOLDER).iterdir():
                if folder.name not in jobs:
                    shutil.rmtree(folder, ignore_errors=True)

    def _report(self, fact: ContainerFact) -> None:
        inside = job_dir(self._state_dir, fact.job)
        before, cores = read_allotment(inside), fact.actual.cpu_cores
        if same_cores(before.cpu_cores, cores):
            cores = before.cpu_cores
        change_allotment(inside, cpu_cores=cores, gpus=fact.gpus)
