"""The records that a cycle leaves: what a full disk refuses, and what a dry run keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.config.settings import DeliverHook
from dlsched.control.ledger.state import State
from dlsched.daemon.deliveries import Deliveries
from dlsched.daemon.hook import Hook
from dlsched.daemon.records import JobRecords, ReadOnlyRecords
from dlsched.model.state import Ended, NodeView, Snapshot
from dlsched.store.jobs import delivered_records, ended_records
from tests.doubles import texts

NOW = "2026-01-01T00:00:00Z"
SNAPSHOT = Snapshot(1, 100.0, NodeView(4.0, 4.0, 1 << 30))
A_ENDED = State(SNAPSHOT, ended=(Ended("aa", "d1", "finished", "exit code 0"),))
NOTHING = State(SNAPSHOT)


@pytest.fixture
def records(tmp_path: Path) -> JobRecords:
    hook = Hook(DeliverHook(), lambda _: None)
    deliveries = Deliveries(delivered_records(tmp_path), hook, lambda *_: None)
    return JobRecords(ended_records(tmp_path), deliveries, lambda: NOW)


def test_an_end_is_on_the_disk_with_its_time_until_it_is_lifted(
    records: JobRecords, tmp_path: Path
) -> None:
    assert records.keep(A_ENDED) == ()
    assert ended_records(tmp_path).all()["aa"].wall_time == NOW
    records.keep(State(SNAPSHOT, lifts=("aa",)))
    assert (records.ended(), ended_records(tmp_path).all()) == ({}, {})


def test_an_end_that_a_full_disk_refuses_counts_and_is_told_until_it_is_written(
    records: JobRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dlsched.store.records.write_whole", full)
        for state in (A_ENDED, NOTHING, NOTHING):
            records.keep(state)
            told = "the end of a job cannot be recorded: No space left on device"
            assert texts(records.alarms()) == (told,)
        assert records.ended()["aa"].kind == "finished"
        assert ended_records(tmp_path).all() == {}
    records.keep(NOTHING)
    assert texts(records.alarms()) == ()
    assert ended_records(tmp_path).all()["aa"].kind == "finished"


def test_a_dry_run_reads_records_and_keeps_none(records: JobRecords, tmp_path: Path) -> None:
    records.keep(A_ENDED)
    dry = ReadOnlyRecords(records)
    assert set(dry.ended()) == {"aa"}
    assert dry.keep(State(SNAPSHOT, lifts=("aa",), ended=(Ended("bb", "d2", "failed"),))) == ()
    assert set(ended_records(tmp_path).all()) == {"aa"}
