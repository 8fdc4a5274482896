"""The ports of a node's part in the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from dlsched.model.errors import DlschedError
from dlsched.model.leaving import Leaving
from dlsched.model.spec import Checkpoint, ContainerSpec, Limits

Lost = Callable[[str, str], Path | None]
"""The archive of a job, by its name and the path of its file; None: that is no file of the
cluster's, or it is not lost."""


class NodeJobs(Protocol):
    """What becomes of the node's own containers; only for the loop's thread. Nothing blocks."""

    def keep_away(self, jobs: Mapping[str, Path], lost: Lost) -> None:
        """Before the first cycle: jobs whose containers stay set aside, with their archives; `lost`
        is asked about others that are found set aside."""

    def is_aside(self, job: str) -> bool:
        """Whether a container of it stays set aside."""

    def leave(
        self, job: str, checkpoint: Checkpoint, archive: Path, most_bytes: int, limits: Limits
    ) -> None:
        """Let a running job save a checkpoint under these limits, end it, set its container aside,
        pack what is below `checkpoint.path` into that file, unless that is shared. A second call
        changes nothing."""

    def leaving(self, job: str) -> Leaving | None:
        """How far that is; None: it does not leave."""

    def give_back(self, job: str) -> None:
        """Start the container that is set aside under its own name, or end the attempt to leave;
        where it does not leave, nothing."""

    def clear(self, job: str, *, keeps: bool) -> None:
        """Remove the container that is set aside, its archive, and what volumes of its own earlier
        epochs left; where there is none, nothing. `keeps`: the volume with which it last came here
        stays, and its next container here gets it again."""

    def has_volume(self, job: str) -> bool:
        """Whether it has the volume with which it came here, which is its next container's, too."""

    def bring(self, job: str, epoch: int, archive: Path, source: str) -> None:
        """The job's next new container gets a volume of its own at its checkpoint's mount, for this
        epoch, filled from that archive before it starts; the same epoch again changes nothing.
        `source`: its file; a job of the node's own of that name has another. Raises OSError."""

    def expect(self, job: str, epoch: int, file: str, size_bytes: int, source: str) -> None:
        """The job's next new container of this epoch starts only if it shows that file with that
        size, in storage that other nodes have, too; else as `bring`. Raises OSError."""

    def ended_with_engine(self, job: str) -> bool:
        """Whether its container did not end by itself: the engine ended it, and was started
        again."""

    def start_again(self, job: str) -> None:
        """Start its container again; a second call changes nothing for a while."""


class NodeImages(Protocol):
    """The host's images; only for the loop's thread. Nothing blocks."""

    def names(self) -> frozenset[str]:
        """Those that are there, as known lately; empty: not known."""

    def fetch(self, container: ContainerSpec) -> str | None:
        """Have the image of such a container here, as its `pull_policy` says. None: that is under
        way; else the empty text, or why it cannot be had."""

    def progress(self, container: ContainerSpec) -> str:
        """How far that is, for people."""


class OrderRefused(DlschedError):
    """This order is not followed: a lower epoch, or a job file with problems."""

    def __init__(self, text: str, *, is_for_good: bool = False) -> None:
        """`is_for_good`: this node, and this version of dlsched, refuses the same order again."""
        super().__init__(text)
        self.is_for_good = is_for_good
