"""Checks whether dlsched can work with the engine, fully or in part, and says what to do about one
that does not answer; tries on a scratch container what dlsched does to containers.

That is created from an existing image, without network or capabilities, and always removed; the
engine removes one whose doctor was killed. Nothing else is changed."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from dlsched.config.setting_values import engine_address
from dlsched.model.errors import DlschedError, EngineUnavailable
from dlsched.runtime.cgroup.cpu_units import DEFAULT_SHARES, PERIOD_US, UNLIMITED_US
from dlsched.runtime.cgroup.enclosing import Around, Surroundings
from dlsched.runtime.cgroup.group_limits import GroupLimits, LimitFiles
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused
from dlsched.runtime.docker.instance import DockerOptions
from dlsched.runtime.docker.limits.group import ParentGroup
from dlsched.runtime.doctor.finding import Finding
from dlsched.runtime.machine.outcomes import one_line

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


LIVES_S = 30
"""Lifetime of a probe whose doctor was killed."""
IMAGES_TRIED = 8
"""An image may lack the program that the probe runs, as those without a shell do; each try takes
the engine less than half a second."""

_PROGRAM = "sleep"
"""Keeps the scratch container running."""
_QUOTA = {"CpuPeriod": PERIOD_US, "CpuQuota": 50_000}
_LESS = {"CpuPeriod": PERIOD_US, "CpuQuota": 25_000}
_NONE = {"CpuPeriod": PERIOD_US, "CpuQuota": UNLIMITED_US}
_NANO = {"NanoCpus": 500_000_000}
_LESS_NANO = {"NanoCpus": 250_000_000}
_BURST_US = 10_000
_SHARES = 512

_LACKS = "executable file not found"
"""In the engine's refusal to start a program that the image does not have."""
_PATIENCE = "see the engine's log; dlsched would fail the same way on every container"


class _Failed(Exception):
    """What a step of the probe showed, in one line."""


class _NoProgram(Exception):
    """No image can run the scratch container; which were tried, in one line."""


def probe(engine: Engine, instance: str, proc: Path = PROC) -> Iterator[Finding]:
    """Try both limit dialects; blocks on the engine. Leaves nothing behind."""
    try:
        images = _candidates(engine)
        if not images:
            yield Finding(
                "probe",
                "warn",
                "skipped: the engine has no image for a scratch container",
                "pull or build an image",
            )
            return
        yield _dialect("quota", lambda: _quota(engine, instance, images, proc))
        yield _dialect("nano", lambda: _nano(engine, instance, images, proc))
    except _NoProgram as why:
        remedy = (
            "run `docker pull busybox`, then `dlsched doctor` again; only this check needs "
            f"`{_PROGRAM}`"
        )
        yield Finding("probe", "warn", f"skipped: {why}", remedy)
    except DlschedError as error:
        yield Finding("probe", "warn", f"skipped: {error}", "see the engine's log")


def _dialect(name: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", attempt())
    except DlschedError as error:
        return Finding(name, "fail", str(error), _PATIENCE)
    except _Failed as why:
        return Finding(name, "fail", str(why), _PATIENCE)
    except OSError as error:
        line = f"the scratch container's control group cannot be read: {error}"
        remedy = (
            "an agent in a container needs --pid=host, --cgroupns=host and "
            "-v /sys/fs/cgroup:/sys/fs/cgroup"
        )
        return Finding(name, "fail", line, remedy)


def _quota(engine: Engine, instance: str, images: list[str], proc: Path) -> str:
    with _Scratch(engine, instance, images, _QUOTA, proc) as scratch:
        scratch.update(_LESS, lambda kernel: kernel.quota_us == 25_000, "quota 0.25 cores")
        before = scratch.limits()
        scratch.update(
            {"CpuShares": _SHARES},
            lambda kernel: (kernel.shares or kernel.weight) != (before.shares or before.weight),
            f"shares {_SHARES}",
        )
        after = scratch.limits()
        burst, idle = scratch.burst(), scratch.idle()
        scratch.update(_NONE, lambda kernel: kernel.quota_us == UNLIMITED_US, "no quota (-1)")
        scratch.update({"CpuShares": DEFAULT_SHARES}, lambda _: True, "default shares")
    weight = f"shares {after.shares}" if after.weight is None else f"weight {after.weight}"
    return (
        f"on a scratch container of {scratch.image}: quota set, read back and removed; "
        f"{_SHARES} shares read back as {weight}; {burst}; {idle}"
    )


def _nano(engine: Engine, instance: str, images: list[str], proc: Path) -> str:
    with _Scratch(engine, instance, images, _NANO, proc) as scratch:
        scratch.update(_LESS_NANO, lambda kernel: kernel.quota_us == 25_000, "0.25 CPUs")
        scratch.update(_NANO, lambda kernel: kernel.quota_us == 50_000, "0.5 CPUs again")
    return "on a container made with --cpus: limits set, read back and given back as --cpus"


def _candidates(engine: Engine) -> list[str]:
    """Some images by name, the smallest first."""
    named = [one for one in engine.images() if one.get("RepoTags")]
    named.sort(key=lambda one: int(one.get("Size") or 0))
    return [str(one["RepoTags"][0]) for one in named[:IMAGES_TRIED]]


class _Scratch:
    """The scratch container, from its start to its removal."""

    def __init__(
        self, engine: Engine, instance: str, images: list[str], limits: Body, proc: Path
    ) -> None:
        """Images that lack the program are removed from `images`."""
        self._engine = engine
        self._name = f"dlsched-probe-{instance}-{secrets.token_hex(4)}"
        self._images = images
        self._limits = limits
        self._proc = proc
        self._container: str | None = None
        self._files: LimitFiles | None = None
        self.image = ""

    def __enter__(self) -> _Scratch:
        problem, lacking = "", []
        for image in tuple(self._images):
            try:
                self._container = self._engine.create(self._name, self._body(image))
                self._engine.start(self._container)
            except EngineRefused as error:
                self._discard()
                if _LACKS in error.reason:
                    lacking.append(image)
                    self._images.remove(image)
                else:
                    problem = error.reason
            else:
                self.image = image
                return self
        if problem:
            raise _Failed(f"no scratch container can be started: {problem}")
        line = f"no image tried has the program `{_PROGRAM}`: {', '.join(lacking)}"
        raise _NoProgram(one_line(line))

    def __exit__(self, *_: object) -> None:
        self._discard()

    def update(self, body: Body, shows: Callable[[GroupLimits], bool], what: str) -> None:
        """Update it, and verify that the kernel has the new limits."""
        try:
            self._engine.update(self._container or "", body)
        except EngineRefused as error:
            raise _Failed(f"the engine refused to set {what}: {error.reason}") from error
        kernel = self.limits()
        if not shows(kernel):
            raise _Failed(
                f"the engine agreed to set {what}, but the kernel's files read {dict(kernel.files)}"
            )

    def limits(self) -> GroupLimits:
        """The kernel's limits now. Raises OSError."""
        return self._group().read()

    def burst(self) -> str:
        """Whether the CFS burst can be set, as a short text."""
        files = self._group()
        if files.burst_file is None:
            return "this kernel has no CFS burst"
        try:
            files.write_burst(_BURST_US)
            has = files.read().burst_us
            files.write_burst(0)
        except OSError as error:
            return f"CFS burst cannot be written: {error.strerror}"
        if has == _BURST_US:
            return "CFS burst works"
        return f"CFS burst does not work: {_BURST_US} us were written, {has} us were read back"

    def idle(self) -> str:
        """Whether it can enter and leave the idle class, as a short text."""
        files = self._group()
        if files.read().idle is None:
            return (
                "this kernel has no idle class (cpu.idle): low-priority jobs get a low CPU weight "
                "instead"
            )
        try:
            files.write_idle(True)
            has = files.read().idle
            files.write_idle(False)
        except OSError as error:
            return f"the idle class cannot be entered: {error.strerror}"
        if has:
            return "the idle class works"
        return (
            "the idle class does not work: cpu.idle was set to 1, but does not read as 1 "
            "(`idle_class: false` makes dlsched use low weights instead)"
        )

    def _group(self) -> LimitFiles:
        if self._files is None:
            container = self._container or ""
            pid = int(self._engine.inspect(container)["State"]["Pid"])
            self._files = LimitFiles(pid, container, self._proc)
        return self._files

    def _discard(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            # It removes itself at its end, and may just have done so.
            with suppress(DlschedError):
                self._engine.discard(container)

    def _body(self, image: str) -> Body:
        return {
            "Image": image,
            "Entrypoint": [_PROGRAM, str(LIVES_S)],
            "Cmd": [],
            "Labels": {"dlsched.probe": self._name},
            "NetworkDisabled": True,
            "HostConfig": {
                **self._limits,
                "AutoRemove": True,
                "NetworkMode": "none",
                "ReadonlyRootfs": True,
                "CapDrop": ["ALL"],
                "PidsLimit": 8,
            },
        }
