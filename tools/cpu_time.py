"""Measures CPU time on this host: in all, by control group, and the rest. The rest is the host's
foreign load: other processes, and what a hypervisor took."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from tools.engine import CGROUP_PARENT
from tools.engine_remains import cgroup_mounts
from tools.engine_slot import DAEMONS_SUFFIX

STAT = Path("/proc/stat")
# Columns of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
BUSY_COLUMNS = (0, 1, 2, 5, 6, 7)


@dataclass(frozen=True)
class Reading:
    """Clocks at one moment."""

    wall_s: float
    busy_s: float
    """CPU time of all cores and processes."""


def read_clocks() -> Reading:
    """The clocks now."""
    ticks = [int(field) for field in STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    busy = sum(ticks[column] for column in BUSY_COLUMNS if column < len(ticks))
    return Reading(time.monotonic(), busy / os.sysconf("SC_CLK_TCK"))


def foreign_cores(before: Reading, after: Reading, own_s: float) -> float:
    """Cores that other processes kept busy between two readings; `own_s` is our own CPU time."""
    passed_s = max(after.wall_s - before.wall_s, 1e-9)
    return max(0.0, (after.busy_s - before.busy_s - own_s) / passed_s)


def engine_used_s(environment: Mapping[str, str]) -> Optional[float]:
    """CPU time of the private engine so far, its daemons and its containers; None without one."""
    parent = environment.get(CGROUP_PARENT)
    if parent is None:
        return None
    containers_s = group_used_s(parent)
    daemons_s = group_used_s(parent + DAEMONS_SUFFIX)
    if containers_s is None and daemons_s is None:
        return None
    return (containers_s or 0.0) + (daemons_s or 0.0)


def group_used_s(path: str) -> Optional[float]:
    """CPU time of a control group and all below it so far; None without accounting."""
    for mount in cgroup_mounts():
        group = Path(f"{mount}{path}")
        with suppress(OSError, ValueError):
            return int((group / "cpuacct.usage").read_text(encoding="ascii")) / 1e9
        with suppress(OSError, ValueError, StopIteration):
            lines = (group / "cpu.stat").read_text(encoding="ascii").splitlines()
            return next(int(x.split()[1]) for x in lines if x.startswith("usage_usec ")) / 1e6
    return None
