"""Who owns a job: the durable record of each job, what agents hold of it, and orders to agents."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any

STRICT = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
"""How values are read that other hosts or people wrote: no unknown keys, no other types."""


class FirstProblem:
    """Mark of a collection that is read no further than its first problem: a list of four million
    problems takes seconds and gigabytes. It is pydantic's FailFast, not imported here."""

    def __get_pydantic_core_schema__(self, source: Any, read: Callable[[Any], Any]) -> Any:
        return {**read(source), "fail_fast": True}


class RecordState(StrEnum):
    """The state of a job in the cluster's store. `transit` has the table of transitions."""

    PLACED = "placed"
    LEAVING = "leaving"
    """Its owner is asked to save it and to set it aside for `target`."""
    MOVING = "moving"
    """It now belongs to `on`, which gets its checkpoint from `source`."""
    UNDOING = "undoing"
    """The move failed: `on` has to end it before it returns to `source`."""
    RETURNING = "returning"
    """It belongs to its source again."""
    ENDED = "ended"


LIKELY_EPOCH_MAX = 1 << 40
"""A node that claims a higher epoch lies: after it there would soon be none left."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that a node keeps: its step, the digest of its bytes, their number; or one in
    storage that every node has."""

    __pydantic_config__ = STRICT
    step: int
    sha256: str = ""
    size_bytes: int = 0
    file: str = ""
    """In shared storage: its path in the container, and no digest."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that the cluster should run. Only the manager that submitted it withdraws it."""

    __pydantic_config__ = STRICT
    job: str
    text: str
    """The job file."""
    by: str
    """The manager whose watch folder has the file."""
    name: str = ""
    """The file's name there, for messages."""


class Wanted(StrEnum):
    PAUSE = "pause"
    """Place and move nothing."""
    MOVE = "move"
    """Move that job to `target`, whatever it costs."""
    FORGET = "forget"
    """That node is off and does not come back with its jobs."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asks of the controller. It stays in the store until it is done or taken
    back."""

    __pydantic_config__ = STRICT
    verb: Wanted
    subject: str = ""
    """The job or the node."""
    target: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.subject, self.target)))


@dataclass(frozen=True, slots=True)
class Record:
    """One job's record. Only compare-and-swap changes it, and always before the act itself."""

    __pydantic_config__ = STRICT
    job: str
    state: RecordState
    on: str
    """The node that owns it."""
    epoch: int = 1
    """Higher at each change of owner, never used again."""
    digest: str = ""
    """Of the specification that it runs by, as far as its node has said so."""
    first: int = 1
    """The epoch of its placement, in which it starts without a checkpoint."""
    target: str | None = None
    source: str | None = None
    saved: Saved | None = None
    """What the move carries."""
    moves: int = 0
    """Moves that were completed."""
    exit_code: int | None = None
    """Of a job that ended by itself; None: it did not, so it can be placed again."""
    why: str = ""
    ends_s: int = 0
    """How long it may take to save itself and to end, by the file that it runs by; 0: unknown."""
    failover: bool = False
    """Whether that file lets it start elsewhere once its lease has run out."""
    off: bool = False
    """Of one that has ended: whether its node was off, or has fenced it, or it ended by itself.
    Nothing of it runs there, so that its node is not waited for."""

    def wants_place(self, digest: str) -> bool:
        """Whether a desired job with this record and that digest waits for a node."""
        ended = self.state is RecordState.ENDED
        return ended and (self.exit_code is None or digest != self.digest)


def end_job(record: Record, why: str, *, off: bool = False) -> Record:
    """The record of a job that is no longer desired; it wins over any move. Its epoch stays known,
    so that late orders cannot start it again. `off`: its node is."""
    ended = replace(record, state=RecordState.ENDED, target=None, source=None, saved=None)
    return replace(ended, exit_code=None, why=why, off=off or record.exit_code is not None)


def place_job(
    job: str, node: str, digest: str, before: Record | None = None, known_epoch: int = 0
) -> Record:
    """The first record of a job, or the next one if it was there before. `known_epoch`: the highest
    that any node knows of it, also of an earlier job of that name."""
    epoch = max(known_epoch, before.epoch if before else 0) + 1
    return Record(job, RecordState.PLACED, node, epoch, digest, first=epoch)


def change_job(record: Record) -> Record:
    """The record of a job on its node whose file has changed: the node changes it, as it does with
    a job of its own. Until it says so, it may run by the old file."""
    return replace(record, epoch=record.epoch + 1, first=record.epoch + 1, why="")


@lru_cache(maxsize=8192)  # each round asks it of every job
def file_version(text: str) -> str:
    """Another one for each job file; empty where there is none."""
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


class Phase(StrEnum):
    """What a node's agent has done with a job, by its durable file."""

    PREPARED = "prepared"
    """Room is kept for it."""
    ARRIVING = "arriving"
    RUNNING = "running"
    """Its container is there, or about to start."""
    SAVING = "saving"
    """Asked to leave: it saves a checkpoint and ends."""
    REFUSED = "refused"
    """It did not save in time, so it runs on."""
    AWAY = "away"
    """Its container has ended and is set aside."""
    FAILED = "failed"
    """It could not be started from its checkpoint."""
    FENCED = "fenced"
    """Removed: no order up to this epoch is followed any more."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Holding:
    """One job on one node, as its agent reports it."""

    __pydantic_config__ = STRICT
    job: str
    epoch: int
    phase: Phase
    step: int | None = None
    """The last step reported since its container started here."""
    saved: Saved | None = None
    exit_code: int | None = None
    why: str = ""
    came_bytes: int | None = None
    """While it arrives: how much of its checkpoint has come."""
    file: str = ""
    """The `file_version` of the job file that it goes by; empty: not known."""


def is_fenced(held: Holding | None, epoch: int) -> bool:
    """Whether its node follows no order of that epoch any more, and nothing of it runs there."""
    return held is not None and held.phase is Phase.FENCED and held.epoch >= epoch


def is_unstarted(held: Holding) -> bool:
    """Whether its owner has not started it and will not: another node may have it."""
    ended = held.phase is Phase.ENDED and held.exit_code is None
    return ended or (held.phase is Phase.FENCED and bool(held.why))


class Verb(StrEnum):
    PREPARE = "prepare"
    """Keep room for a job."""
    ARRIVE = "arrive"
    """Own the job from this epoch on: fetch its checkpoint if it has a source, start it."""
    LEAVE = "leave"
    """Let it save a checkpoint, end its container, set it aside."""
    GIVE_BACK = "give_back"
    """Start the container that was set aside, or stop leaving."""
    CLEAR = "clear"
    """Remove it, and follow no order up to this epoch any more."""


@dataclass(frozen=True, slots=True)
class Order:
    """Something that an agent is to do. The same order twice does nothing the second time."""

    __pydantic_config__ = STRICT
    verb: Verb
    node: str
    job: str
    epoch: int
    source: str | None = None
    """With ARRIVE: the node that keeps its checkpoint."""
    saved: Saved | None = None
    target: str | None = None
    """With LEAVE: the one node that may fetch the checkpoint."""
    text: str = ""
    """With PREPARE and ARRIVE: the job file."""
    keeps: bool = True
    """With CLEAR: whether what it has written stays, as no other node has gone on with it."""
