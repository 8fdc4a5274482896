"""How GPUs reach a container, and whether a CPU update can take them away from it again.

Owns the three ways in (a CDI device, a request to the engine's nvidia driver or runtime, device
nodes one by one), the choice between them by what engine and toolkit support, and telling the way
by which an inspected container has its GPUs. In the NVIDIA runtime's legacy mode a hook opens the
devices behind the engine's back, and an update, or systemd, writes the engine's own list of devices
anew, without them (nvidia-container-toolkit#138, #48). It must not choose GPUs nor call the engine.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlsched.config.yaml import load_document
from dlsched.model.errors import DlschedError
from dlsched.model.facts import GpuAccess, GpuFact
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.options import GpuOptions

NVIDIA_CONFIG = Path("/etc/nvidia-container-runtime/config.toml")
CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""What CUDA opens beside the GPUs' own nodes, whatever GPU it is to use."""

GPUS_MAX = 64
"""Of more words than these for one container's GPUs the rest is not looked at."""

_HOOK = "nvidia-container-runtime-hook"
_RUNTIME = "nvidia"
_CDI_KIND = "nvidia.com/gpu"
_CDI_MODES = ("cdi", "jit-cdi")
_CDI_SPEC_MAX_BYTES = 1 << 20
_CDI_SPEC_NODES_MAX = 50_000
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"
_DEAF = ("", "runc", "io.containerd.runc.v2")
"""Runtimes that give no GPUs whatever the environment says. Of others only `nvidia` is known: it
goes by more names, and may be the default under any."""

_UUID = re.compile(r"(GPU|MIG)-[A-Za-z0-9/-]{1,91}")
_NODE = re.compile(r"/nvidia(\d+|-caps/.+|-uvm|-uvm-tools|ctl)$")
_GPU_NODE = re.compile(r"nvidia\d+$")


class NoWay(DlschedError):
    """The host has no way to give these GPUs to a container; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Injection:
    """What a container is made with so that it has its GPUs, and no others."""

    access: GpuAccess | None = None
    """None: it gets none."""
    host: Body = field(default_factory=dict)
    """Goes into its HostConfig."""
    environment: Mapping[str, str] = field(default_factory=dict)


NO_GPUS = Injection()


@dataclass(frozen=True, slots=True)
class Injector:
    """The ways that this host has."""

    options: GpuOptions
    devices: Callable[[], Iterable[GpuFact]]
    """The host's GPUs as they were last looked at."""
    config: Path = NVIDIA_CONFIG

    def of(self, gpus: tuple[str, ...], info: Body) -> Injection:
        """How a container gets these GPUs (UUIDs) by the engine that says `info`. Raises NoWay."""
        void = dict.fromkeys(_heard_names(self.config), "void") if _hears(info) else {}
        if not gpus:
            return Injection(environment=void)
        wanted = self.options.injection
        if wanted in ("auto", "cdi") and (names := self._cdi_names(gpus, info)):
            request = {"Driver": "cdi", "DeviceIDs": list(names)}
            return Injection(GpuAccess.CDI, {"DeviceRequests": [request]}, void)
        if wanted in ("auto", "request") and (way := self._requested(gpus, info)) is not None:
            return way
        if wanted == "nodes":
            return Injection(GpuAccess.NODES, {"Devices": self._nodes(gpus)}, void)
        raise NoWay(_missing(wanted, info))

    def nodes_of(self, gpus: Iterable[str]) -> tuple[str, ...]:
        """The device nodes on the host of those GPUs that are there now."""
        known = {gpu.uuid: gpu.nodes for gpu in self.devices()}
        return tuple(node for uuid in gpus for node in known.get(uuid, ()))

    def to_try(self, words: tuple[str, ...], body: Body) -> tuple[str, ...]:
        """The device nodes, on the host, that tell whether an inspected container has its GPUs."""
        named, nodes = tuple(named_nodes(body)), self.nodes_of(uuids_of(words, self.devices()))
        # Whoever named nodes one by one may have left this one out.
        control = () if named else (str(self.options.device_folder / CONTROL_NODES[0]),)
        return tuple(dict.fromkeys([*named, *nodes, *control]))

    def _requested(self, gpus: tuple[str, ...], info: Body) -> Injection | None:
        heard = dict.fromkeys(_heard_names(self.config), ",".join(gpus))
        if gives_by_cdi(self.config):
            # In this mode the engine's own nvidia driver refuses: only the runtime will do.
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
            raise NoWay(f"the device nodes of {', '.join(missing)} are not known")
        folder = self.options.device_folder
        control = [str(folder / name) for name in CONTROL_NODES if (folder / name).exists()]
        nodes = {node: _inside(node, folder) for node in [*self.nodes_of(gpus), *control]}
        return [
            {"PathOnHost": node, "PathInContainer": place, "CgroupPermissions": "rw"}
            for node, place in nodes.items()
        ]

    def _cdi_names(self, gpus: tuple[str, ...], info: Body) -> tuple[str, ...]:
        """The CDI devices that are these GPUs; empty where not all of them are any."""
        if not info.get("CDISpecDirs"):
            return ()  # an older engine, or one in which CDI is switched off
        told = {
            str(one.get("ID"))
            for one in info.get("DiscoveredDevices") or ()
            if one.get("Source") == "cdi"
        }
        by_name: dict[str, frozenset[str]] = {}
        for folder in info["CDISpecDirs"]:
            by_name.update(_cdi_devices(Path(str(folder))))
        names = [self._cdi_name(uuid, told, by_name) for uuid in gpus]
        return () if None in names else tuple(name for name in names if name is not None)

    def _cdi_name(
        self, uuid: str, told: set[str], by_name: Mapping[str, frozenset[str]]
    ) -> str | None:
        full = f"{_CDI_KIND}={uuid}"
        if full in told or uuid in by_name:
            return full
        # Made with `nvidia-ctk cdi generate --device-name-strategy=index`: told by the node.
        own = {Path(node).name for node in self.nodes_of((uuid,))}
        own = {name for name in own if _GPU_NODE.fullmatch(name)}
        same = [name for name, nodes in by_name.items() if own and nodes == own]
        return f"{_CDI_KIND}={min(same)}" if same and not uuid.startswith("MIG-") else None


def access_of(body: Body, config: Path = NVIDIA_CONFIG) -> GpuAccess | None:
    """How an inspected container has its GPUs; None: it has none. Of several ways, the worst.

    Devices named one by one, and those of a CDI driver, are in the engine's own list.
    """
    host = body.get("HostConfig") or {}
    requests = host.get("DeviceRequests") or ()
    by_runtime = bool(_heard(body, config))
    if by_runtime or any(request.get("Driver") != "cdi" for request in requests):
        # Without that runtime a request goes to the hook, whatever the runtime's mode.
        cdi = host.get("Runtime") == _RUNTIME and gives_by_cdi(config)
        return GpuAccess.RUNTIME if cdi else GpuAccess.LEGACY
    if requests:
        return GpuAccess.CDI
    return GpuAccess.NODES if any(named_nodes(body)) else None


def words_for_gpus(body: Body, config: Path = NVIDIA_CONFIG) -> tuple[str, ...]:
    """What an inspected container was told to get, word for word: UUIDs, indices, `all`, nodes."""
    words: list[str] = []
    for request in (body.get("HostConfig") or {}).get("DeviceRequests") or ():
        ids = [str(one) for one in request.get("DeviceIDs") or ()]
        words += [one.removeprefix(f"{_CDI_KIND}=") for one in ids]
        count = int(request.get("Count") or 0)
        words += ["all"] if count < 0 else map(str, range(min(count, GPUS_MAX)))
    if not words:
        words += _heard(body, config).split(",")
    words += named_nodes(body)
    return tuple(dict.fromkeys(word for word in words if word))


def uuids_of(words: Iterable[str], devices: Iterable[GpuFact]) -> tuple[str, ...]:
    """The GPUs that such words mean, as far as that can be told. A UUID stands for itself."""
    devices = tuple(devices)
    found: list[str] = []
    for word in words:
        if _UUID.fullmatch(word):
            found.append(word)
        found += [
            gpu.uuid
            for gpu in devices
            if word == "all"
            or word in gpu.nodes
            or (gpu.part_of is None and word.isdecimal() and str(gpu.index) == word)
        ]
    return tuple(dict.fromkeys(found))


def named_nodes(body: Body) -> Iterator[str]:
    """The nodes of NVIDIA devices, on the host, that an inspected container names one by one."""
    for device in (body.get("HostConfig") or {}).get("Devices") or ():
        if _NODE.search(str(device.get("PathInContainer") or device.get("PathOnHost") or "")):
            yield str(device.get("PathOnHost"))


def gives_by_cdi(config: Path = NVIDIA_CONFIG) -> bool:
    """Whether the NVIDIA runtime has GPUs put into the engine's own list of devices."""
    return nvidia_mode(config) in _CDI_MODES


def nvidia_mode(config: Path = NVIDIA_CONFIG) -> str:
    """The mode of the NVIDIA runtime by its configuration; its default is `auto`."""
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
    """Whether a container may get GPUs by its environment."""
    return _has_runtime(info) or str(info.get("DefaultRuntime") or "") not in _DEAF


def _heard_names(config: Path) -> tuple[str, ...]:
    """The variables that the nvidia runtime and its hook listen to; the earlier one is heard."""
    swarm = str(_configured(config).get("swarm-resource") or "")
    return (*filter(None, map(str.strip, swarm.split(","))), _VISIBLE)


def _heard(body: Body, config: Path) -> str:
    """What its runtime hears of GPUs; empty: nothing."""
    if str((body.get("HostConfig") or {}).get("Runtime") or "") in _DEAF:
        return ""
    entries = (body.get("Config") or {}).get("Env") or ()
    variables = dict(str(entry).partition("=")[::2] for entry in entries)
    told = next((variables[name] for name in _heard_names(config) if name in variables), "")
    return "" if told in ("void", "none") else told


def _missing(wanted: str, info: Body) -> str:
    if wanted == "cdi":
        what = (
            "no CDI specification names them (nvidia-ctk cdi generate)"
            if info.get("CDISpecDirs")
            else "it is too old, or its feature cdi is off"
        )
        return f"gpus.injection is cdi, and the engine has no such GPU by CDI: {what}"
    return (
        "the engine has no way to give GPUs to a container: install the NVIDIA Container Toolkit, "
        "with CDI"
    )


def _inside(node: str, folder: Path) -> str:
    """Where a container looks for a device node, wherever the host has it."""
    path = Path(node)
    return f"/dev/{path.relative_to(folder) if path.is_relative_to(folder) else path.name}"


def _cdi_devices(folder: Path) -> Iterator[tuple[str, frozenset[str]]]:
    """The GPUs that CDI specifications in that folder name, each with the names of its nodes."""
    with suppress(OSError):
        for file in sorted(folder.iterdir()):
            if file.suffix in (".yaml", ".yml", ".json") and file.is_file():
                # Another's file that is none does not hide the rest.
                with suppress(OSError, ValueError, LookupError, AttributeError, TypeError):
                    yield from tuple(_cdi_devices_in(file))


def _cdi_devices_in(file: Path) -> Iterator[tuple[str, frozenset[str]]]:
    with file.open(encoding="utf-8") as stream:
        text = stream.read(_CDI_SPEC_MAX_BYTES + 1)
    told: Any = load_document(  # JSON is YAML
        text, file.name, size_max_bytes=_CDI_SPEC_MAX_BYTES, nodes_max=_CDI_SPEC_NODES_MAX
    ).value
    if told.get("kind") != _CDI_KIND:
        return
    for device in told.get("devices") or ():
        nodes = (device.get("containerEdits") or {}).get("deviceNodes") or ()
        names = (Path(str(node.get("hostPath") or node.get("path"))).name for node in nodes)
        yield str(device["name"]), frozenset(name for name in names if _GPU_NODE.fullmatch(name))
