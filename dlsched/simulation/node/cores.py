"""Water-filling of a node's cores, as the kernel divides them."""

from __future__ import annotations

from collections.abc import Sequence

Claim = tuple[float, float]
"""Weight, and maximum of cores (a quota included)."""


def divide(cores: float, claims: Sequence[Claim]) -> list[float]:
    """The cores of each claim: by weight, up to its maximum; nothing stays idle that is wanted."""
    given = [0.0] * len(claims)
    left, weight = cores, sum(claim[0] for claim in claims)
    # Claims that are satisfied first leave the rest to the others.
    for index in sorted(range(len(claims)), key=lambda one: claims[one][1] / claims[one][0]):
        mine, wanted = claims[index]
        given[index] = min(wanted, max(0.0, left) * mine / weight if weight > 0.0 else 0.0)
        left -= given[index]
        weight -= mine
    return given
