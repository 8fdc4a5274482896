"""Queued jobs on their path from one shard to another: from what two stores hold to the next write.

There is no truth above the shards: each has a store of its own, in which a write is a
compare-and-swap. The table below is the whole rule, and it has no memory, so that any federation
that reads both stores reaches the same write. `e` is the epoch of the entry in the target.

    in the source A        in the target B      -> write
    ---------------------  -------------------     -----------------------------
    queued e - 1           none, or ended < e      B: coming e from A    (when decided)
    queued e - 1           coming e from A         A: gone e to B
    gone e to B            coming e from A         B: queued e
    started or ended e - 1 coming e from A         B: none               (A was faster)
    any other, >= e        coming e from A         B: none               (it went elsewhere)
    none, or < e - 1       coming e from A         -                     (read it again)
    gone e to B, withdrawn any but ended, >= e     B: ended, or gone withdrawn

A job can be started only where it is queued. It is queued in B only after A's tombstone (gone) was
read, so it can never be started in both. At every point in between, the two entries say where it
is. An entry that is started or ended does not wait again within the same epoch, so each row stays
right when what was read of A is old; and a write over an entry that has changed is refused. A job
never comes to a shard that has a tombstone of it, so its path has no circle, and a withdrawal that
follows the tombstones finds it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

TOMBSTONE_S = 86_400.0
"""How long a tombstone is kept at least: no federation acts on what it read so long ago."""


class EntryState(StrEnum):
    """A job in the store of one shard."""

    QUEUED = "queued"
    """The shard may start it."""
    COMING = "coming"
    """Not to be started before the tombstone of its source was read."""
    STARTED = "started"
    """It has a node, and is not handed over any more."""
    GONE = "gone"
    """Tombstone: handed over to `other`."""
    ENDED = "ended"
    """Done or withdrawn."""


@dataclass(frozen=True, slots=True)
class Entry:
    job: str
    state: EntryState
    epoch: int = 1
    """Higher by 1 in each shard that it comes to. A tombstone has the epoch in its target."""
    other: str = ""
    """COMING: the shard that it comes from. GONE: the shard that it went to."""
    withdrawn: bool = False
    """With GONE: it is no longer desired, which is to reach the shard that has it."""


@dataclass(frozen=True, slots=True)
class Write:
    """What to write over the entry that was read, if it is still the same there."""

    shard: str
    entry: Entry | None
    """None: remove it."""


def begin(source: str, target: str, own: Entry, there: Entry | None) -> Write | None:
    """The first write of a hand-over; None: the job cannot go there."""
    epoch = own.epoch + 1
    if own.state is not EntryState.QUEUED:
        return None
    if there is not None and (there.state is not EntryState.ENDED or there.epoch >= epoch):
        return None
    return Write(target, Entry(own.job, EntryState.COMING, epoch, source))


def next_write(source: str, target: str, own: Entry | None, there: Entry | None) -> Write | None:
    """The row of the table after `begin`: `own` is the source's entry, `there` the target's."""
    if own is None or there is None:
        return None
    if own.state is EntryState.GONE and own.withdrawn and own.other == target:
        return _withdrawn(own, target, there)
    if there.state is not EntryState.COMING or there.other != source:
        return None
    if own.epoch < there.epoch - 1:
        return None
    if own.epoch == there.epoch - 1 and own.state is EntryState.QUEUED:
        return Write(source, replace(own, state=EntryState.GONE, epoch=there.epoch, other=target))
    if own.epoch == there.epoch - 1 and own.state is EntryState.COMING:
        return None
    if own.state is EntryState.GONE and own.epoch == there.epoch and own.other == target:
        return Write(target, replace(there, state=EntryState.QUEUED, other=""))
    return Write(target, None)


def start(entry: Entry) -> Entry | None:
    """The entry once its shard has given it a node; None: the shard may not."""
    return replace(entry, state=EntryState.STARTED) if entry.state is EntryState.QUEUED else None


def withdraw(entry: Entry) -> Entry:
    """The entry of a job that is no longer desired, in the shard to which it was submitted."""
    if entry.state is EntryState.GONE:
        return replace(entry, withdrawn=True)
    return replace(entry, state=EntryState.ENDED, other="")


def may_forget(tombstone: Entry, there: Entry | None, age_s: float) -> bool:
    """Whether a tombstone may be removed: the job has ended where it went, so that no withdrawal
    has to find it, and no write can be so late. `there` was read when it was that old."""
    ended = there is None or (there.state is EntryState.ENDED and there.epoch >= tombstone.epoch)
    return tombstone.state is EntryState.GONE and age_s >= TOMBSTONE_S and ended


def _withdrawn(own: Entry, target: str, there: Entry) -> Write | None:
    if there.epoch < own.epoch or there.state is EntryState.ENDED or there.withdrawn:
        return None
    return Write(target, withdraw(there))
