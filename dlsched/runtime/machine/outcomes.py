"""Results of calls, and why they fail."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model.errors import DlschedError
from dlsched.model.units import plain_text

ELSEWHERE = "another dlsched instance on this host has the container"


class CallFailed(DlschedError):
    """A call failed; `retryable`: a later attempt may succeed."""

    def __init__(self, reason: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(reason)


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


@dataclass(frozen=True, slots=True)
class Packed:
    """A whole archive on disk, or a file in shared storage."""

    sha256: str
    size_bytes: int
    file: str = ""
    """In shared storage: its path in the container."""


def one_line(text: object) -> str:
    """The same in one line of printable characters: containers and images word parts of it."""
    return " ".join(plain_text(str(text)).split())


def failure_of(error: BaseException | None) -> str | None:
    """Why a call failed, in one line."""
    return None if error is None else one_line(error) or repr(error)
