"""Fixed weights for chosen services: what a clairvoyant who must choose once would do.

Owns that division. It must not know who is worth choosing.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.spec import Limits
from dlsched.model.state import Snapshot

BEHIND = 1e-3
"""Weight of a core of everybody else."""


class FixedPolicy:
    """No ceilings; those named weigh as they are given, the others next to nothing."""

    reserves = False

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = dict(weights)

    def decide(self, snapshot: Snapshot, _memory: PolicyMemory | None) -> Decision:
        names = [job.name for job in snapshot.running]
        return Decision(
            limits=dict.fromkeys(names, Limits()),
            why=dict.fromkeys(names, "chosen in advance"),
            weights={name: self._weights.get(name, BEHIND) for name in names},
            next_s=60.0,
        )
