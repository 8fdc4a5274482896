"""Fills the usage schema from what the journal holds, for `/v1/usage` and `dlsched usage`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import reduce
from typing import Literal

from dlsched.api.schema import SCHEMA_VERSION
from dlsched.api.usage_schema import CpuSeconds, UsageRow, UsageStatus
from dlsched.config.users import owner_of
from dlsched.control.cpu_account import CpuAccount
from dlsched.store.journal.history import CpuUsage, by_owner

By = Literal["user", "job"]

ROWS_MAX = 1000
"""Rows of those who used most; all others are one row. A week may have any number of jobs."""


def usage_status(found: CpuUsage, by: By, from_s: float, to_s: float) -> UsageStatus:
    """Who used most first."""
    jobs = Counter(owner for owner, _ in found.accounts)
    if by == "user":
        rows = [
            UsageRow(_name(owner), owner, jobs[owner], _seconds(account))
            for owner, account in by_owner(found.accounts).items()
        ]
    else:
        rows = [
            UsageRow(name, owner, 1, _seconds(account))
            for (owner, name), account in found.accounts.items()
        ]
    rows.sort(key=lambda row: (-row.cpu.used_core_s, row.name))
    total = _sum(found.accounts.values())
    if len(rows) > ROWS_MAX:
        others = rows[ROWS_MAX:]
        rest = _sum(CpuAccount(*vars(row.cpu).values()) for row in others)
        jobs_left = sum(row.jobs for row in others)
        rows[ROWS_MAX:] = [UsageRow(f"({len(others)} others)", None, jobs_left, _seconds(rest))]
    return UsageStatus.of(
        found,
        schema_version=SCHEMA_VERSION,
        from_s=from_s,
        to_s=to_s,
        by=by,
        total=_seconds(total),
        rows=tuple(rows),
    )


def _sum(accounts: Iterable[CpuAccount]) -> CpuAccount:
    return reduce(CpuAccount.plus, accounts, CpuAccount())


def _name(owner: int | None) -> str:
    if owner is None:
        return "no owner"
    return owner_of(owner).name or f"uid {owner}"


def _seconds(account: CpuAccount) -> CpuSeconds:
    return CpuSeconds(*(round(part, 3) for part in account))
