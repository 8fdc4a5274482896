"""A review of a journal: its range, its remarks, its changes, and damage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.api.review_schema import Review
from dlsched.estimate.effect import Verdict
from dlsched.model.cycle import CycleReport
from dlsched.review.changes import SPARED
from dlsched.review.gathering import ALARMS_MAX, SLICES_MAX, AlarmsReview, NothingToReport, review
from dlsched.store.journal.effects import EFFECTS_MAX, Effects
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.writer import Journal, Store
from tests.review.worlds import busy_node, run, written
from tests.store.journal.reports import job, report

pytestmark = pytest.mark.timed


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("state") / "journal.db"
    return written(path, busy_node(400.0))


def changed(path: Path, change: Callable[[CycleReport], CycleReport], duration_s: float) -> Path:
    """The journal of a simulation whose reports are changed first."""
    writer = Journal(path, frame_s=60.0, queue_reports=10_000)
    run(busy_node(duration_s), "none", lambda one: writer.write(change(one)))
    writer.close()
    return path


def reviewed(path: Path, since_s: float = 86_400.0) -> Review:
    with JournalReader(path) as reader:
        return review(reader, since_s, estimates=False)


@pytest.mark.long
def test_the_whole_record_and_a_part_of_it(journal: Path) -> None:
    whole, late = reviewed(journal), reviewed(journal, 100.0)
    assert (whole.begins, whole.ends) == ("2026-11-24T07:00:00.000Z", "2026-11-24T07:06:40.000Z")
    assert whole.recorded_s == pytest.approx(400.0)
    assert whole.remarks == ("the record covers 6 min 40 s of the 1 d that were asked for",)
    assert late.recorded_s == pytest.approx(100.0, abs=1.5)
    assert late.remarks == ()
    assert late.begins > "2026-11-24T07:04:5"
    assert [one.name for one in whole.jobs] == ["bulk-a", "bulk-b", "bulk-c", "easy", "hard"]
    assert whole.changes.count > late.changes.count
    hard = whole.jobs[-1]
    assert hard.kept is not None and hard.kept.met_ratio is not None
    assert len(hard.ratio) == len(hard.used_cores) == 40
    assert {one.plain_docker.why_not for one in whole.jobs} == {"no estimate was asked for"}


def test_effects_are_those_that_why_shows(journal: Path) -> None:
    """For each service: the verdicts of all changes are those of the journal's own effects."""
    with JournalReader(journal) as reader:
        found = review(reader, 86_400.0, estimates=False)
        total = 0
        verdicts: dict[str, int] = {}
        for name in ("easy", "hard"):
            rows = reader.last_changes(name, 1000)
            resizes = [one for one in rows if one.kind == "resize"]
            assert len(resizes) <= EFFECTS_MAX
            total += len(resizes)
            for one in Effects(journal).last(name, None, EFFECTS_MAX).values():
                verdicts[one.verdict.value] = verdicts.get(one.verdict.value, 0) + 1
    counts = {one.what: one.count for one in found.changes.effects}
    slower = counts.pop(SPARED, 0) + counts.pop(Verdict.SLOWER.value, 0)
    expected_slower = verdicts.pop(Verdict.SLOWER.value, 0)
    assert total > 0
    assert (counts, slower) == (verdicts, expected_slower)


@pytest.mark.long
def test_a_range_has_a_bounded_number_of_slices(tmp_path: Path) -> None:
    """One report a quarter of an hour, for 20 days."""
    path = tmp_path / "journal.db"
    store = Store(path, frame_s=60.0, max_bytes=1 << 30, max_age_s=1e9)
    store.open()
    for number in range(1, 1921):
        one = report(number, job("alpha"))
        store.write((replace(one, snapshot=replace(one.snapshot, now_s=900.0 * number)),))
    store.close()
    found = reviewed(path, 30 * 86_400.0)
    assert found.slice_s == 1200.0
    assert len(found.jobs[0].ratio) <= SLICES_MAX


def test_gaps_are_remarked(tmp_path: Path) -> None:
    def step(one: CycleReport) -> CycleReport:
        now_s = one.snapshot.now_s
        if now_s >= 60.0:
            one = replace(one, snapshot=replace(one.snapshot, now_s=now_s + 500.0))
        return one

    path = changed(tmp_path / "journal.db", step, 120.0)
    found = reviewed(path, 620.0)
    assert (found.recorded_s, found.observed_s) == (620.0, pytest.approx(119.0))
    assert found.remarks[0] == (
        "the policy `none` ran in the whole range, so all figures are those of plain "
        "Docker, without limits by dlsched"
    )
    assert found.remarks[1] == "the record has 1 gap, 8 min 21 s in all; that time is not counted"


def test_times_that_are_none_are_no_failure(tmp_path: Path) -> None:
    path = changed(tmp_path / "journal.db", lambda one: replace(one, wall_time="yesterday"), 60.0)
    assert reviewed(path, 60.0).begins == "yesterday"


def test_an_empty_journal_has_nothing_to_report(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path).close()
    with JournalReader(path) as reader, pytest.raises(NothingToReport, match="has no cycle"):
        review(reader, 60.0)


def test_what_can_be_read_of_a_damaged_journal_counts(journal: Path, tmp_path: Path) -> None:
    broken = tmp_path / "journal.db"
    broken.write_bytes(journal.read_bytes())
    with closing(sqlite3.connect(broken)) as connection, connection:
        connection.execute("UPDATE frames SET body = x'00' WHERE cycle = 250")
    with JournalReader(broken) as reader:
        found = review(reader, 86_400.0, estimates=False)
        assert reader.problem is not None and "cycle 250 cannot be read" in reader.problem
    assert 300 < found.cycles < 400


def test_alarms_last_while_they_are_raised() -> None:
    review_of = AlarmsReview()
    for number in range(1, 101):
        one = report(number, job("alpha"))
        texts = ("engine down",) * (10 <= number <= 20 or number >= 91)
        review_of.take(replace(one, alarms=texts))
    (found,) = review_of.result()
    assert (found.text, found.lasted_s, found.raised) == ("engine down", 19.0, True)


def test_alarms_are_bounded() -> None:
    review_of = AlarmsReview()
    for number in range(1, ALARMS_MAX + 51):
        review_of.take(replace(report(number, job("alpha")), alarms=(f"alarm {number}",)))
    assert len(review_of.result()) == ALARMS_MAX
    assert review_of.left_out == 50
