"""The archives of checkpoints that come to this node and leave it, in the agent's folder."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from dlsched.cluster.agent.assignments import FOLDER, Assignment
from dlsched.cluster.core.following import RUNNING
from dlsched.cluster.core.records import Phase, Saved


class Archives:
    """One file for each job that comes, and for each that is away."""

    def __init__(self, state_dir: Path) -> None:
        """Raises OSError."""
        self._incoming = state_dir / FOLDER / "incoming"
        self._outgoing = state_dir / FOLDER / "outgoing"
        for folder in self._folders():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def incoming(self, own: Assignment) -> Path:
        return self._incoming / _name(own.job, own.epoch)

    def outgoing(self, own: Assignment) -> Path:
        return self._outgoing / _name(own.job, own.epoch)

    def of_lost(self, job: str) -> Path:
        """Of a job that is set aside, and whose epoch is not known any more."""
        return self._outgoing / _name(job, 0)

    def remove_incoming(self, own: Assignment) -> None:
        _remove(self.incoming(own))

    def remove_others(self, held: Iterable[Assignment]) -> None:
        """Remove archives that none of these jobs needs, and what is not whole. Raises OSError."""
        needed = set()
        for own in held:
            if own.phase is Phase.AWAY:
                needed.add(self.outgoing(own))
            elif own.phase in (*RUNNING, Phase.FAILED) and not own.confirmed:
                needed.add(self.incoming(own))
        for folder in self._folders():
            for path in folder.iterdir():
                if path not in needed:
                    _remove(path)

    def _folders(self) -> tuple[Path, Path]:
        return self._incoming, self._outgoing


def differs(digest: Future[str], archive: Path, saved: Saved) -> str | None:
    """Why what came differs from the one that the source has; None: it does not."""
    try:
        size_bytes, found = archive.stat().st_size, digest.result()
    except OSError as error:
        return f"its checkpoint cannot be read: {error.strerror or error}"
    if size_bytes != saved.size_bytes:
        return f"its checkpoint has {size_bytes} bytes instead of {saved.size_bytes}"
    if found != saved.sha256:
        return f"its checkpoint has digest {found[:12]} instead of {saved.sha256[:12]}"
    return None


def _name(job: str, epoch: int) -> str:
    return f"{job}-e{epoch}.tar"


def _remove(archive: Path) -> None:
    """Where it cannot be removed, it is tried again at the next start."""
    with suppress(OSError):
        archive.unlink(missing_ok=True)
