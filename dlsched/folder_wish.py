"""The watch folder as the controller wants it: specs in force, and what must be spared.

Owns the rule when a container without a spec is left alone. It must not read files (`inbox` does),
nor touch containers.
"""

from __future__ import annotations

from pathlib import Path

from dlsched.controller import Inbound
from dlsched.inbox import Inbox, InboxScan
from dlsched.ledger import Wish
from dlsched.model import ContainerFact


class FolderWish:
    """The wishes of one folder; only the loop's thread asks for them."""

    def __init__(self, inbox: Inbox, folder: Path) -> None:
        self._inbox = inbox
        self._folder = folder
        self._known: set[str] = set()
        """Files that were in force under this agent: when one of them is gone, it was removed."""
        self.next_s: float | None = None

    def scan(self, now_s: float) -> Inbound:
        """Read the folder; a container is spared while its file may still be there."""
        seen = self._inbox.scan(now_s)
        self.next_s = seen.next_s
        self._known.update(seen.files.values())
        return Inbound(
            wish=Wish(
                specs={spec.name: spec for spec in seen.specs},
                spares=lambda fact: self._spared(fact, seen),
                settled=seen.settled and not seen.rejected,
            ),
            sources={job: str(self._folder / name) for job, name in seen.files.items()},
            rejected=seen.rejected,
            trouble=seen.trouble,
        )

    def _spared(self, fact: ContainerFact, seen: InboxScan) -> str | None:
        """Why the container of a job without a spec is left alone; None: its file was removed."""
        if seen.trouble is not None:
            return seen.trouble
        source = Path(fact.source)
        if source.parent != self._folder:
            return f"it was started from {source.parent}, not from {self._folder}"
        rejected = {Path(bad.file).name: bad.job for bad in seen.rejected}
        if source.name in rejected or fact.job in rejected.values():
            return f"its job file {source.name} is rejected"
        if source.name in seen.unsettled:
            return f"its job file {source.name} is still being read"
        if source.name in self._known:
            return None
        # A restarted agent has not seen the file: it may have been renamed, and be among these.
        if not seen.settled:
            return "the job files are still being read"
        unknown = sorted(name for name, job in rejected.items() if job is None)
        if unknown:
            return f"its job file {source.name} is gone, but {unknown[0]} is rejected and may be it"
        return None
