"""What the host has, its GPUs too, and how busy all of it is.

Owns those readings. It must not know containers; a reading that fails is None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dlsched.model.facts import GpuFact, NodeFact
from dlsched.runtime.cgroup.cpu_units import GRAIN_CORES, SYSTEMD_GRAIN_CORES
from dlsched.runtime.cgroup.enclosing import Around, OutsideThrottling, Surroundings
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.gpu import Inventory

UNKNOWN = Around()
CPUS = Path("/sys/devices/system/cpu")


def node(grain_cores: float, proc: Path = PROC, around: Around = UNKNOWN) -> NodeFact | None:
    """CPUs (hardware threads) that containers may use, and the memory of the host.

    `grain_cores` is the engine's, in which it keeps ceilings; `around` is what bounds containers.
    """
    fields = (line.split() for line in _lines(proc / "meminfo"))
    sizes = {one[0]: int(one[1]) * 1024 for one in fields if len(one) == 3 and one[1].isdigit()}
    if "MemTotal:" not in sizes:
        return None
    cpu = available_cpu(around)
    return NodeFact(
        cpu.cores,
        sizes["MemTotal:"],
        grain_cores,
        jobs_cores=cpu.jobs_cores,
        bound_by=cpu.bound_by,
        parts=tuple((names, str(quota)) for names, quota in around.parts),
        memory_available_bytes=sizes.get("MemAvailable:"),
    )


@dataclass(frozen=True, slots=True)
class AvailableCpu:
    """The fields of `NodeFact` with these names."""

    cores: float
    jobs_cores: float | None = None
    bound_by: str | None = None


def available_cpu(around: Around) -> AvailableCpu:
    """The CPU that containers can have, by what is around them."""
    cpus = threads() if around.cpus is None else float(len(around.cpus))
    quota = around.quota
    if quota is not None and quota.cores < cpus:
        if around.with_us:
            return AvailableCpu(quota.cores, bound_by=str(quota))
        return AvailableCpu(cpus, quota.cores, str(quota))
    online = os.cpu_count()
    if around.cpus is not None and online is not None and cpus < online:
        return AvailableCpu(cpus, bound_by=f"cpuset of {cpus:g} of {online} CPUs")
    return AvailableCpu(cpus)


def threads() -> float:
    """CPUs (hardware threads) that this process may use."""
    return float(len(os.sched_getaffinity(0)))


def physical_cores(cpus: Path = CPUS) -> int:
    """Physical cores among the CPUs that this process may use: two threads are not two cores."""
    found = set()
    for cpu in os.sched_getaffinity(0):
        topology = cpus / f"cpu{cpu}" / "topology"
        package, core = (_lines(topology / f"{name}_id") for name in ("physical_package", "core"))
        # A CPU that does not tell its core is counted as one of its own.
        found.add((package[0], core[0]) if package and core else ("", f"cpu{cpu}"))
    return len(found)


def busy_core_s(proc: Path = PROC) -> float | None:
    """CPU time of everything on the host since boot, in core-seconds.

    Guests are in the kernel's user and nice times already; stolen time was never ours.
    """
    for line in _lines(proc / "stat"):
        name, *ticks = line.split()
        if name == "cpu" and len(ticks) >= 7:
            user, nice, system, _idle, _iowait, irq, softirq = (int(tick) for tick in ticks[:7])
            return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    return None


class NodeReader:
    """Reads the host's facts, and remembers its GPUs."""

    def __init__(self, inventory: Inventory, surroundings: Surroundings) -> None:
        self._inventory = inventory
        self._surroundings = surroundings
        self._outside = OutsideThrottling()
        self.close = inventory.close
        self.gpus: tuple[GpuFact, ...] = ()
        self.gpu_problem: str | None = None
        self.jobs_cores: float | None = None
        """CPU that containers can have together; None: not read yet."""

    def read(
        self,
        now_s: float,
        cgroup_driver: str | None,
        parent: str,
        containers: Iterable[tuple[str, str, int]],
    ) -> NodeFact | None:
        """The facts now; the grain of ceilings depends on the cgroup driver. `parent` and
        `containers` as in `Surroundings.read`."""
        polled = self._inventory.poll(now_s)
        self.gpus, self.gpu_problem = polled.devices, polled.problem
        around = self._surroundings.read(parent, containers)
        self._outside.sample(now_s, around.outside_s)
        grain_cores = SYSTEMD_GRAIN_CORES if cgroup_driver == "systemd" else GRAIN_CORES
        fact = node(grain_cores, around=around)
        if fact is not None:
            self.jobs_cores = fact.cores if fact.jobs_cores is None else fact.jobs_cores
        return fact and replace(
            fact,
            gpus=polled.devices,
            gpu_trouble=polled.problem,
            gpus_read_at_s=polled.at_s,
            throttled_ratio=self._outside.ratio,
        )

    def gpu_names(self, uuids: tuple[str, ...]) -> str:
        """What a person calls those GPUs."""
        indices = {gpu.uuid: gpu.index for gpu in self.gpus if gpu.part_of is None}
        names = (f"GPU {indices[uuid]}" if uuid in indices else uuid for uuid in uuids)
        return " and ".join(names)


def booted_at(proc: Path = PROC) -> str:
    """When the host started, in UTC. The epoch where that cannot be read."""
    times = (line.split()[1] for line in _lines(proc / "stat") if line.startswith("btime "))
    return datetime.fromtimestamp(int(next(times, 0)), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
