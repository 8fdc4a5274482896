"""Containers out of which, or into which, files are being copied.

The engine holds such a container's lock all the time: an inspection waits for the end of the copy,
which may take minutes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Transfers:
    """Thread-safe."""

    def __init__(self, over: Callable[[str], None] = lambda _: None) -> None:
        """`over` is called, from a thread, for a container that may be inspected again."""
        self._over = over
        self._lock = threading.Lock()
        self._copied: frozenset[str] = frozenset()

    def __contains__(self, container: str) -> bool:
        return container in self._copied

    @contextmanager
    def of(self, container: str) -> Iterator[None]:
        """A copy of that container's files."""
        with self._lock:
            self._copied |= {container}
        try:
            yield
        finally:
            with self._lock:
                self._copied -= {container}
            self._over(container)
