"""The ceilings that the kernel holds while a plan is carried out, and what fits beside them.

Owns that sum, and which of the planned actions may be carried out at once. It must not act, nor
change the plan's order: what counts on another action waits for its outcome.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dlsched.model.actions import Action, Outcome, Resize, Start

_ROUNDING = 1e-6


class CeilingBudget:
    """By job, the ceiling in force. Under a policy that reserves their sum is held in capacity."""

    def __init__(
        self, ceilings: Mapping[str, float], capacity_cores: float, *, reserves: bool
    ) -> None:
        self._ceilings = dict(ceilings)
        self._capacity_cores = capacity_cores
        self._reserves = reserves
        self._sum = math.fsum(self._ceilings.values())

    def why_not(self, action: Action, promised_cores: float = 0.0) -> str | None:
        """Why an action does not fit beside what is in force now; None: it does.

        A shrink that failed is still in there, so the growth that counted on it does not fit.
        """
        if not self._reserves or not isinstance(action, Start | Resize):
            return None  # a move takes the limits in force along
        wanted, has = action.limits.cpu_cores, self._ceilings.get(action.job, 0.0)
        if wanted is not None and wanted <= has:
            return None
        total = math.inf if wanted is None else self._sum + promised_cores - has + wanted
        if total <= self._capacity_cores + _ROUNDING:
            return None
        return f"ceilings would sum to {total:.2f} of {self._capacity_cores:.2f} cores"

    def next_batch(self, actions: Sequence[Action]) -> Sequence[Action]:
        """The first of these, with those after it that count on none of them; none: it is to be
        withheld.

        Changes go together, one of a job, and only those that give or those that take. What grows
        is taken to succeed: were it to fail, the others would fit all the more.
        """
        promised_cores, jobs = 0.0, set[str]()
        first = actions[0]
        for count, action in enumerate(actions):
            alike = (
                isinstance(action, Resize)
                and isinstance(first, Resize)
                and action.grows == first.grows
                and action.job not in jobs
            )
            if (count and not alike) or self.why_not(action, promised_cores) is not None:
                return actions[:count]
            if not isinstance(action, Resize):
                return actions[:1]
            jobs.add(action.job)
            promised_cores += max(0.0, self._wanted(action) - self._ceilings.get(action.job, 0.0))
        return actions

    def take(self, outcome: Outcome) -> None:
        """What became of an action. One that is begun may still be under its former ceiling."""
        action = outcome.action
        if outcome.status not in ("done", "begun") or not isinstance(action, Start | Resize):
            return
        has, wanted = self._ceilings.get(action.job, 0.0), self._wanted(action)
        now = wanted if outcome.status == "done" else max(wanted, has)
        self._ceilings[action.job] = now
        self._sum += now - has

    def _wanted(self, action: Start | Resize) -> float:
        cores = action.limits.cpu_cores
        return self._capacity_cores if cores is None else cores
