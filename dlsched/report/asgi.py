"""Middleware that measures an ASGI application's requests, without any framework."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Dict, Optional

from dlsched.report.timing import Measurement

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
