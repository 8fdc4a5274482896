"""What a container finds of dlsched's: its environment, the allotment, a copy of the reporter.

Owns the container's paths, and on the host the directories that are bound to them read-only. A
running container keeps the directory that it was started with: nothing here deletes or changes a
reporter that is in place, and an allotment is replaced whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dlsched import __version__
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, ContainerState
from dlsched.model.units import same_cores
from dlsched.report.turns import turn_file
from dlsched.store.atomic import clear_unfinished, write_whole

OUT = "/run/dlsched/out"
IN = "/run/dlsched/in"
LIB = "/run/dlsched/lib"
IN_FOLDER = "in"
"""In the state directory: one directory a job, which its container finds at `IN`."""
TURNS_FOLDER = "turns"
"""In the state directory: an empty file for each GPU that jobs share, by which they take turns."""
METRICS_FILE = f"{OUT}/metrics.jsonl"
ALLOTMENT_FILE = f"{IN}/allotment.json"
OUT_TMPFS_OPTIONS = "size=1m,nr_inodes=32,mode=1777,noexec,nosuid,nodev"

_UNFINISHED = ".new-"
_ENTRY_POINTS = b"""\
[lightning.pytorch.callbacks_factory]
dlsched = dlsched_report:lightning

[pytorch_lightning.callbacks_factory]
dlsched = dlsched_report:pytorch_lightning
"""


@dataclass(frozen=True, slots=True)
class Allotment:
    """What a job may use now, as it reads it itself. None: not limited, or not said."""

    cpu_cores: float | None = None
    gpu_share: float | None = None
    """Share of each of its GPUs' time that it is to pace itself to."""
    gpus: tuple[str, ...] = ()
    """UUIDs."""
    stop_soon: bool = False
    checkpoint_wanted: bool = False
    deliverable: bool = False
    """Whether it has reached the first tier of its target: a good moment to save itself."""
    gpu_memory_bytes: int | None = None
    """Of each of its GPUs."""


_WRITTEN = TypeAdapter(Allotment)
_FIELDS = tuple(item.name for item in fields(Allotment))
_writing = threading.Lock()
"""A start, a change of limits and a delivery come from threads of their own."""


def job_path(state_dir: Path, job: str) -> Path:
    """The host's directory behind the job's `in/`, if it exists; ValueError for a bad name."""
    if not job or job.startswith(".") or "/" in job or "\0" in job:
        raise ValueError(f"{job!r} cannot name a directory")
    return state_dir / IN_FOLDER / job


def job_dir(state_dir: Path, job: str) -> Path:
    """As `job_path`, created if it does not exist."""
    directory = job_path(state_dir, job)
    directory.mkdir(parents=True, exist_ok=True)
    # Whatever the umask: the job's user is not ours.
    directory.chmod(0o755)
    return directory


def write_allotment(directory: Path, allotment: Allotment) -> None:
    """Replace the allotment in a job's directory, atomically; raises OSError."""
    with _writing:
        # After a power cut an empty file would tell a job that it has no ceiling.
        _replace(directory, allotment, to_disk=True)


def change_allotment(directory: Path, **changes: Any) -> None:
    """Replace these fields of the allotment in a job's directory, atomically; raises OSError.

    Where there is nothing in it but what the agent repeats to every job when it begins, or decides
    again, it may be lost in a power cut.
    """
    with _writing:
        before = read_allotment(directory)
        if (after := replace(before, **changes)) != before:
            to_disk = not (_is_repeated(before) and _is_repeated(after))
            _replace(directory, after, to_disk=to_disk)


def read_allotment(directory: Path) -> Allotment:
    """What was written last; nothing is said where that is nothing that an agent writes."""
    try:
        return _WRITTEN.validate_json((directory / "allotment.json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return Allotment()


def _is_repeated(allotment: Allotment) -> bool:
    """Whether an agent that begins finds all of it by itself."""
    return replace(allotment, cpu_cores=None, gpu_share=None, gpus=()) == Allotment()


def _replace(directory: Path, allotment: Allotment, *, to_disk: bool) -> None:
    plain = {name: getattr(allotment, name) for name in _FIELDS}
    text = json.dumps(plain, allow_nan=False) + "\n"
    if allotment.gpu_share is not None and allotment.gpu_share < 1.0:
        _lay_turns(directory, allotment.gpus)
    write_whole(directory / "allotment.json", text, mode=0o644, to_disk=to_disk)


def _lay_turns(directory: Path, gpus: tuple[str, ...]) -> None:
    """Put the files in a job's directory that those who share a GPU lock in turn.

    A hard link is the same file in all of their containers, and nothing is ever written to it.
    Where none can be made jobs pace themselves all the same, though they get in each other's way.
    """
    with suppress(OSError):
        shared = directory.parent.parent / TURNS_FOLDER
        shared.mkdir(exist_ok=True)
        for name in {turn_file(gpu) for gpu in gpus} - {path.name for path in directory.iterdir()}:
            (shared / name).touch(mode=0o644)
            # Whatever the umask: to lock it, a job's user must be able to open it.
            (shared / name).chmod(0o644)
            (directory / name).hardlink_to(shared / name)


_HAS_LIMITS = frozenset({ContainerState.RUNNING, ContainerState.PAUSED})


class Allotments:
    """The allotments of own containers; only for the loop's thread."""

    def __init__(self, state_dir: Path, *, read_only: bool = False) -> None:
        self._state_dir = state_dir
        self._reported: dict[str, float | None] = {}
        """The ceiling certainly in the file, by container."""
        for folder in () if read_only else (state_dir / IN_FOLDER).glob("*/"):
            clear_unfinished(folder)

    def follow(self, facts: Iterable[ContainerFact]) -> tuple[Alarm, ...]:
        """Update each job's file to its actual ceiling and GPUs; returns what failed."""
        reported, alarms = self._reported, []
        self._reported = {}
        for fact in facts:
            if fact.adopted is not None or fact.state not in _HAS_LIMITS or fact.cpu_idle:
                continue  # in the idle class the file keeps the ceiling that applies after it
            container, cores = fact.container_id, fact.actual.cpu_cores
            if container not in reported or not same_cores(reported[container], cores):
                if fact.operation is not None:
                    continue  # the change in progress also updates the file
                try:
                    self._report(fact)
                except (OSError, ValueError) as error:
                    text = (
                        f"{fact.job}: the file in which the job reads its limits cannot be "
                        f"written: {error}"
                    )
                    alarms = [Alarm(fact.job, AlarmKey.JOB_NOT_NOTIFIED, text)]
                    continue
            self._reported[container] = cores
        return tuple(alarms)

    def sweep(self, jobs: Set[str]) -> None:
        """Remove the files of all jobs but these, which have a container or are getting one."""
        with suppress(OSError):  # they only take up space
            for folder in (self._state_dir / IN_FOLDER).iterdir():
                if folder.name not in jobs:
                    shutil.rmtree(folder, ignore_errors=True)

    def _report(self, fact: ContainerFact) -> None:
        inside = job_dir(self._state_dir, fact.job)
        before, cores = read_allotment(inside), fact.actual.cpu_cores
        if same_cores(before.cpu_cores, cores):
            cores = before.cpu_cores
        change_allotment(inside, cpu_cores=cores, gpus=fact.gpus)


def container_environment(
    job: str, image_pythonpath: str | None, spec_environment: Mapping[str, str]
) -> dict[str, str]:
    """The spec's environment with dlsched's variables; the reporter comes last on PYTHONPATH, and
    Python's output is not buffered unless the spec says so.

    A PYTHONPATH in the spec takes the image's place, as it would without dlsched. The names that
    begin with DLSCHED_ are ours whatever the spec says.
    """
    environment = dict(spec_environment)
    path = environment.get("PYTHONPATH", image_pythonpath)
    # An empty entry would put the job's working directory on the path: none for an empty value.
    environment["PYTHONPATH"] = f"{path}:{LIB}" if path else LIB
    # A block-buffered log shows an evaluation minutes after it was printed.
    environment.setdefault("PYTHONUNBUFFERED", "1")
    environment["DLSCHED_METRICS_FILE"] = METRICS_FILE
    environment["DLSCHED_ALLOTMENT_FILE"] = ALLOTMENT_FILE
    environment["DLSCHED_JOB"] = job
    return environment


def install_reporter(state_dir: Path) -> Path:
    """The directory to bind to LIB, named by its content and made once; raises OSError."""
    files = _reporter_files()
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    place = state_dir / "reporter"
    place.mkdir(parents=True, exist_ok=True)
    installed = place / digest.hexdigest()[:16]
    for left in place.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)
    if installed.is_dir():
        return installed
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=place))
    for name, content in files.items():
        target = unfinished / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o644)
        target.parent.chmod(0o755)
        _sync(target)
    for directory in (unfinished, unfinished / "dlsched"):
        directory.chmod(0o755)
        _sync(directory)
    unfinished.rename(installed)
    _sync(place)
    return installed


def _reporter_files() -> dict[str, bytes]:
    """The reporter's package and its dist-info, by path."""
    dist_info = f"dlsched_report-{__version__}.dist-info"
    files = {
        "dlsched/__init__.py": b'"""The part of dlsched that jobs import: dlsched.report."""\n',
        f"{dist_info}/METADATA": (
            f"Metadata-Version: 2.1\nName: dlsched-report\nVersion: {__version__}\n"
            "Summary: Reports a job's progress and latency to dlsched\nRequires-Python: >=3.8\n"
        ).encode(),
        f"{dist_info}/INSTALLER": b"dlsched\n",
        f"{dist_info}/entry_points.txt": _ENTRY_POINTS,
    }
    for source in resources.files("dlsched.report").iterdir():
        if source.name == "entry_points.py":
            files["dlsched_report.py"] = source.read_bytes()
        elif source.name.endswith(".py"):
            files[f"dlsched/report/{source.name}"] = source.read_bytes()
    return files


def _sync(path: Path) -> None:
    """To disk before the rename: after a power cut the digest must not name empty files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
