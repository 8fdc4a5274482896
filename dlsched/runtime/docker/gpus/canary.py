"""Tries the first update of a container with GPUs on one container: does it take the GPUs away?

A child process in the container's control group opens each node by its path on the host, and ends
itself after its deadline; one that a driver holds in the kernel is left behind.

An alarm, which bars further updates, outlives the agent in a file: every agent would otherwise cost
another container its GPUs.
"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlsched.model.errors import DlschedError
from dlsched.model.facts import GpuAccess
from dlsched.model.units import plain_text
from dlsched.runtime.cgroup.read import PROC, belongs, group_folders
from dlsched.runtime.docker.background import begin
from dlsched.runtime.machine.outcomes import Waits
from dlsched.store.atomic import remove, write_whole

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
    """Whether the container may open its devices is unknown; the text says why, and what follows
    for its limits."""


_UNASKED = "the limits stay as they are, since the container could lose its GPUs, and"


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
            raise ProbeFailed(f"{_UNASKED} dlsched sees none of the container's GPU device nodes")
        errors = _opened(group / "cgroup.procs", there, within_s)
    except subprocess.TimeoutExpired as error:
        raise ProbeFailed(
            f"{_UNASKED} the probe in the container's control group took longer than {within_s:g} s"
        ) from error
    except (OSError, ValueError) as error:
        raise ProbeFailed(
            f"{_UNASKED} the container's control group cannot be probed: {error}"
        ) from error
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
        raise ProbeFailed(
            f"{_UNASKED} the container's control group cannot be entered: {last[:200]}"
        )
    codes: dict[str, int] = json.loads(out)
    return codes


def _device_group(pid: int, container: str, proc: Path) -> Path:
    try:
        folders = group_folders(pid, proc, container=container)
    except (OSError, ValueError) as error:
        raise ProbeFailed(
            f"{_UNASKED} the container's control group cannot be found: {error}"
        ) from error
    folder = folders.get("devices") or folders.get("")
    # Another group would show what other processes may open.
    if folder is None or container not in folder.name or not belongs(pid, container, proc):
        raise ProbeFailed(
            f"{_UNASKED} dlsched does not see the container's control group for devices"
        )
    return folder


REMEDY = (
    "set gpus.injection to cdi, or the mode of the NVIDIA runtime (nvidia-ctk config --in-place "
    "--set nvidia-container-runtime.mode=cdi), then start the container again"
)

ALARM_FILE = "gpu-alarm"
"""In the state directory, while updates of containers with GPUs are barred."""

_ALARM_BYTES = 1000
_NO_MORE = "from now on, dlsched updates no container with GPUs through the engine"
_LEGACY = (
    "the container got its GPUs by the legacy hook, and a CPU update can take them away: use CDI"
)


class Unproven(DlschedError):
    """Whether an update is safe for this container's GPUs cannot be checked, so none was made."""


class Unsafe(DlschedError):
    """An update took GPUs away: containers with GPUs are no longer updated."""


@dataclass(frozen=True, slots=True)
class GpuContainer:
    container: str
    name: str
    pid: int
    access: GpuAccess
    nodes: tuple[str, ...]
    """Its device nodes on the host."""


ProbeNodes = Callable[[GpuContainer], Probe]


class Canary:
    """What updates do to the GPUs of one engine's containers. Thread-safe."""

    def __init__(
        self,
        probe_nodes: ProbeNodes = lambda held: probe(held.pid, held.container, held.nodes),
        state_dir: Path | None = None,
    ) -> None:
        """`probe_nodes` returns which nodes a container may open, and raises ProbeFailed;
        `state_dir` holds an alarm that outlives the agent (None: none does)."""
        self._probe = probe_nodes
        self._turn = threading.Condition()
        self._trying: str | None = None
        self._safe: set[GpuAccess] = set()
        self._lost: dict[str, tuple[int, str]] = {}
        """By container: the PID of the start that lost its GPUs, and how."""
        self._file = None if state_dir is None else state_dir / ALARM_FILE
        self.alarm: str | None = None if self._file is None else _kept(self._file)
        """Why containers with GPUs are no longer updated through the engine; None: they are."""

    def update(self, held: GpuContainer, change: Callable[[], None], *, wait: bool = False) -> None:
        """Update through the engine; the first container of its kind is probed before and after.

        Raises Waits while another is tried, unless `wait`; Unproven, Unsafe, and what `change`
        raises.
        """
        with self._turn:
            while self._trying is not None:
                if not wait:
                    raise Waits(
                        f"the update waits until that of {self._trying} has shown whether a "
                        "container keeps its GPUs"
                    )
                self._turn.wait()
            if (why := self.bar(held.access)) is not None:
                raise Unsafe(why)
            proven = held.access in self._safe
            if not proven:
                self._trying = held.name
        if proven:
            change()
            return
        try:
            self._try(held, change)
        finally:
            with self._turn:
                self._trying = None
                self._turn.notify_all()

    def bar(self, access: GpuAccess) -> str | None:
        """Why containers with such GPUs must not be updated through the engine; None: they may."""
        return _LEGACY if access is GpuAccess.LEGACY else self.alarm

    def check(self, held: GpuContainer) -> None:
        """Check whether something else has taken a container's GPUs."""
        if self.lost(held.container, held.pid) is not None:
            return
        try:
            found = self._probe(held)
        except ProbeFailed:
            return
        if found.denied:
            self._note(held, f"the container may not open {_joined(found.denied)} any more")

    def lost(self, container: str, pid: int) -> str | None:
        """How this start of a container lost its GPUs; None: it did not, as far as known."""
        then, why = self._lost.get(container, (0, ""))
        return why if why and then == pid else None

    def forget(self, container: str) -> None:
        self._lost.pop(container, None)

    def _try(self, held: GpuContainer, change: Callable[[], None]) -> None:
        try:
            before = self._probe(held)
        except ProbeFailed as error:
            raise Unproven(str(error)) from error
        if not before.allowed:
            self._note(held, f"the container may not open {_joined(before.denied)}")
            raise Unproven(
                "the engine was not asked to set limits, as the container has no access to its "
                f"GPUs (it may not open {_joined(before.denied)}): start the container again"
            )
        # If the agent is killed meanwhile, the next one must not try another container.
        self._keep(
            f"{held.name}: unknown whether a CPU update took the container's GPU away; {_NO_MORE}"
        )
        try:
            change()
        finally:
            # A failed call may have had its effect all the same.
            self._judge(held, before)

    def _judge(self, held: GpuContainer, before: Probe) -> None:
        try:
            after = self._probe(held)
        except ProbeFailed:
            self._settle()
            return  # it may have ended meanwhile: the next update is tried again
        if taken := before.allowed & after.denied:
            why = (
                f"a CPU update took the container's GPU away: it may not open {_joined(taken)} any "
                "more"
            )
            self._note(held, why)
            self.alarm = self._keep(f"{held.name}: {why}; {_NO_MORE}: {REMEDY}")
            raise Unsafe(self.alarm)
        self._safe.add(held.access)
        self._settle()

    def _keep(self, alarm: str) -> str:
        """Write the alarm to the file; returns it with how to clear it."""
        if self._file is None:
            return alarm
        alarm = f"{alarm}; then remove {self._file} and restart dlsched"
        with suppress(OSError):  # it still holds for this agent's life
            write_whole(self._file, alarm)
        return alarm

    def _settle(self) -> None:
        """Remove the alarm's file."""
        if self._file is not None:
            with suppress(OSError):
                remove(self._file)

    def _note(self, held: GpuContainer, why: str) -> None:
        self._lost[held.container] = (held.pid, why)


def _kept(file: Path) -> str | None:
    """An earlier agent's alarm; an unreadable file is one, too."""
    try:
        with file.open("rb") as stream:
            text = stream.read(_ALARM_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        text = f"the alarm kept in {file} cannot be read: {error.strerror}"
    return plain_text(text).strip() or f"{file} is there"


def _joined(nodes: frozenset[str]) -> str:
    return ", ".join(sorted(nodes))
