"""The decision of a policy that only places queued jobs, and empties nodes that drain."""

from __future__ import annotations

from dlsched.cluster.core.draining import moves_off
from dlsched.cluster.core.model import ClusterDecision, ClusterMemory
from dlsched.cluster.core.occupancy import Occupancy
from dlsched.cluster.core.placing import SOON_S, Choice, place

ROUND_S = 10.0
"""Between rounds, where a policy has no interval of its own."""


def decision(
    occupancy: Occupancy, choose: Choice, memory: ClusterMemory | None = None
) -> ClusterDecision:
    """A decision without moves but those off draining nodes."""
    draining = moves_off(occupancy, choose)
    found = place(occupancy, choose)
    return ClusterDecision(
        place=found.place,
        moves=draining.moves,
        why={**draining.why, **found.why},
        memory=memory,
        next_s=SOON_S if found.more else ROUND_S,
    )
