"""The first update of a container with GPUs, tried on one of them: does it take its GPUs away?

Owns what this agent has found out of that in its life: for each way in which GPUs reach containers
whether an update leaves them alone, and which containers lost theirs; and longer than that, in a
file, that none is made any more once one took GPUs away: each agent and each release after it would
cost one more container its GPUs. It must not call the engine, and must not know limits: it is
handed what to do. May be used from any thread.
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
    "--set nvidia-container-runtime.mode=cdi), then start the container anew"
)

ALARM_FILE = "gpu-alarm"
"""In the state directory, as long as no container with GPUs is to be updated."""

_ALARM_BYTES = 1000
_NO_MORE = "no container with GPUs is updated through the engine now"
_LEGACY = "its GPUs came by the legacy hook, and a CPU update can take them away: use CDI"


class Waits(DlschedError):
    """Another container's update is being tried first."""


class Unproven(DlschedError):
    """It cannot be seen whether an update takes this container's GPUs away, so none was made."""


class Unsafe(DlschedError):
    """An update took GPUs away: none is made any more of containers that have some."""


@dataclass(frozen=True, slots=True)
class Held:
    """A running container with GPUs."""

    container: str
    name: str
    pid: int
    access: GpuAccess
    nodes: tuple[str, ...]
    """Its device nodes on the host."""


Look = Callable[[Held], Probe]


class Canary:
    """What updates do to the GPUs of one engine's containers."""

    def __init__(
        self,
        look: Look = lambda held: probe(held.pid, held.container, held.nodes),
        state_dir: Path | None = None,
    ) -> None:
        """`look` tells which nodes a container may open, and raises ProbeFailed; `state_dir` is
        where an alarm outlives the agent (None: nowhere)."""
        self._look = look
        self._turn = threading.Condition()
        self._trying: str | None = None
        self._safe: set[GpuAccess] = set()
        self._lost: dict[str, tuple[int, str]] = {}
        """By container: the process of the start that lost its GPUs, and how."""
        self._file = None if state_dir is None else state_dir / ALARM_FILE
        self.alarm: str | None = None if self._file is None else _kept(self._file)
        """Why no container with GPUs is updated through the engine any more; None: they are."""

    def update(self, held: Held, change: Callable[[], None], *, wait: bool = False) -> None:
        """Make a change through the engine: of the first container of its kind, between two looks.

        Raises Waits while another's is tried, unless told to `wait` for that; Unproven, Unsafe, and
        what `change` raises.
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
        """Why no container with such GPUs is updated through the engine; None: they may be."""
        return _LEGACY if access is GpuAccess.LEGACY else self.alarm

    def check(self, held: Held) -> None:
        """Look whether a container still has its GPUs, where something else may have taken them."""
        if self.lost(held.container, held.pid) is not None:
            return
        try:
            seen = self._look(held)
        except ProbeFailed:
            return
        if seen.denied:
            self._note(held, f"it may not open {_words(seen.denied)} any more")

    def lost(self, container: str, pid: int) -> str | None:
        """How this start of a container lost its GPUs; None: it did not, as far as is known."""
        then, why = self._lost.get(container, (0, ""))
        return why if why and then == pid else None

    def forget(self, container: str) -> None:
        """It is gone."""
        self._lost.pop(container, None)

    def _try(self, held: Held, change: Callable[[], None]) -> None:
        try:
            before = self._look(held)
        except ProbeFailed as error:
            raise Unproven(f"no update is made of it, since it has GPUs and {error}") from error
        if not before.allowed:
            self._note(held, f"it may not open {_words(before.denied)}")
            raise Unproven(f"no update is made of it: it may not open {_words(before.denied)}")
        # Killed in the middle, nobody would know whether it was safe, and one more would be tried.
        self._keep(f"{held.name}: nobody saw whether a CPU update took its GPU away; {_NO_MORE}")
        try:
            change()
        finally:
            # A call that failed may have done its work all the same.
            self._judge(held, before)

    def _judge(self, held: Held, before: Probe) -> None:
        try:
            after = self._look(held)
        except ProbeFailed:
            self._settle()
            return  # it may have ended meanwhile: the next update is tried like this one
        if taken := before.allowed & after.denied:
            why = f"a CPU update took its GPU away: it may not open {_words(taken)} any more"
            self._note(held, why)
            self.alarm = self._keep(f"{held.name}: {why}; {_NO_MORE}: {REMEDY}")
            raise Unsafe(self.alarm)
        self._safe.add(held.access)
        self._settle()

    def _keep(self, alarm: str) -> str:
        """Have it outlive the agent; returns it with what ends it."""
        if self._file is None:
            return alarm
        alarm = f"{alarm}; in the end remove {self._file} and restart dlsched"
        with suppress(OSError):  # it holds for this agent's life all the same
            write_whole(self._file, alarm)
        return alarm

    def _settle(self) -> None:
        """There is no alarm after all."""
        if self._file is not None:
            with suppress(OSError):
                remove(self._file)

    def _note(self, held: Held, why: str) -> None:
        self._lost[held.container] = (held.pid, why)


def _kept(file: Path) -> str | None:
    """The alarm of an agent before this one; where there is one that cannot be read, that."""
    try:
        with file.open("rb") as stream:
            text = stream.read(_ALARM_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        text = f"{file} cannot be read: {error.strerror}"
    return plain_text(text).strip() or f"{file} is there"


def _words(nodes: frozenset[str]) -> str:
    return ", ".join(sorted(nodes))
