"""What own jobs are told of their ceilings and GPUs, kept in line with kernel and container.

A change of limits tells the job itself; an agent that is killed between the two leaves a job that
fits its threads to a ceiling that it no longer has. Owns that repair, and the end of what nobody
reads any more. It must not change limits. The share of a GPU's time needs no repair: there is
nothing but the allotment that holds it, and what is not told yet is decided again.
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
    """The allotments of own containers; only the loop's thread uses it."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._told: dict[str, float | None] = {}
        """By container, what its job certainly reads."""
        for folder in (state_dir / IN_FOLDER).glob("*/"):
            clear_unfinished(folder)

    def follow(self, facts: Iterable[ContainerFact]) -> tuple[Alarm, ...]:
        """Tell each job its true ceiling and GPUs, where not told yet; returns what went wrong."""
        told, alarms = self._told, []
        self._told = {}
        for fact in facts:
            if fact.adopted is not None or fact.state not in _HAS_LIMITS or fact.cpu_idle:
                continue  # one in the idle class was told what it may have once it is out again
            container, cores = fact.container_id, fact.actual.cpu_cores
            if container not in told or not same_cores(told[container], cores):
                if fact.operation is not None:
                    continue  # whoever changes it also tells it
                try:
                    self._tell(fact)
                except (OSError, ValueError) as error:
                    text = f"{fact.job} cannot be told its ceiling: {error}"
                    alarms = [Alarm(fact.job, AlarmKey.JOB_NOT_TOLD, text)]
                    continue
            self._told[container] = cores
        return tuple(alarms)

    def sweep(self, jobs: Set[str]) -> None:
        """Remove what was laid down for others than these, which have a container or get one."""
        with suppress(FileNotFoundError):
            for folder in (self._state_dir / IN_FOLDER).iterdir():
                if folder.name not in jobs:
                    shutil.rmtree(folder, ignore_errors=True)

    def _tell(self, fact: ContainerFact) -> None:
        inside = job_dir(self._state_dir, fact.job)
        before, cores = read_allotment(inside), fact.actual.cpu_cores
        if same_cores(before.cpu_cores, cores):
            cores = before.cpu_cores
        change_allotment(inside, cpu_cores=cores, gpus=fact.gpus)
