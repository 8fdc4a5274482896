"""Checks whether a container may open device nodes, by a child process in its control group.

The child opens each node by its path on the host, and ends itself after its deadline; one that a
driver holds in the kernel is left behind.
"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dlsched.model.errors import DlschedError
from dlsched.runtime.cgroup.read import PROC, belongs, group_folders
from dlsched.runtime.docker.background import begin

DEADLINE_S = 10.0
"""An unused GPU takes seconds to open. On cgroup v2 the container's quota applies to the child,
and pausing the container stops it."""

_KILLED_WITHIN_S = 1.0

# Everything is loaded before it enters: on cgroup v2 later memory counts as the container's, and
# where that is out of memory, the child must be the one that is killed.
_CHILD = """
import json, os, signal, sys
within_s, group, *nodes = sys.argv[1:]
signal.setitimer(signal.ITIMER_REAL, float(within_s))
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
codes = {}
with open(group, "w") as file:
    file.write("0")
for node in nodes:
    try:
        os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
        codes[node] = 0
    except OSError as error:
        codes[node] = error.errno
print(json.dumps(codes))
"""


class ProbeFailed(DlschedError):
    """Whether the container may open its devices is unknown; the text says why."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What the container's group may open, and what it may not."""

    allowed: frozenset[str]
    """Also busy nodes and nodes without a device: the group allows them."""
    denied: frozenset[str]


def probe(
    pid: int, container: str, nodes: Iterable[str], proc: Path = PROC, within_s: float = DEADLINE_S
) -> Probe:
    """Try to open these nodes (paths on the host) as that container. Raises ProbeFailed."""
    group = _device_group(pid, container, proc)
    try:
        there = [node for node in nodes if Path(node).is_char_device()]
        if not there:
            raise ProbeFailed("none of its device nodes is visible from here")
        errors = _opened(group / "cgroup.procs", there, within_s)
    except subprocess.TimeoutExpired as error:
        raise ProbeFailed(f"the probe in its group took longer than {within_s:g} s") from error
    except (OSError, ValueError) as error:
        raise ProbeFailed(f"its group cannot be probed: {error}") from error
    denied = frozenset(node for node, code in errors.items() if code == errno.EPERM)
    return Probe(frozenset(errors) - denied, denied)


def _opened(group: Path, nodes: list[str], within_s: float) -> dict[str, int]:
    """The error number of opening each node, 0 for none. Raises ProbeFailed, TimeoutExpired."""
    own_s = within_s + _KILLED_WITHIN_S  # in case the agent is gone by then
    command = [sys.executable, "-I", "-S", "-c", _CHILD, f"{own_s:g}", str(group), *nodes]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, complaint = child.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        child.kill()
        try:
            child.communicate(timeout=_KILLED_WITHIN_S)
        except subprocess.TimeoutExpired:
            begin(child.communicate, "probe-left")
        raise
    if child.returncode != 0:
        last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise ProbeFailed(f"its group cannot be entered: {last[:200]}")
    codes: dict[str, int] = json.loads(out)
    return codes


def _device_group(pid: int, container: str, proc: Path) -> Path:
    try:
        folders = group_folders(pid, proc, container=container)
    except (OSError, ValueError) as error:
        raise ProbeFailed(f"its control group cannot be found: {error}") from error
    folder = folders.get("devices") or folders.get("")
    # Another group would show what other processes may open.
    if folder is None or container not in folder.name or not belongs(pid, container, proc):
        raise ProbeFailed("its control group for devices is not visible from here")
    return folder
