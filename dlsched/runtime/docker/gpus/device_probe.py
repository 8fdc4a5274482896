"""Whether a container may open device nodes: asked by a child process of ours inside its group.

Owns that child: it enters the control group that decides on devices, opens each node by its path on
the host and ends, so it needs neither a shell in the image nor a right in the container. It is
killed at its deadline, also where nobody is left to do so; one that a driver holds in the kernel is
left to end when it can, and nobody waits for it. It must not judge what the answer means.
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
"""A GPU that nobody uses takes seconds to open. On cgroup v2 the child is under the container's
quota, and stands still where that is paused."""

_KILLED_WITHIN_S = 1.0

# All that it needs is loaded before it enters: on cgroup v2 what it touches afterwards is counted
# as the container's, and where that is out of memory, the child is to be the one that is killed.
_CHILD = """
import json, os, signal, sys
within_s, group, *nodes = sys.argv[1:]
signal.setitimer(signal.ITIMER_REAL, float(within_s))
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
told = {}
with open(group, "w") as file:
    file.write("0")
for node in nodes:
    try:
        os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
        told[node] = 0
    except OSError as error:
        told[node] = error.errno
print(json.dumps(told))
"""


class ProbeFailed(DlschedError):
    """Nobody can tell whether the container may open its devices; the text says why."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What the container's group may open, and what it may not."""

    allowed: frozenset[str]
    """Also what is busy or has no device behind it: the group did not stand in the way."""
    denied: frozenset[str]


def probe(
    pid: int, container: str, nodes: Iterable[str], proc: Path = PROC, within_s: float = DEADLINE_S
) -> Probe:
    """Try to open these nodes, by their paths on the host, as that container.

    Raises ProbeFailed.
    """
    group = _device_group(pid, container, proc)
    try:
        there = [node for node in nodes if Path(node).is_char_device()]
        if not there:
            raise ProbeFailed("none of its device nodes can be seen from here")
        told = _told(group / "cgroup.procs", there, within_s)
    except subprocess.TimeoutExpired as error:
        raise ProbeFailed(f"the look into its group took longer than {within_s:g} s") from error
    except (OSError, ValueError) as error:
        raise ProbeFailed(f"its group cannot be looked into: {error}") from error
    denied = frozenset(node for node, code in told.items() if code == errno.EPERM)
    return Probe(frozenset(told) - denied, denied)


def _told(group: Path, nodes: list[str], within_s: float) -> dict[str, int]:
    """The error number of opening each node, 0 for none. Raises ProbeFailed, TimeoutExpired."""
    own_s = within_s + _KILLED_WITHIN_S  # for when the agent is gone by then
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
    told: dict[str, int] = json.loads(out)
    return told


def _device_group(pid: int, container: str, proc: Path) -> Path:
    """Where it is decided on the container's devices."""
    try:
        folders = group_folders(pid, proc, container=container)
    except (OSError, ValueError) as error:
        raise ProbeFailed(f"its control group cannot be found: {error}") from error
    folder = folders.get("devices") or folders.get("")
    # A group that is not the container's own would tell what somebody else may open.
    if folder is None or container not in folder.name or not belongs(pid, container, proc):
        raise ProbeFailed("its control group for devices cannot be seen from here")
    return folder
