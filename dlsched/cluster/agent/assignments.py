"""The durable file of each job that the cluster has given this node: what orders were followed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from dlsched.cluster.core.records import Phase, Saved
from dlsched.model.spec import NAME
from dlsched.store.records import BROKEN, Records

FOLDER = "cluster"
"""In the state directory: files of jobs, and archives of checkpoints that come and go."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One job. Its file is written before the act."""

    job: str
    epoch: int
    phase: Phase
    text: str = ""
    """The job file, as the controller sent it."""
    source: str | None = None
    """The node that it came from; None: it began here."""
    target: str | None = None
    """The node that may fetch its checkpoint."""
    saved: Saved | None = None
    """The checkpoint that it came with or left with."""
    confirmed: bool = True
    """Whether the controller's record says that it is placed here."""
    exit_code: int | None = None
    why: str = ""


def assignment_records(state_dir: Path) -> Records[Assignment]:
    """All of them by job. Raises OSError."""
    return Records(
        state_dir / FOLDER / "jobs",
        Assignment,
        lambda one: one.job,
        NAME,
        "its container is left alone until the cluster's controller gives the job to a node again",
    )


def lost_jobs(state_dir: Path, held: Collection[str]) -> frozenset[str]:
    """Jobs whose file was broken, and that no order has come for since. Raises OSError."""
    suffix = f".json{BROKEN}"
    files = (state_dir / FOLDER / "jobs").iterdir()
    jobs = {path.name.removesuffix(suffix) for path in files if path.name.endswith(suffix)}
    return frozenset(jobs - set(held))


def archive_path(state_dir: Path, direction: str, job: str, epoch: int) -> Path:
    """Where an archive of that job lies. `direction`: incoming or outgoing."""
    return state_dir / FOLDER / direction / f"{job}-e{epoch}.tar"
