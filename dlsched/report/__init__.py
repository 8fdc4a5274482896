"""What a job imports to tell dlsched how it is doing. Python 3.8 and later, nothing else needed.

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

Owns the names above and `allotment()`. It must not raise into the job, when it is imported or
later; block it; or cost anything where DLSCHED_METRICS_FILE is not set.
"""

from __future__ import annotations

try:
    from dlsched.report.asgi import LatencyMiddleware
    from dlsched.report.fitting import Fit, fit_to_allotment
    from dlsched.report.granted import Allotment, allotment
    from dlsched.report.pacing import pace
    from dlsched.report.progress import Progress
    from dlsched.report.timing import Latency, latency
except Exception:  # noqa: BLE001 - whatever it is, the job's import must not fail by it
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
