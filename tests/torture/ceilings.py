"""Whether the ceilings that the kernel holds ever sum above the capacity, also for a moment.

Owns looking at them all the time, beside everything else. An own group counts once it has shown a
limit: before that it is being made. Somebody else's counts once it has fitted with the others: it
comes without a limit, so its first one and the others' smaller ones are all reductions, and may be
written in any order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.torture.kernel import folder_cores

CAPACITY_CORES = 1.0
ROUNDING_CORES = 0.005
"""The kernel rounds each quota."""
EVERY_S = 0.01


@dataclass(frozen=True, slots=True)
class Foreign:
    """A container that somebody else started, and what the kernel said of it then."""

    container: str
    pid: int
    cpu_folder: Path
    files: Mapping[str, str]

    @property
    def cores(self) -> float | None:
        """The ceiling that it came with."""
        if "cpu.max" in self.files:
            quota, period = self.files["cpu.max"].split()
        else:
            quota, period = self.files["cpu.cfs_quota_us"], self.files["cpu.cfs_period_us"]
        return None if quota in ("max", "-1") else int(quota) / int(period)

    @property
    def identity(self) -> tuple[str, int]:
        """What changes when it is made or started anew."""
        return self.container, self.pid


class Ceilings:
    """Watches the sum of the ceilings that the kernel holds, all the time."""

    def __init__(
        self, find_group: Callable[[], Path | None], foreign: Mapping[str, Foreign]
    ) -> None:
        """`find_group` knows the group above own containers, once there is one."""
        self._find_group = find_group
        self._foreign = foreign
        self._watching = threading.Event()
        self._sampling = threading.Lock()
        self._ending = threading.Event()
        self.parent: Path | None = None
        self.worst_cores = 0.0
        self.samples = 0
        self._limited: set[str] = set()
        """Groups that have shown a limit: before, they are still being made."""
        self._fitted: set[str] = set()
        """Groups of somebody else that have fitted with the others."""
        threading.Thread(target=self._run, name="torture-ceilings", daemon=True).start()

    def watch(self) -> None:
        """From now on the sum counts."""
        self._watching.set()

    def rest(self) -> None:
        """Limits are given back: no sum is promised. Waits for a sample that is under way."""
        with self._sampling:
            self._watching.clear()

    def stop(self) -> None:
        """End for good."""
        self._ending.set()

    def taken(self) -> float:
        """The worst sum since it was last taken."""
        worst, self.worst_cores = self.worst_cores, 0.0
        return worst

    def _run(self) -> None:
        while not self._ending.wait(EVERY_S):
            with self._sampling, suppress(OSError):
                if not self._watching.is_set():
                    continue
                # Groups are read one after the other: what changes meanwhile is no sum.
                once, again = self._cores(), self._cores()
                if once == again:
                    self.worst_cores = max(self.worst_cores, sum(once))
                    self.samples += 1

    def _cores(self) -> list[float]:
        """The ceiling of every group that counts."""
        parent = self.parent = self.parent or self._find_group()
        found = []
        if parent is not None:
            folders = [Path(group.path) for group in os.scandir(parent) if group.is_dir()]
            found += [self._of(folder) for folder in sorted(folders)]
        for one in tuple(self._foreign.values()):
            name = one.cpu_folder.name
            if name in self._limited or folder_cores(one.cpu_folder) != one.cores:
                cores = self._of(one.cpu_folder)
                if name in self._fitted or sum(found) + cores <= CAPACITY_CORES + ROUNDING_CORES:
                    self._fitted.add(name)
                    found.append(cores)
        return found

    def _of(self, folder: Path) -> float:
        with suppress(OSError, ValueError):
            cores = folder_cores(folder)
            if cores is not None:
                self._limited.add(folder.name)
                return cores
            if folder.name in self._limited:
                return CAPACITY_CORES
        return 0.0
