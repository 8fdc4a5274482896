"""One container on a host of files: an engine that writes to a cgroup tree as runc does. For
several of them, and their lives, see `fake_engine`.

It keeps the engine's rules that hands must know: the dialects exclude each other, zero changes
nothing, and the kernel refuses a quota below the burst and a weight in the idle class.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dlsched.runtime.docker.engine import Body, EngineRefused

CONTAINER = "64bd9f9a085b98cf075f8c3f0e06e683f54872ca781678ae691d2bc59d3116ea"
PID = 4242

V1 = {
    "cpu.cfs_quota_us": "-1",
    "cpu.cfs_period_us": "100000",
    "cpu.shares": "1024",
    "cpu.cfs_burst_us": "0",
    "cpu.idle": "0",
    "memory.limit_in_bytes": "9223372036854771712",
    "memory.memsw.limit_in_bytes": "9223372036854771712",
}
V2 = {
    "cpu.max": "max 100000",
    "cpu.weight": "100",
    "cpu.max.burst": "0",
    "cpu.idle": "0",
    "memory.max": "max",
    "memory.swap.max": "max",
}


def older_weight(shares: int) -> int:
    """runc before 1.3.2."""
    return 1 + (shares - 2) * 9999 // 262142


def newer_weight(shares: int) -> int:
    """runc from 1.3.2 on."""
    doublings = math.log2(shares)
    return math.ceil(10 ** ((doublings**2 + 125 * doublings) / 612 - 7 / 34))


@contextmanager
def full_disk() -> Iterator[None]:
    """No record can be written."""
    error = OSError(errno.ENOSPC, "No space left on device")
    with patch("dlsched.store.records.write_whole", side_effect=error):
        yield


class FakeHost:
    """The engine, and the kernel's files below it. May be handed to a LimitWriter as its engine."""

    def __init__(
        self,
        root: Path,
        *,
        v2: bool = False,
        weigh: Any = older_weight,
        container: str = CONTAINER,
        pid: int = PID,
    ) -> None:
        """`pid` 0: the container does not run yet."""
        self.container = container
        self.v2 = v2
        self.weigh = weigh
        self.proc = root / "proc"
        self.cpu = root / "sys" / ("" if v2 else "cpu") / "docker" / container
        self.memory = self.cpu if v2 else root / "sys" / "memory" / "docker" / container
        self.words: dict[str, Any] = {
            "NanoCpus": 0,
            "CpuQuota": 0,
            "CpuPeriod": 0,
            "CpuShares": 0,
            "Memory": 0,
            "MemorySwap": 0,
        }
        self.pid = pid
        self.gone = False
        self.held_bytes, self.killed = 0, False
        """What it holds, and whether the kernel killed it for a limit below that."""
        self.updates: list[Body] = []
        self.raises: list[Exception] = []
        """Raised by the next updates, one each."""
        self._mount(root)
        if pid:
            self.begin(pid)

    def run(self, **words: int) -> FakeHost:
        """As if it had been made with these words."""
        self._set(dict(words))
        return self

    def claimable(self) -> FakeHost:
        """With the file of the root group on which instances claim containers."""
        (self.cpu.parents[1] / "cgroup.procs").touch()
        return self

    def files(self) -> dict[str, str]:
        """All of its cgroup files."""
        return {path.name: path.read_text().strip() for path in self._paths()}

    def write(self, name: str, text: str) -> None:
        """By hand, past the engine."""
        path = (self.memory if name.startswith("memory") else self.cpu) / name
        path.write_text(f"{text}\n")

    def restart(self) -> None:
        """A new start: what was written by hand is lost, the engine's words are not."""
        self._begin_cgroup()
        self._to_kernel()
        self._limit_memory()

    def begin(self, pid: int) -> None:
        """Its process, and its group."""
        self.pid = pid
        group = f"/docker/{self.container}"
        groups = (f"0::{group}",) if self.v2 else (f"4:memory:{group}", f"1:cpu,cpuacct:{group}")
        (self.proc / str(pid)).mkdir(parents=True, exist_ok=True)
        (self.proc / str(pid) / "cgroup").write_text("\n".join(groups) + "\n")
        self._begin_cgroup()

    def stop(self) -> None:
        """It has no process and no group any more."""
        self.pid = 0
        for path in self._paths():
            path.unlink()

    # ------------------------------------------------------------------ as an Engine

    def inspect(self, container: str) -> Body:
        assert container == self.container
        if self.gone:
            raise EngineRefused(404, f"No such container: {container}")
        return {
            "Id": container,
            "Name": "/theirs",
            "State": {"Pid": self.pid, "Status": "running" if self.pid else "exited"},
            "HostConfig": dict(self.words),
        }

    def update(self, container: str, body: Body) -> None:
        assert container == self.container
        assert "RestartPolicy" not in body
        self.updates.append(body)
        if self.raises:
            raise self.raises.pop(0)
        if self.gone:
            raise EngineRefused(404, "No such container")
        quota = self.words["CpuQuota"] > 0 or self.words["CpuPeriod"] > 0
        if (body.get("NanoCpus") and quota) or (body.get("CpuQuota") and self.words["NanoCpus"]):
            raise EngineRefused(409, "Conflicting options")
        swap_bytes = body.get("MemorySwap", 0)
        if 0 < body.get("Memory", 0) > self.words["MemorySwap"] and not swap_bytes:
            raise EngineRefused(409, "Memory limit should be smaller than already set memoryswap")
        if 0 < swap_bytes < body.get("Memory", 0):
            raise EngineRefused(400, "Minimum memoryswap limit should be larger than memory limit")
        if 0 < body.get("CpuQuota", 0) < 1000:
            raise EngineRefused(400, "CPU cfs quota cannot be less than 1ms (i.e. 1000)")
        self._set(body)

    def info(self) -> Body:
        return {"NCPU": 2, "CgroupVersion": "2" if self.v2 else "1"}

    def version(self) -> Body:
        version = "1.1.5+ds1" if self.weigh is older_weight else "1.3.2"
        return {"Components": [{"Name": "Engine"}, {"Name": "runc", "Version": version}]}

    # ------------------------------------------------------------------ inside

    def _set(self, body: Body) -> None:
        before = dict(self.words)
        self.words.update({name: value for name, value in body.items() if value})
        if self.pid:
            try:
                self._to_kernel()
                if body.get("Memory"):
                    self._limit_memory()
            except EngineRefused:
                self.words = before
                raise

    def _to_kernel(self) -> None:
        words = self.words
        period = words["CpuPeriod"] or 100_000
        quota = words["CpuQuota"] if words["CpuQuota"] > 0 else -1
        if words["NanoCpus"]:
            quota = words["NanoCpus"] * period // 10**9
        burst = int(self.files().get("cpu.max.burst" if self.v2 else "cpu.cfs_burst_us", 0))
        if 0 <= quota < burst:
            raise EngineRefused(500, "cpu.cfs_quota_us: invalid argument")
        shares = words["CpuShares"]
        if shares and self.files().get("cpu.idle") == "1":
            raise EngineRefused(500, "cpu.shares: invalid argument")
        if self.v2:
            self.write("cpu.max", f"{'max' if quota < 0 else quota} {period}")
            if shares:
                self.write("cpu.weight", str(self.weigh(shares)))
        else:
            self.write("cpu.cfs_quota_us", str(quota))
            self.write("cpu.cfs_period_us", str(period))
            self.write("cpu.shares", str(shares or 1024))

    def hold(self, held_bytes: int, cached_bytes: int = 0) -> None:
        """It holds so much memory that the kernel cannot take back, and so much page cache."""
        self.held_bytes = held_bytes
        use, prefix = str(held_bytes + cached_bytes), "" if self.v2 else "total_"
        self.write("memory.current" if self.v2 else "memory.usage_in_bytes", use)
        text = f"{prefix}inactive_file {cached_bytes}\n{prefix}active_file 0"
        self.write("memory.stat", f"{text}\nslab_reclaimable 0" if self.v2 else text)

    def _limit_memory(self) -> None:
        limit_bytes, swap_bytes = self.words["Memory"], self.words["MemorySwap"]
        if not limit_bytes:
            return
        if limit_bytes < self.held_bytes:
            if not self.v2:
                raise EngineRefused(500, "memory.limit_in_bytes: device or resource busy")
            self.killed = True
        pages = limit_bytes // 4096 * 4096
        self.write("memory.max" if self.v2 else "memory.limit_in_bytes", str(pages))
        if swap_bytes > 0 and self.v2:
            self.write("memory.swap.max", str((swap_bytes - limit_bytes) // 4096 * 4096))
        elif swap_bytes > 0 and "memory.memsw.limit_in_bytes" in self.files():
            self.write("memory.memsw.limit_in_bytes", str(swap_bytes // 4096 * 4096))

    def _mount(self, root: Path) -> None:
        if self.v2:
            mounts = [f"29 23 0:26 / {root}/sys rw - cgroup2 cgroup2 rw"]
        else:
            mounts = [
                f"32 31 0:29 / {root}/sys/cpu rw - cgroup cgroup rw,cpu,cpuacct",
                f"34 31 0:31 / {root}/sys/memory rw - cgroup cgroup rw,memory",
            ]
        (self.proc / "self").mkdir(parents=True, exist_ok=True)
        (self.proc / "self" / "mountinfo").write_text("\n".join(mounts) + "\n")
        self.cpu.mkdir(parents=True)
        self.memory.mkdir(parents=True, exist_ok=True)

    def _begin_cgroup(self) -> None:
        for name, text in (V2 if self.v2 else V1).items():
            self.write(name, text)

    def _paths(self) -> list[Path]:
        folders = {self.cpu, self.memory}
        return sorted(path for folder in folders for path in folder.iterdir())
