"""Applied CPU ceilings, the room beside them, and which actions can run as a batch. A plan's order
is kept: an action that depends on another waits for its outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set

from dlsched.model.actions import Action, Memory, Outcome, Resize, Start
from dlsched.model.spec import JobSpec, OwnerCeilings
from dlsched.model.state import JobState, Snapshot

_ROUNDING = 1e-6
_HOLDS_CEILING = frozenset(
    state for state in JobState if state.holds and state is not JobState.PULLING
)
_IS_TO_START = frozenset({JobState.WAITING, JobState.PULLING})
_RESTS = frozenset({JobState.PAUSED, JobState.RESTARTING})


def applied_ceilings(snapshot: Snapshot) -> dict[str, float]:
    """Ceiling by job, as applied or about to be; no ceiling counts as all capacity. A job whose
    image is still being pulled is left out: its limits are decided when it starts. A job that is
    paused or between two runs holds an even share at most, beside one more job if any is to start:
    the ceiling of one that started alone is lowered only in the first cycle in which it runs."""
    capacity = snapshot.node.capacity_cores
    holding = [job for job in snapshot.jobs if job.state in _HOLDS_CEILING]
    even = capacity / max(1, len(holding) + any(job.state in _IS_TO_START for job in snapshot.jobs))
    ceilings: dict[str, float] = {}
    for job in holding:
        cores = capacity if job.actual.cpu_cores is None else job.actual.cpu_cores
        if job.state in _RESTS:
            cores = min(cores, max(even, job.spec.bounds.floor_cores))
        ceilings[job.name] = cores
    return ceilings


def owner_rooms(
    snapshot: Snapshot,
    starts: Sequence[JobSpec],
    ceilings_of: Callable[[int | None], OwnerCeilings | None],
) -> dict[int | None, float]:
    """By owner with a ceiling of cores, the maximum sum for that owner's running jobs. Room is
    reserved for the owner's containers that do not run yet, and for the floors of `starts`."""
    owners = {job.spec.owner for job in snapshot.jobs} | {spec.owner for spec in starts}
    bounded = {owner: ceilings_of(owner) for owner in owners}
    applied = applied_ceilings(snapshot) if any(bounded.values()) else {}
    settled = {job.name for job in snapshot.running} | {spec.name for spec in starts}
    rooms: dict[int | None, float] = {}
    grain = snapshot.node.grain_cores
    for owner, ceilings in bounded.items():
        if ceilings is None or ceilings.cpu_cores is None:
            continue
        theirs = {job.name for job in snapshot.jobs if job.spec.owner == owner} - settled
        held = sum(applied.get(name, 0.0) for name in theirs)
        floors = sum(spec.bounds.least_cores(grain) for spec in starts if spec.owner == owner)
        rooms[owner] = max(0.0, ceilings.cpu_cores - held - floors)
    return rooms


class CeilingBudget:
    """Applied ceilings by job. Under a policy that reserves, their sum stays within capacity."""

    def __init__(
        self,
        ceilings: Mapping[str, float],
        capacity_cores: float,
        *,
        reserves: bool,
        unbounded: Set[str] = frozenset(),
    ) -> None:
        """`unbounded`: jobs whose ceilings do not count, as they come last."""
        self._unbounded = unbounded
        self._ceilings = dict(ceilings)
        self._capacity_cores = capacity_cores
        self._reserves = reserves
        self._sum = math.fsum(self._ceilings.values())

    def why_not(self, action: Action, promised_cores: float = 0.0) -> str | None:
        """Why an action does not fit beside the applied ceilings; None: it fits. After a failed
        shrink the job's old ceiling still counts, so growth that depends on it does not fit."""
        if not self._reserves or not isinstance(action, Start | Resize):
            return None  # a move keeps the applied limits
        if action.job in self._unbounded:
            return None
        wanted, has = action.limits.cpu_cores, self._ceilings.get(action.job, 0.0)
        if wanted is not None and wanted <= has:
            return None
        total = math.inf if wanted is None else self._sum + promised_cores - has + wanted
        if total <= self._capacity_cores + _ROUNDING:
            return None
        return f"CPU limits would add up to {total:.2f} of {self._capacity_cores:.2f} cores"

    def next_batch(self, actions: Sequence[Action]) -> Sequence[Action]:
        """The first action with those that can run together with it; empty: it must be withheld.

        Resizes run together, and so do memory limits: at most one for each job, either all shrinks
        or all growths. Growths are assumed to succeed: if one fails, the others fit all the more.
        """
        promised_cores, jobs = 0.0, set[str]()
        first = actions[0]
        for count, action in enumerate(actions):
            alike = (
                isinstance(action, Resize | Memory)
                and isinstance(first, type(action))
                and action.grows == first.grows
                and action.job not in jobs
            )
            if (count and not alike) or self.why_not(action, promised_cores) is not None:
                return actions[:count]
            if not isinstance(action, Resize | Memory):
                return actions[:1]
            jobs.add(action.job)
            if isinstance(action, Memory):
                continue
            promised_cores += max(0.0, self._wanted(action) - self._ceilings.get(action.job, 0.0))
        return actions

    def take(self, outcome: Outcome) -> None:
        """Record an outcome. A change that is only begun counts as the larger of both ceilings."""
        action = outcome.action
        if not outcome.ok or not isinstance(action, Start | Resize):
            return
        has, wanted = self._ceilings.get(action.job, 0.0), self._wanted(action)
        now = wanted if outcome.status == "done" else max(wanted, has)
        self._ceilings[action.job] = now
        self._sum += now - has

    def _wanted(self, action: Start | Resize) -> float:
        cores = 0.0 if action.job in self._unbounded else action.limits.cpu_cores
        return self._capacity_cores if cores is None else cores
