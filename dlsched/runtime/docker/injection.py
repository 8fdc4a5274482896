"""How a container came by its GPUs, and whether a CPU update can take them away again.

Owns that one question. In the NVIDIA runtime's legacy mode a hook opens the devices behind the
engine's back, and an update writes the engine's own list of devices anew, without them
(nvidia-container-toolkit#138, #48). It must not look at the GPUs themselves.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlsched.runtime.docker.engine import Body

NVIDIA_CONFIG = Path("/etc/nvidia-container-runtime/config.toml")


def loses_gpus(body: Body, config: Path = NVIDIA_CONFIG) -> bool:
    """Whether an inspected container has GPUs that an update could take away.

    Devices named one by one, and those of a CDI driver, are in the engine's own list.
    """
    host, environment = body.get("HostConfig") or {}, (body.get("Config") or {}).get("Env") or ()
    hooked = any(request.get("Driver") != "cdi" for request in host.get("DeviceRequests") or ())
    if host.get("Runtime") == "nvidia":
        # That runtime may be every container's; this is the word to which its hook listens.
        variables = dict(entry.partition("=")[::2] for entry in environment)
        hooked |= variables.get("NVIDIA_VISIBLE_DEVICES", "") not in ("", "void")
    return hooked and nvidia_mode(config) != "cdi"


def nvidia_mode(config: Path = NVIDIA_CONFIG) -> str:
    """The mode of the NVIDIA runtime by its configuration; its default is `auto`."""
    try:
        told: Mapping[str, Any] = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "auto"
    section = told.get("nvidia-container-runtime")
    return str(section.get("mode", "auto")) if isinstance(section, Mapping) else "auto"
