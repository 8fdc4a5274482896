"""How containers get GPUs: by a CDI device, by the nvidia driver or runtime, or by single nodes;
and what makes one a client of CUDA MPS, where its control daemon runs.

In the NVIDIA runtime's legacy mode a hook opens the devices behind the engine's back, and an
update, or systemd, rewrites the list of devices without them (nvidia-container-toolkit#138, #48).

From a client's start MPS enforces a percentage of a GPU's threads and a limit of pinned device
memory. Both are fixed then, so they are the job's maximum."""

from __future__ import annotations

import math
import os
import re
import shutil
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dlsched.config.yaml import load_document
from dlsched.control.gpus.placement import is_alone, memory_on
from dlsched.model.errors import DlschedError
from dlsched.model.facts import GpuAccess, GpuFact
from dlsched.model.spec import JobSpec
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.docker.engine import Body

NVIDIA_CONFIG = Path("/etc/nvidia-container-runtime/config.toml")
CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""Nodes that CUDA opens for any GPU."""

GPUS_MAX = 64
"""Names of one container's GPUs that are considered at most."""

_HOOK = "nvidia-container-runtime-hook"
_RUNTIME = "nvidia"
_CDI_KIND = "nvidia.com/gpu"
_CDI_MODES = ("cdi", "jit-cdi")
_CDI_SPEC_MAX_BYTES = 1 << 20
_CDI_SPEC_NODES_MAX = 50_000
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_DEAF = ("", "runc", "io.containerd.runc.v2")
"""Runtimes that ignore the environment. Any other may be NVIDIA's under another name."""

_UUID = re.compile(r"(GPU|MIG)-[A-Za-z0-9/-]{1,91}")
_NODE = re.compile(r"/nvidia(\d+|-caps/.+|-uvm|-uvm-tools|ctl)$")
_GPU_NODE = re.compile(r"nvidia\d+$")


class NotInjectable(DlschedError):
    """The host cannot give these GPUs to a container; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Injection:
    """Container settings that give it its GPUs, and no others."""

    access: GpuAccess | None = None
    """None: no GPUs."""
    host: Body = field(default_factory=dict)
    """Keys for its HostConfig."""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """The way in, and where the host's GPUs are."""

    injection: Literal["auto", "cdi", "request", "nodes"] = "auto"
    device_folder: Path = Path("/dev")
    """Where the host has their device nodes."""


NO_GPUS = Injection()


@dataclass(frozen=True, slots=True)
class Injector:
    """The kinds of injection that this host supports."""

    options: GpuOptions
    devices: Callable[[], Iterable[GpuFact]]
    """The host's GPUs as last polled."""
    config: Path = NVIDIA_CONFIG

    def of(self, gpus: tuple[str, ...], info: Body) -> Injection:
        """How a container gets these GPUs (UUIDs) from that engine. Raises NotInjectable."""
        void = dict.fromkeys(_heard_names(self.config), "void") if _hears(info) else {}
        if not gpus:
            return Injection(environment=void)
        wanted = self.options.injection
        if wanted in ("auto", "cdi") and (names := self._cdi_names(gpus, info)):
            request = {"Driver": "cdi", "DeviceIDs": list(names)}
            return Injection(GpuAccess.CDI, {"DeviceRequests": [request]}, void)
        if wanted in ("auto", "request") and (injection := self._requested(gpus, info)) is not None:
            return injection
        if wanted == "nodes":
            return Injection(GpuAccess.NODES, {"Devices": self._nodes(gpus)}, void)
        raise NotInjectable(_missing(wanted, info))

    def nodes_of(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """The device nodes on the host of those GPUs, as far as present."""
        known = {gpu.uuid: gpu.nodes for gpu in self.devices()}
        return tuple(node for uuid in gpus for node in known.get(uuid, ()))

    def to_try(self, names: tuple[str, ...], body: Body) -> tuple[str, ...]:
        """The device nodes, on the host, that show whether an inspected container has its GPUs."""
        named, nodes = tuple(named_nodes(body)), self.nodes_of(uuids_of(names, self.devices()))
        # A list of single nodes may lack this one.
        control = () if named else (str(self.options.device_folder / CONTROL_NODES[0]),)
        return tuple(dict.fromkeys([*named, *nodes, *control]))

    def _requested(self, gpus: tuple[str, ...], info: Body) -> Injection | None:
        heard = dict.fromkeys(_heard_names(self.config), ",".join(gpus))
        if gives_by_cdi(self.config):
            # In this mode the engine's own nvidia driver refuses, so the runtime is needed.
            if not _has_runtime(info):
                return None
            return Injection(GpuAccess.RUNTIME, {"Runtime": _RUNTIME}, heard)
        if not _has_runtime(info) and shutil.which(_HOOK) is None:
            return None
        request = {"Driver": "nvidia", "DeviceIDs": list(gpus), "Capabilities": [["gpu"]]}
        return Injection(GpuAccess.LEGACY, {"DeviceRequests": [request]}, heard)

    def _nodes(self, gpus: tuple[str, ...]) -> list[Body]:
        known = {gpu.uuid for gpu in self.devices() if gpu.nodes}
        if missing := [uuid for uuid in gpus if uuid not in known]:
            raise NotInjectable(f"the device nodes of the GPUs {', '.join(missing)} are not known")
        folder = self.options.device_folder
        control = [str(folder / name) for name in CONTROL_NODES if (folder / name).exists()]
        nodes = {node: _inside(node, folder) for node in [*self.nodes_of(gpus), *control]}
        return [
            {"PathOnHost": node, "PathInContainer": place, "CgroupPermissions": "rw"}
            for node, place in nodes.items()
        ]

    def _cdi_names(self, gpus: tuple[str, ...], info: Body) -> tuple[str, ...]:
        """The CDI devices of these GPUs; empty unless all have one."""
        if not info.get("CDISpecDirs"):
            return ()  # an older engine, or CDI is disabled
        discovered = {
            str(one.get("ID"))
            for one in info.get("DiscoveredDevices") or ()
            if one.get("Source") == "cdi"
        }
        by_name: dict[str, frozenset[str]] = {}
        for folder in info["CDISpecDirs"]:
            by_name.update(_cdi_devices(Path(str(folder))))
        names = [self._cdi_name(uuid, discovered, by_name) for uuid in gpus]
        return () if None in names else tuple(name for name in names if name is not None)

    def _cdi_name(
        self, uuid: str, discovered: set[str], by_name: Mapping[str, frozenset[str]]
    ) -> str | None:
        full = f"{_CDI_KIND}={uuid}"
        if full in discovered or uuid in by_name:
            return full
        # Generated with `--device-name-strategy=index`: identified by the node.
        own = {Path(node).name for node in self.nodes_of((uuid,))}
        own = {name for name in own if _GPU_NODE.fullmatch(name)}
        same = [name for name, nodes in by_name.items() if own and nodes == own]
        return f"{_CDI_KIND}={min(same)}" if same and not uuid.startswith("MIG-") else None


def access_of(body: Body, config: Path = NVIDIA_CONFIG) -> GpuAccess | None:
    """How an inspected container has its GPUs; None: it has none. Of several kinds, the worst.
    Single nodes, and devices of a CDI driver, are in the engine's own list."""
    host = body.get("HostConfig") or {}
    requests = host.get("DeviceRequests") or ()
    by_runtime = bool(_heard(body, config))
    if by_runtime or any(request.get("Driver") != "cdi" for request in requests):
        # Without that runtime the hook serves a request, whatever the runtime's mode.
        cdi = host.get("Runtime") == _RUNTIME and gives_by_cdi(config)
        return GpuAccess.RUNTIME if cdi else GpuAccess.LEGACY
    if requests:
        return GpuAccess.CDI
    return GpuAccess.NODES if any(named_nodes(body)) else None


def gpu_names(body: Body, config: Path = NVIDIA_CONFIG) -> tuple[str, ...]:
    """The names by which an inspected container asks for GPUs: UUIDs, indices, `all`, nodes."""
    names: list[str] = []
    for request in (body.get("HostConfig") or {}).get("DeviceRequests") or ():
        ids = [str(one) for one in request.get("DeviceIDs") or ()]
        names += [one.removeprefix(f"{_CDI_KIND}=") for one in ids]
        count = int(request.get("Count") or 0)
        names += ["all"] if count < 0 else map(str, range(min(count, GPUS_MAX)))
    if not names:
        names += _heard(body, config).split(",")
    names += named_nodes(body)
    return tuple(dict.fromkeys(name for name in names if name))


def uuids_of(names: Iterable[str], devices: Iterable[GpuFact]) -> tuple[str, ...]:
    """The UUIDs of the GPUs with these names, as far as known. A UUID stands for itself."""
    devices = tuple(devices)
    found: list[str] = []
    for name in names:
        if _UUID.fullmatch(name):
            found.append(name)
        found += [
            gpu.uuid
            for gpu in devices
            if name == "all"
            or name in gpu.nodes
            or (gpu.part_of is None and name.isdecimal() and str(gpu.index) == name)
        ]
    return tuple(dict.fromkeys(found))


def named_nodes(body: Body) -> Iterator[str]:
    """The nodes of NVIDIA devices, on the host, that an inspected container lists."""
    for device in (body.get("HostConfig") or {}).get("Devices") or ():
        if _NODE.search(str(device.get("PathInContainer") or device.get("PathOnHost") or "")):
            yield str(device.get("PathOnHost"))


def gives_by_cdi(config: Path = NVIDIA_CONFIG) -> bool:
    """Whether the NVIDIA runtime adds GPUs to the engine's own list of devices."""
    return nvidia_mode(config) in _CDI_MODES


def nvidia_mode(config: Path = NVIDIA_CONFIG) -> str:
    """The mode of the NVIDIA runtime in its configuration; its default is `auto`."""
    section = _configured(config).get("nvidia-container-runtime")
    return str(section.get("mode", "auto")) if isinstance(section, Mapping) else "auto"


def _configured(config: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _has_runtime(info: Body) -> bool:
    return _RUNTIME in (info.get("Runtimes") or {})


def _hears(info: Body) -> bool:
    return _has_runtime(info) or str(info.get("DefaultRuntime") or "") not in _DEAF


def _heard_names(config: Path) -> tuple[str, ...]:
    """The variables that the nvidia runtime and its hook read, the most important first."""
    swarm = str(_configured(config).get("swarm-resource") or "")
    return (*filter(None, map(str.strip, swarm.split(","))), _VISIBLE)


def _heard(body: Body, config: Path) -> str:
    """The GPUs in the variables that its runtime reads; empty: none."""
    if str((body.get("HostConfig") or {}).get("Runtime") or "") in _DEAF:
        return ""
    entries = (body.get("Config") or {}).get("Env") or ()
    variables = dict(str(entry).partition("=")[::2] for entry in entries)
    value = next((variables[name] for name in _heard_names(config) if name in variables), "")
    return "" if value in ("void", "none") else value


def _missing(wanted: str, info: Body) -> str:
    if wanted == "cdi":
        what = (
            "no CDI specification names these GPUs (run `nvidia-ctk cdi generate`)"
            if info.get("CDISpecDirs")
            else "the engine is too old, or its feature cdi is off"
        )
        return f"gpus.injection is cdi, but the engine cannot give the job's GPUs by CDI: {what}"
    return (
        "the engine has no way to give GPUs to a container: install the NVIDIA Container Toolkit, "
        "with CDI"
    )


def _inside(node: str, folder: Path) -> str:
    path = Path(node)
    return f"/dev/{path.relative_to(folder) if path.is_relative_to(folder) else path.name}"


def _cdi_devices(folder: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """The GPUs in that folder's CDI specifications, each with the names of its nodes."""
    with suppress(OSError):
        for file in sorted(folder.iterdir()):
            if file.suffix in (".yaml", ".yml", ".json") and file.is_file():
                # An invalid file does not hide the rest.
                with suppress(OSError, ValueError, LookupError, AttributeError, TypeError):
                    yield from tuple(_cdi_devices_in(file))


def _cdi_devices_in(file: Path) -> Iterator[tuple[str, frozenset[str]]]:
    with file.open(encoding="utf-8") as stream:
        text = stream.read(_CDI_SPEC_MAX_BYTES + 1)
    document: Any = load_document(  # JSON is YAML
        text, file.name, size_max_bytes=_CDI_SPEC_MAX_BYTES, nodes_max=_CDI_SPEC_NODES_MAX
    ).value
    if document.get("kind") != _CDI_KIND:
        return
    for device in document.get("devices") or ():
        nodes = (device.get("containerEdits") or {}).get("deviceNodes") or ()
        names = (Path(str(node.get("hostPath") or node.get("path"))).name for node in nodes)
        yield str(device["name"]), frozenset(name for name in names if _GPU_NODE.fullmatch(name))


DEFAULT_PIPES = Path("/tmp/nvidia-mps")
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_PID_FILE = "nvidia-cuda-mps-control.pid"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class MpsClient:
    """Container settings of an MPS client, and what is enforced."""

    pipes: Path
    """Bound to the same path; client and server also share the host's IPC namespace."""
    threads_percent: int | None
    """Of each of its GPUs; None: not bounded."""
    memory_bytes: int | None
    """On each of its GPUs; None: not bounded."""
    devices: int = 1

    @property
    def environment(self) -> dict[str, str]:
        """Variables that CUDA in the container reads at its start."""
        variables = {_PIPES: str(self.pipes)}
        if self.threads_percent is not None:
            variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(self.threads_percent)
        if self.memory_bytes is not None:
            # By the GPU's index in the container.
            each = (f"{index}={self.memory_bytes // _MIB}M" for index in range(self.devices))
            variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(each)
        return variables


def paced(share: float | None, threads_percent: int | None) -> float | None:
    """The fraction of time in which a job may use its GPUs, so as to have that share of them. A job
    that never pauses has the share that MPS leaves it of their threads."""
    if share is None or threads_percent is None:
        return share
    return min(1.0, 100 * share / threads_percent)


def share_of(paced: float | None, threads_percent: int | None) -> float | None:
    """The share of its GPUs that a job has with that fraction of time."""
    if paced is None or threads_percent is None:
        return paced
    return paced * threads_percent / 100


def running_pipes(environment: Mapping[str, str], proc: Path = PROC) -> Path | None:
    """The pipe directory of the control daemon that runs here, or None. Another user's daemon
    serves that user only, and any user may create such a folder in /tmp."""
    pipes = Path(environment.get(_PIPES) or DEFAULT_PIPES)
    try:
        folder, control = pipes.lstat(), (pipes / "control").lstat()
    except OSError:
        return None
    if not {folder.st_uid, control.st_uid} <= {0, os.geteuid()}:
        return None
    is_pipe = stat.S_ISFIFO(control.st_mode) or stat.S_ISSOCK(control.st_mode)
    if not (stat.S_ISDIR(folder.st_mode) and is_pipe):
        return None
    try:
        pid = int((pipes / _PID_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return pipes
    # The remains of a killed daemon would keep a job from starting.
    return pipes if (proc / str(pid)).exists() else None


def client_of(spec: JobSpec, pipes: Path, gpus: Iterable[GpuFact]) -> MpsClient | None:
    """How that job becomes a client on those GPUs; None: they are not shared, or are instances."""
    gpus = tuple(gpus)
    if is_alone(spec) or not gpus or any(gpu.part_of is not None for gpu in gpus):
        return None
    # Rounded up: a percentage below the share would read back as less than decided.
    percent = math.ceil(100 * spec.bounds.ceiling_share - 1e-9)
    return MpsClient(
        pipes,
        percent if percent < 100 else None,
        min(memory_on(spec, gpu.memory_bytes) for gpu in gpus),
        len(gpus),
    )
