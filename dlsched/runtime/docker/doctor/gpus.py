"""Checks of GPUs: state, processes, and how jobs get them. Changes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from dlsched.control.gpus.placement import PlacementOptions
from dlsched.model.facts import ComputeMode, GpuAccess, GpuFact
from dlsched.model.units import render_bytes, render_seconds
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.canary import ALARM_FILE, Canary
from dlsched.runtime.docker.gpus.injection import (
    NVIDIA_CONFIG,
    GpuOptions,
    Injector,
    NotInjectable,
    nvidia_mode,
    running_pipes,
)
from dlsched.runtime.doctor.finding import Finding
from dlsched.runtime.gpu import GpuSnapshot, Inventory, remedy
from dlsched.runtime.gpu.inventory import EVERY_S

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")

PATIENCE_S = 15.0
"""An unused driver takes seconds to initialise, for each GPU."""

_LISTED_PIDS = 5
_FOR_ALL = stat.S_IROTH | stat.S_IWOTH
_TO_CDI = (
    "run `nvidia-ctk config --in-place --set nvidia-container-runtime.mode=cdi` and "
    "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, then restart the engine"
)


_SAFE = {
    GpuAccess.CDI: "jobs get GPUs by CDI, so CPU updates do not take them away",
    GpuAccess.RUNTIME: (
        "jobs get GPUs by the NVIDIA runtime in CDI mode, so CPU updates do not take them away"
    ),
    GpuAccess.NODES: (
        "jobs get GPUs as device nodes, so their images must contain the driver's libraries"
    ),
}
"""How jobs get GPUs where no update takes them away."""


def poll(device_folder: Path) -> GpuSnapshot:
    """The GPUs, polled twice: processes that end in between are no problem."""
    inventory = Inventory(device_folder, wait_s=PATIENCE_S, first_wait_s=PATIENCE_S)
    inventory.poll(0.0)
    snapshot = inventory.poll(EVERY_S)
    inventory.close()
    return snapshot


def devices(
    snapshot: GpuSnapshot, options: PlacementOptions, driver: Path = NVIDIA_DRIVER
) -> Iterator[Finding]:
    if not snapshot.devices and snapshot.problem is None:
        if not driver.exists():
            yield Finding("gpu", "ok", "no GPU: this host has no NVIDIA driver")
            return
        line = "the host has an NVIDIA driver, but the library libnvidia-ml.so.1 cannot reach it"
        cure = (
            "install the driver's own libraries; an agent in a container needs --gpus all and "
            "NVIDIA_DRIVER_CAPABILITIES=utility"
        )
        yield Finding("gpu", "warn", line, cure)
        return
    if snapshot.problem is not None:
        yield Finding(
            "gpu", "warn" if snapshot.devices else "fail", snapshot.problem, "ask nvidia-smi"
        )
    if snapshot.driver is not None:
        cost = render_seconds(snapshot.cost_s)
        line = f"NVIDIA driver {snapshot.driver}; reading the state of its GPUs takes {cost}"
        yield Finding("gpu", "ok", line)
    for gpu in snapshot.devices:
        yield _device(gpu, options)


def alarm(state_dir: Path) -> Iterator[Finding]:
    """An alarm that an agent has left behind, where it may be read."""
    if os.access(state_dir / ALARM_FILE, os.R_OK):
        yield Finding("gpu", "warn", str(Canary(state_dir=state_dir).alarm))


def _device(gpu: GpuFact, options: PlacementOptions) -> Finding:
    place = "" if gpu.part_of is None else f", MIG instance of {gpu.part_of}"
    mode = "" if gpu.compute_mode is ComputeMode.DEFAULT else f", mode {gpu.compute_mode.value}"
    kept = ", reserved" if {gpu.uuid, gpu.part_of} & set(options.reserved) else ""
    name = f"GPU {gpu.index}: {gpu.model}, {render_bytes(gpu.memory_bytes)}, {gpu.uuid}"
    line = f"{name}{place}{mode}{kept}"
    if gpu.trouble is not None:
        return Finding("gpu", "fail", f"{line}: {gpu.trouble}", remedy(gpu))
    if absent := [node for node in gpu.nodes if not Path(node).exists()]:
        cure = "start nvidia-persistenced, or run `nvidia-modprobe -u -c 0`"
        return Finding("gpu", "warn", f"{line}: {', '.join(absent)} does not exist", cure)
    reset = f"nvidia-smi -i {gpu.index} -c DEFAULT"
    if gpu.compute_mode is ComputeMode.PROHIBITED:
        return Finding("gpu", "warn", f"{line}: no process may compute on this GPU", reset)
    if gpu.compute_mode is ComputeMode.EXCLUSIVE:
        line += (
            ": only one process at a time may compute on this GPU, so that jobs cannot share the "
            "GPU without MPS"
        )
        return Finding("gpu", "warn", line, f"{reset}, or start MPS")
    return Finding("gpu", "ok", line)


def foreign_users(
    snapshot: GpuSnapshot, ours: Collection[str], options: PlacementOptions
) -> Iterator[Finding]:
    """Processes on GPUs outside the containers of `ours` (ids)."""
    for gpu in snapshot.devices:
        others = [one for one in gpu.processes if one.container_id not in ours]
        if not others:
            continue
        held = render_bytes(sum(one.memory_bytes or 0 for one in others))
        pids = ", ".join(str(one.pid) for one in others[:_LISTED_PIDS])
        more = ", ..." if len(others) > _LISTED_PIDS else ""
        line = f"GPU {gpu.index} is used by processes outside jobs: pid {pids}{more}, {held}"
        if options.foreign == "share":
            yield Finding(
                "gpu", "ok", f"{line}; jobs share the GPU all the same (gpus.foreign: share)"
            )
        else:
            cure = "end those processes, set gpus.foreign: share, or name the GPU in gpus.reserved"
            yield Finding("gpu", "warn", f"{line}; no job is placed on that GPU", cure)


def access(
    snapshot: GpuSnapshot, info: Body, options: GpuOptions, config: Path = NVIDIA_CONFIG
) -> Finding:
    """How containers get GPUs: in the legacy mode a CPU update can take them away."""
    divided = {gpu.part_of for gpu in snapshot.devices}
    whole = tuple(gpu for gpu in snapshot.devices if gpu.uuid not in divided)
    usable = tuple(gpu.uuid for gpu in whole if gpu.trouble is None)
    usable = usable or tuple(gpu.uuid for gpu in whole)
    injector = Injector(options, lambda: snapshot.devices, config)
    try:
        access = injector.of(usable, info).access
    except NotInjectable as error:
        cure = "install the NVIDIA Container Toolkit, then run `nvidia-ctk cdi generate`"
        return Finding("gpu", "warn", str(error), cure)
    if access in _SAFE:
        return Finding("gpu", "ok", _SAFE[access])
    line = (
        f"jobs get GPUs by NVIDIA's hook (mode {nvidia_mode(config)}): a CPU update by the engine "
        "could take them away (nvidia-container-toolkit#138), so dlsched writes CPU limits to "
        "control group files instead"
    )
    return Finding("gpu", "warn", line, _TO_CDI)


def user_namespaces(snapshot: GpuSnapshot, info: Body) -> Iterator[Finding]:
    """Whether a container's root, another user here, may open the nodes."""
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    if not any("userns" in option or "rootless" in option for option in options):
        return
    closed = []
    for node in dict.fromkeys(node for gpu in snapshot.devices for node in gpu.nodes):
        try:
            mode = Path(node).stat().st_mode
        except OSError:
            continue
        if mode & _FOR_ALL != _FOR_ALL:
            closed.append(node)
    if closed:
        line = f"user namespaces are on, and no container may open {', '.join(closed)}"
        yield Finding("gpu", "warn", line, "options nvidia NVreg_DeviceFileMode=0666 (modprobe.d)")


def mps(environment: Mapping[str, str], proc: Path = PROC) -> Finding:
    """Whether MPS enforces shares of GPUs."""
    pipes = running_pipes(environment, proc)
    if pipes is None:
        line = "MPS does not run: shares of a GPU's time and memory are advisory"
    else:
        line = (
            f"MPS runs ({pipes}): MPS enforces the shares of jobs on one GPU from their next start"
        )
    return Finding("gpu", "ok", line)


def reached_by(pid: int, snapshot: GpuSnapshot, proc: Path = PROC) -> Iterator[Finding]:
    """Whether the daemon has the nodes in its own /dev, which may be private."""
    root = proc / str(pid) / "root"
    nodes = dict.fromkeys(node for gpu in snapshot.devices for node in gpu.nodes)
    try:
        there = (root / "dev").is_dir()
        absent = [one for one in nodes if Path(one).exists() and not (root / one[1:]).exists()]
    except OSError:
        return  # another user's process is not accessible
    if there and absent:
        line = f"dlsched was started before these device nodes existed: {', '.join(absent)}"
        yield Finding("gpu", "warn", line, "restart dlsched after nvidia-persistenced has started")
