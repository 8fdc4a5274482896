"""Records of jobs that Docker cannot keep: how a job ended, its delivery, who owns its name. They
live in `ended`, `delivered` and `claims` in the state directory, beside the file `lock`."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from dlsched.model.errors import AlreadyRunning
from dlsched.model.spec import NAME
from dlsched.model.state import Delivered, Ended
from dlsched.store.atomic import clear_unfinished
from dlsched.store.records import Records


def ended_records(state_dir: Path) -> Records[Ended]:
    loss = "the job may run once more"
    return Records(state_dir / "ended", Ended, lambda record: record.name, NAME, loss)


def delivered_records(state_dir: Path) -> Records[Delivered]:
    loss = "the delivery may be reported once more"
    return Records(state_dir / "delivered", Delivered, lambda record: record.name, NAME, loss)


@dataclass(frozen=True, slots=True)
class NameClaim:
    """The job file that owns a job's name."""

    name: str
    file: str


def claim_records(state_dir: Path) -> Records[NameClaim]:
    """Which job file owns each job's name. Raises OSError."""
    loss = "another owner's file may get the name"
    return Records(state_dir / "claims", NameClaim, lambda record: record.name, NAME, loss)


class Lock:
    """An exclusive lock, held until released or until the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def lock_state_dir(state_dir: Path, instance: str) -> Lock:
    """Make this process the only agent on that state directory. Raises AlreadyRunning, which names
    the other agent; OSError when the directory is not usable."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o750)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(state_dir / "lock", flags, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "instance": instance}).encode(), 0)
        clear_unfinished(state_dir)
    except BlockingIOError:
        holder = os.pread(descriptor, 512, 0)
        os.close(descriptor)
        raise AlreadyRunning(_holder_text(holder, state_dir)) from None
    except BaseException:
        os.close(descriptor)
        raise
    return Lock(descriptor)


def _holder_text(holder: bytes, state_dir: Path) -> str:
    try:
        known = json.loads(holder)
        holder_name = f"the agent of instance {known['instance']} (process {int(known['pid'])})"
    except (ValueError, TypeError, KeyError):
        holder_name = "an agent that is just starting"
    return f"{holder_name} already uses the state directory {state_dir}"
