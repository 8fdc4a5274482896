"""The keys of a job file: names, kinds, bounds, and the line that an editor shows for each.

Owns what may stand in a job file. It must not read files nor know the types that the rest of the
program speaks: `job` turns these models into them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from dlsched.config.fields import Keys, choice, flag, number, seconds, short, size, text, whole
from dlsched.config.job_values import (  # fmt: skip
    GPU_COUNT,
    GPU_SHARE,
    GPU_SHARE_MIN,
    AbsolutePath,
    Capability,
    CatchableSignal,
    Command,
    Cores,
    EnvFiles,
    Environment,
    ExtraHosts,
    GpuCount,
    GpuMemory,
    GpuModel,
    GpuShare,
    HealthTest,
    Image,
    Labels,
    LogDriver,
    Metric,
    Network,
    Port,
    Quantile,
    RestartPolicy,
    Seconds,
    Signal,
    Text,
    Tmpfs,
    User,
    Volume,
    Weight,
    WirePorts,
)
from dlsched.config.metrics.keys import PRESET_ALONE, MetricKeys, MetricsKeys
from dlsched.model.spec import NAME
from dlsched.model.units import CORES_MIN, render_bytes, render_cores, shown

GRACE_MAX_S = 3600.0
MEMORY_MIN_BYTES = 6 << 20
"""Docker starts no container with less."""
LATENCY_MIN_S, LATENCY_MAX_S = 1e-4, 3600.0

_ULIMITS = (
    "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc",
    "rss", "rtprio", "rttime", "sigpending", "stack",
)  # fmt: skip
_RISES = {
    **dict.fromkeys(("accuracy", "acc", "auc", "auroc", "bleu", "f1", "recall"), True),
    **dict.fromkeys(("acc1", "map", "map50", "precision", "iou", "dice", "reward"), True),
    **dict.fromkeys(("loss", "perplexity", "mae", "mse", "rmse", "wer"), False),
}
"""Metrics whose direction is clear, by the last word of their names: a swapped pair of values
shows."""
_ACCURACY_MAX = 100.0
"""In per cent; a ratio goes to 1."""


class CpusKeys(Keys):
    """Floor and ceiling of what a policy may give."""

    min: Cores = Field(
        CORES_MIN,
        description="CPU in cores that the job gets at least; 0.01 or more (default 0.01).",
    )
    max: Cores | None = Field(
        None, description="CPU in cores that the job gets at most (default: the capacity)."
    )

    @model_validator(mode="after")
    def _ordered(self) -> CpusKeys:
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min {render_cores(self.min)} is above max {render_cores(self.max)}")
        return self


_LIMIT = size(MEMORY_MIN_BYTES)


class MemoryKeys(Keys):
    """The memory limit, and how far dlsched may raise it; one size is a limit that stays."""

    min: Annotated[int, _LIMIT] | None = Field(
        None,
        description="Memory limit at the start, such as 1GiB; dlsched goes back to it when use "
        "allows.",
    )
    max: Annotated[int, _LIMIT] | None = Field(
        None,
        description="Bound up to which dlsched may raise the limit while the job runs and the "
        "host has room (default: the limit stays).",
    )

    @model_validator(mode="after")
    def _ordered(self) -> MemoryKeys:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {render_bytes(self.min)} is above max {render_bytes(self.max)}")
        return self


class ShareKeys(Keys):
    """Floor and ceiling of what a policy may give of a GPU's time; one number is the floor."""

    min: GpuShare = Field(
        GPU_SHARE_MIN,
        description="Part of each GPU's time that the job gets at least, 0.05 (default) to 1.",
    )
    max: GpuShare = Field(
        1.0, description="Part of each GPU's time that the job gets at most, 0.05 to 1 (default 1)."
    )

    @model_validator(mode="after")
    def _ordered(self) -> ShareKeys:
        if self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self


class GpusKeys(Keys):
    """How many GPUs, which, and how much of each; one number is the count."""

    count: GpuCount = Field(description="Number of GPUs, 1 to 64.")
    share: Annotated[ShareKeys, short(("min",), GPU_SHARE.schema)] = Field(
        ShareKeys(min=1, max=1),
        description="Part of each GPU's time that the job gets at least; 1 (default): no other job "
        "runs on these GPUs.",
    )
    memory: GpuMemory | None = Field(
        None,
        description="Memory on each GPU, such as 8GiB (default: the part that `share` is of the "
        "GPU's memory).",
    )
    model: GpuModel | None = Field(
        None, description="What a GPU's product name must contain, such as A100 (default: any GPU)."
    )


class TargetKeys(Keys):
    """One target: a latency, or a metric with two values."""

    latency: Annotated[float, seconds(LATENCY_MIN_S, LATENCY_MAX_S)] | None = Field(
        None, description="Answer within this time, such as 50ms (0.1 ms to 1 h)."
    )
    quantile: Quantile = Field(
        None, description="Statistic of the latency: mean (default), p50 to p99.9."
    )
    max_failed: Annotated[float, number(0, 1)] | None = Field(
        None,
        description="Part of the requests that may fail while latency counts as met, 0 to 1 "
        "(default: the setting max_failed, 0.01).",
    )
    of: Annotated[Literal["answer", "first-byte", "gap"], choice("answer", "first-byte", "gap")] = (
        Field(
            "answer",
            description="Time that is measured: until the whole answer (default), until its first "
            "byte (of an LLM: the first token), or the gap between its parts (between "
            "tokens). first-byte and gap are measured at the socket.",
        )
    )
    metric: Metric | None = Field(
        None, description="Name of a metric that the job reports, such as accuracy or loss."
    )
    deliver: Annotated[float, number(-1e15, 1e15)] | None = Field(
        None, description="Value of the metric at which the job's result is of use."
    )
    finish: Annotated[float, number(-1e15, 1e15)] | None = Field(
        None,
        description="Value of the metric at which the job is done; below deliver: lower is better.",
    )
    deadline: Annotated[float, seconds(1.0)] | None = Field(
        None,
        description="Time from the job's start within which it should reach `deliver`, such as 2h.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> TargetKeys:
        timed = self.model_fields_set & {"latency", "quantile", "max_failed", "of"}
        learned = self.model_fields_set & {"metric", "deliver", "finish", "deadline"}
        if timed and learned:
            given = f"{', '.join(sorted(timed))} beside {', '.join(sorted(learned))}"
            raise ValueError(f"two kinds of target at once, {given}: leave one out")
        if learned:
            self._check_learned()
        elif self.latency is None:
            raise ValueError("needs `latency`, or `metric`, `deliver` and `finish`")
        return self

    def _check_learned(self) -> None:
        missing = [key for key in ("metric", "deliver", "finish") if getattr(self, key) is None]
        if missing:
            raise ValueError(f"{', '.join(missing)} missing: a metric needs deliver and finish")
        deliver, finish = self.deliver or 0.0, self.finish or 0.0
        if deliver == finish:
            raise ValueError(
                f"deliver and finish are both {deliver:g}: they must differ, as they show whether "
                "higher is better"
            )
        rises = rising(self.metric or "")
        if rises is not None and rises != (finish > deliver):
            better, place = ("higher", "above") if rises else ("lower", "below")
            raise ValueError(
                f"finish {finish:g} must be {place} deliver {deliver:g}: "
                f"for {self.metric}, {better} is better"
            )
        if _kind(self.metric or "") in ("accuracy", "acc"):
            _check_accuracy(deliver, finish)


def rising(metric: str) -> bool | None:
    """Whether a higher value of that metric is better; None: its name does not tell."""
    return _RISES.get(_kind(metric))


def _kind(metric: str) -> str:
    return re.split(r"[^a-z0-9]", metric.lower())[-1]


def _check_accuracy(deliver: float, finish: float) -> None:
    for key, value in (("deliver", deliver), ("finish", finish)):
        if not 0 < value <= _ACCURACY_MAX:
            raise ValueError(f"{key} {value:g}: an accuracy is above 0, at most 1 or 100 per cent")
    if deliver <= 1 < finish:
        raise ValueError(
            f"deliver {deliver:g} is a ratio, finish {finish:g} is in per cent: write both alike"
        )


class StopKeys(Keys):
    """What asks a job to end, and how long it may take."""

    signal: Signal = Field(
        "SIGTERM", description="Signal that asks the job to end (default SIGTERM)."
    )
    grace: Annotated[float, seconds(0.0, GRACE_MAX_S)] = Field(
        10.0,
        description="Time that the job has to end before it is killed, up to 1h (default 10s).",
    )


class CheckpointKeys(Keys):
    """What asks a job to save itself, how long it may take, and where it saves."""

    signal: CatchableSignal = Field(description="Signal that asks the job to save itself.")
    timeout: Annotated[float, seconds(1.0, GRACE_MAX_S)] = Field(
        60.0, description="How long the job may take to save itself, 1s to 1h (default 60s)."
    )
    path: AbsolutePath = Field(description="Folder into which the job saves, inside the container.")
    shared: Annotated[bool, flag()] = Field(
        False,
        description="Whether `path` is in storage that all nodes of a cluster share, such as NFS "
        "(default: the checkpoint is copied when the job moves).",
    )


class UlimitKeys(Keys):
    """A resource limit; -1 is unlimited."""

    soft: Annotated[int, whole(-1, 2**62)]
    hard: Annotated[int, whole(-1, 2**62)]

    @model_validator(mode="after")
    def _ordered(self) -> UlimitKeys:
        if self.hard != -1 and not -1 < self.soft <= self.hard:
            raise ValueError(f"soft {self.soft} is above hard {self.hard}")
        return self


Ulimits = Annotated[UlimitKeys, short(("soft", "hard"), {"type": "integer", "minimum": -1})]


class HealthcheckKeys(Keys):
    """Compose's healthcheck."""

    test: HealthTest | None = Field(
        None,
        description="Command of the check: CMD or CMD-SHELL and its arguments, or a shell line.",
    )
    interval: Seconds | None = None
    timeout: Seconds | None = None
    start_period: Seconds | None = None
    retries: Annotated[int, whole(1, 1000)] | None = None
    disable: Annotated[bool, flag()] = Field(
        False, description="Whether to switch off the image's own health check."
    )

    @model_validator(mode="after")
    def _has_test(self) -> HealthcheckKeys:
        others = sorted(self.model_fields_set - {"disable"})
        if self.disable and others:
            raise ValueError(f"{', '.join(others)} has no effect with disable: true")
        first = (self.test or ("",))[0]
        if self.test is not None and first not in ("CMD", "CMD-SHELL", "NONE"):
            raise ValueError(
                f"test begins with {shown(first)}, must begin with CMD, CMD-SHELL or NONE"
            )
        if self.test is not None and first != "NONE" and len(self.test) < 2:
            raise ValueError(f"test has no command after {first}")
        return self


class LoggingKeys(Keys):
    """The engine's log driver."""

    driver: LogDriver = Field(
        "json-file", description="Log driver (default json-file, three files of 10 MiB)."
    )
    options: dict[str, Text] | None = Field(None, description="Options of the log driver.")


Background = Annotated[bool, flag()]


class JobKeys(Keys):
    """A job of dlsched: one container, what it may use, and what is asked of it."""

    name: Annotated[str, text(NAME, f"a name: {NAME}")] = Field(
        description="The job's name, and its container's: 2 to 63 of a-z, 0-9, _ . -"
    )
    image: Image = Field(
        description="Image of the container, pulled if it is missing (see `pull_policy`)."
    )
    command: Command | None = Field(
        None,
        description="Command, as a list or one line split as a shell would; null: the image's.",
    )
    entrypoint: Command | None = Field(
        None,
        description="Entrypoint, as a list or one line split as a shell would; null: the image's.",
    )
    environment: Environment | None = Field(
        None, description="Environment, as a mapping or a list of KEY=VALUE."
    )
    env_file: EnvFiles | None = Field(
        None,
        description="Files (at most 8) of KEY=VALUE lines beside the job file; `environment` wins.",
    )
    volumes: tuple[Volume, ...] = Field(
        (),
        description="Volumes, as source:target[:mode]; the source is an absolute path or a name.",
    )
    restart: RestartPolicy = Field(
        "no",
        description="Docker's restarts: no (default), always, unless-stopped or on-failure[:N].",
    )
    cpus: CpusKeys | None = Field(
        None, description="CPU that the job gets at least and at most, in cores."
    )
    memory: Annotated[MemoryKeys, short(("min",), _LIMIT.schema)] | None = Field(
        None,
        description="Memory limit, such as 1GiB, or min and max; the job gets no swap beyond it.",
    )
    gpus: Annotated[GpusKeys, short(("count",), GPU_COUNT.schema)] | None = Field(
        None, description="Number of GPUs, or a mapping of `count`, `share`, `memory` and `model`."
    )
    weight: Weight = Field(
        1.0,
        description="Importance beside other jobs, above 0, at most 1000 (default 1).",
    )
    target: TargetKeys | None = Field(
        None,
        description="Target of the job: a latency, or values of a metric that it should reach.",
    )
    background: Background = Field(
        False,
        description="Whether the job has no target and gets only CPU that no other job uses "
        "(default false).",
    )
    metrics: Annotated[MetricsKeys, PRESET_ALONE] | None = Field(
        None, description="Source of the job's progress: a preset's name, or a mapping."
    )
    wire: WirePorts = Field(
        (),
        description="Whether response times may be measured at the job's sockets: true (default), "
        "false, or the ports to measure.",
    )
    stop: StopKeys | None = Field(None, description="How the job is ended.")
    checkpoint: CheckpointKeys | None = Field(None, description="How the job saves itself.")
    failover: Annotated[Literal["wait", "restart"], choice("wait", "restart")] = Field(
        "wait",
        description="What happens when the job's node of a cluster is down: wait for the node "
        "(default), or restart on another one, which needs checkpoint.shared and restart: no.",
    )
    nodes: Labels | None = Field(
        None,
        description="Labels that a cluster's node must have to get the job; `host` is the host's "
        "name.",
    )
    ports: tuple[Port, ...] = Field(
        (),
        description="Published ports, in quotes: [[address:]host port:]container port[/tcp|udp].",
    )
    network: Network | None = Field(
        None,
        description="Network of the container: a Docker network's name, or host, bridge, none.",
    )
    threads: Annotated[Literal["fit", "own"], choice("fit", "own")] = Field(
        "fit",
        description="fit (default): OpenMP, BLAS, ONNX Runtime and llama.cpp take as many threads "
        "as cpus.max allows and wait without spinning, unless the image or environment says "
        "otherwise; own: nothing is set.",
    )
    user: User | None = Field(
        None, description="User or user:group that the container's process runs as."
    )
    working_dir: AbsolutePath | None = Field(
        None, description="Working directory of the container's process."
    )
    shm_size: Annotated[int, size(1)] | None = Field(None, description="Size of /dev/shm.")
    tmpfs: Tmpfs = Field(
        (), description="Directories in the container that are kept in memory, as /path[:options]."
    )
    ulimits: dict[Annotated[str, choice(*_ULIMITS)], Ulimits] | None = Field(
        None,
        description="Limits of ulimit: one number each, or `soft` and `hard`; -1 is unlimited.",
    )
    extra_hosts: ExtraHosts | None = Field(
        None, description="Lines for the container's /etc/hosts, as host:address."
    )
    labels: Labels | None = Field(
        None, description="Labels of the container; names that begin with `dlsched.` are reserved."
    )
    read_only: Annotated[bool, flag()] = Field(
        False, description="Whether the container's root file system is read-only."
    )
    cap_drop: tuple[Capability, ...] = Field(
        (), description="Capabilities that are taken from the container."
    )
    healthcheck: HealthcheckKeys | None = Field(
        None, description="Health check that replaces the image's own."
    )
    logging: LoggingKeys | None = Field(
        None, description="Log driver of the container and its options."
    )
    pull_policy: Annotated[
        Literal["missing", "always", "never"], choice("missing", "always", "never")
    ] = Field("missing", description="When the image is pulled: missing (default), always, never.")


_INNER: dict[tuple[str, ...], type[Keys]] = {
    ("cpus",): CpusKeys, ("memory",): MemoryKeys, ("gpus",): GpusKeys, ("gpus", "share"): ShareKeys,
    ("target",): TargetKeys, ("metrics",): MetricsKeys, ("metrics", "first_of"): MetricKeys,
    ("stop",): StopKeys, ("checkpoint",): CheckpointKeys,
    ("ulimits",): UlimitKeys, ("healthcheck",): HealthcheckKeys, ("logging",): LoggingKeys,
}  # fmt: skip

FLAGS = frozenset(
    {
        ("checkpoint", "shared"),
        ("healthcheck", "disable"),
        ("metrics", "answers"),
        ("metrics", "errors_timed"),
    }
    | {("background",), ("read_only",)}
)
"""Paths of a job file where true or false is meant."""

COMPOSES: Mapping[str, str] = {
    "container_name": "write name",
    "deploy": "write `cpus`, `memory` and `gpus`, which are keys of their own in a job file",
    "devices": "write `gpus: 1` for a GPU; no job gets other devices",
    "mem_limit": "write memory",
    "privileged": "no job gets devices; for GPUs write `gpus: 1`",
    "runtime": "write `gpus: 1` for a GPU",
}
"""Keys of a Compose service that mean something of ours, and what to write."""


def known_keys(path: tuple[str | int, ...]) -> list[str]:
    """The keys that may stand in the mapping at that path of a job file."""
    above = tuple(str(part) for part in path)
    model = _INNER.get(above) or _INNER.get(above[:2]) or _INNER.get(above[:1], JobKeys)
    return list(model.model_fields)


class _WithoutNull(GenerateJsonSchema):
    """A key that is left out has its default; null stands for nothing."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a job file, for editors; it is no stricter than the checks."""
    schema = JobKeys.model_json_schema(schema_generator=_WithoutNull)
    for key in ("command", "entrypoint"):
        schema["properties"][key]["anyOf"].append({"type": "null"})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "dlsched job",
        **{key: value for key, value in schema.items() if key != "title"},
    }
