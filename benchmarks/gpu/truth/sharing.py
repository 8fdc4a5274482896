"""Jobs that share the GPU's time and memory as dlsched's reporter lets them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.truth.asked import Asked, NotRun, Tell
from benchmarks.gpu.truth.jobs import SEED, Jobs, go

ALONE_S, SHARED_S, REQUESTS_S = 5.0, 10.0, 8.0
CAP_BYTES = 1 << 30


def rates(
    asked: Asked, seconds: float, shares: Sequence[float | None], **environment: str
) -> list[float]:
    """Steps a second of trainings that run together; a share of None: not paced."""
    with Jobs(asked, **environment) as jobs:
        running = []
        for share in shares:
            allotted = {} if share is None else {"gpu_share": share}
            running.append(jobs.start("training", f"--seconds={seconds * asked.scale}", **allotted))
        go(*running)
        answers = [job.answer() for job in running]
    return [answer["chunks"] / answer["took_s"] for answer in answers]


def of_exclusive(got: Sequence[float], alone: float) -> dict[str, Any]:
    """Rates of jobs that ran together, beside that of one alone."""
    ratios = [each / alone for each in got]
    return {"measured_ratios": ratios, "sum_of_exclusive_ratio": sum(ratios)}


def of_shares(got: Sequence[float], alone: float, shares: Sequence[float]) -> dict[str, Any]:
    """The same, and how far each is from its share."""
    errors = [100 * (each / alone - share) for each, share in zip(got, shares, strict=True)]
    return {"shares": list(shares), "error_points": errors, **of_exclusive(got, alone)}


def pacing(asked: Asked, tell: Tell) -> None:
    """Two trainings paced to shares, and unpaced, beside one alone (before and after)."""
    asked.torch_or_not_run()
    tell(seed=SEED, alone_s=ALONE_S * asked.scale, shared_s=SHARED_S * asked.scale)
    (before,) = rates(asked, ALONE_S, (None,))
    equal = rates(asked, SHARED_S, (0.5, 0.5))
    unequal = rates(asked, SHARED_S, (0.7, 0.3))
    unpaced = rates(asked, SHARED_S, (None, None))
    (after,) = rates(asked, ALONE_S, (None,))
    alone = statistics.fmean((before, after))
    tell(
        alone_steps_per_s=[before, after],
        paced_equal=of_shares(equal, alone, (0.5, 0.5)),
        paced_unequal=of_shares(unequal, alone, (0.7, 0.3)),
        unpaced=of_exclusive(unpaced, alone),
    )


def percentiles(latencies_ms: Sequence[float]) -> dict[str, Any]:
    """By nearest rank."""
    if not latencies_ms:
        return {"requests": 0}
    ordered = sorted(latencies_ms)
    found = {f"p{p}_ms": ordered[math.ceil(p / 100 * len(ordered)) - 1] for p in (50, 95, 99)}
    return {"requests": len(ordered), **found}


def inference(asked: Asked, tell: Tell) -> None:
    """Latency of requests alone, and beside a training, by which of the two is paced."""
    asked.torch_or_not_run()
    seconds = REQUESTS_S * asked.scale
    tell(seed=SEED, requests_s=seconds)
    for name, beside, itself, training in (
        ("alone", False, None, None),
        ("beside_unpaced", True, None, None),
        ("beside_paced", True, None, 0.5),
        ("both_paced", True, 0.5, 0.5),
    ):
        with Jobs(asked) as jobs:
            shares = [{} if share is None else {"gpu_share": share} for share in (itself, training)]
            # The training begins earlier and ends later than all requests.
            longer = f"--seconds={seconds + 0.5}"
            other = jobs.start("training", longer, **shares[1]) if beside else None
            served = jobs.start("inference", f"--seconds={seconds}", **shares[0])
            go(*([] if other is None else [other]), served)
            found = percentiles(served.answer()["latencies_ms"])
            if other is not None:
                answer = other.answer()
                found["training_steps_per_s"] = answer["chunks"] / answer["took_s"]
        tell(**{name: found})


def memory(asked: Asked, tell: Tell) -> None:
    """Where an allocation ends that goes on past the memory that the allotment grants."""
    asked.torch_or_not_run()
    if asked.device == "cpu":
        raise NotRun("a CPU has no memory of a GPU's")
    with Jobs(asked) as jobs:
        tell(**jobs.start("training", "--cap", gpu_memory_bytes=CAP_BYTES).ready)
