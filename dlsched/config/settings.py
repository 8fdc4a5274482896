"""The operator's settings: flags before environment before file before defaults, checked alike. It
defines every setting's name, default and bound; `config/dlsched.yaml` explains each."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter

from dlsched.config.fields import Reader, choice, flag, number, seconds, size, text, validate, whole
from dlsched.config.setting_values import (
    Folder,
    Group,
    PolicyChoice,
    PolicyOptions,
    TenantName,
    Uuid,
    cluster_address,
    cores_or,
    engine_address,
    listen_address,
)
from dlsched.config.settings_file import PRESETS_DIR, RUN_DIR, settings_document
from dlsched.config.text import judged_alone
from dlsched.config.users import EVERYONE, Rules, is_under, uid_of
from dlsched.config.yaml import Document, Value, dotted, load_document, read_lone
from dlsched.config.yaml import Path as Place
from dlsched.control.gpus.holders import IDLE_AFTER_S
from dlsched.control.ledger.blindness import BLIND_AFTER_S
from dlsched.estimate.evaluations import EVALUATIONS
from dlsched.model.errors import Problem, SettingsError
from dlsched.model.spec import MAX_FAILED_RATIO
from dlsched.model.units import shown

_KEPT_OUT = (
    "/dev", "/proc", "/sys", "/boot", "/root", "/run/docker", "/run/docker.sock", "/run/containerd",
    "/var/run/docker.sock", "/var/lib/docker", "/var/lib/containerd", "/etc/docker",
)  # fmt: skip

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Reserve:
    """What is kept for the host."""

    __pydantic_config__ = _STRICT
    cpu_cores: Annotated[
        Literal["auto"] | float,
        cores_or("auto", low=0),
        Field(alias="cpus"),
    ] = "auto"
    """Cores that ceilings leave; auto: by the size of the node, unless `capacity` is a number."""
    memory_bytes: Annotated[int, size(0), Field(alias="memory")] = 512 << 20


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the container engine is reached."""

    __pydantic_config__ = _STRICT
    host: Annotated[str, Reader(engine_address, {"type": "string"})] | None = None
    """Address of the Docker Engine; None: DOCKER_HOST, else its default socket."""
    timeout_s: Annotated[float, seconds(0.1, 600), Field(alias="timeout")] = 10.0
    config_file: Folder | None = None
    """A Docker config.json with credentials for registries."""
    cgroup_parent: (
        Annotated[str, text(r"(/[A-Za-z0-9_.-]+)+", "a control group such as /lab")] | None
    ) = None
    """Parent of dlsched's control group, with the cgroupfs driver; None: the root."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """Which GPUs jobs get, and how."""

    __pydantic_config__ = _STRICT
    injection: Annotated[
        Literal["auto", "cdi", "request", "nodes"], choice("auto", "cdi", "request", "nodes")
    ] = "auto"
    """How a container gets its GPUs."""
    device_folder: Folder = Path("/dev")
    """The host's folder of the GPUs' device nodes."""
    prefer: Annotated[Literal["auto", "pack", "spread"], choice("auto", "pack", "spread")] = "auto"
    """How jobs get GPUs; auto: those with a latency target are spread, the others packed."""
    reserved: tuple[Uuid, ...] = ()
    """UUIDs of GPUs that no job gets."""
    foreign: Annotated[Literal["avoid", "share"], choice("avoid", "share")] = "avoid"
    """Whether jobs get a GPU that a program outside of dlsched uses."""
    on_loss: Annotated[Literal["keep", "move"], choice("keep", "move")] = "keep"
    """Whether a job whose GPU vanished keeps waiting for it or moves."""
    move: Annotated[bool, flag()] = True
    """Whether a job that declares `checkpoint` may be moved to make room."""
    idle_after_s: Annotated[
        Annotated[float, seconds(10, 30 * 86_400)] | None, Field(alias="idle_after")
    ] = IDLE_AFTER_S
    """How long a container or process may hold a GPU without using it until that is an alarm; None:
    no alarm."""


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How much history the daemon keeps, and a cluster's controller of its decisions."""

    __pydantic_config__ = _STRICT
    max_size_bytes: Annotated[int, size(1 << 20), Field(alias="max_size")] = 1 << 30
    max_age_s: Annotated[float, seconds(60), Field(alias="max_age")] = 7 * 86_400.0
    frame_s: Annotated[float, seconds(1, 86_400), Field(alias="frame")] = 300.0
    """Time between two records of everything in the journal; those between have changes only."""


@dataclass(frozen=True, slots=True)
class DeliverHook:
    """The command that runs when a job reaches the first tier of its target."""

    __pydantic_config__ = _STRICT
    command: Annotated[tuple[Annotated[str, text()], ...], Field(min_length=1)] | None = None
    """Program and arguments, run without a shell; None: no command."""
    user: Annotated[str, text(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?", "a user's name", most=33)] = (
        "nobody"
    )
    """The user as which the hook's command runs; never root."""
    timeout_s: Annotated[float, seconds(0.1, 3600), Field(alias="timeout")] = 30.0
    """Time after which the hook's processes are killed."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A node's own certificate, its key, and the authority that all nodes trust."""

    __pydantic_config__ = _STRICT
    ca: Folder
    cert: Folder
    key: Folder


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Several hosts: whether this node belongs to them, and what its manager does."""

    __pydantic_config__ = _STRICT
    enabled: Annotated[bool, flag()] = False
    """Whether this node's agent takes jobs of the cluster."""
    listen: Annotated[tuple[str, int], Reader(cluster_address, {"type": "string"})] = (
        "0.0.0.0",
        7373,
    )
    """Address on which the node's agent listens; every node's agent has the same port."""
    tls: TlsFiles | None = None
    """The node's certificate as files; None: the one of its swarm."""
    checkpoint_max_bytes: Annotated[int, size(1 << 20), Field(alias="checkpoint_max")] = 64 << 30
    """The largest checkpoint that this node fetches."""
    watch: Folder = Path("/etc/dlsched/cluster.d")
    """A manager's folder of job files that it submits to the cluster."""
    policy: PolicyChoice = "adaptive"
    """The policy that places and moves jobs."""
    policy_options: PolicyOptions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Log:
    """Level and format of the log on stderr."""

    __pydantic_config__ = _STRICT
    level: Annotated[
        Literal["debug", "info", "warning", "error"], choice("debug", "info", "warning", "error")
    ] = "info"
    format: Annotated[Literal["text", "json"], choice("text", "json")] = "text"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, with their defaults. Values are checked by `load_settings` only."""

    __pydantic_config__ = _STRICT
    instance: Annotated[
        str, text(r"[a-z0-9][a-z0-9_.-]{0,62}", "an instance: [a-z0-9][a-z0-9_.-]{0,62}")
    ] = "default"
    state_dir: Folder = Path("/var/lib/dlsched")
    run_dir: Folder = RUN_DIR
    watch: Folder = Path("/etc/dlsched/jobs.d")
    presets: Folder = PRESETS_DIR
    """Folder with the operator's own presets; the folder need not exist."""
    policy: PolicyChoice = "adaptive"
    policy_options: PolicyOptions = field(default_factory=dict)
    shadow: PolicyChoice | None = None
    """A second policy whose decisions are only shown; None: no second policy."""
    shadow_options: PolicyOptions = field(default_factory=dict)
    period_s: Annotated[float, seconds(0.1, 60), Field(alias="period")] = 1.0
    window_s: Annotated[float, seconds(1, 3600), Field(alias="window")] = 30.0
    capacity: Annotated[
        Literal["threads", "cores"] | float, cores_or("threads", "cores", low=0.1)
    ] = "threads"
    """CPU that jobs divide: the host's `threads`, its `cores`, or a number of cores."""
    reserve: Reserve = Reserve()
    max_jobs: Annotated[int, whole(1, 10_000)] = 64
    dead_band_ratio: Annotated[float, number(0, 0.5), Field(alias="dead_band")] = 0.02
    cooldown_s: Annotated[float, seconds(0, 3600), Field(alias="cooldown")] = 0.0
    burst_ratio: Annotated[float, number(0, 1), Field(alias="burst")] = 0.3
    """CPU burst of a job with a latency target, as a fraction of its ceiling; 0: unchanged."""
    idle_class: bool = True
    """Whether a CPU training of negligible weight goes to the kernel's idle class, which runs only
    when nothing else wants the CPU."""
    group_weight: Annotated[float, number(0.01, 100)] | None = 2.0
    """Weight of dlsched's group of containers, as a multiple of one container's default weight;
    None: dlsched does not set it. At 8, trainings on every core made the engine and all else on
    the host wait for seconds, as measured. At 1, one busy process weighs as much as all jobs."""
    tier_evaluations: Annotated[int, whole(1, 1000)] = EVALUATIONS
    """Consecutive evaluations needed to reach a tier of an accuracy target."""
    blind_after_s: Annotated[float, seconds(1, 86_400), Field(alias="blind_after")] = BLIND_AFTER_S
    """How long a job with a target may report nothing before it counts as blind."""
    max_failed_ratio: Annotated[float, number(0, 1), Field(alias="max_failed")] = MAX_FAILED_RATIO
    """Part of the requests that may fail while a latency target counts as met."""
    wire: bool = True
    """Whether response times may be measured at containers' sockets."""
    deliver_hook: DeliverHook = DeliverHook()
    engine: EngineSettings = EngineSettings()
    gpus: Gpus = Gpus()
    journal: JournalSettings = JournalSettings()
    log: Log = Log()
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    tenants: Mapping[TenantName, Rules] = field(default_factory=dict)
    """Limits of users' own job files, by user or `everyone`; a user without rules may have no job
    files. They do not apply to the operator's files."""
    status_group: Group | None = "dlsched"
    """The group that may read the daemon's status, beside root; None: no group."""
    control_group: Group | None = "dlsched-admin"
    """The group that may also control the daemon, beside root; None: no group."""
    listen: Annotated[tuple[str, int], Reader(listen_address, {"type": "string"})] | None = None
    """A loopback address and port at which every user of this host may read status, reasons,
    history and metrics; None: no port is open."""


_ADAPTER = TypeAdapter(Settings)
_LISTED: tuple[Place, ...] = (
    ("policy_options",),
    ("shadow_options",),
    ("deliver_hook", "command"),
    ("gpus", "reserved"),
    ("cluster", "tls"),
    ("cluster", "policy_options"),
    ("tenants",),
)
"""Settings that hold a mapping or list: read as YAML also from the environment."""


def load_settings(
    file: Path | None, environ: Mapping[str, str], overrides: Mapping[str, object]
) -> Settings:
    """The effective settings: `overrides` before `environ` before the file before the defaults.

    `file` None means DLSCHED_CONFIG, else the default file if it exists. `overrides` go by
    dotted name ("period", "engine.host"); None there means not given, a text is read as in the
    environment, and a relative Path counts from the working directory. Raises SettingsError with
    every problem.
    """
    if file is None and environ.get("DLSCHED_CONFIG"):
        file = Path(environ["DLSCHED_CONFIG"])
    document = settings_document(file)
    for place in setting_places():
        variable = variable_name(place)
        if environ.get(variable):
            document = document.overlaid(place, _from_text(place, environ[variable]), variable)
    for name, value in overrides.items():
        place = tuple(name.split("."))
        if place not in setting_places():
            raise KeyError(name)
        if value is not None:
            option = "--" + name.replace(".", "-").replace("_", "-")
            document = document.overlaid(place, _from_option(place, value), option)
    with judged_alone(document.file, SettingsError):
        settings = validate(document, _ADAPTER, _known_keys, SettingsError)
        if crossed := tuple(_crossing(document, settings)):
            raise SettingsError(crossed)
    return settings


def variable_name(place: Place) -> str:
    """The environment variable of a setting: DLSCHED_PERIOD, DLSCHED_ENGINE_HOST."""
    return "DLSCHED_" + "_".join(str(part) for part in place).upper()


@cache
def setting_places() -> tuple[Place, ...]:
    return tuple(_places(Settings, ()))


def _from_text(place: Place, written: str) -> Value:
    if place in _LISTED:
        return load_document(written, dotted(place)).value
    return read_lone(written)


def _from_option(place: Place, value: object) -> Any:
    if isinstance(value, Path):
        return os.path.abspath(value)  # noqa: PTH100 (without following links)
    return _from_text(place, value) if isinstance(value, str) else value


def _crossing(document: Document, settings: Settings) -> Iterator[Problem]:
    if settings.window_s < settings.period_s:
        what = f"window {settings.window_s:g} s is shorter than period {settings.period_s:g} s"
        yield document.problem(("window",), what)
    kept, divided = settings.reserve.cpu_cores, settings.capacity
    if isinstance(divided, float) and isinstance(kept, float) and kept >= divided:
        what = f"a reserve of {kept:g} cores leaves none of the capacity, {divided:g} cores"
        yield document.problem(("reserve", "cpus"), what)
    yield from _tenants(document, settings)
    hook = settings.deliver_hook
    if hook.command is not None:
        if not hook.command[0].startswith("/"):
            what = (
                f"{shown(hook.command[0])} must be an absolute path, as the command runs without "
                "a shell"
            )
            yield document.problem(("deliver_hook", "command", 0), what)
        if (unfit := _unfit(hook.user)) is not None:
            yield document.problem(("deliver_hook", "user"), unfit)


def _tenants(document: Document, settings: Settings) -> Iterator[Problem]:
    for name, rules in settings.tenants.items():
        uid = None if name == EVERYONE else uid_of(name)
        if uid is None and name != EVERYONE:
            yield document.problem(("tenants", name), "is not a user of this host", at_key=True)
        if uid == 0:
            yield document.problem(
                ("tenants", name),
                "is root, to whom no rules apply: leave the entry out",
                at_key=True,
            )
        for index, root in enumerate(rules.mounts):
            into = [one for one in kept_out(settings) if is_under(root, one) or is_under(one, root)]
            if into:
                what = f"{shown(root)} would let jobs read or change {into[0]}: name another folder"
                yield document.problem(("tenants", name, "mounts", index), what)


def kept_out(settings: Settings) -> tuple[str, ...]:
    """Paths that no user's job may bind, whatever its rules: access there may give root on the
    host."""
    own = (
        settings.state_dir,
        settings.run_dir,
        settings.watch,
        settings.presets,
        settings.cluster.watch,
        Path("/etc/dlsched"),
    )
    host = settings.engine.host or os.environ.get("DOCKER_HOST", "")
    engine = (host.removeprefix("unix://"),) if host.startswith("unix:///") else ()
    return (*_KEPT_OUT, *engine, *(str(path) for path in own))


def _unfit(user: str) -> str | None:
    """Why the hook's command cannot run as that user, or None."""
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        return f"{shown(user)} is not a user of this host"
    return None if found.pw_uid != 0 else f"{shown(user)} is root: name an unprivileged user"


def _places(cls: type, above: Place) -> Iterator[Place]:
    for name, hint in get_type_hints(cls, include_extras=True).items():
        metadata = getattr(hint, "__metadata__", ())
        place = (*above, next((m.alias for m in metadata if getattr(m, "alias", None)), name))
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _places(hint, place)
        else:
            yield place


def _known_keys(above: Place) -> set[str]:
    if above[:1] == ("tenants",):
        return {str(place[0]) for place in _places(Rules, ())}
    if above == ("cluster", "tls"):
        return {str(place[0]) for place in _places(TlsFiles, ())}
    depth = len(above)
    return {str(place[depth]) for place in setting_places() if place[:depth] == above}
