"""Carries a job's checkpoint between nodes: out of a container that has ended into one file, and
out of such a file into a fresh volume of a container that has not started yet. One in storage that
every node has is only checked there.

Owns the files' and volumes' names and what is durable about them. It must not know moves, and
must not believe what it reads: see `archives`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlsched.control.checkpoint_volume import (
    MountedVolume,
    checkpoint_volume,
    path_parts,
    volume_parts,
)
from dlsched.model.alarms import Alarm
from dlsched.model.errors import DlschedError
from dlsched.model.spec import NAME, JobSpec
from dlsched.model.units import render_bytes
from dlsched.runtime.docker.archives import TOP, Unfit, carried
from dlsched.runtime.docker.engine import ARCHIVE_BYTES, Body, Engine, EngineRefused
from dlsched.runtime.docker.identity.labels import INSTANCE, JOB, container_name
from dlsched.runtime.docker.instance import Instance
from dlsched.runtime.machine.outcomes import CallFailed, Packed
from dlsched.store.atomic import sync_folder
from dlsched.store.records import Records

FREE_SHARE = 0.8
"""Of the free room on its file system, what an archive may take at most."""

SWEEPS_S = (0.0, 1.0, 4.0, 15.0, 60.0)
"""Pauses before the attempts to remove a volume: its container is removed meanwhile."""


CHECKS = 5
"""How often a shared checkpoint is looked for, 5, 10, 20 and 40 s apart: a client of NFS may keep
for 60 s what it knew of a folder."""


class Withdrawn(DlschedError):
    """The archive is not wanted any more."""


def pack(
    chunks: Iterable[bytes],
    archive: Path,
    most_bytes: int,
    withdrawn: Callable[[], bool] = lambda: False,
) -> Packed:
    """Write the folder in these chunks of a tar archive to that file: whole, on disk, or not at
    all. Raises Unfit, Withdrawn, OSError."""
    archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = _unfinished(archive)
    remove_archive(archive)
    room = os.statvfs(archive.parent)
    most_bytes = min(most_bytes, int(room.f_bavail * room.f_frsize * FREE_SHARE))
    digest, size_bytes = hashlib.sha256(), 0
    try:
        with open(unfinished, "xb", opener=_private) as file:
            for part in carried(chunks, TOP, most_bytes):
                size_bytes += len(part)
                _check(size_bytes, most_bytes, withdrawn)
                digest.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(archive)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_folder(archive.parent)
    return Packed(digest.hexdigest(), size_bytes)


def _check(size_bytes: int, most_bytes: int, withdrawn: Callable[[], bool]) -> None:
    if withdrawn():
        raise Withdrawn("the checkpoint is not needed any more")
    if size_bytes > most_bytes:
        raise Unfit(f"the checkpoint is larger than {render_bytes(most_bytes)}")


def remove_archive(archive: Path) -> None:
    """Remove that file, and what an earlier agent left of it half done. Raises OSError."""
    archive.unlink(missing_ok=True)
    _unfinished(archive).unlink(missing_ok=True)


def _unfinished(archive: Path) -> Path:
    return archive.with_name(f".{archive.name}.tmp")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


_FOLDER, _LINK = 1 << 31, 1 << 27
"""Bits of Go's file modes."""


class NotShared(CallFailed):
    """The storage does not show that file here, perhaps not yet."""


def size_of(engine: Engine, container: str, path: str) -> int:
    """Bytes of a file in a container, running or not; 0 of a folder, whose own size says nothing.
    Blocks on the engine; raises NotShared: there is none; EngineRefused, EngineUnavailable."""
    try:
        found = engine.stat(container, path)
        if found.mode & _LINK:
            found = engine.stat(container, found.link)
    except EngineRefused as error:
        if error.status != 404:
            raise
        raise NotShared(f"the job's checkpoint {path} does not exist") from error
    return 0 if found.mode & _FOLDER else found.size_bytes


def check_shown(engine: Engine, container: str, path: str, size_bytes: int) -> None:
    """Raises NotShared unless the container has that file with that size; else as `size_of`."""
    found = size_of(engine, container, path)
    if found != size_bytes:
        size, expected = render_bytes(found), render_bytes(size_bytes)
        raise NotShared(
            f"the job's checkpoint {path} has {size} here, but {expected} on the node that saved it"
        )


@dataclass(frozen=True, slots=True)
class Brought:
    """The checkpoint with which a job came to this node."""

    job: str
    epoch: int
    archive: str
    """Needed until it is in the volume."""
    filled: bool = False
    file: str = ""
    """In shared storage: its path in the container, and no archive."""
    size_bytes: int = 0
    """Of that file."""
    source: str = ""
    """Path of the job's file; empty: any."""
    volume: str = ""
    """The volume of its specification in whose place it is; empty: any."""


class Arrivals:
    """The volumes of jobs that came from other nodes. Thread-safe; durable in `arrivals`."""

    def __init__(self, instance: Instance) -> None:
        """Raises OSError."""
        self.instance = instance
        self._checked: dict[str, int] = {}
        """Checks of a shared checkpoint that failed, by job."""
        loss = "the job's next container starts without its checkpoint"
        folder, read_only = instance.state_dir / "arrivals", instance.options.read_only
        self._records: Records[Brought] = Records(
            folder, Brought, lambda one: one.job, NAME, loss, read_only=read_only
        )

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What was wrong with the records at the start."""
        return self._records.alarms

    def bring(self, job: str, epoch: int, archive: Path, source: str = "") -> None:
        """Note it; the same or an earlier epoch changes nothing. Raises OSError, ValueError."""
        self._note(Brought(job, epoch, str(archive), source=source))

    def expect(self, job: str, epoch: int, file: str, size_bytes: int, source: str = "") -> None:
        """Note that its checkpoint is that file in shared storage; else as `bring`."""
        self._note(Brought(job, epoch, "", file=file, size_bytes=size_bytes, source=source))

    def _note(self, brought: Brought) -> None:
        before = self._records.of(brought.job)
        if before is None or before.epoch < brought.epoch:
            self._checked.pop(brought.job, None)
            self._records.secure(brought)

    def of(self, job: str, source: str = "") -> Brought | None:
        """What that job came with; `source`: by its file, as another job may have its name."""
        found = self._records.of(job)
        return None if found is None or source not in ("", found.source or source) else found

    def forget(self, job: str) -> None:
        """Its next container gets the volume of its spec again. Raises OSError."""
        self._records.lift(job)

    def sweep(self, job: str) -> None:
        """Remove volumes of earlier epochs. Blocks while a container has them, or the engine does
        not answer, and then gives up."""
        for pause_s in SWEEPS_S:
            time.sleep(pause_s)
            with suppress(DlschedError):
                if not self._left(job):
                    return

    def _left(self, job: str) -> list[str]:
        """The volumes of earlier epochs that cannot be removed. Raises EngineUnavailable,
        EngineRefused."""
        left = []
        brought = self._records.of(job)
        present = None if brought is None else self._volume(brought)
        names = [
            str(volume["Name"]) for volume in self.instance.unhurried.volumes(self._labels(job))
        ]
        for name in names:
            if name != present:
                try:
                    self.instance.unhurried.remove_volume(name)
                except EngineRefused:
                    left.append(name)
        if brought is not None and brought.filled and not brought.file and present not in names:
            with suppress(OSError):
                self.forget(job)  # somebody has removed it
        return left

    def adapted(self, spec: JobSpec, brought: Brought) -> JobSpec:
        """The same job with the volume that it brought, unless its file has changed since so that
        its checkpoint is elsewhere. Raises ValueError: none of its volumes holds the checkpoint
        that has come."""
        if brought.file or (brought.filled and not _is_in_place_of(spec, brought)):
            return spec
        kept, container = _kept(spec), spec.container
        mode = ("nocopy",) if "nocopy" in kept.mode else ()
        own = str(replace(kept, source=self._volume(brought), mode=mode))
        volumes = (own if volume_parts(one) == kept else one for one in container.volumes)
        return replace(spec, container=replace(container, volumes=tuple(volumes)))

    def label(self, body: Body, brought: Brought) -> None:
        """Add our labels of the volume to the body of a create call."""
        for mount in body["HostConfig"]["Mounts"]:
            if mount.get("Source") == self._volume(brought):
                mount["VolumeOptions"]["Labels"] = self._labels(brought.job)

    def make_room(self, brought: Brought) -> None:
        """Remove what an earlier attempt left in its volume. Raises EngineRefused: a container has
        it; EngineUnavailable."""
        if not brought.file:
            self.instance.unhurried.remove_volume(self._volume(brought))

    def fill(self, container: str, spec: JobSpec, brought: Brought) -> None:
        """Unpack the archive into the volume of a container that was not started yet, or check that
        shared storage shows its file there. Raises Unfit, NotShared, EngineRefused,
        EngineUnavailable, OSError; then the volume is of no use."""
        if brought.file:
            self._check(container, brought)
            self._records.secure(replace(brought, filled=True))
            return
        path, top = _place(spec)
        with Path(brought.archive).open("rb") as file:
            most_bytes = os.fstat(file.fileno()).st_size
            chunks = iter(lambda: file.read(ARCHIVE_BYTES), b"")
            with self.instance.busy.of(container):
                self.instance.unhurried.unpack(container, path, carried(chunks, top, most_bytes))
        self._records.secure(replace(brought, filled=True, volume=_kept(spec).source))

    def _check(self, container: str, brought: Brought) -> None:
        try:
            with self.instance.busy.of(container):
                check_shown(self.instance.unhurried, container, brought.file, brought.size_bytes)
        except NotShared as error:
            failed = self._checked[brought.job] = self._checked.get(brought.job, 0) + 1
            raise NotShared(str(error), retryable=failed < CHECKS) from error

    def _volume(self, brought: Brought) -> str:
        return f"{container_name(self.instance.name, brought.job)}-e{brought.epoch}"

    def _labels(self, job: str) -> dict[str, str]:
        return {INSTANCE: self.instance.name, JOB: job}


def _is_in_place_of(spec: JobSpec, brought: Brought) -> bool:
    kept = checkpoint_volume(spec)
    if kept is None or spec.checkpoint is None or spec.checkpoint.shared:
        return False
    return brought.volume in ("", kept.source)


def _kept(spec: JobSpec) -> MountedVolume:
    """The volume that holds its checkpoint; raises ValueError."""
    kept = checkpoint_volume(spec)
    if kept is None:
        path = None if spec.checkpoint is None else spec.checkpoint.path
        raise ValueError(f"the job's checkpoint path {path} is in no writable volume")
    return kept


def _place(spec: JobSpec) -> tuple[str, str]:
    """Where its archive is unpacked, and what its top folder is called there. If possible that is
    one folder above the volume, as the engine leaves the owner of the place itself as it is."""
    mount = path_parts(_kept(spec).target)
    others = [path_parts(volume_parts(one).target) for one in spec.container.volumes]
    others += [path_parts(one.partition(":")[0]) for one in spec.container.tmpfs]
    covered = any(mount[: len(one)] == one != mount for one in others)
    base = mount if covered or spec.container.read_only else mount[:-1]
    assert spec.checkpoint is not None
    top = path_parts(spec.checkpoint.path)[len(base) :]
    return "/" + "/".join(base), "/".join(top) or "."
