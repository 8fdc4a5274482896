"""What Docker cannot know of a job, kept over restarts: its end, its delivery; and the lock.

Owns the folders `ended` and `delivered` and the file `lock` in the state directory. It must not
decide what counts as an end or a delivery.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from dlsched.durable import remove, sync_folder, write_whole
from dlsched.errors import AlreadyRunning
from dlsched.model import Delivered, Ended
from dlsched.spec_schema import NAME

_RECORD = re.compile(rf"({NAME})\.json")

Word = TypeVar("Word", Ended, Delivered)


class Records(Generic[Word]):
    """One record a job; may be used from any thread. What is read is always in memory."""

    def __init__(self, folder: Path, kind: type[Word], loss: str) -> None:
        """Load all records. A broken one is moved aside and told in `trouble`, with the `loss`.

        Raises OSError when the folder cannot be used.
        """
        self._folder = folder
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
        self._loss = loss
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._lock = threading.Lock()
        self._trouble: list[str] = []
        self._words: dict[str, Word] = {}
        for path in sorted(self._folder.iterdir()):
            self._load(path)

    @property
    def trouble(self) -> tuple[str, ...]:
        """What was wrong with the records at the start, a line each."""
        return tuple(self._trouble)

    def of(self, name: str) -> Word | None:
        """The word kept of that job; None: none."""
        with self._lock:
            return self._words.get(name)

    def all(self) -> Mapping[str, Word]:
        """All records by job, as they are now."""
        with self._lock:
            return MappingProxyType(dict(self._words))

    def record(self, word: Word) -> None:
        """Keep it; on return it is on the disk. On OSError it holds until the agent ends."""
        if not re.fullmatch(NAME, word.name):
            raise ValueError(f"{word.name!r} is no job's name: {NAME}")
        with self._lock:
            self._words[word.name] = word
            write_whole(self._path(word.name), json.dumps(asdict(word), sort_keys=True) + "\n")

    def lift(self, name: str) -> None:
        """Forget it; nothing happens when there is no record. Raises OSError."""
        with self._lock:
            if name in self._words:
                remove(self._path(name))
                del self._words[name]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _load(self, path: Path) -> None:
        if path.name.startswith(".") and path.name.endswith(".tmp"):
            path.unlink(missing_ok=True)
            return
        match = _RECORD.fullmatch(path.name)
        if match is None:
            return
        try:
            word = self._adapter.validate_json(path.read_bytes(), strict=True)
        except ValidationError:
            self._move_aside(path, "is no record")
        except OSError as error:
            self._move_aside(path, f"cannot be read ({error.strerror})")
        else:
            if word.name == match[1]:
                self._words[word.name] = word
            else:
                self._move_aside(path, f"is the record of {word.name}")

    def _move_aside(self, path: Path, why: str) -> None:
        aside = path.with_name(path.name + ".broken")
        path.replace(aside)
        sync_folder(self._folder)
        self._trouble.append(f"{path} {why}: moved to {aside.name}; {self._loss}")


def ended_records(state_dir: Path) -> Records[Ended]:
    """How jobs ended. Raises OSError."""
    return Records(state_dir / "ended", Ended, "the job may run once more")


def delivered_records(state_dir: Path) -> Records[Delivered]:
    """Which jobs can be delivered. Raises OSError."""
    return Records(state_dir / "delivered", Delivered, "the delivery may be told once more")


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
