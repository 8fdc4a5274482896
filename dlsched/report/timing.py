"""`latency`: latencies, failures and requests in flight; and middleware that measures those of any
ASGI application, without its framework. It never raises into the job."""

from __future__ import annotations

import contextlib
from typing import Any, Awaitable, Callable, ContextManager, Dict, Optional, Tuple

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


Message = Dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class LatencyMiddleware:
    """Measures each HTTP request until the last part of its body is sent.

    A status of 500 and above, an exception and a response that never ends are errors. With
    `path_prefix` only requests to paths that begin with it count: health checks do not.
    """

    def __init__(self, app: App, path_prefix: Optional[str] = None) -> None:
        self.app = app
        self.path_prefix = path_prefix

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection as the application does."""
        counts = scope.get("type") == "http" and (
            self.path_prefix is None or str(scope.get("path", "")).startswith(self.path_prefix)
        )
        if not counts:
            await self.app(scope, receive, send)
            return
        measurement = Measurement()
        outcome = "latency"

        async def watched(message: Message) -> None:
            nonlocal outcome
            kind = message.get("type")
            if kind == "http.response.start" and message.get("status", 500) >= 500:
                outcome = "error"
            await send(message)
            last = kind == "http.response.body" and not message.get("more_body", False)
            if last or kind == "http.response.pathsend":
                measurement.end(outcome)

        measurement.begin()
        try:
            await self.app(scope, receive, watched)
        finally:
            measurement.end("error")
