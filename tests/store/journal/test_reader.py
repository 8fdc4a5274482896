"""The history is read beside its writer, and as far as it goes when the file is not whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision
from dlsched.model.state import JobState
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.writer import Journal
from tests.store.journal.reports import Remembered, execute, job, report, resized


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal(path, frame_s=10.0, queue_reports=1000)
    yield journal
    journal.close()


def put(journal: Journal, first: int, last: int) -> None:
    write(journal, *map(report, range(first, last + 1)))


def write(journal: Journal, *reports: CycleReport) -> None:
    for one in reports:
        journal.write(one)
    journal.flush()


@pytest.mark.timed
def test_the_history_is_read_while_it_is_written(path: Path, journal: Journal) -> None:
    put(journal, 1, 25)
    with JournalReader(path) as reader:
        assert reader.cycles() == range(1, 26)
        reports = reader.reports(8, 99)
        assert next(reports) == report(8)

        put(journal, 26, 31)
        assert list(reports) == [report(n) for n in range(9, 32)]
        assert (reader.last_cycle(), reader.last_now_s()) == (31, 1031.0)
        assert reader.problem is None


@pytest.mark.timed
def test_a_range_outside_of_the_history_is_empty(path: Path, journal: Journal) -> None:
    put(journal, 5, 9)
    with JournalReader(path) as reader:
        assert list(reader.reports(1, 4)) == []
        assert list(reader.reports(10, 99)) == []
        assert [item.snapshot.cycle for item in reader.reports(1, 6)] == [5, 6]


@pytest.mark.timed
def test_the_last_changes_come_newest_first_and_by_job(path: Path, journal: Journal) -> None:
    write(journal, *(resized(report(n, job(), job("beta"))) for n in range(1, 5)))
    with JournalReader(path) as reader:
        assert [change.cycle for change in reader.last_changes("alpha", 2)] == [4, 3]
        assert [change.cycle for change in reader.last_changes(None, 9)] == [4, 3, 2, 1]
        assert reader.last_changes("alpha", 1)[0].why == "late: 60 ms of 50 ms"
        assert reader.last_changes("beta", 9) == ()


@pytest.mark.timed
def test_events_come_newest_first_and_by_job(path: Path, journal: Journal) -> None:
    write(
        journal,
        report(1, job(), job("beta")),
        report(2, job("beta", JobState.FINISHED, "exit 0")),
    )
    with JournalReader(path) as reader:
        assert [(event.job, event.kind) for event in reader.events(None, 2)] == [
            ("alpha", "left"),
            ("beta", "state"),
        ]
        [turned, arrived] = reader.events("beta", 9)
    assert (turned.before, turned.after, turned.reason) == ("running", "finished", "exit 0")
    assert arrived.kind == "arrived"


@pytest.mark.parametrize("content", [None, b"", b"no database at all " * 100])
def test_what_is_no_journal_answers_nothing_and_says_so(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)

    with JournalReader(path) as reader:
        assert reader.cycles() == range(0)
        assert (reader.last_cycle(), reader.last_now_s(), list(reader.reports())) == (0, 0.0, [])
        assert (reader.last_changes("a", 1), reader.events("a", 1)) == ((), ())
        assert reader.kept_memory("dqoes") is None
        assert reader.growth(1000).lasts_s is None
        assert str(path) in (reader.problem or "")


ENDLESS = "WITH RECURSIVE n(c) AS (SELECT 1 UNION ALL SELECT c + 1 FROM n)"


@pytest.mark.parametrize(
    "frames",
    [
        "TABLE tracks (title TEXT)",
        f"VIEW frames AS {ENDLESS} SELECT c AS cycle, 1 AS whole, 1.0 AS now_s, x'' AS body FROM n",
        "TABLE frames (cycle, whole, now_s, body)",
        "TABLE frames (cycle TEXT, whole INTEGER, now_s REAL, body BLOB) STRICT",
        "TABLE frames (cycle INTEGER, whole INTEGER, now_s REAL) STRICT",
    ],
)
def test_tables_that_are_no_journals_are_not_asked(path: Path, frames: str) -> None:
    execute(path, f"CREATE {frames}")

    with JournalReader(path) as reader:
        assert reader.cycles() == range(0)
        assert reader.problem == f"{path}: not a dlsched journal"


@pytest.mark.timed
def test_a_newer_file_is_read_as_far_as_it_is_understood(path: Path, journal: Journal) -> None:
    put(journal, 1, 12)
    journal.close()
    execute(path, "PRAGMA user_version = 99")

    with JournalReader(path) as reader:
        assert list(reader.reports()) == [report(n) for n in range(1, 13)]
        assert "has version 99" in (reader.problem or "")


@pytest.mark.timed
def test_changes_of_a_newer_file_are_told_as_far_as_they_are_understood(
    path: Path, journal: Journal
) -> None:
    write(journal, resized(report(1)))
    journal.close()
    with JournalReader(path) as reader:
        before = reader.last_changes("alpha", 9)
    execute(path, "ALTER TABLE changes ADD COLUMN more TEXT")

    with JournalReader(path) as reader:
        assert reader.last_changes("alpha", 9) == before
    assert [change.kind for change in before] == ["resize"]


@pytest.mark.timed
def test_a_cut_off_file_is_read_as_far_as_it_goes(path: Path, journal: Journal) -> None:
    put(journal, 1, 900)
    journal.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 2 // 3)

    with JournalReader(path) as reader:
        read = list(reader.reports())

    assert read
    assert read == [report(item.snapshot.cycle) for item in read]
    assert len(read) < 900
    assert str(path) in (reader.problem or "")


@pytest.mark.timed
def test_a_damaged_row_costs_the_rest_of_its_group(path: Path, journal: Journal) -> None:
    put(journal, 1, 30)
    journal.close()
    execute(path, "UPDATE frames SET body = x'00' WHERE cycle = 15")

    with JournalReader(path) as reader:
        numbers = [item.snapshot.cycle for item in reader.reports(1, 30)]

    assert numbers == [*range(1, 15), *range(21, 31)]
    assert "cycle 15 cannot be read" in (reader.problem or "")


@pytest.mark.timed
def test_the_last_cycle_comes_with_what_was_remembered_as_far_as_it_can_be_read(
    path: Path, journal: Journal
) -> None:
    for number in (21, 22, 24):
        journal.write(report(number, decision=Decision(memory=Remembered(interval_s=number))))
    journal.write(report(25))
    journal.close()
    with JournalReader(path) as reader:
        assert reader.last() == (report(25), {"dqoes": {"wants": [], "interval_s": 24}})
    execute(path, "UPDATE frames SET body = x'00' WHERE cycle = 24")
    with JournalReader(path) as reader:
        assert reader.last() == (None, {"dqoes": {"wants": [], "interval_s": 22}})
        assert "cycle 24 cannot be read" in (reader.problem or "")


@pytest.mark.timed
def test_a_directory_that_cannot_be_written_is_no_hindrance(path: Path, journal: Journal) -> None:
    put(journal, 1, 3)
    journal.close()
    path.parent.chmod(0o500)
    try:
        with JournalReader(path) as reader:
            assert list(reader.reports(3)) == [report(3)]
            assert reader.problem is None
    finally:
        path.parent.chmod(0o700)
