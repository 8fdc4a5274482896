"""The store as one controller has it in a simulation, whose writes the invariants know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from dlsched.cluster.core.records import Record
from dlsched.cluster.store import ClusterStore, MemoryStore, Stored

Wrote = Callable[[Stored, int | None], None]
"""What was committed, and the version that the writer knew."""


def watched(store: MemoryStore, wrote: Wrote, removed: Callable[[Record], None]) -> ClusterStore:
    return cast("ClusterStore", _Watched(store, wrote, removed))


class _Watched:
    def __init__(self, store: MemoryStore, wrote: Wrote, removed: Callable[[Record], None]) -> None:
        self._store, self._wrote, self._removed = store, wrote, removed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, record: Record, version: int | None) -> int:
        try:
            return self._store.put(record, version)
        finally:  # a writer may die with its record committed
            stored = self._store.records().get(record.job)
            if stored is not None and stored.record is record:
                self._wrote(stored, version)

    def remove(self, job: str, version: int) -> None:
        before = self._store.records()[job].record
        self._store.remove(job, version)
        self._removed(before)
