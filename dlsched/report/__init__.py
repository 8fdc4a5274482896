"""What a job imports to tell dlsched how it is doing. Python 3.8 and later, nothing else needed.

    from dlsched.report import Progress, latency

    progress = Progress()
    progress.step(loss=0.31, accuracy=0.912)      # training

    with latency.measure():                       # serving
        answer = model(request)

    app = LatencyMiddleware(app, path_prefix="/predict")

Owns the names above and `allotment()`. It must not raise into the job, when it is imported or
later; block it; or cost anything where DLSCHED_METRICS_FILE is not set.
"""

from __future__ import annotations

try:
    from dlsched.report.asgi import LatencyMiddleware
    from dlsched.report.granted import Allotment, allotment
    from dlsched.report.progress import Progress
    from dlsched.report.timing import Latency, latency
except Exception:  # noqa: BLE001 - whatever it is, the job's import must not fail by it
    from dlsched.report.absent import (  # type: ignore[assignment]
        Allotment,
        Latency,
        LatencyMiddleware,
        Progress,
        allotment,
        latency,
    )

__all__ = ["Allotment", "Latency", "LatencyMiddleware", "Progress", "allotment", "latency"]
