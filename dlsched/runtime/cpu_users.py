"""Who uses the host's CPU: containers, systemd units, and processes in neither, by what the kernel
counts for each control group and process. Job containers are left out. Names are hostile text."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from pathlib import Path

from dlsched.model.errors import unexpected
from dlsched.model.facts import NAMED_CORES, CpuUser, CpuUserKind, HostCpu
from dlsched.model.units import plain_text
from dlsched.runtime import host
from dlsched.runtime.cgroup.read import (
    PROC,
    Hierarchy,
    decoded,
    hierarchies,
    integer,
    start_of,
    table,
)

_log = logging.getLogger(__name__)

EVERY_S = 10.0
"""Time between two samples. Measured on two busy cores, a group or process costs 0.07 ms: 100 of
them 0.07 % of a core, all within the bounds below 0.4 %."""
GROUPS_MAX = 256
"""Groups read in a sample. More stay unnamed: a host of that size has few large users."""
PROCESSES_MAX = 256
"""Processes outside containers and units read in a sample: those with the highest IDs, since
kernel threads have the lowest ones."""
DEPTH_MAX = 6
"""Depth of groups that are read. Containers of Kubernetes, the deepest, are at 4."""
USERS_MAX = 3
"""Users that are named: the largest."""
NAME_CHARACTERS = 128
"""Longer names are cut: the kernel allows a group's name 255 bytes."""

_FILE_BYTES = 4096
_IDS_BYTES = 64 << 10
"""Read of the list of a group's processes: over 8,000 of them."""

_CONTAINER = re.compile(r"(?:[a-z]+-)*([0-9a-f]{64})(?:\.scope)?")
"""A container's group: `ID` with the cgroupfs driver, `docker-ID.scope` with systemd's."""
_USER_SLICE = re.compile(r"user-\d+\.slice")
_UNITS = (".service", ".scope", ".slice")
_ADOPTABLE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,126}")
"""Names that the engine allows, and that are not cut. No other is put into a command."""
_SERVES_CONTAINERS = frozenset(
    ("system.slice", "init.scope", "docker.service", "containerd.service", "dlsched.service")
)
"""Units that must not wait for CPU, as then the engine waits."""
_TICKS = os.sysconf("SC_CLK_TCK")

Group = tuple[str, ...]
"""The names of a control group and those around it, outermost first; empty: the root."""


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU time used until one moment, in core-seconds since each began."""

    at_s: float
    busy_core_s: float
    """Of the whole host, since boot."""
    groups: Mapping[Group, float]
    """Of each container and unit that is no job."""
    processes: Mapping[tuple[int, int], tuple[float, str]]
    """Of each process in none of them, with its name, by its ID and start (in ticks)."""
    around_jobs: frozenset[Group] = frozenset()
    """The groups in which the containers of jobs are."""


def owner(group: Group) -> tuple[CpuUserKind, str] | None:
    """What a control group is: a container with its ID, a unit with its name, or only a level
    above others (None)."""
    name = group[-1] if group else ""
    if (found := _CONTAINER.fullmatch(name)) is not None:
        return CpuUserKind.CONTAINER, found[1]
    if name.endswith((".service", ".scope")) or _USER_SLICE.fullmatch(name):
        return CpuUserKind.UNIT, name
    return None


def unit_to_weigh(group: Group, around_jobs: Set[Group]) -> str | None:
    """The unit whose weight divides CPU between that group and every job: the first one that is not
    around both. None: it is not the same for all jobs, is no unit, or serves the containers."""
    units = {next(iter(group[len(_common(group, around)) :]), "") for around in around_jobs}
    unit = units.pop() if len(units) == 1 else ""
    return unit if unit.endswith(_UNITS) and unit not in _SERVES_CONTAINERS else None


def _common(one: Group, other: Group) -> Group:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(name for name, _ in pairs)


def used_between(before: Sample, after: Sample) -> HostCpu | None:
    """The largest users between two samples; a container's name is its ID. None: no time passed."""
    elapsed_s = after.at_s - before.at_s
    if elapsed_s <= 0.0:
        return None
    found = []
    for group, core_s in after.groups.items():
        # One that began since is named by the next sample: where groups are many it may be older.
        cores = (core_s - before.groups.get(group, core_s)) / elapsed_s
        if cores >= NAMED_CORES and (known := owner(group)) is not None:
            kind, name = known
            weigh = unit_to_weigh(group, after.around_jobs) if kind is CpuUserKind.UNIT else None
            found.append(CpuUser(kind, _shown(name), cores, weigh))
    for process, (core_s, name) in after.processes.items():
        cores = (core_s - before.processes.get(process, (core_s, ""))[0]) / elapsed_s
        if cores >= NAMED_CORES:
            shown = f"{_shown(name)} (pid {process[0]})"
            found.append(CpuUser(CpuUserKind.PROCESS, shown, cores))
    largest = sorted(found, key=lambda one: (-one.cores, one.name))[:USERS_MAX]
    busy_cores = max(after.busy_core_s - before.busy_core_s, 0.0) / elapsed_s
    return HostCpu(busy_cores, tuple(largest))


def process_time(stat: bytes) -> tuple[float, int, str] | None:
    """CPU time in core-seconds, start in ticks, and name of a process, by its file `stat`; None:
    the file is not understood. The name may hold anything, parentheses too (proc(5))."""
    first, last = stat.find(b"("), stat.rfind(b")")
    fields = stat[last + 1 :].split()
    if first < 0 or last < first or len(fields) < 20:
        return None
    user, system, start = (integer(fields[at]) for at in (11, 12, 19))
    if user is None or system is None or start is None:
        return None
    return (user + system) / _TICKS, start, stat[first + 1 : last].decode("utf-8", "replace")


class CpuUsers:
    """Samples the host's CPU users, off the thread that asks."""

    def __init__(
        self,
        now_s: Callable[[], float],
        begin: Callable[[Callable[[], Sample], str], Future[Sample]],
        never_adopted: Set[str] = frozenset(),
        proc: Path = PROC,
    ) -> None:
        """`begin` runs a call in a thread with that name; `never_adopted`: IDs of containers that
        no command is proposed for."""
        self._now_s = now_s
        self._begin = begin
        self._never_adopted = never_adopted
        self._proc = proc
        self._tree: Hierarchy | None = None
        with suppress(OSError, ValueError):
            self._tree = _counting(hierarchies(proc))
        self._last: Sample | None = None
        self._pending: Future[Sample] | None = None
        self._cpu: HostCpu | None = None

    def sample(self, now_s: float, jobs: Set[str]) -> None:
        """Take up a sample that has ended, else begin one where it is due; waits for nothing.
        `jobs`: IDs of the containers that are jobs."""
        if self._pending is not None:
            self._collect(self._pending)
        elif self._tree is not None and (self._last is None or now_s - self._last.at_s >= EVERY_S):
            tree = self._tree
            self._pending = self._begin(lambda: self._read(tree, jobs), "cpu-users")

    @property
    def containers(self) -> frozenset[str]:
        """The IDs of the containers among the users."""
        users = () if self._cpu is None else self._cpu.users
        return frozenset(one.name for one in users if one.kind is CpuUserKind.CONTAINER)

    def named(self, names: Mapping[str, str], jobs: Set[str]) -> HostCpu | None:
        """Who used the CPU between the last two samples; None: not known. `names`: of containers,
        by ID; one without a name keeps the first twelve characters of its ID. `jobs` as in
        `sample`: a container that became a job since is left out."""
        if self._cpu is None:
            return None
        others = (one for one in self._cpu.users if one.name not in jobs)
        return replace(
            self._cpu, users=tuple(_named(one, names, self._never_adopted) for one in others)
        )

    def _collect(self, pending: Future[Sample]) -> None:
        if not pending.done():
            return
        self._pending, before = None, self._last
        if (error := pending.exception()) is not None:
            _log.debug("who uses the host's CPU cannot be read: %s", unexpected(error))
            return
        self._last = pending.result()
        self._cpu = None if before is None else used_between(before, self._last)

    def _read(self, tree: Hierarchy, jobs: Set[str]) -> Sample:
        at_s, busy_core_s = self._now_s(), host.busy_core_s(self._proc)
        v2 = not tree.controllers
        used: dict[Group, float] = {}
        loose: list[int] = []
        around_jobs = set()
        for group, folder in _groups(tree.mount):
            known = owner(group)
            if known is None:
                loose += _processes(folder)
            elif known[1] in jobs:
                around_jobs.add(group[:-1])
            elif (core_s := _used_core_s(folder, v2=v2)) is not None:
                used[group] = core_s
        processes = {}
        for pid in sorted(loose)[-PROCESSES_MAX:]:
            found = process_time(_text(self._proc / str(pid) / "stat"))
            if found is not None:
                core_s, start, name = found
                processes[pid, start] = core_s, name
        return Sample(at_s, busy_core_s or 0.0, used, processes, frozenset(around_jobs))


def _named(user: CpuUser, names: Mapping[str, str], never_adopted: Set[str]) -> CpuUser:
    if user.kind is not CpuUserKind.CONTAINER:
        return user
    if (name := names.get(user.name)) is None:
        return replace(user, name=user.name[:12])
    adoptable = user.name not in never_adopted and _ADOPTABLE.fullmatch(name) is not None
    return replace(user, name=_shown(name), yields_by=name if adoptable else None)


def _counting(mounted: Sequence[Hierarchy]) -> Hierarchy | None:
    """The hierarchy that counts CPU time by group: on a host with both versions it is v1's."""
    v1 = (one for one in mounted if "cpuacct" in one.controllers)
    return next(v1, next((one for one in mounted if not one.controllers), None))


def _groups(mount: Path) -> Iterator[tuple[Group, Path]]:
    """The groups down to containers and units, those above first; at most `GROUPS_MAX`."""
    level: list[tuple[Group, Path]] = [((), mount)]
    left = GROUPS_MAX
    while level and left > 0:
        level = level[:left]
        left -= len(level)
        yield from level
        level = [
            ((*group, name), folder / name)
            for group, folder in level
            if owner(group) is None and len(group) < DEPTH_MAX
            for name in _folders(folder)
        ]


def _folders(folder: Path) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        folders = (one.name for one in entries if one.is_dir(follow_symlinks=False))
        return list(islice(folders, GROUPS_MAX))
    return []


def _processes(folder: Path) -> list[int]:
    with suppress(OSError), (folder / "cgroup.procs").open("rb") as file:
        # The last number may be cut off, and 0 is a process that is not visible here.
        ids = file.read(_IDS_BYTES).rpartition(b"\n")[0].split()
        return [int(one) for one in ids if one.isdigit() and one != b"0"]
    return []


def _used_core_s(folder: Path, *, v2: bool) -> float | None:
    if v2:
        used_us = table(decoded(_text(folder / "cpu.stat"))).get("usage_usec")
        return None if used_us is None else used_us / 1e6
    used_ns = integer(_text(folder / "cpuacct.usage"))
    return None if used_ns is None else used_ns / 1e9


def _text(path: Path) -> bytes:
    return start_of(path, _FILE_BYTES) or b""


def _shown(name: str) -> str:
    return plain_text(name)[:NAME_CHARACTERS]
