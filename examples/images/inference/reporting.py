"""`dlsched.report` where there is one, nothing measured where there is none.

The daemon lays the reporter into the containers that it starts. An image that somebody runs by
hand lacks it, and must work all the same.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

try:
    from dlsched.report import LatencyMiddleware, latency

    measure = latency.measure
except ImportError:
    print("dlsched.report is not here: running without reports", file=sys.stderr, flush=True)
    measure = contextlib.nullcontext  # type: ignore[assignment]

    def LatencyMiddleware(app: Any, **_: Any) -> Any:  # type: ignore[no-redef]  # noqa: N802
        """The application itself."""
        return app
