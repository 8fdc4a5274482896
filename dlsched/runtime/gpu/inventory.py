"""What is known of the host's GPUs, without ever waiting long for their driver.

Owns when to look, what to try again and how often, and what is told of devices that do not answer
any more. It must not know NVML's figures: see `session`. A driver can hang for minutes, so each
look has a thread of its own, of which there is one at a time; it is a daemon, so that one that
never ends does not keep the agent from ending.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlsched.model.facts import GpuFact
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.gpu.nvml import ABSENT, Nvml, code, in_words, load
from dlsched.runtime.gpu.session import Reading, Session

_log = logging.getLogger(__name__)

DEV = Path("/dev")

WAIT_S = 0.05
"""A look takes a few milliseconds; the loop waits for it so long, and takes the last one else."""

FIRST_WAIT_S = 0.5
"""For the first look, which has no last one."""

EVERY_S = 0.5
"""Looks are at least so far apart, however often one asks."""

STALE_S = 10.0
"""Figures that are older are not told any more."""

RETRY_FIRST_S = 5.0
RETRY_MOST_S = 300.0

_SILENT = "the GPU driver does not answer: what is told of GPUs is old"
_UNANSWERED = "the GPU driver has not answered yet"
_UNSEEN = (
    "processes use GPUs that are not to be seen from here, so nobody can tell whose they are:"
    " an agent in a container needs --pid=host"
)
_VANISHED = "the driver does not list it any more"
_UNLOADED = "the GPU driver is not loaded any more"


@dataclass(frozen=True, slots=True)
class Look:
    """All GPUs at one moment."""

    devices: tuple[GpuFact, ...] = ()
    """In the driver's order. One that was there before stays, with its trouble."""
    trouble: str | None = None
    """Why GPUs cannot be seen, or not all of them; None: all is told, or there is no driver."""
    at_s: float | None = None
    """When it was begun; None: nothing was looked at yet."""
    driver: str | None = None
    """The driver's version, where there is one."""
    missing: tuple[str, ...] = ()
    """Functions that the driver's library lacks: what they tell is unknown."""
    cost_s: float = 0.0
    """How long it took."""


class Inventory:
    """GPUs as last seen; asked by one thread."""

    def __init__(
        self,
        dev: Path = DEV,
        proc: Path = PROC,
        *,
        wait_s: float = WAIT_S,
        first_wait_s: float = FIRST_WAIT_S,
        find: Callable[[], Nvml | None] = load,
    ) -> None:
        """`dev` is where device nodes are; nothing is looked at before the first `look`."""
        self._dev = dev
        self._proc = proc
        self._wait_s = wait_s
        self._first_wait_s = first_wait_s
        self._find = find
        self._last = Look()
        self._next_s = float("-inf")
        self._running: threading.Event | None = None
        self._begun_s = 0.0
        self._pid = os.getpid()
        # What follows belongs to the look under way, one at a time.
        self._nvml: Nvml | None = None
        self._session: Session | None = None
        self._known: dict[str, GpuFact] = {}
        self._unseen: frozenset[int] = frozenset()
        self._retry_s = RETRY_FIRST_S
        self._reopen_at_s: float | None = None
        self._made: tuple[Look, float] | None = None

    def look(self, now_s: float) -> Look:
        """GPUs as of now, or as last seen where that takes long. Never raises.

        Waits at most `wait_s`, and only for a look that it begins, where the last did not take
        longer.
        """
        if self._pid != os.getpid():
            self._forget()
        self._take(0.0)
        if self._running is None and now_s >= self._next_s:
            self._begin(now_s)
            patient = self._last.cost_s <= self._wait_s
            self._take(self._first_wait_s if self._last.at_s is None else self._wait_s * patient)
        return self._told(now_s)

    def close(self) -> None:
        """Let go of the driver, if it does not hang; the last look stays."""
        self._next_s = float("inf")
        if self._running is not None and not self._running.wait(self._wait_s):
            return
        self._shut()

    # ------------------------------------------------------------------ the asking thread's side

    def _begin(self, now_s: float) -> None:
        done = self._running = threading.Event()
        self._begun_s, self._made = now_s, None

        def run() -> None:
            try:
                self._made = self._looked(now_s)
            finally:
                done.set()

        try:
            threading.Thread(target=run, name="dlsched-gpus", daemon=True).start()
        except RuntimeError:  # no thread is to be had: the next cycle tries again
            self._running = None

    def _take(self, wait_s: float) -> None:
        """The look under way becomes the last one, if it ends in time."""
        if self._running is None or not self._running.wait(wait_s) or self._made is None:
            return
        self._last, pause_s = self._made
        self._running, self._next_s = None, self._begun_s + pause_s

    def _told(self, now_s: float) -> Look:
        """The last look, and what its age says."""
        if self._running is None:
            return self._last
        if self._last.at_s is None:
            return Look(trouble=_UNANSWERED)
        if now_s - self._begun_s < STALE_S:
            return self._last
        if not self._last.devices and self._last.trouble is None:
            return self._last
        old = tuple(_without_figures(one) for one in self._last.devices)
        return replace(self._last, devices=old, trouble=_SILENT)

    def _forget(self) -> None:
        """In a child process nothing that was opened may be used, nor is the thread there."""
        self._pid = os.getpid()
        self._session, self._running = None, None
        self._next_s = float("-inf")

    # ------------------------------------------------------------------ the look's own thread

    def _looked(self, now_s: float) -> tuple[Look, float]:
        """A look, and how long not to look again."""
        start_s = time.perf_counter()
        try:
            read = self._read(now_s)
        except Exception as error:  # noqa: BLE001  whatever a driver does, the agent goes on
            return self._failed(error, now_s)
        if read is None:
            return self._absent(now_s)
        session, reading = read
        devices, trouble = self._merged(reading)
        lost = bool(reading.failed) or any(one.trouble == _VANISHED for one in devices)
        self._plan(lost, now_s)
        cost_s = time.perf_counter() - start_s
        missing = tuple(sorted(session.missing))
        return Look(devices, trouble, now_s, session.driver, missing, cost_s), EVERY_S

    def _read(self, now_s: float) -> tuple[Session, Reading] | None:
        """A reading; None: there is no library. Raises NVML's error."""
        again = self._session is not None
        session = self._opened(now_s)
        if session is None:
            return None
        assert self._nvml is not None
        try:
            return session, session.read()
        except self._nvml.NVMLError:
            if not again:
                raise
        # The driver may have been loaded anew: nothing that was opened before is valid then.
        self._shut()
        session = self._opened(now_s)
        return None if session is None else (session, session.read())

    def _opened(self, now_s: float) -> Session | None:
        """The session; None: there is no library. Raises NVML's error."""
        if self._reopen_at_s is not None and now_s >= self._reopen_at_s:
            self._shut()
        if self._session is None:
            self._reopen_at_s = None
            self._nvml = self._nvml or self._find()
            if self._nvml is not None:
                self._session = Session(self._nvml, self._dev, self._proc)
        return self._session

    def _plan(self, lost: bool, now_s: float) -> None:
        """When to open the driver anew: what was lost may come back with a new session alone."""
        if not lost:
            self._retry_s, self._reopen_at_s = RETRY_FIRST_S, None
        elif self._reopen_at_s is None:
            self._reopen_at_s = now_s + self._retry_s
            self._retry_s = min(2 * self._retry_s, RETRY_MOST_S)

    def _merged(self, reading: Reading) -> tuple[tuple[GpuFact, ...], str | None]:
        """The devices read, and those that were there before; and what is wrong."""
        gone = reading.unseen - self._unseen  # they may just have ended
        self._unseen = reading.unseen
        devices = {one.uuid: _without(one, gone) for one in reading.devices}
        divided = {one.part_of for one in reading.devices}
        for uuid, known in self._known.items():
            if uuid in devices or uuid in divided:
                continue
            words = reading.failed.get(known.index)
            # An instance that is not there any more is gone by intent; a GPU is not.
            if words is not None or known.part_of is None:
                devices[uuid] = replace(_without_figures(known), trouble=words or _VANISHED)
        self._known = devices
        named = {one.index for one in devices.values()}
        troubles = [
            f"GPU {index}: {words}" for index, words in reading.failed.items() if index not in named
        ]
        if reading.unseen & {p.pid for one in devices.values() for p in one.processes}:
            troubles.append(_UNSEEN)
        ordered = sorted(devices.values(), key=lambda one: one.index)
        return tuple(ordered), "; ".join(troubles) or None

    def _absent(self, now_s: float) -> tuple[Look, float]:
        """No driver: nothing to tell, but of GPUs that were there before."""
        lost = self._lost(_UNLOADED)
        return Look(lost, _UNLOADED if lost else None, now_s), self._pause_s()

    def _failed(self, error: Exception, now_s: float) -> tuple[Look, float]:
        self._shut()
        if self._nvml is None or not isinstance(error, self._nvml.NVMLError):
            _log.exception("the GPU driver cannot be asked")
            words = f"the GPU driver cannot be asked: {error!r}"
        elif code(error) in ABSENT:
            return self._absent(now_s)
        else:
            words = in_words(error)
        return Look(self._lost(words), words, now_s), self._pause_s()

    def _lost(self, words: str) -> tuple[GpuFact, ...]:
        self._known = {
            uuid: replace(_without_figures(one), trouble=words) for uuid, one in self._known.items()
        }
        return tuple(self._known.values())

    def _pause_s(self) -> float:
        pause_s, self._retry_s = self._retry_s, min(2 * self._retry_s, RETRY_MOST_S)
        return pause_s

    def _shut(self) -> None:
        session, self._session, self._reopen_at_s = self._session, None, None
        if session is not None:
            with suppress(Exception):  # a driver that was unloaded cannot even be closed
                session.close()


def reading_costs_s(looks: int) -> tuple[float, ...] | None:
    """How long each of so many looks takes, in seconds; None: no driver. Raises NVML's error."""
    if (nvml := load()) is None:
        return None
    session = Session(nvml, DEV, PROC)
    try:
        costs_s = []
        for _ in range(looks):
            start_s = time.perf_counter()
            session.read()
            costs_s.append(time.perf_counter() - start_s)
        return tuple(costs_s)
    finally:
        session.close()


def _without(fact: GpuFact, pids: frozenset[int]) -> GpuFact:
    if not pids.intersection(one.pid for one in fact.processes):
        return fact
    return replace(fact, processes=tuple(one for one in fact.processes if one.pid not in pids))


def _without_figures(fact: GpuFact) -> GpuFact:
    """What does not change by itself; the rest is not known any more."""
    return replace(fact, memory_used_bytes=None, busy_ratio=None, processes=())
