"""Checks whether dlsched can work with the engine, fully or in part. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from dlsched.model.errors import DlschedError, EngineUnavailable
from dlsched.runtime.cgroup.enclosing import Around, Surroundings
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused
from dlsched.runtime.docker.instance import DockerOptions
from dlsched.runtime.docker.limits.group import ParentGroup
from dlsched.runtime.docker.remedy import remedy
from dlsched.runtime.doctor.finding import Finding
from dlsched.runtime.machine.outcomes import one_line

LEAST_API = (1, 41)
"""Docker 20.10: older engines do not report their cgroup version, and lack cgroup v2."""
CONTAINERS_READ = 32
"""Each is inspected, which takes the engine a few milliseconds."""


class EngineUnworkable(DlschedError):
    """The engine answers but cannot do what dlsched needs: the agent does not start."""


def require(engine: Engine) -> None:
    """Raise EngineUnavailable with a remedy, or EngineUnworkable, where dlsched cannot work."""
    try:
        why = unworkable(engine.version(), engine.info())
    except EngineUnavailable as error:
        raise EngineUnavailable(f"{error}; {remedy(engine.host)}") from error
    if why is not None:
        raise EngineUnworkable(f"{engine.host}: {why} (see `dlsched doctor`)")


def unworkable(version: Body, info: Body) -> str | None:
    """Why dlsched cannot work with that engine at all, in one line; None: it can."""
    api = str(version.get("ApiVersion") or "")
    numbers = tuple(int(part) for part in api.split(".") if part.isdecimal())
    if numbers < LEAST_API:
        least = ".".join(map(str, LEAST_API))
        return f"the engine has API version {api or '?'}; {least} (Docker 20.10) is required"
    if info.get("OSType", "linux") != "linux":
        return f"the engine runs {info['OSType']} containers; dlsched can limit Linux ones only"
    if info.get("CgroupDriver") == "none" or not info.get("CpuCfsQuota"):
        if _rootless(info):
            return "the engine is rootless and lacks the cpu controller: it cannot limit containers"
        return "the engine cannot set CPU quotas: the kernel lacks CONFIG_CFS_BANDWIDTH"
    return None


def examine(engine: Engine) -> Iterator[Finding]:
    """Check the engine; blocks on it."""
    try:
        version, info = engine.version(), engine.info()
    except DlschedError as error:
        yield Finding("engine", "fail", str(error), remedy(engine.host))
        return
    line = f"{version.get('Version')} at {engine.host} (API {version.get('ApiVersion')})"
    if (why := unworkable(version, info)) is not None:
        yield Finding("engine", "fail", f"{line}: {why}", _remedy(info))
        return
    yield Finding("engine", "ok", line)
    driver = info.get("CgroupDriver", "?")
    yield Finding("cgroup", "ok", f"version {info.get('CgroupVersion', '?')}, driver {driver}")
    yield from _security(info)


def around_containers(engine: Engine, options: DockerOptions) -> Around:
    """What bounds the CPU of the containers that run, at most `CONTAINERS_READ` of them, and of
    jobs' own containers to be. Raises DlschedError."""
    surroundings = Surroundings(PROC)
    group = ParentGroup(options.instance, options.cgroup_under)
    driver = str(engine.info().get("CgroupDriver", "cgroupfs"))
    places = {surroundings.place_below(group.name(driver)): ["containers from job files"]}
    running = [one for one in engine.containers({}) if one.get("State") == "running"]
    for one in running[:CONTAINERS_READ]:
        try:
            found = engine.inspect(one["Id"])
        except EngineRefused:
            continue  # it has just ended
        place = surroundings.place(int(found["State"]["Pid"]), one["Id"])
        if place.cpu:
            places.setdefault(place, []).append(one_line(found["Name"].lstrip("/")))
    return surroundings.around(places)


def _remedy(info: Body) -> str:
    if _rootless(info):
        return "delegate cpu to user@.service (Delegate=cpu) on cgroup v2, or use a rootful engine"
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
        yield Finding("security", "warn", line, "use a metrics file or a log pattern instead")
    elif any("userns" in option for option in _options(info)):
        line = "user namespaces: limits, weights and every source of progress work"
        yield Finding("security", "ok", line)
