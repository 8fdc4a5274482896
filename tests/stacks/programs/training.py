"""The truth of a training: the learning curve that the program itself measured."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

OUT = Path(os.environ.get("STACKS_OUT", "."))


def keep(curve: Sequence[tuple[int, float]]) -> None:
    """Write the curve: step and value of each evaluation."""
    truth = {"curve": [[int(step), float(value)] for step, value in curve]}
    (OUT / "truth.json").write_text(json.dumps(truth), encoding="utf-8")


def circles(count: int, seed: int) -> tuple[list[list[float]], list[int]]:
    """Points in a square with noise, and whether each is inside a circle: learnt in seconds."""
    import random

    chance = random.Random(seed)
    points = [[chance.uniform(-1, 1) for _ in range(4)] for _ in range(count)]
    inside = [int(x * x + y * y < 0.5) for x, y, *_ in points]
    return points, [one ^ (chance.random() < 0.1) for one in inside]
