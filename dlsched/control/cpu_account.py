"""Who has the CPU of whom: what each job asked for, was given and used, lent and borrowed, at one
moment. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from dlsched.model.forecast import Forecast
from dlsched.model.state import JobState, JobView, Snapshot
from dlsched.policies.fair_share import Claim, claim, water_fill


class CpuAccount(NamedTuple):
    """One job's part of the node, in cores; over a time, in CPU-seconds."""

    asked: float = 0.0
    """What it needs for its target by the policy's forecast, at least what it used. A job that
    waits for room asks for its floor."""
    given: float = 0.0
    """Its ceiling; without one, what it used."""
    used: float = 0.0
    lent: float = 0.0
    """The part of its fair share that other jobs used."""
    borrowed: float = 0.0
    """What it used beyond its fair share."""

    def plus(self, other: CpuAccount, times: float = 1.0) -> CpuAccount:
        """The sum of this and so many times the other."""
        return CpuAccount(*(a + b * times for a, b in zip(self, other, strict=True)))


class Accountant:
    """Accounts of every job; remembers the last fair shares, which seldom change."""

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._capacity_cores = math.nan
        self._fair: dict[str, float] = {}

    def accounts(
        self, snapshot: Snapshot, outlooks: Mapping[str, tuple[Forecast, ...]]
    ) -> dict[str, CpuAccount]:
        """By job, those with something in it."""
        fair = self._fair_shares(snapshot)
        used = {job.name: _used(job) for job in snapshot.jobs}
        unused = {name: max(cores - used[name], 0.0) for name, cores in fair.items()}
        borrowed = {name: max(used[name] - fair.get(name, 0.0), 0.0) for name in used}
        spare = math.fsum(unused.values())
        # What no job has as its fair share, such as the host's part, is lent by none of them.
        lent_ratio = min(math.fsum(borrowed.values()) / spare, 1.0) if spare > 0.0 else 0.0
        found = {}
        for job in snapshot.jobs:
            name = job.name
            limit = job.actual.cpu_cores if job.runs else None
            account = CpuAccount(
                asked=_asked(job, used[name], outlooks.get(name, ())),
                given=used[name] if limit is None else limit,
                used=used[name],
                lent=unused.get(name, 0.0) * lent_ratio,
                borrowed=borrowed[name],
            )
            if any(account):
                found[name] = account
        return found

    def _fair_shares(self, snapshot: Snapshot) -> dict[str, float]:
        """A background job has none: whatever it uses is borrowed."""
        foreground = snapshot.foreground
        capacity_cores = foreground.node.capacity_cores
        claims = {job.name: claim(job, capacity_cores) for job in foreground.running}
        if claims != self._claims or capacity_cores != self._capacity_cores:
            self._claims, self._capacity_cores = claims, capacity_cores
            self._fair = water_fill(capacity_cores, claims)
        return self._fair


def _used(job: JobView) -> float:
    cores = job.usage.cpu_cores
    return cores if cores is not None and math.isfinite(cores) and cores > 0.0 else 0.0


def _asked(job: JobView, used: float, outlooks: tuple[Forecast, ...]) -> float:
    if job.state is JobState.WAITING:
        return max(used, job.spec.bounds.floor_cores)
    if not job.runs:
        return used
    needs = [one.needs_cores for one in outlooks if one.needs_cores is not None]
    return max([used, *needs[:1]])
