"""Kept journals of the comparison of services: `.build/bench/satisfied/SEED/POLICY/`.

Owns these folders alone. It must not judge what is in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.places import KEPT
from dlsched.model.cycle import CycleReport
from dlsched.store.journal.reader import JournalReader
from tools.session import JOURNAL, Session

FOLDER = KEPT / "satisfied"

_AS_FILE_NAME = dict.fromkeys(map(ord, "?&=:"), "-")


@dataclass(frozen=True)
class KeptServices:
    """One policy on one seed's set."""

    seed: int
    policy: str
    first_cycle: int
    """Before it the set was calibrated."""
    targets: Mapping[str, float]
    judged_from_s: float
    """Since the first cycle."""
    folder: Path

    def reports(self) -> list[CycleReport]:
        """Its cycles. Raises RuntimeError for a journal that cannot be read."""
        with JournalReader(self.folder / JOURNAL) as reader:
            found = list(reader.reports(self.first_cycle))
            if reader.problem is not None:
                raise RuntimeError(reader.problem)
        return found


def keep(
    session: Session,
    seed: int,
    policy: str,
    first_cycle: int,
    targets: Mapping[str, float],
    judged_from_s: float,
    root: Path = FOLDER,
) -> KeptServices:
    """Keep the journal of a daemon that has stopped, in the place of an earlier one."""
    folder = root / str(seed) / policy.translate(_AS_FILE_NAME)
    kept = KeptServices(seed, policy, first_cycle, dict(targets), judged_from_s, folder)
    session.keep(folder)
    written = {name: value for name, value in asdict(kept).items() if name != "folder"}
    (folder / "run.json").write_text(json.dumps(written, indent=1) + "\n")
    return kept


def load_all(root: Path = FOLDER) -> list[KeptServices]:
    """All that are kept, by seed and policy."""
    files = sorted(root.glob("*/*/run.json"))
    return [KeptServices(**json.loads(file.read_text()), folder=file.parent) for file in files]
