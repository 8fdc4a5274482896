"""The CPU that a request can use at once, and what it waits beside it."""

from __future__ import annotations

from dlsched.estimate.latency.observed import Seen
from dlsched.estimate.tuning import CLEARLY, FINE, LITTLE

_LEAST_CORES, LEAST_CORE_S = 1e-4, 1e-9
"""No ceiling and no work of a request is reckoned with below these."""


def effective_cores(ceiling: float | None, width: float | None) -> float | None:
    if ceiling is None:
        return width
    least = max(ceiling, _LEAST_CORES)
    return least if width is None or least < width else width


def wait_and_width(
    seen: Seen,
    mean_s: float,
    law: float,
    fixed: float,
    settled: float,
    prior: float,
    width: float | None,
    remembered: float,
) -> tuple[float, float, float | None]:
    """Waiting, what it rests on, and the width."""
    count, ceiling = seen.sketch.count, seen.ceiling_cores
    gain = count / (count + settled + prior)
    held = effective_cores(ceiling, width)
    if not seen.free and held is not None:
        if seen.throttled and ceiling is not None:
            if width is not None and ceiling >= (1.0 - FINE) * width:
                width *= CLEARLY
            held = max(ceiling, _LEAST_CORES)
        fixed += gain * (mean_s - law / held - fixed)
        return fixed, min(settled + count, remembered), width
    # Busy all the time it uses what it can, and CPU time has less noise than latencies have.
    used = law / mean_s
    if seen.in_flight == 1 and seen.cpu_core_s is not None and seen.elapsed_s > 0.0:
        used = seen.cpu_core_s / seen.elapsed_s
    now = max(used / max(1.0 - max(fixed, 0.0) * used / law, LITTLE), _LEAST_CORES)
    return fixed, settled, now if width is None else width + gain * (now - width)
