"""Reads a container's kernel counters and limits, on cgroup v1 and v2. Files are opened once and
re-read. A failed reading is None and never raises."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dlsched.model.facts import MemoryFact, Usage

PROC = Path("/proc")

_READ_BYTES = 4096
_UNREAD = MemoryFact()


@dataclass(frozen=True, slots=True)
class CgroupReading:
    """One sample of a group; what cannot be read is None."""

    usage_core_s: float | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    usage: Usage = Usage()
    """What is shown as it is read; of the pressure only cgroup v2's."""
    memory: MemoryFact = _UNREAD
    """Read with the limits."""
    quota_us: int | None = None
    """-1: no limit."""
    period_us: int | None = None
    shares: int | None = None
    """cgroup v1 only."""
    weight: int | None = None
    """cgroup v2 only."""
    burst_us: int | None = None
    """CPU time that may accumulate beyond the quota; None: not supported by the kernel."""
    idle: int | None = None
    """1: in the idle class; None: not supported by the kernel."""

    @property
    def gone(self) -> bool:
        """Whether nothing could be read: the group no longer exists."""
        return self == CgroupReading()


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted cgroup hierarchy; without controllers it is version 2's."""

    controllers: frozenset[str]
    root: str
    mount: Path

    def folder(self, group: str) -> Path | None:
        """The folder of that group's files; None when this mount does not show it."""
        inside = group
        if self.root != "/":
            if group != self.root and not group.startswith(f"{self.root}/"):
                return None
            inside = group[len(self.root) :]
        return self.mount / inside.lstrip("/")


def hierarchies(proc: Path = PROC) -> tuple[Hierarchy, ...]:
    """All cgroup hierarchies mounted for this process. Raises OSError."""
    return tuple(_mounted((proc / "self" / "mountinfo").read_text(encoding="utf-8")))


def group_folders(
    pid: int | Literal["self"], proc: Path = PROC, *, container: str = ""
) -> Mapping[str, Path]:
    """The process's group by controller; the key "" is version 2's. Raises OSError.

    For a process in a subgroup that the container made (as systemd does) it is the container's own
    group, which has the limits.
    """
    mounts = hierarchies(proc)
    found: dict[str, Path] = {}
    for line in (proc / str(pid) / "cgroup").read_text(encoding="utf-8").splitlines():
        _, names, group = line.split(":", 2)
        controllers = frozenset(names.split(",")) - {""}
        for mount in mounts:
            same = controllers <= mount.controllers if controllers else not mount.controllers
            folder = mount.folder(_up_to(container, group)) if same else None
            if folder is not None:
                found.update(dict.fromkeys(controllers or {""}, folder))
                break
    return found


def _up_to(container: str, group: str) -> str:
    parts = group.split("/")
    depths = (depth for depth, part in enumerate(parts, 1) if container and container in part)
    return "/".join(parts[: next(depths, len(parts))])


def belongs(pid: int, container: str, proc: Path = PROC) -> bool:
    try:
        return container in (proc / str(pid) / "cgroup").read_text(encoding="utf-8")
    except OSError:
        return False


class CgroupReader:
    """One container's group, opened once for each of its starts; to be closed."""

    def __init__(self, pid: int, proc: Path = PROC, *, container: str = "") -> None:
        """Open the group of `pid`, as `group_folders` finds it. What cannot be opened reads as
        None."""
        folders: Mapping[str, Path] = {}
        with suppress(OSError, ValueError):
            folders = group_folders(pid, proc, container=container)
        self.v2 = "cpu" not in folders
        """Whether the CPU controller is on cgroup v2."""
        self.cpu_folder = folders.get("" if self.v2 else "cpu")
        """The folder of the CPU files; None when not found."""
        files = _v2_files(folders) if self.v2 else _v1_files(folders)
        self._used: bytes | None = None
        """The CPU time used at the last reading, as the kernel wrote it."""
        self._open: dict[str, int] = {}
        for name, path in files.items():
            with suppress(OSError):
                self._open[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._memory_limits = [name for name in self._open if name.startswith("limit")]

    @property
    def opened(self) -> bool:
        return bool(self._open)

    def read(self) -> CgroupReading:
        self._used = self._bytes("stat" if self.v2 else "usage")
        return self._counted(self._used, self._limits())

    def reread(self, last: CgroupReading, *, memory: bool = False) -> CgroupReading:
        """Read the counters, and `memory` if asked for, keeping the limits of `last`; returns
        `last` where no CPU time was used. Changes of the limits from elsewhere show in the next
        `read`."""
        used = self._bytes("stat" if self.v2 else "usage")
        if used is None:
            return self.read()
        if used == self._used:
            return last
        self._used = used
        return self._counted(used, replace(last, memory=self._memory()) if memory else last)

    def close(self) -> None:
        """Close the files; every later reading is None."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _limits(self) -> CgroupReading:
        if self.v2:
            quota_us, period_us = cpu_max(self._text("max"))
        else:
            quota_us, period_us = self._number("quota"), self._number("period")
        return CgroupReading(
            memory=self._memory(),
            quota_us=quota_us,
            period_us=period_us,
            shares=self._number("shares"),
            weight=self._number("weight"),
            burst_us=self._number("burst"),
            idle=self._number("idle"),
        )

    def _counted(self, used: bytes | None, limits: CgroupReading) -> CgroupReading:
        """Read the counters and what else is quick to read, keeping all of `limits` beside it."""
        if self.v2:
            stat = table(decoded(used))
            usage_us = stat.get("usage_usec")
            usage_core_s = None if usage_us is None else usage_us / 1e6
        else:
            stat = table(self._text("stat"))
            usage_ns = integer(used)
            usage_core_s = None if usage_ns is None else usage_ns / 1e9
        return replace(
            limits,
            usage_core_s=usage_core_s,
            periods=stat.get("nr_periods"),
            throttled_periods=stat.get("nr_throttled"),
            usage=replace(
                limits.usage,
                memory_bytes=self._number("memory"),
                cpu_wait_ratio=_pressure_ratio(self._text("pressure")) if self.v2 else None,
            ),
        )

    def _memory(self) -> MemoryFact:
        # Page cache can grow or go between two reads: the lower use is that of its parts.
        before, stat = _bounded(self._bytes("memory")), self._bytes("memory_stat")
        used, kills = _bounded(self._bytes("memory")), self._bytes("memory_events")
        used = used if before is None or used is None else min(used, before)
        peak = _bounded(self._bytes("memory_peak"))
        if stat is None and used is None:
            return _UNREAD  # a limit around it stays readable when the group has gone
        idle = _figure(stat, b"inactive_file" if self.v2 else b"total_inactive_file")
        busy = _figure(stat, b"active_file" if self.v2 else b"total_active_file")
        slab = _figure(stat, b"slab_reclaimable") if self.v2 else 0
        if self.v2:
            found = [_bounded(self._bytes(name)) for name in self._memory_limits]
            limit = min((one for one in found if one is not None), default=None)
            own = found[0] if found else None
            reached = bool(_figure(kills, b"oom"))
        else:
            limit = _figure(stat, b"hierarchical_memory_limit")
            own = _bounded(self._bytes("memory_limit"))
            reached = False  # unknown: peak and failcnt count page cache, which ends no process
        working = None if used is None or idle is None else max(used - idle, 0)
        held = None if working is None or busy is None else max(working - busy - (slab or 0), 0)
        killed = _figure(kills, b"oom_kill")
        return MemoryFact(working, held, limit, peak, killed, reached, own)

    def _bytes(self, name: str) -> bytes | None:
        descriptor = self._open.get(name)
        if descriptor is None:
            return None
        try:
            return os.pread(descriptor, _READ_BYTES, 0)
        except OSError:
            return None

    def _text(self, name: str) -> str | None:
        return decoded(self._bytes(name))

    def _number(self, name: str) -> int | None:
        return integer(self._bytes(name))


def _mounted(mountinfo: str) -> Iterator[Hierarchy]:
    for line in mountinfo.splitlines():
        if "cgroup" not in line:
            continue  # most mounts are not control groups
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        options = frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset[str]()
        yield Hierarchy(options, _unescaped(fields[3]), Path(_unescaped(fields[4])))


def _unescaped(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field


def _v1_files(folders: Mapping[str, Path]) -> dict[str, Path]:
    places = {
        "usage": ("cpuacct", "cpuacct.usage"),
        "stat": ("cpu", "cpu.stat"),
        "quota": ("cpu", "cpu.cfs_quota_us"),
        "period": ("cpu", "cpu.cfs_period_us"),
        "shares": ("cpu", "cpu.shares"),
        "burst": ("cpu", "cpu.cfs_burst_us"),
        "idle": ("cpu", "cpu.idle"),
        "memory": ("memory", "memory.usage_in_bytes"),
        "memory_stat": ("memory", "memory.stat"),
        "memory_limit": ("memory", "memory.limit_in_bytes"),
        "memory_peak": ("memory", "memory.max_usage_in_bytes"),
        "memory_events": ("memory", "memory.oom_control"),
    }
    return {name: folders[at] / file for name, (at, file) in places.items() if at in folders}


def _v2_files(folders: Mapping[str, Path]) -> dict[str, Path]:
    if "" not in folders:
        return {}
    names = {
        "stat": "cpu.stat",
        "max": "cpu.max",
        "weight": "cpu.weight",
        "burst": "cpu.max.burst",
        "idle": "cpu.idle",
        "memory": "memory.current",
        "memory_stat": "memory.stat",
        "memory_peak": "memory.peak",
        "memory_events": "memory.events",
        "pressure": "cpu.pressure",
    }
    files = {name: folders[""] / file for name, file in names.items()}
    for depth, folder in enumerate((folders[""], *folders[""].parents)):
        if not (folder / "memory.max").exists():
            break  # the root, which has no limit
        files[f"limit {depth}"] = folder / "memory.max"
    return files


def start_of(path: Path | str, most_bytes: int) -> bytes | None:
    """The file's first bytes, in one read; None: it cannot be read."""
    try:  # a file object costs three times as much
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, most_bytes)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def decoded(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode("ascii")
    except UnicodeDecodeError:
        return None


def table(text: str | None) -> dict[str, int]:
    table: dict[str, int] = {}
    for line in (text or "").splitlines():
        key, _, fields = line.partition(" ")
        value = integer(fields)
        if value is not None:
            table[key] = value
    return table


def integer(raw: bytes | str | None) -> int | None:
    try:
        return None if raw is None else int(raw)
    except ValueError:
        return None


_UNLIMITED = 1 << 62
"""cgroup v1 shows no limit as a number above this. Nothing that is true is as large."""


def _bounded(raw: bytes | None) -> int | None:
    """A number of bytes or of events; None: it is none, or no limit."""
    number = integer(raw)
    return number if number is not None and 0 <= number < _UNLIMITED else None


def _figure(raw: bytes | None, name: bytes) -> int | None:
    """The number beside that name in a table of the kernel's; None: there is none, or it may have
    been cut off. Half as expensive as `table` for a few of many lines."""
    lines = b"\n" + (raw or b"")
    at = lines.find(b"\n" + name + b" ")
    end = lines.find(b"\n", at + 1)
    return None if at < 0 or end < 0 else _bounded(lines[at + len(name) + 2 : end])


def cpu_max(text: str | None) -> tuple[int | None, int | None]:
    fields = (text or "").split()
    if len(fields) != 2:
        return None, None
    return (-1 if fields[0] == "max" else integer(fields[0])), integer(fields[1])


def _pressure_ratio(text: str | None) -> float | None:
    for line in (text or "").splitlines():
        kind, *pairs = line.split()
        if kind == "some":
            figures = dict(pair.partition("=")[::2] for pair in pairs)
            try:
                return float(figures["avg10"]) / 100
            except (KeyError, ValueError):
                return None
    return None


_TASKS_BYTES = 4096
"""Bytes read of the thread list: some 600 threads, taken as typical of the others."""
_MEAN_S = 10.0
"""Time constant of the exponential average, as in the kernel's pressure."""


class RunQueueWait:
    """Run-queue wait of a container's threads on cgroup v1, from the kernel's counts by thread.
    cgroup v2 reports it as pressure."""

    def __init__(self, folder: Path, proc: Path = PROC) -> None:
        self._tasks, self._proc = folder / "tasks", proc
        self._waited_ns: dict[str, int] = {}
        self._at_s: float | None = None
        self.ratio: float | None = None
        """Fraction of the last ten seconds or so, summed over threads, at most 1. None: unknown."""

    def sample(self, now_s: float) -> None:
        """Update `ratio` with the wait since the last sample."""
        before, at_s = self._waited_ns, self._at_s
        self._waited_ns, self._at_s = self._read(), now_s
        if not self._waited_ns:
            self.ratio = None
        elif at_s is not None and now_s > at_s:
            # A new thread's wait counts whole; a thread id may have been reused.
            waited_ns = sum(
                max(ns - before.get(thread, 0), 0) for thread, ns in self._waited_ns.items()
            )
            elapsed_s = now_s - at_s
            ratio = min(waited_ns / 1e9 / elapsed_s, 1.0)
            kept = 0.0 if self.ratio is None else math.exp(-elapsed_s / _MEAN_S)
            self.ratio = kept * (self.ratio or 0.0) + (1.0 - kept) * ratio

    def _read(self) -> dict[str, int]:
        found = {}
        # The last number may be truncated.
        threads = start_of(self._tasks, _TASKS_BYTES) or b""
        for thread in threads[: threads.rfind(b"\n") + 1].decode("ascii", "replace").split():
            status = start_of(self._proc / thread / "schedstat", _READ_BYTES) or b""
            fields = status.split()
            if len(fields) == 3 and fields[1].isdigit():
                found[thread] = int(fields[1])
        return found
