"""Stand-ins without effect, for jobs that cannot load the reporter. Imports nothing."""

from __future__ import annotations


class _Nothing:
    def __enter__(self):  # type: ignore[no-untyped-def]
        return self

    def __exit__(self, *_ignored):  # type: ignore[no-untyped-def]
        return None


class Progress:
    """Reports nothing."""

    def __init__(self, *_ignored, **_also):  # type: ignore[no-untyped-def]
        pass

    def step(self, *_ignored, **_also):  # type: ignore[no-untyped-def]
        """Do nothing."""

    def checkpoint(self, *_ignored, **_also):  # type: ignore[no-untyped-def]
        """Do nothing."""


class Latency:
    """Measures nothing."""

    dropped = 0

    def measure(self):  # type: ignore[no-untyped-def]
        """A context that does nothing."""
        return _Nothing()

    def observe(self, _seconds):  # type: ignore[no-untyped-def]
        """Do nothing."""

    def error(self):  # type: ignore[no-untyped-def]
        """Do nothing."""


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


class Pacer(_Nothing):
    """Never rests."""

    def __call__(self):  # type: ignore[no-untyped-def]
        """Do nothing."""


latency = Latency()
pace = Pacer()
