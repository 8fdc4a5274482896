"""Kept journals of the comparison of services: `.build/bench/satisfied/SEED/POLICY/`.

Owns these folders alone. It must not judge what is in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.session import JOURNAL, KEPT, Session
from dlsched.journal import JournalReader
from dlsched.model import CycleReport

FOLDER = KEPT / "satisfied"


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

    def reports(self, root: Path = FOLDER) -> list[CycleReport]:
        """Its cycles. Raises RuntimeError for a journal that cannot be read."""
        with JournalReader(_folder(self.seed, self.policy, root) / JOURNAL) as reader:
            found = list(reader.reports(self.first_cycle))
            if reader.trouble is not None:
                raise RuntimeError(reader.trouble)
        return found


def keep(
    session: Session,
    seed: int,
    policy: str,
    first_cycle: int,
    targets: Mapping[str, float],
    judged_from_s: float,
) -> None:
    """Keep the journal of a daemon that has stopped, in the place of an earlier one."""
    kept = KeptServices(seed, policy, first_cycle, dict(targets), judged_from_s)
    folder = _folder(seed, policy, FOLDER)
    session.keep(folder)
    (folder / "run.json").write_text(json.dumps(asdict(kept), indent=1) + "\n")


def load_all(root: Path = FOLDER) -> list[KeptServices]:
    """All that are kept, by seed and policy."""
    files = sorted(root.glob("*/*/run.json"))
    return [KeptServices(**json.loads(file.read_text())) for file in files]


def _folder(seed: int, policy: str, root: Path) -> Path:
    return root / str(seed) / policy.translate({ord("?"): "-", ord("&"): "-", ord("="): "-"})
