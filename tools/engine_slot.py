"""The folders of private engines: one slot for each concurrent caller.

A slot keeps its data-root between runs, so images are made once. Its lock shows whether a caller
lives; its record, where the last caller's engine ran.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

MAX_SLOTS = 64
# After the name of the group of the containers: the group of dockerd and what it starts.
DAEMONS_SUFFIX = "-daemons"


@dataclass(frozen=True)
class Slot:
    """One private engine's place on disk."""

    folder: Path

    @property
    def data_root(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "dockerd.log"

    @property
    def cgroup_parent(self) -> str:
        """Name of the cgroup of this slot's containers, unique on this host."""
        mark = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:12]
        return f"dlsched-engine-{mark}"

    def container_ids(self) -> set[str]:
        """Ids of the containers that the data-root knows, whether or not they run."""
        known = self.data_root / "containers"
        return {entry.name for entry in known.iterdir()} if known.is_dir() else set()

    def remember(self, run_folder: Path) -> None:
        """Record where the engine is about to run, before anything of it exists."""
        newer = self.folder / "record.new"
        newer.write_text(json.dumps({"run_folder": str(run_folder)}), encoding="utf-8")
        newer.replace(self.folder / "record.json")

    def recorded_run_folder(self) -> Path | None:
        """Where the last engine of this slot ran, or None when nothing of it is left."""
        try:
            record = json.loads((self.folder / "record.json").read_text(encoding="utf-8"))
            return Path(record["run_folder"])
        except (FileNotFoundError, ValueError):
            # A record cut short by a power failure: its engine has ended with it.
            return None

    def forget(self) -> None:
        """Drop the record: nothing of the last engine is left."""
        (self.folder / "record.json").unlink(missing_ok=True)


@contextmanager
def locked(slot: Slot) -> Iterator[bool]:
    """Hold the slot while inside; yields whether the lock was free."""
    slot.folder.mkdir(parents=True, exist_ok=True)
    with (slot.folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


@contextmanager
def free_slot(engines: Path) -> Iterator[Slot]:
    """Hold the first slot under `engines` with no living caller and nothing left to clear."""
    for number in range(MAX_SLOTS):
        slot = Slot(engines / str(number))
        with locked(slot) as held:
            if held and slot.recorded_run_folder() is None:
                yield slot
                return
    raise RuntimeError(f"{engines}: all {MAX_SLOTS} engine slots are in use")


def existing_slots(engines: Path) -> list[Slot]:
    """Every slot that some caller has ever used here."""
    return [Slot(entry) for entry in sorted(engines.glob("*")) if entry.is_dir()]
