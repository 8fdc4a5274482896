"""Our containers' labels, and the engine's description of a container. Pure."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from dlsched.config.job_schema import GRACE_MAX_S
from dlsched.model.facts import ContainerState, GpuAccess
from dlsched.model.spec import JobSpec, Restart, Stop
from dlsched.model.units import shown
from dlsched.runtime.docker.create.containers import restart_policy
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.injection import GPUS_MAX, MpsClient, access_of, gpu_names
from dlsched.runtime.docker.limits.dialect import engine_limits
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.outcomes import one_line

PREFIX = "dlsched."
ENABLE = f"{PREFIX}enable"
"""With the value `true` on another program's container: it asks to be adopted."""
INSTANCE = f"{PREFIX}instance"
WIRE = f"{PREFIX}wire"
"""`false`, or the ports whose response times may be measured."""
JOB = f"{PREFIX}job"
DIGEST = f"{PREFIX}digest"
CONTAINER_DIGEST = f"{PREFIX}container-digest"
SOURCE = f"{PREFIX}source"
STOP_SIGNAL = f"{PREFIX}stop.signal"
STOP_GRACE = f"{PREFIX}stop.grace"
RESTART = f"{PREFIX}restart"
GPUS = f"{PREFIX}gpus"
"""The UUIDs of the GPUs that it was created with, comma separated."""
GPU_ACCESS = f"{PREFIX}gpu-access"
"""How it got them, a value of `GpuAccess`."""
MPS_THREADS = f"{PREFIX}mps-threads"
"""The percentage of each of its GPUs' threads that MPS lets it use."""
MPS_MEMORY = f"{PREFIX}mps-memory"
"""The bytes on each of its GPUs that MPS lets it use."""
ORIGIN = f"{PREFIX}origin"
"""The id of the first container that a moved job had."""
MADE = f"{PREFIX}made"
"""A random token for each creation: a container's differs from its image's."""

DEFAULT_INSTANCE = "default"

COMPOSE_PROJECT = "com.docker.compose.project"
COMPOSE_SERVICE = "com.docker.compose.service"
COMPOSE_NUMBER = "com.docker.compose.container-number"
"""Not among the labels that Compose gives an image which it builds."""
COMPOSE_ONE_OFF = "com.docker.compose.oneoff"
"""`True` on a container of `docker compose run`."""


def container_name(instance: str, job: str) -> str:
    """The name of a job's container."""
    return f"dlsched-{job}" if instance == DEFAULT_INSTANCE else f"dlsched-{instance}-{job}"


SET_ASIDE = ".BEFORE-MOVE"
"""Suffix of the name of a container whose job is being moved. Jobs' names are lower case."""


def set_aside_name(instance: str, job: str) -> str:
    """The name of a job's container while another may replace it."""
    return f"{container_name(instance, job)}{SET_ASIDE}"


def compose_service(labels: Mapping[str, str]) -> str | None:
    """`project/service` of a container that Docker Compose made to serve it: not of one of
    `docker compose run`, nor of one made otherwise from the service's image."""
    if COMPOSE_NUMBER not in labels or labels.get(COMPOSE_ONE_OFF, "").lower() == "true":
        return None
    project, service = labels.get(COMPOSE_PROJECT), labels.get(COMPOSE_SERVICE)
    return f"{project}/{service}" if project and service else None


def elsewhere(own: Mapping[str, str], instance: str) -> str | None:
    """Why a container that asks for adoption is not that instance's; None: it is. `own`: our labels
    that did not come with its image."""
    whose = own.get(INSTANCE, DEFAULT_INSTANCE)
    if whose == instance:
        return None
    if INSTANCE in own:
        return f"the container's label {INSTANCE} names instance {shown(whose)}"
    return (
        f"without a label {INSTANCE} the container belongs to instance {DEFAULT_INSTANCE}, and "
        f"this is instance {instance}: start the container with {INSTANCE}={instance} to have "
        "it here"
    )


def labels_of(spec: JobSpec, instance: str, source: str) -> dict[str, str]:
    """The user's labels and ours, which cannot be overridden."""
    return {
        **dict(spec.container.labels),
        INSTANCE: instance,
        JOB: spec.name,
        DIGEST: spec.digest,
        CONTAINER_DIGEST: spec.container_digest,
        SOURCE: source,
        STOP_SIGNAL: spec.stop.signal,
        STOP_GRACE: f"{spec.stop.grace_s:g}",
        RESTART: _restart_label(spec.container.restart),
        MADE: secrets.token_hex(8),
        ORIGIN: "",  # overrides a label of the image
    }


def gpu_labels(
    gpus: tuple[str, ...], access: GpuAccess | None, mps: MpsClient | None
) -> dict[str, str]:
    """What a container of ours carries of its GPUs: also where it has none, since such labels may
    be the user's, or the image's."""
    threads = memory = None
    if mps is not None:
        threads, memory = mps.threads_percent, mps.memory_bytes
    given = {GPU_ACCESS: access, MPS_THREADS: threads, MPS_MEMORY: memory}
    values = {name: "" if one is None else str(one) for name, one in given.items()}
    return {GPUS: ",".join(gpus), **values}


def gpus_in(body: Body) -> tuple[str, ...]:
    """The GPUs of an inspected container: UUIDs by our label, else the words it was made with."""
    value = labels_in(body).get(GPUS)
    values = gpu_names(body) if value is None else tuple(filter(None, value.split(",")))
    return values[:GPUS_MAX]


def gpu_access_in(body: Body) -> GpuAccess | None:
    """How an inspected container has its GPUs, by our label and by its configuration. It is legacy
    if either says so, since the runtime's mode may have changed."""
    found = access_of(body)
    value = labels_in(body).get(GPU_ACCESS)
    return GpuAccess.LEGACY if value == GpuAccess.LEGACY else found


def inspected(body: Body) -> Inspected:
    """Parse the engine's inspection. Raises ValueError, in one line, when it is malformed."""
    try:
        return _read(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"the engine's description of the container is not understood: {one_line(repr(error))}"
        ) from error


def forbids_wire(labels: Mapping[str, str]) -> bool:
    """Whether a container's own label says that its packets are not to be read, also where it is
    adopted by a command."""
    return labels.get(WIRE, "").strip().lower() in ("false", "no", "off")


def inherits(labels: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Whether a container's job labels come from its image, committed from another container."""
    return INSTANCE in given and labels.get(MADE) == given.get(MADE)


def labels_in(body: Body) -> Mapping[str, str]:
    """All labels of an inspected container or image; TypeError where they are not text."""
    labels: Mapping[str, str] = (body.get("Config") or {}).get("Labels") or {}
    for name, value in labels.items():
        if not isinstance(value, str):
            raise TypeError(f"label {shown(name)} is not text")
    return labels


def _read(body: Body) -> Inspected:
    state, config, host = body["State"], body["Config"], body["HostConfig"]
    labels = labels_in(body)
    status = ContainerState(state["Status"])
    restart = _restart(labels.get(RESTART, ""))
    ended = status in (ContainerState.EXITED, ContainerState.DEAD, ContainerState.RESTARTING)
    return Inspected(
        container_id=_text(body["Id"]),
        name=_text(body["Name"]).lstrip("/"),
        image=_text(config.get("Image", "")),
        instance=labels.get(INSTANCE),
        job=labels.get(JOB, ""),
        digest=labels.get(DIGEST, ""),
        container_digest=labels.get(CONTAINER_DIGEST, ""),
        source=labels.get(SOURCE, ""),
        stop=_stop(labels),
        state=status,
        pid=int(state.get("Pid") or 0),
        started_at=_text(state.get("StartedAt", "")),
        exit_code=int(state["ExitCode"]) if ended else None,
        oom_killed=bool(state.get("OOMKilled")),
        error=one_line(state["Error"]) if state.get("Error") else None,
        restarts=int(body.get("RestartCount") or 0),
        limits=engine_limits(host),
        ended_at=_text(state.get("FinishedAt", "")),
        address=address_in(body),
        network_of=_network_of(host.get("NetworkMode")),
        restart=restart,
        gpus=gpus_in(body),
        gpu_access=gpu_access_in(body),
        mps_threads_percent=_whole(labels.get(MPS_THREADS)),
        mps_memory_bytes=_whole(labels.get(MPS_MEMORY)),
        origin=labels.get(ORIGIN) or None,
        restart_strays=restart is not None and _strays(restart, host.get("RestartPolicy") or {}),
    )


def _network_of(mode: object) -> str | None:
    kind, _, container = str(mode).partition(":")
    return container or None if kind == "container" else None


def _whole(label: str | None) -> int | None:
    return int(label) if label is not None and re.fullmatch("[1-9][0-9]{0,17}", label) else None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"the engine's answer has {shown(value)} instead of text")
    return value


def _stop(labels: Mapping[str, str]) -> Stop:
    default = Stop()
    try:
        grace_s = float(labels.get(STOP_GRACE, default.grace_s))
    except ValueError:
        grace_s = math.nan
    if math.isnan(grace_s):
        grace_s = default.grace_s
    return Stop(labels.get(STOP_SIGNAL, default.signal), min(max(grace_s, 0.0), GRACE_MAX_S))


def address_in(body: Body) -> str | None:
    """The first network address of an inspected container that can only be its own."""
    settings = body.get("NetworkSettings") or {}
    networks: Mapping[str, Mapping[str, Any]] = settings.get("Networks") or {}
    for _, network in sorted(networks.items()):
        for key in ("IPAddress", "GlobalIPv6Address"):
            if value := network.get(key):
                address = ip_address(value)
                # A network may have any subnet: also this host's, or a cloud's metadata.
                if not (address.is_loopback or address.is_link_local or address.is_multicast):
                    return str(address)
    return None


def _restart_label(restart: Restart) -> str:
    policy = restart_policy(restart)
    return f"{policy['Name']}:{policy['MaximumRetryCount']}"


def _restart(label: str) -> Restart | None:
    name, _, retries = label.partition(":")
    if not (retries.isdecimal() and len(retries) < 10):
        return None
    match name:
        case "no" | "always" | "unless-stopped" | "on-failure":
            return Restart(name, int(retries))
    return None


def _strays(restart: Restart, now: Mapping[str, Any]) -> bool:
    there = {
        "Name": now.get("Name") or "no",
        "MaximumRetryCount": int(now.get("MaximumRetryCount") or 0),
    }
    return there != restart_policy(restart)
