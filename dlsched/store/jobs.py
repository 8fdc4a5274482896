"""Records of jobs that Docker cannot keep: how a job ended, its delivery, who owns its name. They
live in `ended`, `delivered` and `claims` in the state directory, beside the file `lock`."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from dlsched.model.errors import AlreadyRunning
from dlsched.model.spec import NAME
from dlsched.model.state import Delivered, Ended
from dlsched.store.atomic import clear_unfinished, make_folder
from dlsched.store.records import Records


@dataclass(frozen=True, slots=True)
class NameClaim:
    """The job file that owns a job's name."""

    name: str
    file: str


Named = TypeVar("Named", Ended, Delivered, NameClaim)


def ended_records(state_dir: Path, *, read_only: bool = False) -> Records[Ended]:
    return _named(
        state_dir / "ended", Ended, "a job that had ended may run once more", read_only=read_only
    )


def ask_start(ended: Records[Ended], job: str) -> None:
    """Record that the job is to run again, if it ended. Its container may have to be removed first,
    so the record stays until then. Raises OSError."""
    if (record := ended.of(job)) is not None:
        ended.secure(replace(record, digest=""))


def delivered_records(state_dir: Path, *, read_only: bool = False) -> Records[Delivered]:
    loss = "the job may be reported as delivered once more"
    return _named(state_dir / "delivered", Delivered, loss, read_only=read_only)


def claim_records(state_dir: Path, *, read_only: bool = False) -> Records[NameClaim]:
    """Which job file owns each job's name. Raises OSError."""
    loss = "another owner's file may get the job's name"
    return _named(state_dir / "claims", NameClaim, loss, read_only=read_only)


def _named(folder: Path, kind: type[Named], loss: str, *, read_only: bool) -> Records[Named]:
    return Records(folder, kind, lambda record: record.name, NAME, loss, read_only=read_only)


class Lock(AbstractContextManager["Lock"]):
    """An exclusive lock, held until released or until the process ends."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_state_dir(state_dir: Path, instance: str, *, read_only: bool = False) -> Lock:
    """Make this process the only agent on that state directory. Raises AlreadyRunning, which names
    the other agent; OSError when the directory is not usable.

    `read_only` writes nothing: where no agent has ever locked it, there is no file to lock.
    """
    if read_only:
        try:
            descriptor = os.open(state_dir / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return Lock(None)
        return _locked(descriptor, state_dir)
    make_folder(state_dir)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(state_dir / "lock", flags, 0o640)
    lock = _locked(descriptor, state_dir)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "instance": instance}).encode(), 0)
        clear_unfinished(state_dir)
    except BaseException:
        lock.release()
        raise
    return lock


def _locked(descriptor: int, state_dir: Path) -> Lock:
    """The lock on that open file, which is closed where another agent has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
