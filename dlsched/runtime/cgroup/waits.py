"""What a container's threads wait for, from the kernel's files by thread and by group. Read for
containers that miss their target alone: it costs some 30 us a thread. A container chooses the names
of its processes, and a thread may end at any time: what cannot be read is left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from dlsched.model.bottleneck import WaitFact
from dlsched.runtime.cgroup.read import (
    PROC,
    belongs,
    decoded,
    group_folders,
    integer,
    start_of,
    table,
)

SAMPLE_S = 2.0
"""A container is sampled so often at most."""
SAMPLE_EACH_S = 0.3
"""With many containers, one is sampled so often: three a second of ten threads are 0.1 % of a core.
"""
THREADS_MAX = 32
"""Threads that are read in a sample, about; of more, the same half in each, or quarter, and so on:
others that end or begin change nothing."""
_LIST_BYTES = 64 << 10
_READ_BYTES = 8192
_IDLE_SAMPLES = 8
"""A thread that has not run in so many samples is idle, and waits for no lock."""

_CALLS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "x86_64": {
        "futex": (202,),
        "flock": (73,),
        "fcntl": (72,),
        "free": (7, 23, 43, 232, 270, 271, 281, 288, 441),
    },
    "aarch64": {
        "futex": (98,),
        "flock": (32,),
        "fcntl": (25,),
        "free": (22, 72, 73, 202, 242, 441),
    },
}
"""By machine, the numbers of calls; `free`: poll, select, accept, epoll_wait, pselect6, ppoll,
epoll_pwait, accept4, epoll_pwait2."""
_SET_LOCK_AND_WAIT = b"0x7"
"""fcntl's F_SETLKW."""


class _Thread(NamedTuple):
    ran_ns: int = 0
    queued_ns: int = 0
    runs: int = 0
    """How often it has run."""
    kernel_ticks: int = 0
    active: int = -_IDLE_SAMPLES
    """Number of the last sample since whose predecessor it ran."""


class WaitReader:
    """Samples one start of a container."""

    def __init__(self, pid: int, proc: Path = PROC, *, container: str = "") -> None:
        self._proc = proc
        folders: Mapping[str, Path] = {}
        if belongs(pid, container, proc):  # the number may be another container's process by now
            with suppress(OSError, ValueError):
                folders = group_folders(pid, proc, container=container)
        self._v2 = "cpu" not in folders
        group = folders.get("" if self._v2 else "cpu")
        self._tasks = None if group is None else group / ("cgroup.threads" if self._v2 else "tasks")
        self._memory = folders.get("" if self._v2 else "memory")
        self._calls = _CALLS.get(os.uname().machine, {})
        self._tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        self._threads: dict[bytes, _Thread] = {}
        self._listed: frozenset[bytes] | None = None
        """All threads at the last sample; None: not all are known."""
        self._samples = 0
        self._queued_s = self._kernel_s = 0.0
        self.last: WaitFact | None = None
        """The last sample; None: there is none."""

    def sample(self, now_s: float) -> WaitFact:
        """Take a sample."""
        self._samples += 1
        listed = (start_of(self._tasks, _LIST_BYTES) if self._tasks else None) or b""
        # The last number may be truncated.
        every = listed[: listed.rfind(b"\n") + 1].split()
        chosen = _part(every)
        kinds: Counter[str] = Counter()
        locks: Counter[tuple[str, bytes]] = Counter()
        now: dict[bytes, _Thread] = {}
        for thread in chosen:
            if thread.isdigit():
                self._read(thread, now, kinds, locks)
        step = len(every) / max(len(chosen), 1)
        elapsed_s = 0.0 if self.last is None else now_s - self.last.at_s
        busiest_ns = 0
        for thread, read in now.items():
            before = self._threads.get(thread)
            if before is None and not self._is_new(thread):
                continue  # what it did before is of another time
            before = before or _Thread()
            queued_ns = max(read.queued_ns - before.queued_ns, 0)
            busiest_ns = max(busiest_ns, read.ran_ns - before.ran_ns + queued_ns)
            self._queued_s += step * queued_ns / 1e9
            ticks = max(read.kernel_ticks - before.kernel_ticks, 0)
            self._kernel_s += step * ticks * self._tick_s
        self._threads = now
        self._listed = frozenset(every) if len(listed) < _LIST_BYTES else None
        self.last = WaitFact(
            at_s=now_s,
            threads=step * len(now),
            in_disk=step * kinds["disk"],
            at_lock=step * max(locks.values(), default=0),
            free=step * kinds["free"],
            busiest=min(busiest_ns / 1e9 / elapsed_s, 1.0) if elapsed_s > 0.0 else 0.0,
            queued_s=self._queued_s,
            kernel_s=self._kernel_s,
        )
        if self._memory is not None:
            self.last = _with_memory(self.last, self._memory, v2=self._v2)
        return self.last

    def _read(
        self,
        thread: bytes,
        now: dict[bytes, _Thread],
        kinds: Counter[str],
        locks: Counter[tuple[str, bytes]],
    ) -> None:
        folder = f"{self._proc}/{thread.decode()}/"
        stat = start_of(f"{folder}stat", _READ_BYTES) or b""
        # Its name is in parentheses, and may hold any character.
        fields = stat[stat.rfind(b")") + 1 :].split()
        times = (start_of(f"{folder}schedstat", _READ_BYTES) or b"").split()
        numbers = (*fields[12:13], *times)
        if len(numbers) != 4 or not all(one.isdigit() for one in numbers):
            return
        ticks, ran_ns, queued_ns, runs = map(int, numbers)
        before = self._threads.get(thread)
        if before is None:  # of those that were there it is not known yet whether they run
            active = self._samples if self._is_new(thread) else -_IDLE_SAMPLES
        else:
            active = self._samples if before.runs != runs else before.active
        now[thread] = _Thread(ran_ns, queued_ns, runs, ticks, active)
        if fields[0] == b"D":
            kinds["disk"] += 1
        elif fields[0] == b"S":
            call = (start_of(f"{folder}syscall", _READ_BYTES) or b"").split()
            kind = self._kind(call)
            if kind == "free" or self._samples - active >= _IDLE_SAMPLES:
                kinds["free"] += 1
            elif kind == "futex":
                locks[kind, call[1]] += 1
            elif kind == "flock" or (kind == "fcntl" and call[2] == _SET_LOCK_AND_WAIT):
                locks[kind, b""] += 1  # the lock is the file's, which each thread may have opened

    def _is_new(self, thread: bytes) -> bool:
        """Whether a thread began since the last sample."""
        return self._listed is not None and thread not in self._listed

    def _kind(self, call: list[bytes]) -> str | None:
        if len(call) < 4 or not call[0].isdigit():
            return None
        number = int(call[0])
        return next((name for name, numbers in self._calls.items() if number in numbers), None)


def _part(threads: Sequence[bytes]) -> Sequence[bytes]:
    """Some `THREADS_MAX` of them. Which ones, depends on their numbers alone, so that it is the
    same ones in the next sample. (A checksum, since numbers may be all even.)"""
    parts = 1
    while parts * THREADS_MAX < len(threads):
        parts *= 2
    return [one for one in threads if crc32(one) % parts == 0][: 2 * THREADS_MAX]


def _with_memory(sample: WaitFact, folder: Path, *, v2: bool) -> WaitFact:
    stat = table(decoded(start_of(folder / "memory.stat", _READ_BYTES)))
    total = "" if v2 else "total_"
    again = (stat.get(f"{total}workingset_refault{one}") for one in ("_file", "_anon", ""))
    refaults = [one for one in again if one is not None]
    if v2:
        events = table(decoded(start_of(folder / "memory.events", _READ_BYTES)))
        limit_hits = events["max"] + events.get("high", 0) if "max" in events else None
    else:
        # With a limit of memory and swap that is no higher, only that one is hit.
        names = ("memory.failcnt", "memory.memsw.failcnt")
        counts = [integer(start_of(folder / name, _READ_BYTES)) for name in names]
        known = [one for one in counts if one is not None]
        limit_hits = sum(known) if known else None
    return replace(
        sample,
        major_faults=stat.get(f"{total}pgmajfault"),
        refaults=sum(refaults) if refaults else None,
        limit_hits=limit_hits,
        memory_stall_s=_stalled_s(folder / "memory.pressure") if v2 else None,
        disk_stall_s=_stalled_s(folder / "io.pressure") if v2 else None,
    )


def _stalled_s(path: Path) -> float | None:
    """The sum of `some` in a file of PSI; None: there is none."""
    for line in (start_of(path, _READ_BYTES) or b"").splitlines():
        kind, _, rest = line.partition(b" ")
        _, _, total_us = rest.partition(b"total=")
        if kind == b"some" and total_us.isdigit():
            return int(total_us) / 1e6
    return None
