"""CPU-seconds asked for, given, used, lent and borrowed over a range of the journal, by owner and
job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dlsched.control.cpu_account import CpuAccount
from dlsched.store.journal.history import open_journal, read_minutes

Payer = tuple[int | None, str]
"""uid of the owner (None: the job has no file), and the job."""


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """What a range of the journal holds, in CPU-seconds."""

    accounts: Mapping[Payer, CpuAccount]
    recorded_s: float
    """Time of the range in which the daemon ran."""
    capacity_core_s: float
    """What the node had in that time."""
    used_core_s: float
    """What all jobs used, summed up apart from the accounts."""
    notes: tuple[str, ...] = ()


def read_usage(
    path: Path, from_s: float, to_s: float, cancelled: Callable[[], bool] = lambda: False
) -> CpuUsage:
    """The minutes that begin in this range of unix seconds. Raises NoJournal, and Cancelled soon
    after `cancelled` is true."""
    accounts: dict[Payer, CpuAccount] = {}
    recorded_s = capacity_core_s = used_core_s = 0.0
    with open_journal(path) as reader:
        for minute in read_minutes(reader, from_s, to_s, cancelled):
            node = minute.node
            seconds = node.seconds or 0.0  # null: it was not finite
            recorded_s += seconds
            capacity_core_s += (node.capacity_cores or 0.0) * seconds
            used_core_s += node.used_core_s or 0.0
            for name, job in minute.jobs.items():
                payer = (job.owner, name)
                known = accounts.get(payer)
                accounts[payer] = job.account if known is None else known.plus(job.account)
        notes = () if reader.problem is None else (reader.problem,)
    return CpuUsage(accounts, recorded_s, capacity_core_s, used_core_s, notes)


def by_owner(accounts: Mapping[Payer, CpuAccount]) -> dict[int | None, CpuAccount]:
    """The sums over each owner's jobs."""
    sums: dict[int | None, CpuAccount] = {}
    for (owner, _), account in accounts.items():
        sums[owner] = sums.get(owner, CpuAccount()).plus(account)
    return sums
