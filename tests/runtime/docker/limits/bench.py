"""A LimitWriter on a fake host with one container, and the kernels on which it is tried."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dlsched.model.facts import GpuAccess
from dlsched.model.spec import Limits
from dlsched.runtime.allotment import Allotment, job_dir, read_allotment
from dlsched.runtime.cgroup.group_limits import LimitFiles
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.canary import Canary, GpuContainer, Probe, ProbeFailed
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.machine.outcomes import Own
from dlsched.runtime.originals import Original, Originals
from tests.runtime.docker.fake_host import CONTAINER, FakeHost, newer_weight, older_weight
from tests.runtime.docker.making import instance_of

KERNELS: dict[str, dict[str, Any]] = {
    "v1": {},
    "v2 older": {"v2": True, "weigh": older_weight},
    "v2 newer": {"v2": True, "weigh": newer_weight},
}
WAYS: dict[GpuAccess | None, dict[str, Any]] = {
    None: {},
    GpuAccess.LEGACY: {"DeviceRequests": [{"Driver": "nvidia", "Count": -1}]},
    GpuAccess.CDI: {"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]},
    GpuAccess.NODES: {"Devices": [{"PathOnHost": "/dev/nvidia0"}]},
}
NODE = "/dev/nvidia0"
OWN = Own("job", 1.0)


class Bench:
    """`access`: how the container got its GPUs; None: it has none."""

    def __init__(self, root: Path, access: GpuAccess | None = None, **host: Any) -> None:
        self.root = root
        self.host = FakeHost(root, **host)
        self.host.words.update(WAYS[access])
        self.taken = False
        self.sees = True
        self.reopen()

    def reopen(self) -> None:
        """Another agent, with the same records."""
        self.originals = Originals(self.root / "state")
        self.canary = Canary(self._probe, self.root / "state")
        instance = instance_of(
            self.host, self.root / "state", originals=self.originals, proc=self.host.proc
        )
        self.hands = LimitWriter(instance, canary=self.canary)

    def set(self, cores: float | None, shares: int | None = 1024, **more: Any) -> None:
        self.hands.set(CONTAINER, Limits(cores), shares, **more)

    def give_back(self) -> str | None:
        """Why it could not be given back."""
        return self.hands.give_back(self.record).failure

    @property
    def record(self) -> Original:
        found = self.originals.of(CONTAINER)
        assert found is not None
        return found

    @property
    def allotment(self) -> Allotment:
        return read_allotment(job_dir(self.root / "state", OWN.job))

    @property
    def quota(self) -> str:
        """As the kernel has it."""
        name = "cpu.max" if self.host.v2 else "cpu.cfs_quota_us"
        return self.host.files()[name].partition(" ")[0].replace("max", "-1")

    @property
    def weight(self) -> str:
        return self.host.files()["cpu.weight" if self.host.v2 else "cpu.shares"]

    @property
    def burst_file(self) -> str:
        return "cpu.max.burst" if self.host.v2 else "cpu.cfs_burst_us"

    @property
    def burst(self) -> str:
        return self.host.files()[self.burst_file]

    def has(self, cores: float | None, shares: int) -> bool:
        quota = -1 if cores is None else round(cores * 100_000)
        weight = self.host.weigh(shares) if self.host.v2 else shares
        return (self.quota, self.weight) == (str(quota), str(weight))

    def loses_at_update(self) -> None:
        """The engine's next update takes the GPUs away."""
        real = self.host.update

        def update(container: str, body: Body) -> None:
            real(container, body)
            self.taken = True

        self.host.update = update  # type: ignore[method-assign]

    def _probe(self, _: GpuContainer) -> Probe:
        if not self.sees:
            raise ProbeFailed("dlsched sees none of the container's GPU device nodes")
        nodes = frozenset({NODE})
        return Probe(frozenset(), nodes) if self.taken else Probe(nodes, frozenset())


@contextmanager
def unwritable(method: str) -> Iterator[None]:
    """The control group's files are read-only for that method of LimitFiles."""
    error = OSError(errno.EROFS, os.strerror(errno.EROFS))
    with patch.object(LimitFiles, method, side_effect=error):
        yield
