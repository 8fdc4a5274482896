"""How the kernel divides a node: by weight, up to what each can use, nothing left idle.

Owns water-filling of mean core use. It must not know what the claims are for.
"""

from __future__ import annotations

from collections.abc import Sequence

Claim = tuple[float, float]
"""Weight, and the most cores that can be used (a quota included)."""


def divide(cores: float, claims: Sequence[Claim]) -> list[float]:
    """What each claim gets: one level by weight, save who wants less than that.

    The sum is the lesser of the cores and of all that is wanted; nobody gets more than wanted.
    """
    given = [0.0] * len(claims)
    left, weight = cores, sum(claim[0] for claim in claims)
    # Whoever is content first leaves the rest to those behind.
    for index in sorted(range(len(claims)), key=lambda one: claims[one][1] / claims[one][0]):
        mine, wanted = claims[index]
        given[index] = min(wanted, max(0.0, left) * mine / weight if weight > 0.0 else 0.0)
        left -= given[index]
        weight -= mine
    return given
