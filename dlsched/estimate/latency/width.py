"""Estimate of a request's parallelism, and of the time that it waits for other things than CPU."""

from __future__ import annotations

from dlsched.estimate.latency.observed import ServiceSample
from dlsched.estimate.tuning import CLEARLY, FINE, LITTLE

_LEAST_CORES, LEAST_CORE_S = 1e-4, 1e-9
"""Lower bounds of ceilings and of the work of a request."""


def effective_cores(ceiling: float | None, width: float | None) -> float | None:
    if ceiling is None:
        return width
    least = max(ceiling, _LEAST_CORES)
    return least if width is None or least < width else width


def wait_and_width(
    sample: ServiceSample,
    mean_s: float,
    law: float,
    fixed: float,
    settled: float,
    prior: float,
    width: float | None,
    remembered: float,
) -> tuple[float, float, float | None]:
    """The wait, the requests it rests on, and the parallelism, by the formulas in `law`: the wait
    where the ceiling binds, the parallelism where it does not."""
    count, ceiling = sample.sketch.count, sample.ceiling_cores
    gain = count / (count + settled + prior)
    held = effective_cores(ceiling, width)
    if not sample.free and held is not None:
        if sample.throttled and ceiling is not None:
            if width is not None and ceiling >= (1.0 - FINE) * width:
                width *= CLEARLY
            held = max(ceiling, _LEAST_CORES)
        fixed += gain * (mean_s - law / held - fixed)
        return fixed, min(settled + count, remembered), width
    # A busy service uses all that it can, and CPU time is less noisy than latency.
    used = law / mean_s
    if sample.in_flight == 1 and sample.cpu_core_s is not None and sample.elapsed_s > 0.0:
        used = sample.cpu_core_s / sample.elapsed_s
    now = max(used / max(1.0 - max(fixed, 0.0) * used / law, LITTLE), _LEAST_CORES)
    return fixed, settled, now if width is None else width + gain * (now - width)
