"""What an engine says of its own membership in a swarm, also where it is no manager."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlsched.cluster.certificates import Certificates


def swarm_certificates(docker_root: Path) -> Certificates:
    """Those of the node whose engine has this data root (`DockerRootDir` of its info)."""
    folder = docker_root / "swarm" / "certificates"
    return Certificates(
        folder / "swarm-root-ca.crt", folder / "swarm-node.crt", folder / "swarm-node.key"
    )


MANAGERS_MAX = 7
"""Named in one line."""


@dataclass(frozen=True, slots=True)
class Membership:
    state: str
    """`active`, `inactive`, `pending`, `error` or `locked`."""
    node: str
    address: str
    is_manager: bool
    managers: Mapping[str, str]
    """Addresses of the managers by node."""
    error: str = ""
    """Why it is not active, in the engine's words."""


def membership(info: Mapping[str, Any]) -> Membership:
    """By the engine's answer to `/info`. Raises KeyError, TypeError, ValueError or AttributeError
    for one that is none."""
    swarm = info["Swarm"]
    known = {
        str(one["NodeID"]): usable_address(str(one["Addr"]))
        for one in swarm.get("RemoteManagers") or ()
    }
    return Membership(
        state=str(swarm["LocalNodeState"]),
        node=str(swarm["NodeID"]),
        address=usable_address(str(swarm.get("NodeAddr") or "")),
        is_manager=bool(swarm["ControlAvailable"]),
        managers={node: address for node, address in known.items() if address},
        error=str(swarm.get("Error") or ""),
    )


def managers_text(found: Membership) -> str:
    """The managers' addresses for one line; empty: none is known."""
    return ", ".join(sorted(set(found.managers.values()))[:MANAGERS_MAX])


def usable_address(text: str) -> str:
    """The IP address of `address` or `address:port`; empty: none of one host."""
    host, _, port = text.rpartition(":")
    bare = host.strip("[]") if host and port.isdigit() and not _is_address(text) else text
    return bare if _is_address(bare) and not ipaddress.ip_address(bare).is_unspecified else ""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
