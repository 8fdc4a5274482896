"""Tries on a scratch container what dlsched does to containers.

It is created from an existing image, without network or capabilities, and always removed; the
engine removes one whose doctor was killed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from dlsched.model.errors import DlschedError
from dlsched.runtime.cgroup.cpu_units import DEFAULT_SHARES, PERIOD_US, UNLIMITED_US
from dlsched.runtime.cgroup.group_limits import GroupLimits, LimitFiles
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused
from dlsched.runtime.doctor.finding import Finding
from dlsched.runtime.machine.outcomes import one_line

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
            "run `docker pull busybox`, then `dlsched doctor` again; jobs do not need that program"
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
    return "containers made with --cpus: limits set, read back and given back as --cpus"


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
            raise _Failed(f"{what}: refused: {error.reason}") from error
        kernel = self.limits()
        if not shows(kernel):
            raise _Failed(f"{what}: accepted, but the kernel has {dict(kernel.files)}")

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
        return "CFS burst works" if has == _BURST_US else f"CFS burst reads back as {has}"

    def idle(self) -> str:
        """Whether it can enter and leave the idle class, as a short text."""
        files = self._group()
        if files.read().idle is None:
            return "this kernel has no idle class"
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
