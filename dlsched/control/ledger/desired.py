"""What the job files ask for, as the ledger takes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.model.facts import ContainerFact
from dlsched.model.spec import JobSpec


@dataclass(frozen=True, slots=True)
class Wish:
    """What the job files say: specs in force by name, and which containers must not be touched."""

    specs: Mapping[str, JobSpec] = field(default_factory=dict)
    spares: Callable[[ContainerFact], str | None] = lambda _: None
    """Why a container without a spec must be left alone; None: its file was removed."""
    settled: bool = True
    """The folder was listed, and no file in it is rejected or still being written."""
    claimed: Collection[str] = ()
    """Names of jobs whose file is there, whether in force or not."""
    yields: Callable[[ContainerFact], bool] | None = None
    """Whether the file of that container's job waits until it is gone, since it is another's; None:
    no file waits."""

    def waiting(self, containers: Sequence[ContainerFact]) -> dict[str, ContainerFact]:
        """Jobs whose file waits, and the container that has their name."""
        if (yields := self.yields) is None:
            return {}
        there = {one.job: one for one in containers if one.adopted is not None}
        there |= {one.job: one for one in containers if one.adopted is None}
        return {job: one for job, one in there.items() if job in self.specs and yields(one)}
