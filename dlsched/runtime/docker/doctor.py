"""What the engine and its host are like, for `dlsched doctor`.

Owns those findings. It must not change anything.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from dlsched.errors import DlschedError
from dlsched.runtime.docker.engine import Engine

Finding = tuple[str, Literal["ok", "warning", "error"], str]
"""What was looked at, how it is, and a line on it."""


def examine(engine: Engine, state_dir: Path) -> tuple[Finding, ...]:
    """Look at the engine and the state directory; waits for the engine."""
    return (*_engine_findings(engine), _state_finding(state_dir))


def _engine_findings(engine: Engine) -> tuple[Finding, ...]:
    try:
        version, info = engine.version(), engine.info()
    except DlschedError as error:
        return (("engine", "error", str(error)),)
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    cgroup = f"version {info.get('CgroupVersion', '?')}, driver {info.get('CgroupDriver', '?')}"
    findings: list[Finding] = [
        (
            "engine",
            "ok",
            f"{version.get('Version')} at {engine.host} (API {version.get('ApiVersion')})",
        ),
        ("cgroup", "ok" if info.get("CpuCfsQuota") else "error", cgroup + _no_quota(info)),
    ]
    if any("rootless" in option for option in options):
        text = "rootless engine: quotas need cgroup v2 with the cpu controller delegated"
        findings.append(("security", "warning", text))
    elif any("userns" in option for option in options):
        text = "user namespaces: containers' root is another user; `out/` is read all the same"
        findings.append(("security", "ok", text))
    return tuple(findings)


def _no_quota(info: dict[str, object]) -> str:
    return "" if info.get("CpuCfsQuota") else ": the kernel has no CPU quotas"


def _state_finding(state_dir: Path) -> Finding:
    if state_dir.is_dir():
        if os.access(state_dir, os.W_OK | os.X_OK):
            return ("state", "ok", f"{state_dir} is writable")
        return ("state", "error", f"{state_dir} cannot be written by this user")
    parent = next(above for above in state_dir.absolute().parents if above.is_dir())
    if os.access(parent, os.W_OK | os.X_OK):
        return ("state", "ok", f"{state_dir} will be made")
    return ("state", "error", f"{state_dir} does not exist, and {parent} cannot be written")
