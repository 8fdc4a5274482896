"""What a job imports to report its progress to dlsched. Needs only Python 3.8 or later.

    from dlsched.report import LatencyMiddleware, Progress, fit_to_allotment, latency, pace

    progress = Progress()
    progress.step(loss=0.31, accuracy=0.912)      # training
    fit_to_allotment()                            # as many threads as the job is granted cores
    pace()                                        # as much of a shared GPU's time as is granted

    with latency.measure():                       # serving
        answer = model(request)

    app = LatencyMiddleware(app, path_prefix="/predict")

Lightning reports by itself; `dlsched.report.transformers` and `dlsched.report.keras` have a
callback each, which nothing here imports.

Neither import nor calls ever raise into the job or block it, and they cost nothing where
DLSCHED_METRICS_FILE is not set.
"""

from __future__ import annotations

try:
    from dlsched.report.fitting import Fit, fit_to_allotment
    from dlsched.report.granted import Allotment, allotment
    from dlsched.report.pacing import pace
    from dlsched.report.progress import Progress
    from dlsched.report.timing import Latency, LatencyMiddleware, latency
except Exception:  # noqa: BLE001 - the job's import must never fail
    from dlsched.report.absent import (  # type: ignore[assignment]
        Allotment,
        Fit,
        Latency,
        LatencyMiddleware,
        Progress,
        allotment,
        fit_to_allotment,
        latency,
        pace,
    )

__all__ = [
    "Allotment",
    "Fit",
    "Latency",
    "LatencyMiddleware",
    "Progress",
    "allotment",
    "fit_to_allotment",
    "latency",
    "pace",
]
