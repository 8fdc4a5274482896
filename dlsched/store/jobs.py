"""What Docker cannot know of a job, kept over restarts: its end, its delivery, whose name it has.

Owns the folders `ended`, `delivered` and `claims` and the file `lock` in the state directory. It
must not decide what counts as an end or a delivery, nor who has a name.
"""

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
    """How jobs ended. Raises OSError."""
    loss = "the job may run once more"
    return Records(state_dir / "ended", Ended, lambda word: word.name, NAME, loss)


def delivered_records(state_dir: Path) -> Records[Delivered]:
    """Which jobs can be delivered. Raises OSError."""
    loss = "the delivery may be told once more"
    return Records(state_dir / "delivered", Delivered, lambda word: word.name, NAME, loss)


@dataclass(frozen=True, slots=True)
class Claim:
    """Which job file holds a job's name."""

    name: str
    file: str


def claim_records(state_dir: Path) -> Records[Claim]:
    """Whose each job's name is. Raises OSError."""
    loss = "another owner's file may get the name"
    return Records(state_dir / "claims", Claim, lambda word: word.name, NAME, loss)


class Lock:
    """Held for as long as this process lives, or until released."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let another agent begin; a second call does nothing."""
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
    """Make this process the only agent on that state directory.

    Raises AlreadyRunning, which names the agent that is there; OSError when the directory cannot
    be made or used. The kernel lets go of the lock when the process ends, however it ends.
    """
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
        raise AlreadyRunning(_told(holder, state_dir)) from None
    except BaseException:
        os.close(descriptor)
        raise
    return Lock(descriptor)


def _told(holder: bytes, state_dir: Path) -> str:
    try:
        known = json.loads(holder)
        who = f"the agent of instance {known['instance']} (process {int(known['pid'])})"
    except (ValueError, TypeError, KeyError):
        who = "an agent that is just starting"
    return f"{who} already uses the state directory {state_dir}"
