"""Types of setting values, with the error message for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from dlsched.config.fields import Reader, as_text, kind, text
from dlsched.model.units import CORES_MAX, shown

PORT_MAX = 65_535


def _folder(value: object) -> Path:
    written = as_text(value)
    if not written.startswith("/") or ".." in written.split("/"):
        raise ValueError(f"{written[:60]!a} is not an absolute path without ..")
    return Path(written)


def cores_or(*names: str, low: float) -> Reader:
    """A number of cores, or one of these words."""

    def read(value: object) -> str | float:
        if isinstance(value, str) and value in names:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{kind(value)} is not {', '.join(names)} or a number of cores")
        if not low <= value <= CORES_MAX:
            raise ValueError(f"{value:g} is out of bounds: {low:g} to {CORES_MAX:g} cores")
        return float(value)

    return Reader(read, {"type": ["string", "number"]})


def listen_address(value: object) -> tuple[str, int]:
    written = as_text(value)
    found = re.fullmatch(r"(127\.0\.0\.1|\[::1\]):([1-9][0-9]{0,4})", written, re.ASCII)
    if found is None or int(found[2]) > PORT_MAX:
        raise ValueError(
            f"{shown(written)} is not 127.0.0.1:PORT or [::1]:PORT, with a port up to {PORT_MAX}: "
            "the API answers on this host alone"
        )
    return found[1].strip("[]"), int(found[2])


def cluster_address(value: object) -> tuple[str, int]:
    """Address and port at which other nodes reach this one."""
    written = as_text(value)
    found = re.fullmatch(r"([0-9.]+|\[[0-9a-fA-F:.]+\]):([1-9][0-9]{0,4})", written, re.ASCII)
    if found is not None and int(found[2]) <= PORT_MAX:
        host = found[1].strip("[]")
        try:
            if ip_address(host).version == (6 if found[1].startswith("[") else 4):
                return host, int(found[2])
        except ValueError:
            pass
    raise ValueError(
        f"{shown(written)} is not ADDRESS:PORT, such as 0.0.0.0:7373 or [::]:7373, with a port up "
        f"to {PORT_MAX}"
    )


def engine_address(value: object) -> str:
    """An address of a Docker Engine that the client library can reach."""
    written = as_text(value)
    try:
        parts = urlsplit(written)
        if parts.scheme == "unix":
            fits = written.startswith("unix:///") and len(parts.path) > 1
        else:
            fits = parts.scheme in ("tcp", "http", "https") and bool(parts.port)
        fits = fits and not (parts.query or parts.fragment or parts.password)
    except ValueError:  # a port out of bounds, brackets without an IPv6 address
        fits = False
    if not fits:
        what = f"is not unix:///PATH or tcp://HOST:PORT, with a port up to {PORT_MAX}"
        raise ValueError(f"{shown(written)} {what}")
    return written


def _options(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{kind(value)} is given where a mapping is expected")
    return dict(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    for plain in (bool, int, float):
        if isinstance(value, plain):
            return plain(value)
    return value


Uuid = Annotated[
    str, text(r"(GPU|MIG)-[A-Za-z0-9/-]{1,91}", "the UUID of a GPU, as nvidia-smi -L lists it")
]
Folder = Annotated[Path, Reader(_folder, {"type": "string", "pattern": "^/"})]
PolicyChoice = Annotated[
    str,
    text(
        r"[A-Za-z0-9_.-]+(:[A-Za-z_][A-Za-z0-9_]*)?(\?[!-~]+)?",
        "a policy's name or module:Class, with parameters as in NAME?key=value&key=value",
    ),
]
Group = Annotated[str, text(r"[A-Za-z_][A-Za-z0-9_-]{0,31}\$?", "a group's name")]
TenantName = Annotated[
    str, text(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", "a user's name or uid, or everyone")
]
PolicyOptions = Annotated[Mapping[str, Any], Reader(_options, {"type": "object"})]
