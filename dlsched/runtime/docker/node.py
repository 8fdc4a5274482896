"""The host as one agent sees it: cores, memory, and GPUs as they were last read."""

from __future__ import annotations

from dataclasses import replace

from dlsched.model.facts import GpuFact, NodeFact
from dlsched.runtime import host
from dlsched.runtime.cgroup.limits import GRAIN_CORES, SYSTEMD_GRAIN_CORES
from dlsched.runtime.gpu import Inventory


class NodeReader:
    """Reads the host's facts, and remembers its GPUs."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self.close = inventory.close
        self.gpus: tuple[GpuFact, ...] = ()
        self.gpu_problem: str | None = None

    def read(self, now_s: float, cgroup_driver: str | None) -> NodeFact | None:
        """The facts now; the grain of ceilings depends on the cgroup driver."""
        polled = self._inventory.poll(now_s)
        self.gpus, self.gpu_problem = polled.devices, polled.problem
        node = host.node(SYSTEMD_GRAIN_CORES if cgroup_driver == "systemd" else GRAIN_CORES)
        return node and replace(node, gpus=polled.devices, gpu_trouble=polled.problem)

    def gpu_names(self, uuids: tuple[str, ...]) -> str:
        """What a person calls those GPUs."""
        indices = {gpu.uuid: gpu.index for gpu in self.gpus if gpu.part_of is None}
        names = (f"GPU {indices[uuid]}" if uuid in indices else uuid for uuid in uuids)
        return " and ".join(names)
