"""Results of changing limits and of giving them back."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model.errors import DlschedError

ELSEWHERE = "another dlsched instance on this host has it"


class Untouchable(DlschedError):
    """A container is left exactly as it is; the text says why."""


class Waits(DlschedError):
    """Another container's update is being tried first."""


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
