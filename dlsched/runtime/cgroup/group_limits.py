"""The limits of one container's control group, in the kernel's own files.

It writes the CFS burst and the idle class, which engines do not support, and ceiling and weight of
a container that an update through the engine could harm. All others change through the engine,
which would overwrite them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC, decoded, group_folders, integer, start_of

_V1 = {
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpu.cfs_burst_us", "cpu.idle"),
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
}
_V2 = ("cpu.max", "cpu.weight", "cpu.max.burst", "cpu.idle", "memory.max", "memory.swap.max")
_BURST = ("cpu.cfs_burst_us", "cpu.max.burst")

_TEXT_BYTES = 128

_NO_MEMORY_LIMIT = 1 << 62
"""cgroup v1 shows no limit as a number above this."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """One group's limits as text; a file that cannot be read is missing."""

    files: Mapping[str, str]

    @property
    def quota_us(self) -> int | None:
        """CPU time in each period; -1: no limit."""
        if "cpu.max" in self.files:
            quota = self.files["cpu.max"].partition(" ")[0]
            return -1 if quota == "max" else integer(quota)
        return self._number("cpu.cfs_quota_us")

    @property
    def period_us(self) -> int | None:
        if "cpu.max" in self.files:
            return integer(self.files["cpu.max"].partition(" ")[2])
        return self._number("cpu.cfs_period_us")

    @property
    def shares(self) -> int | None:
        """cgroup v1 only."""
        return self._number("cpu.shares")

    @property
    def weight(self) -> int | None:
        """cgroup v2 only."""
        return self._number("cpu.weight")

    @property
    def burst_us(self) -> int | None:
        """CPU time that may accumulate beyond the quota; None: not supported by the kernel."""
        return next((self._number(name) for name in _BURST if name in self.files), None)

    @property
    def idle(self) -> bool | None:
        """Whether it is in the idle class; None: not supported, as before Linux 5.15."""
        value = self._number("cpu.idle")
        return None if value is None else bool(value)

    @property
    def memory_bytes(self) -> int | None:
        """The memory limit; None: no limit, or unknown."""
        limit = self._number("memory.max") or self._number("memory.limit_in_bytes")
        return None if limit is None or limit > _NO_MEMORY_LIMIT else limit

    def _number(self, name: str) -> int | None:
        return integer(self.files.get(name))


class LimitFiles:
    def __init__(self, pid: int, container: str, proc: Path = PROC) -> None:
        """Find the group of that process. Raises OSError where it is not that container's."""
        self._pid, self._groups_file = pid, proc / str(pid) / "cgroup"
        self._groups = self._groups_file.read_bytes()
        try:
            folders = group_folders(pid, proc, container=container)
        except ValueError as error:
            raise OSError(f"/proc/{pid}/cgroup has an unknown format") from error
        if container.encode() not in self._groups:
            raise ProcessLookupError(f"process {pid} is not of container {container[:12]}")
        self.v2 = "cpu" not in folders
        """Whether the CPU controller is on cgroup v2."""
        self._paths = _paths_v2(folders) if self.v2 else _paths_v1(folders)

    def hold(self, pid: int) -> bool:
        """Whether these are still the limit files of that process."""
        try:
            return pid == self._pid and self._groups_file.read_bytes() == self._groups
        except OSError:
            return False

    @property
    def burst_file(self) -> Path | None:
        """The file of the burst; None: not supported by the kernel."""
        found = (self._paths[name] for name in _BURST if name in self._paths)
        return next((path for path in found if path.exists()), None)

    @property
    def burst_writable(self) -> bool:
        """Whether the burst can be changed: a cgroup mount may be read-only."""
        path = self.burst_file
        return path is not None and os.access(path, os.W_OK)

    @property
    def writable(self) -> bool:
        """Whether ceiling and weight can be changed: a cgroup mount may be read-only."""
        names = ("cpu.max", "cpu.weight") if self.v2 else ("cpu.cfs_quota_us", "cpu.shares")
        return all(name in self._paths and os.access(self._paths[name], os.W_OK) for name in names)

    @property
    def memory_writable(self) -> bool:
        """Whether the memory limit can be changed."""
        path = self._paths.get("memory.max" if self.v2 else "memory.limit_in_bytes")
        return path is not None and os.access(path, os.W_OK)

    def read(self) -> GroupLimits:
        """The limits now; a file that cannot be read is left out."""
        value = ((name, _text(path)) for name, path in self._paths.items())
        return GroupLimits({name: text for name, text in value if text is not None})

    def burst_us(self) -> int | None:
        """The burst now; None: unreadable, or not supported by the kernel."""
        path = self.burst_file
        return None if path is None else integer(_text(path))

    def write_burst(self, burst_us: int) -> None:
        """Set the burst, which the kernel refuses above the quota. Raises OSError."""
        path = self.burst_file
        if path is None:
            raise FileNotFoundError("the kernel has no CPU burst")
        path.write_text(str(burst_us), encoding="ascii")

    def write_idle(self, idle: bool) -> None:
        """Enter or leave the idle class, then with the default weight. Raises OSError. In the idle
        class the kernel refuses weights, and so also such updates through the engine."""
        self._write("cpu.idle", str(int(idle)))

    def write_ceiling(self, quota_us: int, period_us: int) -> None:
        """Set quota (-1: none) and period; the kernel refuses one below the burst. Raises OSError.

        The engine's next update, the container's restart, and on cgroup v2 under systemd a
        `systemctl daemon-reload` undo it.
        """
        if self.v2:
            self._write("cpu.max", f"{'max' if quota_us < 0 else quota_us} {period_us}")
            return
        if self.read().period_us != period_us:
            self._write("cpu.cfs_period_us", str(period_us))
        self._write("cpu.cfs_quota_us", str(quota_us))

    def write_weight(self, weight: int) -> None:
        """Set `cpu.shares`, or `cpu.weight` on cgroup v2. As `write_ceiling`."""
        self._write("cpu.weight" if self.v2 else "cpu.shares", str(weight))

    def write_memory(self, limit_bytes: int, swap_bytes: int) -> None:
        """Set the memory limit, and on cgroup v1 that of memory and swap together (-1: none), which
        must never be below it. On v2 swap has a limit of its own, which stays. As
        `write_ceiling`."""
        if self.v2:
            self._write("memory.max", str(limit_bytes))
            return
        names = [("memory.limit_in_bytes", limit_bytes)]
        if (self._paths["memory.memsw.limit_in_bytes"]).exists():
            both = "memory.memsw.limit_in_bytes", swap_bytes
            grows = limit_bytes > (self.read().memory_bytes or 0)
            names = [both, *names] if grows else [*names, both]
        for name, value in names:
            self._write(name, str(value))

    def _write(self, name: str, text: str) -> None:
        if name not in self._paths:
            raise FileNotFoundError(f"the control group has no {name}")
        self._paths[name].write_text(text, encoding="ascii")


def _paths_v1(folders: Mapping[str, Path]) -> dict[str, Path]:
    return {
        name: folders[controller] / name
        for controller, names in _V1.items()
        if controller in folders
        for name in names
    }


def _paths_v2(folders: Mapping[str, Path]) -> dict[str, Path]:
    return {name: folders[""] / name for name in _V2} if "" in folders else {}


def _text(path: Path) -> str | None:
    found = decoded(start_of(path, _TEXT_BYTES))
    return None if found is None else found.strip()
