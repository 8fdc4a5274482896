"""A log that the test writes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any


class FakeLog:
    """What it has is put into `chunks`; an exception there is raised, and None ends it."""

    def __init__(self) -> None:
        self.opened: list[Any] = []
        """From where it was opened, each time."""
        self.chunks: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
        self.refuses: Exception | None = None
        self.taken = 0
        self.taken_up = threading.Event()
        """A chunk was asked for after another one."""
        self.closed = False

    def __call__(self, since: float | bool | None) -> FakeLog:
        self.opened.append(since)
        if self.refuses is not None:
            raise self.refuses
        return self

    def follow(self, container: str, since_s: float | None) -> FakeLog:
        """It, as the log of whatever container."""
        return self(since_s)

    def __iter__(self) -> Iterator[bytes]:
        while (chunk := self.chunks.get()) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            self.taken += 1
            yield chunk
            self.taken_up.set()

    def close(self) -> None:
        self.closed = True
        self.chunks.put(None)
