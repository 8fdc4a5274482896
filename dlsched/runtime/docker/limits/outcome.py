"""Results of changing limits and of giving them back."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model.errors import DlschedError
from dlsched.runtime.docker.engine_facts import EngineFacts
from dlsched.runtime.originals import Originals

ELSEWHERE = "another dlsched instance on this host has it"


class Untouchable(DlschedError):
    """A container is left exactly as it is; the text says why."""


class NotGivenBack(DlschedError):
    """A container does not have its original limits again; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Own:
    """The agent's own container: its job, and what its spec allows."""

    job: str
    ceiling_cores: float | None = None
    mps_threads_percent: int | None = None
    """Maximum of its GPUs' threads under MPS; None: all."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The result of giving one container its limits back."""

    job: str
    container_id: str
    adopted: bool
    now: str
    """A short text on what it has now."""
    failure: str | None = None
    """Why it does not have its original limits; None: it has."""


def elsewhere(container: str, originals: Originals, facts: EngineFacts) -> str | None:
    """Why an unknown container may belong to another engine (DOCKER_HOST in a shell suffices), so
    that its record must be kept; None: it is gone."""
    kept = originals.of(container)
    if kept is None or kept.engine in ("", facts.identity(fresh=True)):
        return None
    return (
        "not known to the engine that answers, which is not the one that has it (see "
        f"engine.host and DOCKER_HOST); if that is gone for good, remove "
        f"{originals.path(container)}"
    )
