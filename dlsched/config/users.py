"""Rules for users' own job files; the operator's files are exempt."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import ConfigDict, Field

from dlsched.config.fields import Reader, as_text, choice, number, size, text, whole
from dlsched.config.inbox.files import is_operator
from dlsched.config.yaml import Path as Place
from dlsched.model.sources import MetricsEndpoint
from dlsched.model.spec import JobSpec, Logging, OwnerCeilings
from dlsched.model.units import CORES_MAX, render_bytes, shown

EVERYONE = "everyone"
"""The key of the rules for users without rules of their own."""

HEALTH_INTERVAL_MIN_S = 5.0
"""Health checks run outside the job's CPU limit, so they must not be frequent."""

_DOCKERS_LABELS = ("com.docker.", "org.docker.", "io.docker.")
_DEVICES_BY_NAME = frozenset(
    {
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_GDRCOPY",
        "NVIDIA_GDS",
        "NVIDIA_IMEX_CHANNELS",
        "NVIDIA_MIG_CONFIG_DEVICES",
        "NVIDIA_MIG_MONITOR_DEVICES",
        "NVIDIA_MOFED",
        "NVIDIA_NVSWITCH",
    }
)
"""Variables that make the NVIDIA runtime pass host devices to a container."""
_ULIMITS = frozenset({"core", "cpu", "data", "fsize", "nofile", "nproc", "rss", "stack"})
"""Other ulimits affect the host: memory that is never freed, real-time scheduling."""


def _ports(value: object) -> tuple[int, int]:
    written = as_text(value)
    found = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", written, re.ASCII)
    low, high = (0, 0) if found is None else (int(found[1]), int(found[2] or found[1]))
    if not 1 <= low <= high <= 65_535:
        raise ValueError(f"{shown(written)} is not a port or a range such as 8000-8999")
    return low, high


def _root(value: object) -> str:
    written = as_text(value)
    if not written.startswith("/") or not is_normal(written) or written == "/":
        raise ValueError(f"{shown(written)} is not an absolute path below /, without . or .. in it")
    return written


def is_normal(path: str) -> bool:
    """Whether an absolute path has no empty, `.` or `..` part."""
    return path == "/" or all(part not in ("", ".", "..") for part in path[1:].split("/"))


Cores = Annotated[float, number(0.01, CORES_MAX)]
Bytes = Annotated[int, size(1 << 20)]
Glob = Annotated[str, text(r"[!-~]+", "a pattern without spaces")]
Root = Annotated[str, Reader(_root, {"type": "string", "pattern": "^/"})]


@dataclass(frozen=True, slots=True)
class Rules:
    """What one user's job files may ask for. In a pattern `*` stands for any text without `/`, `**`
    for any text, `{user}` and `{uid}` for the owner's."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    images: tuple[Glob, ...] = ()
    mounts: tuple[Root, ...] = ()
    """Host folders that may be bound, with everything below them."""
    volumes: tuple[Glob, ...] = ()
    networks: tuple[Glob, ...] = ("bridge", "none")
    ports: tuple[Annotated[tuple[int, int], Reader(_ports, {"type": "string"})], ...] = ()
    """Host ports that may be published."""
    labels: tuple[Glob, ...] = ()
    """Restricted, since labels can control other programs on the host (proxies, updaters)."""
    run_as: Annotated[str, choice("owner", "anybody")] = "owner"
    """The user of a container's process; a writable bind requires the owner anyway."""
    pids: Annotated[int, whole(16, 4_194_304)] = 1024
    """Maximum of processes and threads in one container."""
    weight: Annotated[float, number(0, 1000, above=True)] = 1.0
    """Maximum of a job's `weight`."""
    jobs: Annotated[int, whole(0, 10_000)] = 16
    cpu_cores: Annotated[Cores | None, Field(alias="cpus")] = None
    """Maximum of the sum of the owner's CPU limits; None: no maximum."""
    memory_bytes: Annotated[Bytes | None, Field(alias="memory")] = None
    """Maximum of the sum of the owner's memory limits; if set, each job needs one."""
    gpus: Annotated[int, whole(0, 64)] = 0
    """Maximum of the owner's GPUs; a shared GPU counts for each job."""

    @property
    def ceilings(self) -> OwnerCeilings:
        return OwnerCeilings(self.jobs, self.cpu_cores, self.memory_bytes, self.gpus)


@dataclass(frozen=True, slots=True)
class Tenants:
    """The rules of all users that have some."""

    everyone: Rules | None = None
    by_uid: Mapping[int, Rules] | None = None

    def rules_of(self, uid: int) -> Rules | None:
        """The rules for that user's job files; None: no job files are allowed."""
        return (self.by_uid or {}).get(uid, self.everyone)

    def ceilings_of(self, owner: int | None) -> OwnerCeilings | None:
        """The ceilings of all that owner's jobs together; None: unlimited."""
        rules = None if owner is None or is_operator(owner) else self.rules_of(owner)
        return None if rules is None else rules.ceilings

    @property
    def any(self) -> bool:
        """Whether any user beside the operator may have job files."""
        return self.everyone is not None or bool(self.by_uid)


NO_TENANTS = Tenants()
"""Only the operator may have job files."""


def resolve(rules: Mapping[str, Rules]) -> Tenants:
    """The rules by uid; rules for names that are unknown on this host are dropped."""
    by_uid = {uid_of(name): one for name, one in rules.items() if name != EVERYONE}
    return Tenants(
        rules.get(EVERYONE), {uid: one for uid, one in by_uid.items() if uid is not None}
    )


def uid_of(name: str) -> int | None:
    """The uid of a user's name or number; None: unknown on this host."""
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


@dataclass(frozen=True, slots=True)
class Owner:
    """A user of this host."""

    uid: int
    gid: int | None
    name: str | None

    def expand(self, pattern: str) -> str | None:
        """The pattern with the owner's name and uid inserted; None where the name is unknown."""
        if self.name is None and "{user}" in pattern:
            return None
        return pattern.replace("{user}", self.name or "").replace("{uid}", str(self.uid))


def owner_of(uid: int) -> Owner:
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return Owner(uid, None, None)
    # A name with other characters could act as a pattern or a path.
    plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", found.pw_name, re.ASCII) is not None
    return Owner(uid, found.pw_gid, found.pw_name if plain else None)


def allowed_roots(rules: Rules, owner: Owner) -> tuple[str, ...]:
    roots = (owner.expand(root) for root in rules.mounts)
    return tuple(root for root in roots if root is not None)


def refusals(spec: JobSpec, rules: Rules, owner: Owner) -> Iterator[tuple[Place, str]]:
    """Every key where the job asks for more than its owner may have, with the bound."""
    whose = f"uid {owner.uid}"
    container = spec.container
    if not _matches(container.image, rules.images, owner):
        yield ("image",), f"{whose} may not use {shown(container.image)}: {_listed(rules.images)}"
    yield from _volumes(spec, rules, owner)
    for index, port in enumerate(container.ports):
        yield from _port(index, port, rules, whose)
    network = "bridge" if container.network is None else container.network
    if network == "host":
        yield ("network",), f"{whose} may not use 'host', the host's own network"
    elif not _matches(network, rules.networks, owner):
        yield ("network",), f"{whose} may not use {shown(network)}: {_listed(rules.networks)}"
    if rules.run_as == "owner" and not _is_owner(container.user, owner):
        yield ("user",), f"{whose} may not run as {_user(container.user)}: {_as_owner(owner)}"
    for name, _ in container.labels:
        if name.startswith(_DOCKERS_LABELS):
            yield (
                ("labels", name),
                f"{whose} may not set {shown(name)}, a label of Docker's tools",
            )
        elif not _matches(name, rules.labels, owner):
            yield ("labels", name), f"{whose} may not set {shown(name)}: {_listed(rules.labels)}"
    for name, _ in container.environment:
        if name in _DEVICES_BY_NAME:
            what = f"{whose} may not set {name}, which chooses devices: write `gpus`"
            yield ("environment", name), what
    for limit in container.ulimits:
        if limit.name not in _ULIMITS:
            what = f"{whose} may not set {limit.name}, only {', '.join(sorted(_ULIMITS))}"
            yield ("ulimits", limit.name), what
    if container.logging != Logging() and container.logging.driver != "none":
        yield (
            ("logging",),
            f"{whose} may not choose a log driver: leave `logging` out, or set driver none",
        )
    health = container.healthcheck
    interval_s = None if health is None else health.interval_s
    if interval_s is not None and interval_s < HEALTH_INTERVAL_MIN_S:
        what = f"{whose} must set at least {HEALTH_INTERVAL_MIN_S:g} s, not {interval_s:g} s"
        yield ("healthcheck", "interval"), what
    if any(isinstance(one, MetricsEndpoint) and one.via is not None for one in spec.sources):
        yield (
            ("metrics", "via"),
            f"{whose} may not have another container's page read: leave it out",
        )
    if spec.weight > rules.weight:
        yield ("weight",), f"{whose} may not set weight {spec.weight:g}: at most {rules.weight:g}"
    yield from _too_much(spec, rules, whose)


def may_write(volume: str) -> bool:
    """Whether a `source:target[:mode]` is writable."""
    return volume.split(":")[2:] != ["ro"]


def is_under(path: str, root: str) -> bool:
    return PurePosixPath(path).is_relative_to(root)


def _volumes(spec: JobSpec, rules: Rules, owner: Owner) -> Iterator[tuple[Place, str]]:
    roots, whose = allowed_roots(rules, owner), f"uid {owner.uid}"
    for index, volume in enumerate(spec.container.volumes):
        source, _, rest = volume.partition(":")
        mode = rest.partition(":")[2]
        place: Place = ("volumes", index)
        if mode not in ("", "ro", "rw"):
            yield place, f"{whose} may not use the mode {shown(mode)}: only ro or rw"
        if not source.startswith("/"):
            if not _matches(source, rules.volumes, owner):
                listed = _listed(rules.volumes)
                yield place, f"{whose} may not use the volume {shown(source)}: {listed}"
            continue
        if not is_normal(source) or not any(is_under(source, root) for root in roots):
            yield place, f"{whose} may not bind {shown(source)}: {_listed(roots)}"
        elif may_write(volume) and not _is_owner(spec.container.user, owner):
            # A container's root could leave a setuid program there.
            what = f"only its owner may write to the source {shown(source)}"
            yield place, f"{what}: add :ro, or {_as_owner(owner)}"


def _port(index: int, port: str, rules: Rules, whose: str) -> Iterator[tuple[Place, str]]:
    outside = port.partition("/")[0].rpartition(":")[0].rpartition(":")[2]
    ranges = [f"{low}-{high}" for low, high in rules.ports]
    within = outside.isdecimal() and any(low <= int(outside) <= high for low, high in rules.ports)
    if not within:
        what = f"the host port {outside}" if outside else "a host port of the engine's choice"
        yield ("ports", index), f"{whose} may not publish {what}: {_listed(ranges)}"


def _too_much(spec: JobSpec, rules: Rules, whose: str) -> Iterator[tuple[Place, str]]:
    """What a single job asks for beyond all its owner's jobs' ceilings: it would wait forever."""
    container, floor = spec.container, spec.bounds.floor_cores
    beyond = f"for one job is more than {whose} may have for all jobs together:"
    if rules.jobs == 0:
        yield ("name",), f"{whose} may have no jobs"
    if rules.cpu_cores is not None and floor > rules.cpu_cores:
        yield ("cpus", "min"), f"{floor:g} cores {beyond} {rules.cpu_cores:g} cores"
    if rules.memory_bytes is not None:
        bound = f"{render_bytes(rules.memory_bytes)} in all"
        if container.memory_bytes is None:
            yield ("memory",), f"{whose} must set a memory limit: its jobs may have {bound}"
        elif container.memory_bytes > rules.memory_bytes:
            asked = render_bytes(container.memory_bytes)
            yield ("memory",), f"{asked} {beyond} {render_bytes(rules.memory_bytes)}"
        elif (spec.memory_max_bytes or 0) > rules.memory_bytes:
            asked = render_bytes(spec.memory_max_bytes or 0)
            yield ("memory", "max"), f"{asked} {beyond} {render_bytes(rules.memory_bytes)}"
    if container.gpus > rules.gpus:
        yield ("gpus", "count"), f"{container.gpus} GPUs {beyond} {rules.gpus}"


def _matches(written: str, patterns: tuple[str, ...], owner: Owner) -> bool:
    expanded = (owner.expand(pattern) for pattern in patterns)
    return any(
        pattern is not None and re.fullmatch(_regex(pattern), written, re.DOTALL)
        for pattern in expanded
    )


def _regex(pattern: str) -> str:
    parts = re.split(r"(\*\*|\*)", pattern)
    wild = {"**": ".*", "*": "[^/]*"}
    return "".join(wild.get(part, re.escape(part)) for part in parts)


def _is_owner(user: str | None, owner: Owner) -> bool:
    # By numbers, since names and groups depend on the image's own /etc/passwd.
    return user is not None and owner.gid is not None and user == f"{owner.uid}:{owner.gid}"


def _as_owner(owner: Owner) -> str:
    if owner.gid is None:
        return f"uid {owner.uid} is not a user of this host"
    return f'write user: "{owner.uid}:{owner.gid}"'


def _user(user: str | None) -> str:
    return "the image's own user" if user is None else shown(user)


def _listed(allowed: tuple[str, ...] | list[str]) -> str:
    return f"allowed is {', '.join(allowed)}" if allowed else "none is allowed"
