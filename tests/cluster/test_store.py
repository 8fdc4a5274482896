"""Compare-and-swap: of two writers exactly one wins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlsched.cluster.core.records import Record, RecordState, Submission
from dlsched.cluster.store import MemoryStore, StaleRecord

RECORD = Record("job", RecordState.PLACED, "a")


def test_of_two_first_writers_one_wins() -> None:
    store = MemoryStore(())
    store.put(RECORD, None)
    with pytest.raises(StaleRecord):
        store.put(Record("job", RecordState.PLACED, "b"), None)
    assert store.records()["job"].record.on == "a"


def test_a_stale_version_is_refused() -> None:
    store = MemoryStore(())
    first = store.put(RECORD, None)
    second = store.put(Record("job", RecordState.PLACED, "b"), first)
    assert second != first
    for change in (lambda: store.put(RECORD, first), lambda: store.remove("job", first)):
        with pytest.raises(StaleRecord):
            change()
    store.remove("job", second)
    assert store.records() == {}


def test_a_version_is_never_used_again() -> None:
    store = MemoryStore(())
    first = store.put(RECORD, None)
    store.remove("job", first)
    store.put(RECORD, None)
    with pytest.raises(StaleRecord):
        store.put(RECORD, first)


def test_only_who_submitted_a_job_changes_or_withdraws_it() -> None:
    store = MemoryStore(())
    submission = Submission("resnet", "name: resnet\n", by="gpu-1")
    store.submit(submission)
    store.submit(replace(submission, text="name: resnet\nweight: 2\n"))
    with pytest.raises(StaleRecord, match="gpu-1 has a job of that name"):
        store.submit(replace(submission, by="gpu-2"))
    store.withdraw("resnet", by="gpu-2")
    assert store.submissions()["resnet"].text == "name: resnet\nweight: 2\n"
    store.withdraw("resnet", by="gpu-1")
    assert store.submissions() == {}
