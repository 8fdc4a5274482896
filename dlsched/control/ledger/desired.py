"""The desired state: what the job files ask for, as one value for the whole cycle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.model.alarms import Alarm
from dlsched.model.cycle import RejectedFile
from dlsched.model.facts import ContainerFact
from dlsched.model.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Desired:
    """Valid specs by job name, and which containers must not be touched."""

    specs: Mapping[str, JobSpec] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    """Path of the job's file, by job."""
    rejected: tuple[RejectedFile, ...] = ()
    spares: Callable[[ContainerFact], str | None] = lambda _: None
    """Why a container without a spec must be left alone; None: its file was removed."""
    settled: bool = True
    """Whether the folder was listed, and no file in it is rejected or still being written."""
    claimed: Collection[str] = ()
    """Names of all jobs with a file, valid or not."""
    yields: Callable[[ContainerFact], bool] = lambda _: False
    """Whether the job's file must wait until this container is gone, as the container belongs to
    someone else."""
    alarms: tuple[Alarm, ...] = ()
    """Problems of the folder."""

    def waiting(self, containers: Sequence[ContainerFact]) -> dict[str, ContainerFact]:
        """Jobs whose file waits, with the container that has their name."""
        there = {one.job: one for one in containers if one.adopted is not None}
        there |= {one.job: one for one in containers if one.adopted is None}
        return {job: one for job, one in there.items() if job in self.specs and self.yields(one)}
