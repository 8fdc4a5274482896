"""An NVML session: reads every device, figure by figure. Calls can hang with the driver."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dlsched.model.facts import ComputeMode, GpuFact, GpuProcess
from dlsched.runtime.gpu import nvml as codes
from dlsched.runtime.gpu.nvml import Nvml, code, describe
from dlsched.runtime.gpu.processes import UserNames, container_of, serves_all, uid_of

_MODES = {
    0: ComputeMode.DEFAULT,
    1: ComputeMode.EXCLUSIVE,
    2: ComputeMode.PROHIBITED,
    3: ComputeMode.EXCLUSIVE,
}
_NODES_SCOPE = 0
"""NVML_AFFINITY_SCOPE_NODE."""

SAMPLED_S = 2.0
"""A process without a sample in this time was idle: a driver samples once a second."""


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A device's constant facts."""

    handle: object
    uuid: str
    model: str
    minor: int | None
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class _Use:
    """Use of one device, by process."""

    busy: dict[int, float]
    """Fraction of the device's time in the last `SAMPLED_S`; idle processes are missing."""
    sampled: frozenset[int]
    """Processes with any sample since the previous reading. A sample is of some use even at 0 %,
    which is rounded down, so a service that answers one request a second is not idle."""

    def computed(self, pid: int, *, shared: bool) -> bool | None:
        """Whether it used the device since the previous reading. `shared`: an MPS server is on the
        device, which may be sampled for its clients; then a process without samples is unknown."""
        return True if pid in self.sampled else None if shared else False


@dataclass(frozen=True, slots=True)
class DeviceReading:
    devices: tuple[GpuFact, ...] = ()
    failed: dict[int, str] = field(default_factory=dict)
    """Why a device cannot be read at all, by index."""
    unseen: frozenset[int] = frozenset()
    """PIDs on devices that `proc` does not show."""


class Session:
    """NVML between initialisation and shutdown; for one thread at a time."""

    def __init__(self, nvml: Nvml, dev: Path, proc: Path, users: UserNames | None = None) -> None:
        """Initialise; raises NVML's error. `users` are the names of the host's users; None: they
        are unknown, as to an agent in a container."""
        self._nvml = nvml
        self._dev = dev
        self._proc = proc
        self._users = users
        self._sampled_us: dict[str, int] = {}
        """When the samples of each device were last asked for, in microseconds since 1970."""
        self._gpus: dict[int, _Gpu] = {}
        self._count = 0
        nvml.nvmlInit()
        self.driver = self._value(nvml.nvmlSystemGetDriverVersion)

    def close(self) -> None:
        """Shut NVML down; raises its error."""
        self._nvml.nvmlShutdown()

    def read(self) -> DeviceReading:
        """All devices now. Raises NVML's error unless only one device is affected."""
        count = self._nvml.nvmlDeviceGetCount()
        if count != self._count:
            self._gpus.clear()
            self._count = count
        devices: list[GpuFact] = []
        failed: dict[int, str] = {}
        unseen: set[int] = set()
        for index in range(count):
            try:
                gpu = self._gpus.get(index) or self._opened(index)
                devices += self._facts(index, gpu, unseen)
            except self._nvml.NVMLError as error:
                self._gpus.pop(index, None)
                failed[index] = describe(error)
        return DeviceReading(tuple(devices), failed, frozenset(unseen))

    # -------------------------------------------------------------------------------- inside

    def _opened(self, index: int) -> _Gpu:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        nodes = self._value(nvml.nvmlDeviceGetMemoryAffinity, handle, 1, _NODES_SCOPE)
        nearest = int(nodes[0]) if nodes is not None else 0
        gpu = self._gpus[index] = _Gpu(
            handle,
            nvml.nvmlDeviceGetUUID(handle),
            self._value(nvml.nvmlDeviceGetName, handle) or "unknown model",
            self._value(nvml.nvmlDeviceGetMinorNumber, handle),
            (nearest & -nearest).bit_length() - 1 if nearest else None,
        )
        return gpu

    def _facts(self, index: int, gpu: _Gpu, unseen: set[int]) -> list[GpuFact]:
        """The device, or its MIG instances."""
        nvml = self._nvml
        mode = self._value(nvml.nvmlDeviceGetMigMode, gpu.handle)
        divided = mode is not None and bool(mode[0])
        whole = self._fact(index, gpu, gpu.handle, unseen, divided=divided)
        if not divided:
            return [whole]
        instances = []
        for number in range(self._value(nvml.nvmlDeviceGetMaxMigDeviceCount, gpu.handle) or 0):
            handle = self._value(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu.handle, number)
            if handle is not None:
                instances.append(self._instance(index, gpu, handle, whole, unseen))
        if not instances:
            return [replace(whole, trouble=whole.trouble or codes.NO_INSTANCE)]
        return instances

    def _fact(
        self, index: int, gpu: _Gpu, handle: object, unseen: set[int], *, divided: bool
    ) -> GpuFact:
        nvml = self._nvml
        memory_bytes, used_bytes = self._memory(handle)
        rates = None if divided else self._value(nvml.nvmlDeviceGetUtilizationRates, handle)
        mode = self._value(nvml.nvmlDeviceGetComputeMode, gpu.handle)
        return GpuFact(
            uuid=gpu.uuid,
            index=index,
            model=gpu.model,
            memory_bytes=memory_bytes,
            memory_used_bytes=used_bytes,
            busy_ratio=None if rates is None else min(1.0, int(rates.gpu) / 100),
            compute_mode=_MODES.get(mode or 0, ComputeMode.DEFAULT),
            numa_node=gpu.numa_node,
            nodes=() if gpu.minor is None else (str(self._dev / f"nvidia{gpu.minor}"),),
            processes=() if divided else self._processes(handle, unseen, gpu.uuid),
            trouble=None if memory_bytes else codes.NO_MEMORY,
        )

    def _instance(
        self, index: int, gpu: _Gpu, handle: object, whole: GpuFact, unseen: set[int]
    ) -> GpuFact:
        nvml = self._nvml
        memory_bytes, used_bytes = self._memory(handle)
        ids = (
            self._value(nvml.nvmlDeviceGetGpuInstanceId, handle),
            self._value(nvml.nvmlDeviceGetComputeInstanceId, handle),
        )
        return GpuFact(
            uuid=nvml.nvmlDeviceGetUUID(handle),
            index=index,
            model=self._value(nvml.nvmlDeviceGetName, handle) or whole.model,
            memory_bytes=memory_bytes,
            memory_used_bytes=used_bytes,
            compute_mode=whole.compute_mode,
            part_of=whole.uuid,
            numa_node=whole.numa_node,
            nodes=(*whole.nodes, *self._capabilities(gpu.minor, *ids)),
            processes=self._processes(handle, unseen),
            trouble=None if memory_bytes else codes.NO_MEMORY,
        )

    def _memory(self, handle: object) -> tuple[int, int | None]:
        """What programs can allocate and what they hold, in bytes; 0 and None: not reported.

        Without what the driver keeps for itself: 615 MiB on an idle H200 (measured), which an older
        library counts as used.
        """
        nvml = self._nvml
        with suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
            return int(memory.total) - int(memory.reserved), int(memory.used)
        older = self._value(nvml.nvmlDeviceGetMemoryInfo, handle)
        return (0, None) if older is None else (int(older.total), int(older.used))

    def _capabilities(
        self, gpu: int | None, instance: int | None, compute: int | None
    ) -> list[str]:
        """The nodes that open a MIG instance, beside its GPU's own."""
        if None in (gpu, instance, compute):
            return []
        wanted = (f"gpu{gpu}/gi{instance}/access", f"gpu{gpu}/gi{instance}/ci{compute}/access")
        try:
            text = (self._proc / "driver/nvidia-caps/mig-minors").read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            return []
        minors = dict(re.findall(r"^(\S+) (\d+)$", text, re.MULTILINE))
        folder = self._dev / "nvidia-caps"
        return [str(folder / f"nvidia-cap{minors[name]}") for name in wanted if name in minors]

    def _processes(
        self, handle: object, unseen: set[int], sampled: str | None = None
    ) -> tuple[GpuProcess, ...]:
        """`sampled`: the UUID of a device whose processes are sampled. The driver takes no samples
        on MIG, where none must not count as idle."""
        nvml, proc = self._nvml, self._proc
        memory_bytes: dict[int, int | None] = {}
        for listing in (
            nvml.nvmlDeviceGetComputeRunningProcesses_v3,
            nvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
        ):
            for one in self._value(listing, handle) or ():
                memory_bytes[one.pid] = memory_bytes.get(one.pid) or one.usedGpuMemory
        use = self._use(handle, sampled) if memory_bytes and sampled is not None else None
        servers = {pid for pid in memory_bytes if serves_all(pid, proc)}
        found = []
        for pid, used_bytes in sorted(memory_bytes.items()):
            try:
                container, visible = container_of(pid, proc), True
            except OSError:
                unseen.add(pid)
                container, visible = None, False
            if container is None and pid in servers:
                continue
            uid = uid_of(pid, proc) if visible and container is None else None
            found.append(
                GpuProcess(
                    pid,
                    container,
                    used_bytes,
                    None if use is None else use.busy.get(pid, 0.0),
                    None if use is None else use.computed(pid, shared=bool(servers)),
                    visible,
                    uid,
                    None if uid is None or self._users is None else self._users.of(uid),
                )
            )
        return tuple(found)

    def _use(self, handle: object, uuid: str) -> _Use | None:
        """The use of a device by its processes since the previous reading; None: unknown."""
        now_us = int(time.time() * 1e6)
        recent_us = now_us - int(SAMPLED_S * 1e6)
        since_us = min(now_us, self._sampled_us.get(uuid, now_us)) - int(SAMPLED_S * 1e6)
        samples: Sequence[Any] = ()
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except self._nvml.NVMLError as error:
            # pynvml raises, with these codes, where there is no sample at all.
            if code(error) not in (codes.SUCCESS, codes.NOT_FOUND):
                if code(error) in codes.UNAVAILABLE:
                    return None
                raise
        self._sampled_us[uuid] = now_us
        # Some drivers report more than 100 %, or processes without a PID.
        sane = [one for one in samples if one.pid and 0 <= one.smUtil <= 100]
        busy = {
            one.pid: one.smUtil / 100
            for one in sorted(sane, key=lambda one: one.timeStamp)
            if one.timeStamp >= recent_us
        }
        return _Use(busy, frozenset(one.pid for one in samples))

    def _value(self, call: Callable[..., Any], *args: object) -> Any:
        """The call's result; None: not provided by this device or library."""
        try:
            return call(*args)
        except self._nvml.NVMLError as error:
            if code(error) not in codes.UNAVAILABLE:
                raise
            return None
