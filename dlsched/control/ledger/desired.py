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
    """The valid specs by job name, and which containers must not be touched."""

    specs: Mapping[str, JobSpec] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    """By job, the path of its file."""
    rejected: tuple[RejectedFile, ...] = ()
    spares: Callable[[ContainerFact], str | None] = lambda _: None
    """Why a container without a spec must be left alone; None: its file was removed."""
    settled: bool = True
    """The folder was listed, and no file in it is rejected or still being written."""
    claimed: Collection[str] = ()
    """Names of all jobs that have a file, valid or not."""
    yields: Callable[[ContainerFact], bool] | None = None
    """Whether the file of that container's job waits until the container is gone, since it belongs
    to somebody else; None: no file waits."""
    alarms: tuple[Alarm, ...] = ()
    """What is wrong with the folder."""

    def waiting(self, containers: Sequence[ContainerFact]) -> dict[str, ContainerFact]:
        """Jobs whose file waits, and the container that has their name."""
        if (yields := self.yields) is None:
            return {}
        there = {one.job: one for one in containers if one.adopted is not None}
        there |= {one.job: one for one in containers if one.adopted is None}
        return {job: one for job, one in there.items() if job in self.specs and yields(one)}
