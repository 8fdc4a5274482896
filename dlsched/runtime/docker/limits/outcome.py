"""Whose limits are changed or given back, and how that went."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model.errors import DlschedError
from dlsched.runtime.docker.engine_facts import EngineFacts
from dlsched.runtime.originals import Originals


class Untouchable(DlschedError):
    """A container is left exactly as it is; the text says why."""


class NotGivenBack(DlschedError):
    """A container does not have again what it had; the text says what it lacks."""


@dataclass(frozen=True, slots=True)
class Own:
    """What is known of a container that the agent made: its job, and what its spec allows it."""

    job: str
    ceiling_cores: float | None = None
    mps_threads_percent: int | None = None
    """Of its GPUs, what MPS lets it use at most; None: all."""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """What became of giving one container its own limits back."""

    job: str
    container_id: str
    adopted: bool
    now: str
    """What it has now, in a few words."""
    failure: str | None = None
    """Why it does not have what it had; None: it has."""


def elsewhere(container: str, originals: Originals, facts: EngineFacts) -> str | None:
    """Why it proves nothing that the engine does not know that container; None: it is gone.

    Asked of another engine than has it (DOCKER_HOST in a shell is enough) every record would be
    forgotten, and all limits stay.
    """
    kept = originals.of(container)
    if kept is None or kept.engine in ("", facts.identity(anew=True)):
        return None
    return (
        "not known to the engine that answers, which is not the one that has it (see "
        f"engine.host and DOCKER_HOST); if that is gone for good, remove "
        f"{originals.place(container)}"
    )
