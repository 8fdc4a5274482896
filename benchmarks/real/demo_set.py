"""The demo set: eight real models whose targets nobody chose.

CPU shares are drawn log-uniform over a factor of ten from a printed seed and scaled to a part of
the capacity measured on the host at hand; each target is then the latency measured at that share.
So the set means the same on 2 cores and on 64, and is feasible by construction below capacity.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

MODELS = ("mobilenet", "xception", "inception", "resnet", "vgg")
"""Networks in examples/images/inference."""

BATCH = {"mobilenet": 384, "xception": 72, "inception": 40, "resnet": 24, "vgg": 56}
"""Images a request: about 10 ms of CPU, so that ten seconds hold enough requests to judge."""

SPREAD = 10.0

FLOOR_CORES = 0.02
"""Every model's `cpus: min`."""


@dataclass(frozen=True)
class DemoJob:
    """One model of the set and its drawn part of the demand."""

    name: str
    model: str
    batch: int
    part: float
    """Of the whole set's demand; the parts sum to 1."""


def draw(seed: int, jobs: int = 8) -> tuple[DemoJob, ...]:
    """The set of that seed."""
    chance = random.Random(seed)
    draws = [SPREAD ** chance.random() for _ in range(jobs)]
    models = [MODELS[index % len(MODELS)] for index in range(jobs)]
    chance.shuffle(models)
    total = sum(draws)
    return tuple(
        DemoJob(f"{model}-{index}", model, BATCH[model], share / total)
        for index, (model, share) in enumerate(zip(models, draws, strict=True), start=1)
    )


def spec_text(job: DemoJob, target_s: float | None) -> str:
    """The job file, as a user would write it."""
    lines = [
        f"name: {job.name}",
        "image: dlsched-examples/inference",
        f"command: [python, runner.py, --model, {job.model}, --batch, '{job.batch}']",
        "memory: 512MiB",
        "network: none",
        f"cpus: {{min: {FLOOR_CORES:g}}}",
        "stop: {grace: 5s}",
    ]
    if target_s is not None:
        lines.append(f"target: {{latency: {target_s * 1000:.4g}ms}}")
    return "\n".join(lines) + "\n"
