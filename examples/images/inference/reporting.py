"""`dlsched.report` where there is one, nothing measured where there is none.

The daemon lays the reporter into the containers that it starts. An image that somebody runs by
hand lacks it, and must work all the same.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

Measure = Callable[[], contextlib.AbstractContextManager[Any]]


def measure() -> Measure:
    """What to put around a batch: `with measure()(): ...`, a new context each time."""
    try:
        from dlsched.report import latency
    except ImportError:
        _say_absent()
        return contextlib.nullcontext
    return latency.measure


def with_latency(app: Any, path_prefix: str) -> Any:
    """The ASGI application, its requests under that path measured."""
    try:
        from dlsched.report import LatencyMiddleware
    except ImportError:
        _say_absent()
        return app
    return LatencyMiddleware(app, path_prefix=path_prefix)


def _say_absent() -> None:
    print("dlsched.report is not here: running without reports", file=sys.stderr, flush=True)
