"""What the product writes small files with, each as one call that a process can die in.

Owns those calls, and what must hold of the files whichever moment the process died at.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlsched.config.inbox.submit import submit
from dlsched.daemon.source import Release
from dlsched.model.errors import AlreadyRunning
from dlsched.model.state import Delivered, Ended, Tiers
from dlsched.runtime.allotment import (
    Allotment,
    Allotments,
    change_allotment,
    install_reporter,
    job_dir,
    read_allotment,
)
from dlsched.runtime.originals import Original, Originals
from dlsched.simulation.clock import VirtualClock
from dlsched.store.jobs import delivered_records, ended_records, lock_state_dir
from dlsched.store.journal.schema import set_aside
from dlsched.store.records import Records
from tests.torture.points import Points
from tests.torture.wrapping import Names, wrap_files

CONTAINER = "c" * 64
OLD = Ended("alpha", "1" * 64, "stopped")
NEW = Ended("alpha", "2" * 64, "finished")
HAD = Original(CONTAINER, "web", adopted=True)
GIVEN_BACK = Original(CONTAINER, "web", adopted=True, given_back=True)
DELIVERED = Delivered("alpha", "c", "accuracy", 0.9, 0.99, Tiers())
JOB = "name: alpha\nimage: busybox\n"
CHANGED_JOB = "name: alpha\nimage: busybox\nweight: 2\n"


@dataclass(frozen=True, slots=True)
class Store:
    """One way to change small files; all of it below one folder."""

    before: Callable[[Path], object]
    """The world before: it always succeeds."""
    change: Callable[[Path], object]
    """What dies."""
    told: Callable[[Path], object]
    """What the next process reads, after it has begun as an agent begins."""
    may_be: tuple[object, ...]
    """What that may be, whenever the process died."""
    at_last: object
    """What it must be once the change was made again."""


def _known(records: Records[Any], name: str) -> object:
    """The record of that name, where none is broken."""
    assert not records.alarms
    return records.of(name)


def _ended(folder: Path) -> object:
    return _known(ended_records(folder), "alpha")


def _original(folder: Path) -> object:
    return _known(Originals(folder), CONTAINER)


def _delivered(folder: Path) -> object:
    return _known(delivered_records(folder), "alpha")


def _allotted(folder: Path) -> object:
    Allotments(folder)  # an agent that begins clears what another left
    return read_allotment(job_dir(folder, "alpha"))


def _reporter(folder: Path) -> object:
    """Whether the reporter that stands there is whole; a new agent installs what does not."""
    installed = [one for one in (folder / "reporter").glob("[0-9a-f]*") if one.is_dir()]
    whole = all(_content(one) == _content(install_reporter(folder / "again")) for one in installed)
    install_reporter(folder)
    return whole


def _content(folder: Path) -> Mapping[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _submitted(folder: Path) -> object:
    # Of a command that was killed a file may stay that no agent reads: no other may remove it.
    for left in folder.glob(".*.tmp"):
        left.unlink()
    path = folder / "alpha.yaml"
    return path.read_text() if path.exists() else None


def _locked(folder: Path) -> object:
    """Whether the next agent gets the lock, and a third is told who has it."""
    with lock_state_dir(folder, "other"):
        with suppress(AlreadyRunning):
            lock_state_dir(folder, "third")
            return False
        with (folder / "lock").open() as held, suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    return True


def _state(folder: Path) -> Release:
    return Release(folder, VirtualClock(), lambda _: None)


def _release(folder: Path) -> None:
    release = _state(folder)
    asking = threading.Thread(target=release.ask)
    asking.start()
    while asking.is_alive():
        release.answer(tuple)


def _released(folder: Path) -> object:
    """Whether the next agent, which has the lock, takes it up."""
    with lock_state_dir(folder, "one"):
        return _state(folder).why is not None


def _journal(folder: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        (folder / f"journal.db{suffix}").write_text("broken")


def _aside(folder: Path) -> None:
    if any(folder.glob("journal.db*")):
        set_aside(folder / "journal.db", "corrupt")


def _parts(folder: Path) -> object:
    """Every part of the broken journal is kept, under whichever name."""
    return sum(path.read_text() == "broken" for path in folder.glob("journal.db*"))


STORES: Mapping[str, Store] = {
    "first record of an end": Store(
        ended_records, lambda at: ended_records(at).record(NEW), _ended, (None, NEW), NEW
    ),
    "another record of an end": Store(
        lambda at: ended_records(at).record(OLD),
        lambda at: ended_records(at).record(NEW),
        _ended,
        (OLD, NEW),
        NEW,
    ),
    "end lifted": Store(
        lambda at: ended_records(at).record(OLD),
        lambda at: ended_records(at).lift("alpha"),
        _ended,
        (OLD, None),
        None,
    ),
    "record of a delivery": Store(
        delivered_records,
        lambda at: delivered_records(at).record(DELIVERED),
        _delivered,
        (None, DELIVERED),
        DELIVERED,
    ),
    "record of an original": Store(
        Originals, lambda at: Originals(at).secure(HAD), _original, (None, HAD), HAD
    ),
    "original of a container that is gone": Store(
        lambda at: Originals(at).secure(HAD),
        lambda at: Originals(at).lift(CONTAINER),
        _original,
        (HAD, None),
        None,
    ),
    "original given back": Store(
        lambda at: Originals(at).secure(HAD),
        lambda at: Originals(at).secure(GIVEN_BACK),
        _original,
        (HAD, GIVEN_BACK),
        GIVEN_BACK,
    ),
    "first allotment": Store(
        lambda at: None,
        lambda at: change_allotment(job_dir(at, "alpha"), cpu_cores=0.5),
        _allotted,
        (Allotment(), Allotment(cpu_cores=0.5)),
        Allotment(cpu_cores=0.5),
    ),
    "changed allotment": Store(
        lambda at: change_allotment(job_dir(at, "alpha"), cpu_cores=0.5, deliverable=True),
        lambda at: change_allotment(job_dir(at, "alpha"), cpu_cores=0.7),
        _allotted,
        tuple(Allotment(cpu_cores=cores, deliverable=True) for cores in (0.5, 0.7)),
        Allotment(cpu_cores=0.7, deliverable=True),
    ),
    "reporter": Store(lambda at: None, install_reporter, _reporter, (True,), True),
    "job submitted": Store(
        lambda at: None, lambda at: submit(JOB, "alpha.yaml", at), _submitted, (None, JOB), JOB
    ),
    "job submitted again": Store(
        lambda at: submit(JOB, "alpha.yaml", at),
        lambda at: submit(CHANGED_JOB, "alpha.yaml", at),
        _submitted,
        (JOB, CHANGED_JOB),
        CHANGED_JOB,
    ),
    "lock": Store(
        lambda at: None, lambda at: lock_state_dir(at, "one").release(), _locked, (True,), True
    ),
    "released": Store(lambda at: None, _release, _released, (False, True), True),
    "resumed": Store(_release, lambda at: _state(at).resume(), _released, (True, False), False),
    "broken journal moved aside": Store(_journal, _aside, _parts, (3,), 3),
}


def change(name: str, folder: str, orders: str) -> None:
    """Make that change in a process whose every change is a point."""
    place = Path(folder)
    wrap_files(Points(Path(orders)), Names(place, place / "run", "default"))
    STORES[name].change(place)
