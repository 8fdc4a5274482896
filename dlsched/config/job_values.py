"""Single values of a job file: what an image, a volume, a port or a signal may look like.

Owns one reader a kind; each raises ValueError with a line that names value and bound. It must not
know keys nor files.
"""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from dlsched.config.fields import Reader, as_text, kind, listed, number, seconds, size, text, whole
from dlsched.model.units import CORES_MAX, CORES_MIN, counted, shown

SIDECAR_PATH = "/run/dlsched"
RESERVED_VARIABLE = "DLSCHED_"
RESERVED_LABEL = "dlsched."
GPU_SHARE_MIN = 0.05
GPU_COUNT = whole(1, 64)
GPU_SHARE = number(GPU_SHARE_MIN, 1)
GPU_MEMORY_MIN_BYTES = 64 << 20
"""A CUDA context alone takes more than that."""

_DOMAIN = r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]{1,5})?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE = (
    rf"(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?"
    r"(?:@[a-z0-9]+:[0-9a-f]{32,128})?"
)
_RESTART = "no|always|unless-stopped|on-failure(?::[1-9][0-9]{0,4})?"
_ACCOUNT = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_ADDRESS = rf"(?:{_OCTET}(?:\.{_OCTET}){{3}}|\[[0-9a-fA-F:]{{2,39}}\])"
_PORT = re.compile(rf"(?:(?:{_ADDRESS}:)?([0-9]{{0,5}}):)?([0-9]{{1,5}})(?:/(?:tcp|udp|sctp))?")
_VOLUME_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,254}")
_VOLUME_MODES = frozenset({
    "ro", "rw", "z", "Z", "nocopy", "shared", "rshared", "slave", "rslave", "private", "rprivate",
    "cached", "delegated", "consistent",
})  # fmt: skip
_RESERVED_METRICS = frozenset({"t", "v", "w", "step", "latency", "latency_s", "checkpoint"})
_KEY_CHARACTERS = 255
WIRE_PORTS_MAX = 16
"""Ports of one job that are measured: each is compared with every packet."""
_LINE_CHARACTERS = 16_384
"""Of a command in one line: to split a longer one would hold up the loop."""


def _image(value: object) -> str:
    written = as_text(value)
    if len(written) > 512 or not re.fullmatch(_IMAGE, written):
        raise ValueError(f"{shown(written)} is not an image such as registry:5000/team/name:tag")
    return written


def _signal(value: object) -> str:
    written = as_text(value)
    name = written if written.startswith("SIG") else f"SIG{written}"
    if name not in signal.Signals.__members__:
        raise ValueError(f"{shown(written)} is not a signal such as SIGTERM or SIGUSR1")
    return name


def _catchable_signal(value: object) -> str:
    name = _signal(value)
    if name in ("SIGKILL", "SIGSTOP"):
        raise ValueError(f"a job cannot catch {name}, so it could not save itself")
    return name


def _absolute(value: object) -> str:
    written = as_text(value)
    if not written.startswith("/") or ".." in written.split("/") or len(written) > 4096:
        raise ValueError(f"{shown(written)} is not an absolute path without ..")
    return written


def _target_path(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or not parts or ".." in parts:
        raise ValueError(f"the target {shown(path)} is not an absolute path below /, without ..")
    if f"/{'/'.join(parts)}/".startswith(f"{SIDECAR_PATH}/"):
        raise ValueError(f"the target {shown(path)} is in dlsched's own folder: choose one outside")
    return path


def _volume(value: object) -> str:
    written = as_text(value)
    parts = written.split(":")
    if len(parts) not in (2, 3):
        raise ValueError(f"{shown(written)} is not source:target or source:target:mode")
    if not parts[0].startswith("/") and not _VOLUME_NAME.fullmatch(parts[0]):
        raise ValueError(f"the source {shown(parts[0])} is neither an absolute path nor a name")
    if ".." in parts[0].split("/"):
        raise ValueError(f"the source {shown(parts[0])} contains `..`")
    _target_path(parts[1])
    for mode in parts[2].split(",") if len(parts) == 3 else ():
        if mode not in _VOLUME_MODES:
            raise ValueError(f"the mode {shown(mode)} is not one of ro, rw, z, Z, nocopy, ...")
    return written


def _tmpfs(value: object) -> str:
    written = as_text(value)
    _target_path(written.partition(":")[0])
    return written


def _wire_ports(value: object) -> tuple[int, ...] | None:
    """(): all ports; None: none is measured."""
    if isinstance(value, bool):
        return () if value else None
    written = value if isinstance(value, list) else re.split(", ?", as_text(value))
    if not 0 < len(written) <= WIRE_PORTS_MAX:
        raise ValueError(
            f"{counted(len(written), 'port')} whose response times are measured: must be 1 to "
            f"{WIRE_PORTS_MAX}, or `true` for all ports"
        )
    ports = [as_text(one) for one in written]
    for one in ports:
        if not re.fullmatch("[0-9]{1,5}", one, re.ASCII) or not 0 < int(one) < 65536:
            raise ValueError(f"{shown(one)} is not true, false, or a port from 1 to 65535")
    return tuple(dict.fromkeys(int(one) for one in ports))


def _port(value: object) -> str:
    written = as_text(value)
    match = _PORT.fullmatch(written)
    if match is None:
        hint = " (one port an entry, no ranges)" if "-" in written else ""
        raise ValueError(f"{shown(written)} is not [[address:]port:]port[/tcp|udp]{hint}")
    for port in (match[1] or "1", match[2]):
        if not 1 <= int(port) <= 65535:
            raise ValueError(f"the port {port} is out of bounds: 1 to 65535")
    return written


def _restart(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(_RESTART, value):
        return value
    raise ValueError(f"{kind(value)} is not one of no, always, unless-stopped, on-failure[:N]")


def quantile_of(value: object) -> float | None:
    """Of text such as `p95`, 0.95, or None of `mean`; ValueError in one line."""
    written = as_text(value)
    if written == "mean":
        return None
    match = re.fullmatch(r"p([0-9]{2}(?:\.[0-9])?)", written)
    if match is None or not 50 <= float(match[1]) <= 99.9:
        raise ValueError(f"{shown(written)} is neither mean nor a quantile from p50 to p99.9")
    return round(float(match[1]) / 100, 3)


def _check_free(key: str, reserved: str) -> None:
    if key.startswith(reserved):
        raise ValueError(f"{shown(key)} is reserved for dlsched, as all names {reserved}* are")


def _pairs(reserved: str) -> Any:
    """The annotation of a mapping, or a list of KEY=VALUE, without keys that are dlsched's own."""

    def read_key(value: object) -> str:
        key = as_text(value)
        if not key or "=" in key or key != key.strip() or len(key) > _KEY_CHARACTERS:
            raise ValueError(f"{shown(key)} is not a valid key")
        _check_free(key, reserved)
        return key

    def read_pair(value: object) -> str:
        written = as_text(value)
        key, equals, _ = written.partition("=")
        if not equals or not key or key != key.strip() or len(key) > _KEY_CHARACTERS:
            raise ValueError(f"{shown(written)} is not KEY=VALUE")
        _check_free(key, reserved)
        return written

    key = Annotated[str, Reader(read_key, {"type": "string"})]
    pair = Annotated[str, Reader(read_pair, {"type": "string", "pattern": "^[^=]+="})]
    return Annotated[
        Annotated[dict[key, Text], Tag("map")] | Annotated[tuple[pair, ...], Tag("list")],
        Discriminator(_form),
    ]


def _extra_host(value: object) -> str:
    written = as_text(value).replace("=", ":", 1)
    if not re.fullmatch(r"[A-Za-z0-9_.-]+:(?:host-gateway|[0-9a-fA-F.:\[\]]{2,41})", written):
        raise ValueError(f"{shown(written)} is not host:address")
    return written


def _metric(value: object) -> str:
    written = as_text(value)
    if written in _RESERVED_METRICS or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]{0,63}", written):
        taken = ", ".join(sorted(_RESERVED_METRICS))
        raise ValueError(f"{shown(written)} is not a metric's name ({taken} are reserved)")
    return written


def _split(line: str) -> list[str]:
    if len(line) > _LINE_CHARACTERS:
        raise ValueError(f"{shown(line)} has {len(line)} characters, at most {_LINE_CHARACTERS}")
    try:
        return shlex.split(line)
    except ValueError as error:
        raise ValueError(f"{shown(line)} cannot be split as a shell would: {error}") from None


def _form(value: object) -> str:
    return "map" if isinstance(value, Mapping) else "list"


Text = Annotated[str, text()]
Pairs = dict[str, str] | tuple[str, ...]
Environment = _pairs(RESERVED_VARIABLE)
Labels = _pairs(RESERVED_LABEL)
ExtraHosts = Annotated[
    Annotated[dict[str, Text], Tag("map")]
    | Annotated[tuple[Annotated[str, Reader(_extra_host, {"type": "string"})], ...], Tag("list")],
    Discriminator(_form),
]
Image = Annotated[str, Reader(_image, {"type": "string"})]
Command = Annotated[tuple[Text, ...], listed(_split)]
_LISTED = listed(lambda entry: [entry])
EnvFiles = Annotated[tuple[Text, ...], Field(max_length=8), _LISTED]
HealthTest = Annotated[tuple[Text, ...], listed(lambda written: ["CMD-SHELL", written])]
Volume = Annotated[str, Reader(_volume, {"type": "string"})]
Tmpfs = Annotated[tuple[Annotated[str, Reader(_tmpfs, {"type": "string"})], ...], _LISTED]
Port = Annotated[str, Reader(_port, {"type": ["string", "integer"]})]
AbsolutePath = Annotated[str, Reader(_absolute, {"type": "string", "pattern": "^/"})]
RestartPolicy = Annotated[
    str, Reader(_restart, {"type": ["string", "boolean"], "pattern": f"^({_RESTART})$"})
]
"""To some editors `no` is the boolean false."""
GpuCount = Annotated[int, GPU_COUNT]
GpuShare = Annotated[float, GPU_SHARE]
GpuMemory = Annotated[int, size(GPU_MEMORY_MIN_BYTES)]
GpuModel = Annotated[
    str, text(r"[!-~]([ -~]{0,62}[!-~])?", "a GPU's product name: 1 to 64 printable characters")
]
Quantile = Annotated[
    float | None, Reader(quantile_of, {"type": "string", "pattern": "^(mean|p.*)$"})
]
Metric = Annotated[str, Reader(_metric, {"type": "string"})]
Signal = Annotated[str, Reader(_signal, {"type": "string", "examples": ["SIGTERM", "SIGINT"]})]
CatchableSignal = Annotated[str, Reader(_catchable_signal, {"type": "string"})]
Cores = Annotated[float, number(CORES_MIN, CORES_MAX)]
Weight = Annotated[float, number(0, 1000, above=True)]
WirePorts = Annotated[
    tuple[int, ...] | None,
    Reader(
        _wire_ports,
        {
            "type": ["boolean", "integer", "string", "array"],
            "items": {"type": "integer", "minimum": 1, "maximum": 65535},
            "maxItems": WIRE_PORTS_MAX,
        },
    ),
]
Seconds = Annotated[float, seconds(0.001)]
User = Annotated[str, text(f"{_ACCOUNT}(?::{_ACCOUNT})?", "user or user:group")]
Network = Annotated[str, text(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}", "a network's name")]
Capability = Annotated[
    str, text(r"(?:CAP_)?[A-Z][A-Z_]{1,30}", "a capability such as NET_RAW or ALL")
]
LogDriver = Annotated[str, text(r"[a-z0-9][a-z0-9./_-]{0,127}", "a log driver's name")]
