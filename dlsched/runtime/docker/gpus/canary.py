"""Tries the first update of a container with GPUs on one container: does it take the GPUs away?

An alarm, which bars further updates, outlives the agent in a file: every agent would otherwise cost
another container its GPUs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlsched.model.errors import DlschedError
from dlsched.model.facts import GpuAccess
from dlsched.model.units import plain_text
from dlsched.runtime.docker.gpus.device_probe import Probe, ProbeFailed, probe
from dlsched.store.atomic import remove, write_whole

REMEDY = (
    "set gpus.injection to cdi, or the mode of the NVIDIA runtime (nvidia-ctk config --in-place "
    "--set nvidia-container-runtime.mode=cdi), then start the container again"
)

ALARM_FILE = "gpu-alarm"
"""In the state directory, while updates of containers with GPUs are barred."""

_ALARM_BYTES = 1000
_NO_MORE = "no container with GPUs is updated through the engine now"
_LEGACY = "its GPUs came by the legacy hook, and a CPU update can take them away: use CDI"


class Waits(DlschedError):
    """Another container's update is being tried first."""


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
                    raise Waits(f"waits for the canary: an update of {self._trying} is tried first")
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
            self._note(held, f"it may not open {_joined(found.denied)} any more")

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
            raise Unproven(f"no update is made of it, since it has GPUs and {error}") from error
        if not before.allowed:
            self._note(held, f"it may not open {_joined(before.denied)}")
            raise Unproven(f"no update is made of it: it may not open {_joined(before.denied)}")
        # If the agent is killed meanwhile, the next one must not try another container.
        self._keep(f"{held.name}: unknown whether a CPU update took its GPU away; {_NO_MORE}")
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
            why = f"a CPU update took its GPU away: it may not open {_joined(taken)} any more"
            self._note(held, why)
            self.alarm = self._keep(f"{held.name}: {why}; {_NO_MORE}: {REMEDY}")
            raise Unsafe(self.alarm)
        self._safe.add(held.access)
        self._settle()

    def _keep(self, alarm: str) -> str:
        """Write the alarm to the file; returns it with how to clear it."""
        if self._file is None:
            return alarm
        alarm = f"{alarm}; in the end remove {self._file} and restart dlsched"
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
        text = f"{file} cannot be read: {error.strerror}"
    return plain_text(text).strip() or f"{file} is there"


def _joined(nodes: frozenset[str]) -> str:
    return ", ".join(sorted(nodes))
