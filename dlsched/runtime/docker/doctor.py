"""What the engine is like: whether dlsched can work with it, and where only in part.

Owns those findings, and what keeps an agent from starting. It must not change anything: `probe`
tries things out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dlsched.errors import DlschedError
from dlsched.runtime.docker.engine import Body, Engine
from dlsched.runtime.docker.injection import NVIDIA_CONFIG, nvidia_mode
from dlsched.runtime.finding import Finding

LEAST_API = (1, 41)
"""Docker 20.10: older engines do not tell their cgroup version, and know no cgroup v2."""

NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))


class EngineUnworkable(DlschedError):
    """The engine answers, and cannot do what dlsched needs: the agent does not start."""


def unworkable(version: Body, info: Body) -> str | None:
    """Why dlsched cannot work with that engine at all, in one line; None: it can."""
    told = str(version.get("ApiVersion") or "")
    numbers = tuple(int(part) for part in told.split(".") if part.isdecimal())
    if numbers < LEAST_API:
        least = ".".join(map(str, LEAST_API))
        return f"the engine speaks API {told or '?'}; {least} (Docker 20.10) is the least"
    if info.get("OSType", "linux") != "linux":
        return f"the engine runs {info['OSType']} containers; only Linux has CPU quotas"
    if info.get("CgroupDriver") == "none" or not info.get("CpuCfsQuota"):
        if _rootless(info):
            return (
                "a rootless engine that was not given the cpu controller cannot limit a container"
            )
        return "the engine cannot set CPU quotas: the kernel lacks CONFIG_CFS_BANDWIDTH"
    return None


def examine(engine: Engine) -> Iterator[Finding]:
    """Look at the engine; waits for it."""
    try:
        version, info = engine.version(), engine.info()
    except DlschedError as error:
        yield Finding(
            "engine", "fail", str(error), "start the engine, set DOCKER_HOST, or join its group"
        )
        return
    line = f"{version.get('Version')} at {engine.host} (API {version.get('ApiVersion')})"
    if (why := unworkable(version, info)) is not None:
        yield Finding("engine", "fail", f"{line}: {why}", _remedy(info))
        return
    yield Finding("engine", "ok", line)
    driver = info.get("CgroupDriver", "?")
    yield Finding("cgroup", "ok", f"version {info.get('CgroupVersion', '?')}, driver {driver}")
    yield from _security(info)
    yield gpus(info)


def _remedy(info: Body) -> str:
    if _rootless(info):
        return "delegate cpu to user@.service (Delegate=cpu), on cgroup v2; or a rootful engine"
    return "use a Linux engine of 20.10 or later on a kernel with CPU bandwidth control"


def _options(info: Body) -> list[str]:
    return [str(option) for option in info.get("SecurityOptions") or ()]


def _rootless(info: Body) -> bool:
    return any("rootless" in option for option in _options(info))


def _security(info: Body) -> Iterator[Finding]:
    if _rootless(info):
        line = (
            "rootless engine: limits, weights and metrics files work; metrics endpoints "
            "(dlsched.metrics.port) do not, since its networks cannot be reached from the host"
        )
        yield Finding("security", "warn", line, "use a metrics file or a log pattern")
    elif any("userns" in option for option in _options(info)):
        line = "user namespaces: limits, weights and every source of progress work"
        yield Finding("security", "ok", line)


def gpus(
    info: Body,
    config: Path = NVIDIA_CONFIG,
    driver: Path = NVIDIA_DRIVER,
    folders: Iterable[Path] = CDI_FOLDERS,
) -> Finding:
    """How containers get GPUs: a CPU update can take them away again in the legacy mode."""
    if not driver.exists():
        return Finding("gpu", "ok", "none: no NVIDIA driver on this host")
    runtime = "nvidia" in (info.get("Runtimes") or {})
    cdi = any(_filled(folder) for folder in folders)
    mode = nvidia_mode(config)
    if runtime and mode == "cdi":
        return Finding("gpu", "ok", "nvidia runtime in CDI mode: updates leave GPUs alone")
    if runtime:
        line = (
            f"nvidia runtime, mode {mode}: in its legacy mode a CPU update can take the GPUs away "
            "from a container (nvidia-container-toolkit#138)"
        )
        remedy = (
            "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=cdi, "
            "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, restart the engine"
        )
        return Finding("gpu", "warn", line, remedy)
    if cdi and info.get("CDISpecDirs"):
        return Finding("gpu", "ok", "CDI: updates leave GPUs alone")
    line = "there is an NVIDIA driver, and the engine has no way to give its GPUs to containers"
    return Finding("gpu", "warn", line, "install the NVIDIA Container Toolkit, with CDI")


def _filled(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False
