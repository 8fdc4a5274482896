"""Stand-ins without effect, for jobs that cannot load the reporter. Imports nothing."""

from __future__ import annotations


class Nothing:
    """Takes every call and does nothing; a context that does nothing, too."""

    dropped = 0

    def __init__(self, *_ignored, **_also):  # type: ignore[no-untyped-def]
        pass

    def __call__(self, *_ignored, **_also):  # type: ignore[no-untyped-def]
        return self

    def __enter__(self):  # type: ignore[no-untyped-def]
        return self

    def __exit__(self, *_ignored):  # type: ignore[no-untyped-def]
        return None

    step = checkpoint = measure = observe = error = __call__


class LatencyMiddleware:
    """Passes every call to the application."""

    def __init__(self, app, path_prefix=None):  # type: ignore[no-untyped-def]
        self.app = app
        self.path_prefix = path_prefix

    async def __call__(self, scope, receive, send):  # type: ignore[no-untyped-def]
        await self.app(scope, receive, send)


class Allotment:
    """Never created: `allotment()` returns None."""


def allotment():  # type: ignore[no-untyped-def]
    """Return None."""


class Fit(tuple):  # type: ignore[type-arg]
    """One thread."""

    threads, cores, workers, gpu_memory_bytes = 1, 1.0, 0, None


def fit_to_allotment(*_ignored, **_also):  # type: ignore[no-untyped-def]
    """Change nothing."""
    return Fit((1, 1.0, 0, None))


Progress = Latency = Nothing
latency = pace = Nothing()  # type: ignore[no-untyped-call]
