"""What a container of ours carries, and what the engine tells of it.

Owns the labels' names and their reading. It must not call the engine.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlsched.model import ContainerState, JobSpec, Restart, Stop
from dlsched.runtime.docker.containers import restart_policy
from dlsched.runtime.docker.engine import Body, one_line
from dlsched.spec_schema import GRACE_MAX_S

PREFIX = "dlsched."
INSTANCE = f"{PREFIX}instance"
JOB = f"{PREFIX}job"
DIGEST = f"{PREFIX}digest"
CONTAINER_DIGEST = f"{PREFIX}container-digest"
SOURCE = f"{PREFIX}source"
STOP_SIGNAL = f"{PREFIX}stop.signal"
STOP_GRACE = f"{PREFIX}stop.grace"
RESTART = f"{PREFIX}restart"
MADE = f"{PREFIX}made"
"""A word of its own for each creation: a container has another one than the image it is from."""

DEFAULT_INSTANCE = "default"


def container_name(instance: str, job: str) -> str:
    """The one name that a job's container has."""
    return f"dlsched-{job}" if instance == DEFAULT_INSTANCE else f"dlsched-{instance}-{job}"


def labels_of(spec: JobSpec, instance: str, source: str) -> dict[str, str]:
    """The user's labels and ours; ours cannot be overridden."""
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
    }


@dataclass(frozen=True, slots=True)
class Inspected:
    """One container of ours as the engine described it."""

    container_id: str
    name: str
    image: str
    instance: str | None
    job: str
    digest: str
    container_digest: str
    source: str
    stop: Stop
    state: ContainerState
    pid: int
    started_at: str
    """The engine's time stamp: it tells one start from another."""
    exit_code: int | None
    oom_killed: bool
    error: str | None
    restarts: int
    quota_us: int
    period_us: int
    shares: int
    restart: Restart | None = None
    """What its spec says; None: no label tells it."""
    restart_strays: bool = False
    """Whether the engine's restart policy is another one."""

    @property
    def alive(self) -> bool:
        """Whether it has a process now."""
        return self.pid > 0 and self.state in (ContainerState.RUNNING, ContainerState.PAUSED)

    @property
    def start(self) -> tuple[int, str]:
        """What tells this start of the container from every other one."""
        return self.pid, self.started_at


def inspected(body: Body) -> Inspected:
    """Read the engine's answer to an inspection. Raises ValueError, in one line, if it is none."""
    try:
        return _read(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its description is not understood: {one_line(repr(error))}") from error


def inherits(body: Body, image: Body) -> bool:
    """Whether an inspected container has our labels from its image, made by committing another."""
    given: Mapping[str, str] = (image.get("Config") or {}).get("Labels") or {}
    labels: Mapping[str, str] = (body.get("Config") or {}).get("Labels") or {}
    return INSTANCE in given and labels.get(MADE) == given.get(MADE)


def _read(body: Body) -> Inspected:
    state, config, host = body["State"], body["Config"], body["HostConfig"]
    labels: dict[str, str] = config.get("Labels") or {}
    status = ContainerState(state["Status"])
    restart = _restart(labels.get(RESTART, ""))
    ended = status in (ContainerState.EXITED, ContainerState.DEAD, ContainerState.RESTARTING)
    return Inspected(
        container_id=body["Id"],
        name=body["Name"].lstrip("/"),
        image=config.get("Image", ""),
        instance=labels.get(INSTANCE),
        job=labels.get(JOB, ""),
        digest=labels.get(DIGEST, ""),
        container_digest=labels.get(CONTAINER_DIGEST, ""),
        source=labels.get(SOURCE, ""),
        stop=_stop(labels),
        state=status,
        pid=int(state.get("Pid") or 0),
        started_at=state.get("StartedAt", ""),
        exit_code=int(state["ExitCode"]) if ended else None,
        oom_killed=bool(state.get("OOMKilled")),
        error=one_line(state["Error"]) if state.get("Error") else None,
        restarts=int(body.get("RestartCount") or 0),
        quota_us=int(host.get("CpuQuota") or 0),
        period_us=int(host.get("CpuPeriod") or 0),
        shares=int(host.get("CpuShares") or 0),
        restart=restart,
        restart_strays=restart is not None and _strays(restart, host.get("RestartPolicy") or {}),
    )


def _stop(labels: dict[str, str]) -> Stop:
    default = Stop()
    try:
        grace_s = float(labels.get(STOP_GRACE, default.grace_s))
    except ValueError:
        grace_s = math.nan
    if math.isnan(grace_s):
        grace_s = default.grace_s
    return Stop(labels.get(STOP_SIGNAL, default.signal), min(max(grace_s, 0.0), GRACE_MAX_S))


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
