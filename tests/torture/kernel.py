"""What the kernel itself says of a container's limits; read without the product's help.

Owns the names of the files and how a ceiling is read from them, on cgroup v1 and v2.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from dlsched.runtime.cgroup.read import group_folders

LIMIT_FILES = (
    *("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpu.cfs_burst_us", "cpu.idle"),
    *("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    *("cpu.max", "cpu.weight", "cpu.max.burst", "memory.max", "memory.swap.max"),
)


def folder_cores(folder: Path) -> float | None:
    """The ceiling that the kernel holds for that group; None: none."""
    v2 = folder / "cpu.max"
    if v2.exists():
        quota, period = v2.read_text().split()
    else:
        quota = (folder / "cpu.cfs_quota_us").read_text()
        period = (folder / "cpu.cfs_period_us").read_text()
    return None if quota == "max" or int(quota) < 0 else int(quota) / int(period)


def near(cores: float | None, wanted: float | None) -> bool:
    """Whether a ceiling is that one, but for the rounding of quotas and of the planner."""
    if cores is None or wanted is None:
        return cores is wanted
    return abs(cores - wanted) < 0.005


def cpu_folder(pid: int) -> Path:
    """The folder with the CPU files of that process's group."""
    folders = group_folders(pid)
    return folders["cpu"] if "cpu" in folders else folders[""]


def kernel_cores(pid: int) -> float | None:
    """The ceiling that the kernel holds for that process's group; None: none, or it is gone."""
    try:
        return folder_cores(cpu_folder(pid))
    except (OSError, KeyError, ValueError):
        return None


def lives(pid: int) -> bool:
    """Whether that process runs still; a zombie does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def kernel_files(pid: int) -> dict[str, str]:
    """What the kernel says of the limits of that process's group, word for word; empty where it has
    ended."""
    found: dict[str, str] = {}
    folders: set[Path] = set()
    with suppress(OSError):
        folders = set(group_folders(pid).values())
    for folder in folders:
        for name in LIMIT_FILES:
            with suppress(OSError):
                found[name] = (folder / name).read_text().strip()
    return found
