"""`latency`: latencies, failures and requests in flight. It never raises into the job."""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager, Optional, Tuple

from dlsched.report.writer import Writer, current


class Latency:
    """The latency of this process's requests. Without DLSCHED_METRICS_FILE it does nothing."""

    def measure(self) -> ContextManager[Any]:
        """Measure the body of a `with`; one that raises counts as an error."""
        return Measurement()

    def observe(self, seconds: float) -> None:
        """Count a request that was answered in that many seconds."""
        with contextlib.suppress(Exception):
            writer = current()
            if writer is not None:
                try:
                    writer.observed(float(seconds))
                except (TypeError, ValueError, OverflowError):
                    writer.drop()

    def error(self) -> None:
        """Count a failed request."""
        with contextlib.suppress(Exception):
            writer = current()
            if writer is not None:
                writer.failed()

    @property
    def dropped(self) -> int:
        """Number of lines and values that could not be written so far."""
        writer = current()
        return 0 if writer is None else writer.dropped


class Measurement:
    """One request: in flight from `begin` to the first `end`."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: Optional[Tuple[Writer, object]] = None

    def begin(self) -> None:
        with contextlib.suppress(Exception):
            writer = current()
            if writer is not None:
                self._open = (writer, writer.request_begun())

    def end(self, counted: str = "latency") -> None:
        """It is over: `latency`, `error` or `neither`. A second call does nothing."""
        with contextlib.suppress(Exception):
            if self._open is not None:
                (writer, token), self._open = self._open, None
                writer.request_ended(token, counted)

    def __enter__(self) -> Measurement:
        self.begin()
        return self

    def __exit__(self, kind: Optional[type], error: object, trace: object) -> None:
        if kind is None:
            self.end()
        elif issubclass(kind, (GeneratorExit, KeyboardInterrupt, SystemExit)):
            self.end("neither")
        else:
            self.end("error")


latency = Latency()
