"""What the control groups around containers allow them together: CPUs, quotas, and quotas that
cannot be seen from here. Reads files alone; what cannot be read bounds nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlsched.model.units import render_cores
from dlsched.runtime.cgroup.cpu_units import quota_cores
from dlsched.runtime.cgroup.read import (
    PROC,
    cpu_max,
    decoded,
    group_folders,
    hierarchies,
    integer,
    start_of,
    table,
)

OUTSIDE_WINDOW_S = 10.0
"""Throttling from outside is judged over this time: a hundred periods of a quota."""
OUTSIDE_RATIO = 0.01
"""It counts from this fraction of the time on, over all CPUs: a program that is held back so little
still gets nearly all that it asks for."""

_FILE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Quota:
    """A CPU quota of a control group."""

    cores: float
    folder: Path
    group: str
    """Its path as this process sees it."""

    def __str__(self) -> str:
        return f"quota of {render_cores(self.cores)} of control group {self.group}"


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of the groups around a container, nearest first, up to the mount."""

    cpu: tuple[Path, ...] = ()
    cpuset: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Around:
    """What bounds the CPU of all containers together."""

    cpus: frozenset[int] | None = None
    """CPUs that they may use; None: unknown."""
    quota: Quota | None = None
    """The least one that is around all of them."""
    with_us: bool = False
    """Whether that is around this process too, so that the rest of the host has no more."""
    parts: tuple[tuple[tuple[str, ...], Quota], ...] = ()
    """Names of containers that have a tighter quota around them than the others have."""
    outside_s: float | None = None
    """Time since boot in which a quota that is not visible stopped all of this, summed over CPUs;
    None: the kernel does not count it (before Linux 6.6), or a visible quota may be why.
    """


class Surroundings:
    """Reads the groups around containers; remembers where each start of a container lies."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._mounts: Mapping[str, Path] = {}
        with suppress(OSError):
            self._mounts = _mounts(proc)
        self._places: dict[tuple[str, int], Place] = {}

    def read(self, parent: str, containers: Iterable[tuple[str, str, int]]) -> Around:
        """For these containers, each with name, id and process; without any, for the group
        `parent`, in which they will be."""
        named: dict[Place, list[str]] = {}
        kept: dict[tuple[str, int], Place] = {}
        for name, container, pid in containers:
            key = container, pid
            kept[key] = place = self._places.get(key) or self.place(pid, container)
            if place.cpu:
                named.setdefault(place, []).append(name)
        self._places = kept
        return self.around(named or {self.place_below(parent): []})

    def own(self) -> Around:
        """The same for this process's own group, where nothing is known of any container. Its CPUs
        are what it may use, which is asked of the kernel."""
        with suppress(OSError, ValueError):
            folders = group_folders("self", self._proc)
            return replace(self.around({self._place(folders): []}), cpus=None)
        return Around()

    def place_below(self, parent: str) -> Place:
        """Where a container in that group will lie."""
        inside = parent.lstrip("/")
        return self._place({name: mount / inside for name, mount in self._mounts.items()})

    def place(self, pid: int, container: str) -> Place:
        """Where the container of that process lies; empty: it cannot be found."""
        with suppress(OSError, ValueError):
            folders = group_folders(pid, self._proc, container=container)
            return self._place({name: folder.parent for name, folder in folders.items()})
        return Place()

    def around(self, places: Mapping[Place, Sequence[str]]) -> Around:
        """What is around all of these places, which have the names of their containers."""
        quotas = {folder: self._quota(folder) for place in places for folder in place.cpu}
        chains = [place.cpu for place in places]
        common = {folder for folder in chains[0] if all(folder in chain for chain in chains)}
        least = _least(quotas[folder] for folder in common)
        parts = []
        for place, names in places.items():
            own = _least(quotas[folder] for folder in place.cpu)
            if own is not None and own.folder not in common and (own.cores < _cores(least)):
                parts.append((tuple(sorted(names)), own))
        return Around(
            cpus=_union(self._cpus(place.cpuset) for place in places),
            quota=least,
            with_us=least is not None and least.folder in self._own_folders(),
            parts=tuple(sorted(parts, key=lambda part: part[0])),
            outside_s=None if any(quotas.values()) else self._outside_s(),
        )

    def _place(self, folders: Mapping[str, Path]) -> Place:
        cpu, cpuset = (
            self._chain(folders.get(name) or folders.get(""), name) for name in ("cpu", "cpuset")
        )
        return Place(cpu, cpuset)

    def _chain(self, folder: Path | None, controller: str) -> tuple[Path, ...]:
        mount = self._mounts.get(controller) or self._mounts.get("")
        if folder is None or mount is None or not folder.is_relative_to(mount):
            return ()
        if ".." in folder.parts:  # in another namespace, beside what is mounted here
            return ()
        above = len(folder.relative_to(mount).parts)
        return (folder, *folder.parents[:above])

    def _own_folders(self) -> tuple[Path, ...]:
        with suppress(OSError, ValueError):
            return self._place(group_folders("self", self._proc)).cpu
        return ()

    def _quota(self, folder: Path) -> Quota | None:
        text = _text(folder / "cpu.max")
        if text is not None:
            cores = quota_cores(*cpu_max(text))
        else:
            quota, period = (
                integer(_text(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period")
            )
            cores = quota_cores(quota, period)
        if cores is None:
            return None
        mount = self._mounts.get("cpu") or self._mounts[""]
        return Quota(cores, folder, "/" + "/".join(folder.relative_to(mount).parts))

    def _cpus(self, chain: Sequence[Path]) -> frozenset[int] | None:
        for folder in chain:
            for name in ("cpuset.cpus.effective", "cpuset.effective_cpus"):
                found = cpu_list(_text(folder / name))
                if found:
                    return found
        return None

    def _outside_s(self) -> float | None:
        """The counter of the topmost visible group, which includes all below it."""
        mount = self._mounts.get("cpu") or self._mounts.get("")
        counts = table(None if mount is None else _text(mount / "cpu.stat.local"))
        if "throttled_usec" in counts:
            return counts["throttled_usec"] / 1e6
        return counts["throttled_time"] / 1e9 if "throttled_time" in counts else None


class OutsideThrottling:
    """Whether a quota that is not visible here holds the containers back."""

    def __init__(self) -> None:
        self._from: tuple[float, float] | None = None
        """When the window began, and the counter then."""
        self.ratio = 0.0
        """Fraction of the last window in which CPUs were withheld; 0: below `OUTSIDE_RATIO`."""

    def sample(self, now_s: float, outside_s: float | None) -> None:
        """Take in the counter at `now_s`; None: there is none, which is no throttling."""
        if outside_s is None or (self._from is not None and outside_s < self._from[1]):
            self._from, self.ratio = None, 0.0
        elif self._from is None:
            self._from = now_s, outside_s
        elif now_s - self._from[0] >= OUTSIDE_WINDOW_S:
            ratio = (outside_s - self._from[1]) / (now_s - self._from[0])
            self.ratio = ratio if ratio >= OUTSIDE_RATIO else 0.0
            self._from = now_s, outside_s


def cpu_list(text: str | None) -> frozenset[int]:
    """The CPUs of a list in the kernel's form, such as `0-3,8`; empty: none, or not such a list."""
    found: set[int] = set()
    for part in (text or "").strip().split(","):
        first, _, last = part.partition("-")
        low, high = integer(first), integer(last or first)
        if low is None or high is None:
            return frozenset()
        found.update(range(low, high + 1))
    return frozenset(found)


def _mounts(proc: Path) -> dict[str, Path]:
    """Where the controllers `cpu` and `cpuset` are mounted; the key "" is version 2's."""
    found: dict[str, Path] = {}
    for one in hierarchies(proc):
        for name in (one.controllers & {"cpu", "cpuset"}) if one.controllers else ("",):
            found.setdefault(name, one.mount)
    return found


def _least(quotas: Iterable[Quota | None]) -> Quota | None:
    return min((one for one in quotas if one is not None), key=_cores, default=None)


def _cores(quota: Quota | None) -> float:
    return float("inf") if quota is None else quota.cores


def _union(sets: Iterable[frozenset[int] | None]) -> frozenset[int] | None:
    known = [one for one in sets if one]
    return frozenset().union(*known) if known else None


def _text(path: Path) -> str | None:
    return decoded(start_of(path, _FILE_BYTES))
