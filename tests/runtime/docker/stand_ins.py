"""Stand-ins for GPUs: character devices that containers may not open by default.

Shared by the tests on a real engine; whoever makes some needs the right to make device nodes.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from dlsched.model.facts import GpuFact
from dlsched.model.spec import Bounds, JobSpec
from dlsched.runtime.cgroup.read import group_folders
from dlsched.runtime.docker.gpus.canary import probe
from dlsched.runtime.gpu import GpuSnapshot

STAND_INS = {"nvidia0": (1, 11), "nvidia1": (195, 1), "nvidiactl": (195, 255)}
"""The first opens (it is the kernel's log), the others have no driver behind them."""


def make_stand_ins(folder: Path) -> Path:
    """Make that folder, with the nodes; the test is left out where that is not allowed."""
    folder.mkdir()
    for name, number in STAND_INS.items():
        try:
            os.mknod(folder / name, 0o666 | stat.S_IFCHR, os.makedev(*number))
        except PermissionError:
            pytest.skip("device nodes cannot be made here: CAP_MKNOD is missing")
    return folder


class Seen:
    """An inventory of two stand-ins."""

    def __init__(self, dev: Path) -> None:
        self.devices = tuple(
            GpuFact(f"GPU-{index}", index, "Stand-in", 1 << 34, nodes=(f"{dev}/nvidia{index}",))
            for index in range(2)
        )

    def poll(self, _: float) -> GpuSnapshot:
        return GpuSnapshot(self.devices, None)

    def close(self) -> None: ...


def may_open(client: docker.APIClient, container: str, dev: Path) -> list[str]:
    """Which of the stand-ins a container may open."""
    described = client.inspect_container(container)
    nodes = [str(dev / name) for name in STAND_INS]
    seen = probe(described["State"]["Pid"], described["Id"], nodes)
    return sorted(Path(node).name for node in seen.allowed)


def with_ceiling(spec: JobSpec, cores: float) -> JobSpec:
    """The same job with a ceiling to go back to."""
    return replace(spec, bounds=Bounds(ceiling_cores=cores))


def devices_folder(client: docker.APIClient, container: str) -> Path:
    pid = client.inspect_container(container)["State"]["Pid"]
    folder = group_folders(pid).get("devices")
    if folder is None:
        pytest.skip("on cgroup v2 devices are opened by BPF programs, not by files")
    return folder
