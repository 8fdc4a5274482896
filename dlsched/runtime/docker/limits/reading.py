"""One look at a container: its limits in the engine's words and in the kernel's, and its GPUs.

Owns bringing the three together at one moment. It must not change anything.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlsched.model.facts import GpuAccess
from dlsched.runtime.cgroup.group_limits import GroupLimits, LimitFiles
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.gpus.canary import Canary, Held
from dlsched.runtime.docker.gpus.injection import Injector
from dlsched.runtime.docker.identity.labels import Inspected, gpu_access_in, gpus_in
from dlsched.runtime.docker.limits.dialect import past_the_engine, words_in
from dlsched.runtime.originals import EngineWords, Originals


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of it."""

    container: str
    name: str
    pid: int
    words: EngineWords
    files: LimitFiles | None
    """None: it does not run, or its group cannot be found."""
    limits: GroupLimits
    access: GpuAccess | None
    """How it gets its GPUs when it runs; None: it has none."""
    held: Held | None
    """What it has of GPUs; None: none, or it does not run."""
    barred: str | None
    """Why it is changed past the engine, which could take its GPUs away; None: it is not."""

    @property
    def alive(self) -> bool:
        """Whether it has a process."""
        return self.pid > 0

    @property
    def by_file(self) -> bool:
        """Whether it is changed past the engine."""
        return self.barred is not None


def as_listed(described: Inspected, proc: Path, known: LimitFiles | None = None) -> Seen | None:
    """The same without asking the engine, of a running container without GPUs that is ours, as it
    was last described; None: it is no such one, or was started anew since.

    In whose words it was made never changes. Where the engine's numbers have changed since, one
    update too many is made of it. `known`: its files, as they were found before.
    """
    if described.adopted is not None or described.gpu_access is not None or not described.alive:
        return None
    files = known if known is not None and known.hold(described.pid) else None
    try:
        files = files or LimitFiles(described.pid, described.container_id, proc)
    except OSError:
        return None
    return Seen(
        container=described.container_id,
        name=described.name,
        pid=described.pid,
        words=EngineWords(
            described.nano_cpus, described.quota_us, described.period_us, described.shares
        ),
        files=files,
        limits=files.read(),
        access=None,
        held=None,
        barred=None,
    )


def look(container: str, engine: Engine, injector: Injector, canary: Canary, proc: Path) -> Seen:
    """Look at a container; waits for the engine. Raises EngineUnavailable or EngineRefused.

    `injector` knows the nodes of its GPUs, and `canary` what updates do to them.
    """
    body = engine.inspect(container)
    state, host = body.get("State") or {}, body.get("HostConfig") or {}
    pid, name = int(state.get("Pid") or 0), str(body.get("Name", "")).lstrip("/")
    access = gpu_access_in(body)
    files, held = None, None
    if pid > 0:
        with suppress(OSError):
            files = LimitFiles(pid, container, proc)
        if access is not None:
            held = Held(container, name, pid, access, injector.to_try(gpus_in(body), body))
    return Seen(
        container=container,
        name=name,
        pid=pid,
        words=words_in(host),
        files=files,
        limits=GroupLimits({}) if files is None else files.read(),
        access=access,
        held=held,
        barred=None if held is None else canary.bar(held.access),
    )


def refusal(seen: Seen, originals: Originals) -> str | None:
    """Why what a container has now could not be brought back."""
    if (broken := originals.lost(seen.container)) is not None:
        return f"the record of what it had cannot be read: {broken}"
    if not seen.alive:
        return "it does not run"
    if seen.files is None or None in (seen.limits.quota_us, seen.limits.period_us):
        return "its control group cannot be read"
    words, limits = seen.words, seen.limits
    if words.nano_cpus and words.quota_us:
        return "it has both --cpus and --cpu-quota: the engine cannot give both back"
    if seen.by_file and not seen.files.writable:
        return f"its control group cannot be written, and {seen.barred}"
    if limits.burst_us and not seen.files.burst_writable:
        return "it has a burst, and its control group cannot be written"
    return past_the_engine(words, limits)


def leave_idle_class(seen: Seen) -> None:
    """Before anything is changed: the kernel refuses any weight in the idle class."""
    if seen.limits.idle and seen.files is not None:
        with suppress(OSError):  # then the engine refuses, and says so
            seen.files.write_idle(False)
