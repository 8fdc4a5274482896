"""The training comparison: jobs, arrivals, targets, seeds, policies. Fixed before its first run.

Two schedules of the published kind on trainers of examples/images/training, scaled to minutes: a
training takes about half a minute with the node to itself, where the papers' take some minutes.
So the gap between two arrivals is `GAP_S` instead of the published 40 s: a second training comes
when the first is about half done, a third when the first would have ended. Every constant of a
policy that has time in it is taken times `SCALE` = GAP_S / 40: seconds times SCALE, FlowCon's alpha
(a rate, per second) divided by it. That is one rule for both policies, from the schedules alone;
nothing was tuned on results. Both are also run as they are.

`tradl-scaled-held` holds jobs that can be delivered back to a tenth of the limit that TRADL's text
leads to: a rule that leaves each of n - 1 others N/(n+1) cuts the last one's time by (n-1)/2n at
most, a third of it for three jobs and two fifths for five, by arithmetic.

Targets come from results/training-calibration.json: each model alone on the node,
under plain Docker, with `CALIBRATION_SEEDS`, which no comparison uses. `deliver` is what the worst
of these seeds holds from a third of its steps on for the three evaluations that a tier asks for,
`finish` the same at three quarters, each rounded to the easier side and one step easier still (a
step is 0.01 of an accuracy, 1 nat of the negative ELBO), so that other seeds reach it too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

IMAGE = "dlsched-examples/training"
THREADS = 2

GAP_S = 14.0
PUBLISHED_GAP_S = 40.0
SCALE = GAP_S / PUBLISHED_GAP_S

CALIBRATION_SEEDS = (101, 102)

EVALUATIONS = 3
"""A tier counts as reached with the third evaluation in a row at or beyond it, as in `tradl`."""


@dataclass(frozen=True)
class Model:
    """A trainer of examples/images/training: how it is asked to train, and its two tiers.

    All that shapes its curve is named here, so that a change of the trainer's defaults does not
    change the comparison.
    """

    name: str
    steps: int
    evaluate_every: int
    batch: int
    rate: float
    width: int
    metric: str
    deliver: float
    finish: float
    """Below `deliver`: lower is better."""


MODELS = {
    model.name: model
    for model in (
        Model("cnn", 700, 20, 128, 2e-3, 32, "accuracy", 0.83, 0.92),
        Model("mlp", 800, 20, 256, 2e-4, 1024, "accuracy", 0.90, 0.93),
        Model("vae", 1000, 25, 256, 1e-3, 768, "elbo", 118.0, 110.0),
        Model("lstm", 600, 15, 256, 4e-3, 192, "accuracy", 0.85, 0.91),
        Model("gru", 600, 15, 256, 2e-3, 192, "accuracy", 0.80, 0.88),
        Model("birnn", 600, 15, 256, 2e-3, 256, "accuracy", 0.77, 0.85),
    )
}


def safe(held: float, *, lower: bool) -> float:
    """A target that other seeds reach too: rounded to the easier side, and one step easier still.

    A step is 0.01 of a rate (450 held-out images are not finer), and 1 of a loss.
    """
    if lower:
        return float(math.ceil(held) + 1)
    return round(math.floor(held * 100) / 100 - 0.01, 2)


@dataclass(frozen=True)
class TrainingJob:
    """One job of a schedule."""

    name: str
    model: Model
    arrives_s: float


def command(model: Model, seed: int, threads: int = THREADS) -> list[str]:
    options = {
        "model": model.name,
        "steps": model.steps,
        "evaluate-every": model.evaluate_every,
        "batch": model.batch,
        "lr": model.rate,
        "width": model.width,
        "threads": threads,
        "seed": seed,
    }
    words = (word for name, value in options.items() for word in (f"--{name}", str(value)))
    return ["python", "train.py", *words]


def spec_text(job: TrainingJob, seed: int) -> str:
    words = ", ".join(f"'{word}'" for word in command(job.model, seed))
    one = job.model
    return (
        f"name: {job.name}\n"
        f"image: {IMAGE}\n"
        f"command: [{words}]\n"
        "memory: 1GiB\n"
        "network: none\n"
        "stop: {grace: 5s}\n"
        f"target: {{metric: {one.metric}, deliver: {one.deliver:g}, finish: {one.finish:g}}}\n"
    )


STALLS = 'python "$@" & while kill -0 $!; do sleep 6; kill -STOP $!; sleep 4; kill -CONT $!; done'
"""A shell's loop in which a program stands still in four of ten seconds, as for its loader."""


def endless(name: str, seed: int, *, stalls: bool = False) -> str:
    """The job file of a training of that model that does not end while anybody looks."""
    model = replace(MODELS[name], steps=1_000_000)
    text = spec_text(TrainingJob(name, model, 0.0), seed)
    return text.replace("['python', ", f"['sh', '-c', '{STALLS}', 'sh', ") if stalls else text


@dataclass(frozen=True)
class Schedule:
    """Jobs and when they come."""

    name: str
    jobs: tuple[TrainingJob, ...]
    deadline_s: float
    """A run that takes longer has failed."""
    text: Callable[[TrainingJob, int], str] = spec_text
    """The job file of a job under a seed."""


def _fixed() -> Schedule:
    """The published three: VAE, then the digits' CNN, then an LSTM, a gap between two arrivals."""
    models = [MODELS[name] for name in ("vae", "cnn", "lstm")]
    jobs = [TrainingJob(model.name, model, index * GAP_S) for index, model in enumerate(models)]
    return Schedule("three-jobs", tuple(jobs), 400.0)


def _random(count: int, seed: int) -> Schedule:
    """Models drawn without repeats, arrivals uniform over what as many fixed gaps would take."""
    chance = random.Random(seed)
    models = chance.sample(sorted(MODELS), count)
    arrivals = sorted(round(chance.uniform(0.0, (count - 1) * GAP_S), 1) for _ in models)
    jobs = [
        TrainingJob(name, MODELS[name], round(at_s - arrivals[0], 1))
        for name, at_s in zip(models, arrivals, strict=True)
    ]
    return Schedule("random-five", tuple(jobs), 600.0)


SCHEDULES = (_fixed(), _random(5, seed=1))


def _scaled(name: str, **parameters: float | str) -> str:
    return f"{name}?" + "&".join(
        f"{key}={value if isinstance(value, str) else f'{value:g}'}"
        for key, value in parameters.items()
    )


_TRADL = {"interval_s": 10 * SCALE, "window_s": 30 * SCALE, "patience_s": 300 * SCALE}

POLICIES = {
    "none": "none",
    "fair": "fair",
    "flowcon": "flowcon",
    "tradl": "tradl",
    "dqoes": "dqoes",
    "adaptive": "adaptive",
    "flowcon-scaled": _scaled("flowcon", alpha=0.03 / SCALE, interval_s=30 * SCALE),
    "tradl-scaled": _scaled("tradl", **_TRADL),
    "tradl-scaled-closest": _scaled("tradl", weights="closest", **_TRADL),
    "tradl-scaled-held": _scaled("tradl", settled_ratio=0.1, **_TRADL),
}
"""What a row calls a policy, and how it is spelled with its parameters."""
