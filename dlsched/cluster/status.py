"""What a manager's controller reports to people: one snapshot after each round, as JSON in a file.

Standard dataclasses, read strictly by `dlsched.api.reading`. None: unknown, or there is none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dlsched.api.reading import as_json, read_part
from dlsched.model.errors import DaemonUnavailable, DlschedError
from dlsched.store.atomic import write_whole

SCHEMA_VERSION = 1
FILE_NAME = "cluster.json"
_SIZE_MAX_BYTES = 64 << 20


class UnreadableStatus(DlschedError):
    """The file is none that this program reads."""


@dataclass(frozen=True)
class NodeRow:
    """One node that belongs to the cluster."""

    name: str
    host: str
    address: str
    state: str
    """ready, drain, silent, or down where the store says so."""
    jobs: int
    used_cores: float | None
    """By jobs of the cluster and by everything else."""
    capacity_cores: float | None
    ends_in_s: float | None
    """Until its last job is done, by forecast."""
    report_age_s: float | None
    problem: str
    """Why it does not answer, or refuses an order; usually empty."""


@dataclass(frozen=True)
class EventRow:
    """Something that happened to a job."""

    at: str
    """RFC 3339, UTC."""
    text: str


@dataclass(frozen=True)
class JobRow:
    """One job that has a node, or ended."""

    name: str
    node: str
    target: str | None
    """The node to which it moves, or that prepares for it."""
    state: str
    epoch: int
    since_s: float
    """How long it has been so, as far as this controller knows."""
    moves: int
    goal: str
    """Its target, as `accuracy 0.9, 0.97`; empty: it has none."""
    measured: float | None
    """The last value of the target's metric."""
    granted_cores: float | None
    left_core_s: float | None
    """The work until its end."""
    unmovable: str
    """Why it cannot be moved; empty: it can."""
    why: str
    events: tuple[EventRow, ...]
    """The latest, the newest last; those since the controller began."""


@dataclass(frozen=True)
class QueueRow:
    """One job that waits for a node."""

    name: str
    waits_s: float
    why: str


@dataclass(frozen=True)
class ClusterStatus:
    """The whole snapshot."""

    schema_version: int
    instance: str
    manager: str
    """Whose controller wrote this."""
    leader: str
    """The manager whose controller acts; empty: unknown."""
    policy: str
    written_at: str
    observed_at: str
    """When nodes and jobs were as they are here; empty: never, as another manager leads."""
    nodes: tuple[NodeRow, ...]
    jobs: tuple[JobRow, ...]
    queue: tuple[QueueRow, ...]
    asked: tuple[str, ...]
    """Requests of people that are not done yet, and what they wait for."""
    rejected: tuple[str, ...]
    """Problems of this manager's job files, and of others' submissions."""
    alarms: tuple[str, ...]


def status_file(run_dir: Path) -> Path:
    """Beside the run directory, as systemd deletes that when the daemon ends."""
    return run_dir.with_name(f"{run_dir.name}-cluster") / FILE_NAME


def write_status(run_dir: Path, status: ClusterStatus) -> None:
    """Raises OSError; the former file is then whole."""
    path = status_file(run_dir)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    text = json.dumps(as_json(status), indent=1) + "\n"
    write_whole(path, text, to_disk=False)


def read_status(run_dir: Path) -> ClusterStatus:
    """The snapshot there. Raises DaemonUnavailable where there is none, UnreadableStatus, and
    OSError."""
    path = status_file(run_dir)
    try:
        with path.open("rb") as stream:
            content = stream.read(_SIZE_MAX_BYTES + 1)
    except FileNotFoundError:
        line = f"no controller of a cluster has run here: there is no {path}"
        raise DaemonUnavailable(f"{line} (systemctl start dlsched-cluster)") from None
    if len(content) > _SIZE_MAX_BYTES:
        raise UnreadableStatus(f"{path}: more than {_SIZE_MAX_BYTES >> 20} MiB")
    try:
        found = json.loads(content)
        version = found.get("schema_version")
    except (AttributeError, RecursionError, ValueError):
        raise UnreadableStatus(f"{path}: not the status of a cluster") from None
    if version != SCHEMA_VERSION or isinstance(version, bool):
        line = f"{path}: version {version!r:.20}, and this dlsched reads {SCHEMA_VERSION}"
        raise UnreadableStatus(f"{line}: restart dlsched-cluster with this dlsched")
    try:
        return read_part(ClusterStatus, found)
    except ValueError as error:
        raise UnreadableStatus(f"{path}: {error}") from None
