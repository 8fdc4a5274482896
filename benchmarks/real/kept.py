"""Kept runs on real containers: a journal, and beside it what else must be known of the run.

Owns the folders below `.build/bench`. It must not judge what is in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.judge import Judged, arrived, judge, updates
from benchmarks.places import KEPT
from dlsched.model.cycle import CycleReport
from dlsched.store.journal.reader import JournalReader
from tools.session import JOURNAL

FOLDER = KEPT / "services"
RUN = "run.json"
"""Written last: a folder with this file has a whole run."""
_AS_FILE_NAME = dict.fromkeys(map(ord, "?&=:"), "-")


@dataclass(frozen=True)
class KeptRun:
    """One run, in its folder."""

    folder: Path

    def write(self) -> None:
        """All but the journal, as JSON."""
        told = {name: value for name, value in asdict(self).items() if name != "folder"}
        (self.folder / RUN).write_text(json.dumps(told, indent=1) + "\n")

    def reports(self, first: int = 0) -> list[CycleReport]:
        """Its cycles from that one on. Raises RuntimeError for a journal that cannot be read."""
        with JournalReader(self.folder / JOURNAL) as reader:
            found = list(reader.reports(first))
            if reader.problem is not None:
                raise RuntimeError(reader.problem)
        return found


@dataclass(frozen=True)
class KeptServices(KeptRun):
    """One policy on one seed's set of services: `DEMAND/SEED/POLICY/`."""

    demand: float
    """Of the set, as a part of capacity."""
    seed: int
    policy: str
    first_cycle: int
    """Before it the set was calibrated."""
    targets: Mapping[str, float]
    judged_from_s: float
    """Since the first cycle."""

    def reports(self, first: int | None = None) -> list[CycleReport]:
        """Those from its first cycle on."""
        return super().reports(self.first_cycle if first is None else first)

    def judged(self) -> list[Judged]:
        """Each service, over what arrived in the judged window."""
        series = arrived(self.reports())
        return [
            judge(job, target_s, series.get(job, ()), self.judged_from_s)
            for job, target_s in self.targets.items()
        ]

    def updates_per_min(self) -> float:
        """How often limits or shares were changed."""
        reports = self.reports()
        elapsed_s = reports[-1].snapshot.now_s - reports[0].snapshot.now_s
        return updates(reports) / elapsed_s * 60


def folder_of(demand: float, seed: int, policy: str) -> Path:
    return FOLDER / f"{demand:g}" / str(seed) / policy.translate(_AS_FILE_NAME)


def load_services() -> list[KeptServices]:
    """All that are kept, by demand, seed and policy."""
    files = sorted(FOLDER.glob(f"*/*/*/{RUN}"))
    return [KeptServices(file.parent, **json.loads(file.read_text())) for file in files]
