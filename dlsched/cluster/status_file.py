"""The file in which a manager's controller reports to people: one snapshot after each round, as
JSON, read strictly by `dlsched.api.codec`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from dlsched.api.cluster_schema import ClusterStatus
from dlsched.api.codec import as_json, read_part
from dlsched.model.errors import DaemonUnavailable, DlschedError
from dlsched.store.atomic import write_whole

SCHEMA_VERSION = 1
FILE_NAME = "cluster.json"


class UnreadableStatus(DlschedError):
    """The file is none that this program reads."""


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
        content = path.read_bytes()
    except FileNotFoundError:
        line = f"no controller of a cluster has run here: there is no {path}"
        raise DaemonUnavailable(f"{line} (`systemctl start dlsched-cluster`)") from None
    try:
        return read_part(ClusterStatus, json.loads(content))
    except ValueError as error:
        line = f"{path}: not the status of a cluster, or of another version: {error}"
        raise UnreadableStatus(f"{line}: restart dlsched-cluster") from None


def latest_status(run_dir: Path) -> ClusterStatus | None:
    """The same, parsed once each time that it is written; None: no controller has run here. Raises
    UnreadableStatus."""
    path = status_file(run_dir)
    try:
        stat = path.stat()
        return _parsed(run_dir, (stat.st_ino, stat.st_mtime_ns, stat.st_size))
    except (FileNotFoundError, DaemonUnavailable):
        return None
    except OSError as error:
        raise UnreadableStatus(f"{path}: {error.strerror or error}") from None


@lru_cache(maxsize=1)
def _parsed(run_dir: Path, _version: tuple[int, ...]) -> ClusterStatus:
    return read_status(run_dir)


def host_names(hosts: Mapping[str, str]) -> dict[str, str]:
    """The host's name of each node, where only that node has it; else the node's own. `hosts`: by
    node, empty where it is not known."""
    counts = Counter(hosts.values())
    return {node: host if host and counts[host] == 1 else node for node, host in hosts.items()}
