"""What to do about an engine that does not answer, in one line."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dlsched.config.setting_values import engine_address

_UNIX = "unix://"
_ELSEWHERE = "set another address (DOCKER_HOST, setting engine.host)"


def remedy(host: str) -> str:
    """The next step for somebody whose engine at `host` does not answer."""
    try:
        engine_address(host)
    except ValueError:
        return _ELSEWHERE
    return out_of_reach(host) or f"start Docker (systemctl start docker), or {_ELSEWHERE}"


def out_of_reach(host: str) -> str | None:
    """The next step, where the socket's file alone shows that this user cannot reach the engine;
    None: it may answer."""
    if not host.startswith(_UNIX):
        return None
    socket = Path(host.removeprefix(_UNIX))
    try:
        facts = socket.stat()
    except PermissionError:
        return f"run as root: this user may not look into {socket.parent}"
    except OSError:
        return f"install or start Docker (systemctl start docker), or {_ELSEWHERE}"
    if os.access(socket, os.R_OK | os.W_OK):
        return None
    if facts.st_gid == 0 or not facts.st_mode & stat.S_IWGRP:
        return "run as root: only root may use the engine's socket"
    return f"run as root, or join the group of {socket}, often docker, and log in again"
