"""Small real trainings for several hosts, drawn from a seed, and the hosts' sizes.

A training's CPU time is drawn log-uniform; its steps follow from what one step of its model took
on one thread. So its length on another machine is another one, but the same for each policy.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from benchmarks.real.training_set import IMAGE, MODELS, Model, command
from tools.hosts import Host

SIZES_CORES = (0.7, 0.7, 0.35)
"""What is left of two cores is for the engines, the daemons and the rest of the machine."""
LEAST_CORE_S, MOST_CORE_S = 25.0, 80.0
ARRIVE_S = 180.0
"""Arrivals are uniform up to this."""
EVALUATIONS = 40
START_CORE_S = 3.0
"""Until the first step, most of it the import of PyTorch."""
STEP_CORE_S = {
    "cnn": 0.055,
    "mlp": 0.055,
    "vae": 0.038,
    "lstm": 0.070,
    "gru": 0.052,
    "birnn": 0.070,
}


@dataclass(frozen=True)
class ClusterTraining:
    """One of them."""

    name: str
    model: Model
    work_core_s: float
    """About, its start included."""
    arrives_s: float
    seed: int

    def file(self) -> str:
        """Its job file."""
        one = self.model
        return json.dumps(  # JSON is YAML
            {
                "name": self.name,
                "image": IMAGE,
                "command": command(one, self.seed, threads=1),
                "memory": "1GiB",
                "network": "none",
                "volumes": [f"{self.name}:/ckpt"],
                "target": {"metric": one.metric, "deliver": one.deliver, "finish": one.finish},
                "checkpoint": {"signal": "SIGUSR1", "timeout": "60s", "path": "/ckpt"},
                "stop": {"grace": "30s"},
            }
        )


def draw(seed: int, count: int, arrive_s: float = ARRIVE_S) -> tuple[ClusterTraining, ...]:
    """The trainings of that seed, in the order in which they come."""
    chance = random.Random(f"cluster-real/{seed}")
    names = [sorted(MODELS)[index % len(MODELS)] for index in range(count)]
    chance.shuffle(names)
    arrivals = sorted(chance.uniform(0.0, arrive_s) for _ in names)
    return tuple(
        training(f"{name}-{index:02}", name, _length(chance), at_s - arrivals[0], seed + index)
        for index, (name, at_s) in enumerate(zip(names, arrivals, strict=True), start=1)
    )


def training(
    name: str, model: str, work_core_s: float, arrives_s: float, seed: int
) -> ClusterTraining:
    """A training of about that length."""
    steps = max(round((work_core_s - START_CORE_S) / STEP_CORE_S[model]), EVALUATIONS)
    one = replace(MODELS[model], steps=steps, evaluate_every=max(steps // EVALUATIONS, 1))
    return ClusterTraining(name, one, work_core_s, round(arrives_s, 1), seed)


def arrive(
    host: Host, trainings: Sequence[ClusterTraining], wait: Callable[[float], None] = time.sleep
) -> dict[str, float]:
    """Drop each file when it is due; returns the times, by job. `wait`: lets seconds pass."""
    began_s, arrived = time.monotonic(), {}
    for one in sorted(trainings, key=lambda one: one.arrives_s):
        wait(max(began_s + one.arrives_s - time.monotonic(), 0.0))
        arrived[one.name] = time.time()
        host.drop(one.name, one.file())
    return arrived


def _length(chance: random.Random) -> float:
    least, most = math.log(LEAST_CORE_S), math.log(MOST_CORE_S)
    return math.exp(chance.uniform(least, most))
