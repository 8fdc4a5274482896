"""How fast nodes are for the same work, without a benchmark: by the steps per core-second of jobs
of one image on different nodes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import NamedTuple

LEAST_IMAGES = 2
"""So many images must have run on a node and elsewhere before their ratio counts: one image may do
more work in a step there than elsewhere."""
ALIKE_RATIO = 0.1
"""Nodes whose speed differs by less from the typical one count as typical."""
_LEAST, _MOST = 0.1, 10.0


class Pace(NamedTuple):
    """The pace of one job on one node."""

    image: str
    node: str
    steps_per_core_s: float


def speeds(paces: Iterable[Pace]) -> dict[str, float]:
    """By node, where enough is known: work done in a core-second, relative to the typical node."""
    by_image: dict[str, dict[str, list[float]]] = {}
    for one in paces:
        if 0.0 < one.steps_per_core_s < math.inf:
            nodes = by_image.setdefault(one.image, {})
            nodes.setdefault(one.node, []).append(one.steps_per_core_s)
    ratios: dict[str, list[float]] = {}
    for nodes in by_image.values():
        if len(nodes) < 2:
            continue
        means = {node: statistics.median(values) for node, values in nodes.items()}
        typical = statistics.median(means.values())
        for node, mean in means.items():
            ratios.setdefault(node, []).append(mean / typical)
    return _typical_is_one(
        {
            node: min(max(statistics.median(values), _LEAST), _MOST)
            for node, values in ratios.items()
            if len(values) >= LEAST_IMAGES
        }
    )


def _typical_is_one(found: Mapping[str, float]) -> dict[str, float]:
    return {node: 1.0 if abs(speed - 1.0) < ALIKE_RATIO else speed for node, speed in found.items()}
