"""The state of the host's GPUs, without waiting long for their driver.

A driver can hang for minutes, so each poll runs in a thread of its own, one at a time; it is a
daemon thread, so that a hung one does not keep the agent from ending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlsched.model.facts import GpuFact
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.gpu.nvml import ABSENT, Nvml, code, describe, load
from dlsched.runtime.gpu.processes import UserNames
from dlsched.runtime.gpu.session import DeviceReading, Session

_log = logging.getLogger(__name__)

DEV = Path("/dev")

WAIT_S = 0.05
"""How long the loop waits for a poll, before it uses the previous one."""

FIRST_WAIT_S = 0.5
"""The same for the first poll."""

EVERY_S = 0.5
"""Minimum time between polls."""

STALE_S = 10.0
"""Older figures are not reported."""

RETRY_FIRST_S = 5.0
RETRY_MOST_S = 300.0

_SILENT = "the GPU driver does not answer: the state of GPUs is old"
_UNANSWERED = "the GPU driver has not answered yet"
_UNSEEN = (
    "GPUs are used by processes that are not visible from here, so their containers are unknown:"
    " an agent in a container needs --pid=host"
)
_VANISHED = "the driver does not list the GPU any more"
_UNLOADED = "the GPU driver is not loaded any more"


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    devices: tuple[GpuFact, ...] = ()
    """In the driver's order. A lost GPU stays, with its failure."""
    problem: str | None = None
    """Why some GPUs cannot be read; None: all are read, or there is no driver."""
    at_s: float | None = None
    """When the poll began; None: no poll yet."""
    driver: str | None = None
    """The driver's version."""
    cost_s: float = 0.0
    """Duration of the poll."""


class Inventory:
    """The GPUs as last polled; for one thread."""

    def __init__(
        self,
        dev: Path = DEV,
        proc: Path = PROC,
        *,
        wait_s: float = WAIT_S,
        first_wait_s: float = FIRST_WAIT_S,
        find: Callable[[], Nvml | None] = load,
        users: UserNames | None = None,
    ) -> None:
        """`dev` holds the device nodes; the driver is not touched before the first `poll`.
        `users`: see `Session`."""
        self._dev = dev
        self._proc = proc
        self._wait_s = wait_s
        self._first_wait_s = first_wait_s
        self._find = find
        self._users = users
        self._last = GpuSnapshot()
        self._next_s = float("-inf")
        self._running: threading.Event | None = None
        self._begun_s = 0.0
        # For the poll in progress, one at a time.
        self._nvml: Nvml | None = None
        self._session: Session | None = None
        self._known: dict[str, GpuFact] = {}
        self._unseen: frozenset[int] = frozenset()
        self._retry_s = RETRY_FIRST_S
        self._reopen_at_s: float | None = None
        self._made: tuple[GpuSnapshot, float] | None = None

    def poll(self, now_s: float) -> GpuSnapshot:
        """The GPUs now, or as of the last poll where this one takes long. Never raises. It waits at
        most `wait_s`, and only for a poll that it begins, unless the last one took longer."""
        self._take(0.0)
        if self._running is None and now_s >= self._next_s:
            self._begin(now_s)
            patient = self._last.cost_s <= self._wait_s
            self._take(self._first_wait_s if self._last.at_s is None else self._wait_s * patient)
        return self._with_age(now_s)

    def close(self) -> None:
        """Close the driver, unless it hangs; the last snapshot stays."""
        self._next_s = float("inf")
        if self._running is not None and not self._running.wait(self._wait_s):
            return
        self._shut()

    # ------------------------------------------------------------------ the caller's thread

    def _begin(self, now_s: float) -> None:
        done = self._running = threading.Event()
        self._begun_s, self._made = now_s, None

        def run() -> None:
            try:
                self._made = self._polled(now_s)
            finally:
                done.set()

        try:
            threading.Thread(target=run, name="dlsched-gpus", daemon=True).start()
        except RuntimeError:  # no thread available: the next cycle retries
            self._running = None

    def _take(self, wait_s: float) -> None:
        """Take over the result of the poll in progress, if it ends in time."""
        if self._running is None or not self._running.wait(wait_s) or self._made is None:
            return
        self._last, pause_s = self._made
        self._running, self._next_s = None, self._begun_s + pause_s

    def _with_age(self, now_s: float) -> GpuSnapshot:
        """The last snapshot, marked as stale where the present poll hangs."""
        if self._running is None:
            return self._last
        if self._last.at_s is None:
            return GpuSnapshot(problem=_UNANSWERED)
        if now_s - self._begun_s < STALE_S:
            return self._last
        if not self._last.devices and self._last.problem is None:
            return self._last
        old = tuple(_without_figures(one) for one in self._last.devices)
        return replace(self._last, devices=old, problem=_SILENT)

    # ------------------------------------------------------------------ the poll's own thread

    def _polled(self, now_s: float) -> tuple[GpuSnapshot, float]:
        start_s = time.perf_counter()
        try:
            read = self._read(now_s)
        except Exception as error:  # noqa: BLE001  the agent survives any driver error
            return self._failed(error, now_s)
        if read is None:
            return self._absent(now_s)
        session, reading = read
        devices, problem = self._merged(reading)
        lost = bool(reading.failed) or any(one.trouble == _VANISHED for one in devices)
        self._plan(lost, now_s)
        cost_s = time.perf_counter() - start_s
        return GpuSnapshot(devices, problem, now_s, session.driver, cost_s), EVERY_S

    def _read(self, now_s: float) -> tuple[Session, DeviceReading] | None:
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
        # The driver may have been reloaded, which invalidates everything opened before.
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
                self._session = Session(self._nvml, self._dev, self._proc, self._users)
        return self._session

    def _plan(self, lost: bool, now_s: float) -> None:
        """Schedule a new session: only that can bring a lost device back."""
        if not lost:
            self._retry_s, self._reopen_at_s = RETRY_FIRST_S, None
        elif self._reopen_at_s is None:
            self._reopen_at_s = now_s + self._retry_s
            self._retry_s = min(2 * self._retry_s, RETRY_MOST_S)

    def _merged(self, reading: DeviceReading) -> tuple[tuple[GpuFact, ...], str | None]:
        """The devices read and those lost; and what is wrong."""
        gone = reading.unseen - self._unseen  # may just have ended
        self._unseen = reading.unseen
        devices = {one.uuid: _without(one, gone) for one in reading.devices}
        divided = {one.part_of for one in reading.devices}
        for uuid, known in self._known.items():
            if uuid in devices or uuid in divided:
                continue
            why = reading.failed.get(known.index)
            # A vanished MIG instance was removed on purpose; a GPU was not.
            if why is not None or known.part_of is None:
                devices[uuid] = replace(_without_figures(known), trouble=why or _VANISHED)
        self._known = devices
        named = {one.index for one in devices.values()}
        problems = [
            f"GPU {index}: {why}" for index, why in reading.failed.items() if index not in named
        ]
        if reading.unseen & {p.pid for one in devices.values() for p in one.processes}:
            problems.append(_UNSEEN)
        ordered = sorted(devices.values(), key=lambda one: one.index)
        return tuple(ordered), "; ".join(problems) or None

    def _absent(self, now_s: float) -> tuple[GpuSnapshot, float]:
        """Without a driver: only the GPUs known before, as lost."""
        lost = self._lost(_UNLOADED)
        return GpuSnapshot(lost, _UNLOADED if lost else None, now_s), self._pause_s()

    def _failed(self, error: Exception, now_s: float) -> tuple[GpuSnapshot, float]:
        self._shut()
        if self._nvml is None or not isinstance(error, self._nvml.NVMLError):
            _log.exception("the GPU driver cannot be read")
            why = f"the GPU driver cannot be read: {error!r}"
        elif code(error) in ABSENT:
            return self._absent(now_s)
        else:
            why = describe(error)
        return GpuSnapshot(self._lost(why), why, now_s), self._pause_s()

    def _lost(self, why: str) -> tuple[GpuFact, ...]:
        self._known = {
            uuid: replace(_without_figures(one), trouble=why) for uuid, one in self._known.items()
        }
        return tuple(self._known.values())

    def _pause_s(self) -> float:
        pause_s, self._retry_s = self._retry_s, min(2 * self._retry_s, RETRY_MOST_S)
        return pause_s

    def _shut(self) -> None:
        session, self._session, self._reopen_at_s = self._session, None, None
        if session is not None:
            with suppress(Exception):  # an unloaded driver cannot be closed
                session.close()


def _without(fact: GpuFact, pids: frozenset[int]) -> GpuFact:
    if not pids.intersection(one.pid for one in fact.processes):
        return fact
    return replace(fact, processes=tuple(one for one in fact.processes if one.pid not in pids))


def _without_figures(fact: GpuFact) -> GpuFact:
    return replace(fact, memory_used_bytes=None, busy_ratio=None, processes=())
