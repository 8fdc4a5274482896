"""Every cycle gets into the file and comes back exactly; no failure of it reaches the loop."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched.model.cycle import CycleReport, Shadow
from dlsched.model.decision import Decision
from dlsched.model.state import JobState
from dlsched.store.journal.coding import shadow_name
from dlsched.store.journal.reader import Growth, JournalReader
from dlsched.store.journal.writer import Journal
from tests.store.journal.reports import Remembered, execute, job, report

pytestmark = pytest.mark.timed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[Journal]:
    journal = Journal(path, **options)
    try:
        yield journal
    finally:
        journal.close()


def put(journal: Journal, *reports: CycleReport) -> None:
    """Each in a transaction of its own."""
    for item in reports:
        journal.write(item)
        journal.flush()


def kept(path: Path) -> list[int]:
    with JournalReader(path) as reader:
        return [item.snapshot.cycle for item in reader.reports()]


def cycle(path: Path, number: int) -> CycleReport | None:
    with JournalReader(path) as reader:
        return next(reader.reports(number, number), None)


def growth(path: Path, bound_bytes: int) -> Growth:
    with JournalReader(path) as reader:
        return reader.growth(bound_bytes)


def remembering(cycle: int, interval_s: float, policy: str = "dqoes") -> CycleReport:
    """A cycle in which the policy decided, and remembers that."""
    decision = Decision(memory=Remembered(interval_s=interval_s))
    return replace(report(cycle, decision=decision), policy=policy)


def plain(interval_s: float) -> dict[str, object]:
    """That memory as the journal has it."""
    return {"wants": [], "interval_s": interval_s}


def whole_frames(path: Path) -> list[int]:
    rows = execute(path, "SELECT cycle FROM frames WHERE whole ORDER BY cycle")
    return [cycle for (cycle,) in rows]


def test_the_size_of_the_file_is_known_after_the_first_commit(path: Path) -> None:
    with opened(path) as journal:
        assert journal.size_bytes is None
        put(journal, report(1))
        assert journal.size_bytes == sum(
            path.with_name(name).stat().st_size for name in ("journal.db", "journal.db-wal")
        )


def test_every_cycle_comes_back_with_a_whole_frame_every_so_often(path: Path) -> None:
    reports = [report(n) for n in range(1, 24)]

    with opened(path, frame_s=10.0) as journal:
        put(journal, *reports)
        assert [cycle(path, n) for n in range(1, 24)] == reports
        assert cycle(path, 24) is None
        assert journal.problem() is None

    assert whole_frames(path) == [1, 11, 21]


def test_closing_commits_all_that_was_taken(path: Path) -> None:
    with opened(path) as journal:
        for n in range(1, 100):
            journal.write(report(n))

    assert kept(path) == list(range(1, 100))


def test_another_run_goes_on_where_the_last_one_ended(path: Path) -> None:
    with opened(path) as journal:
        assert (journal.last_cycle(), journal.last_now_s()) == (0, 0.0)
        assert journal.earlier_report() is None
        put(journal, report(1), report(2, job(state=JobState.PAUSED)))

    with opened(path) as journal:
        assert (journal.last_cycle(), journal.last_now_s()) == (2, 1002.0)
        put(journal, report(3, job(state=JobState.PAUSED)))
        earlier = journal.earlier_report()
        assert earlier is not None
        assert earlier.snapshot.cycle == 2, "of the run before, not of this one"

    assert whole_frames(path) == [1, 3]
    with JournalReader(path) as reader:
        assert [event.kind for event in reader.events("alpha", 9)] == ["state", "arrived"]


def test_a_policys_last_memory_outlives_the_run(path: Path) -> None:
    with opened(path) as journal:
        put(journal, remembering(1, 5.0), remembering(2, 10.0), report(3))

    with opened(path) as journal:
        assert journal.last_memory("dqoes") == plain(10.0)
        assert journal.last_memory("fair") is None
        put(journal, report(4, decision=Decision()))
        assert journal.last_memory("dqoes") is None


def test_a_memory_outlives_a_run_that_decided_nothing(path: Path) -> None:
    with opened(path) as journal:
        put(journal, remembering(1, 5.0), report(2), remembering(3, 6.0), report(4))
    with opened(path) as journal:
        put(journal, report(5))
    with opened(path) as journal:
        put(journal, replace(report(6), policy="fair"))
        assert journal.last_memory("dqoes") == plain(6.0)
        assert journal.last_memory("fair") is None


def test_each_policys_memory_is_kept_while_another_is_asked(path: Path) -> None:
    with opened(path) as journal:
        put(journal, remembering(1, 5.0), remembering(2, 6.0))
        put(journal, replace(report(3), policy="tradl"))
        assert journal.last_memory("tradl") is None
        put(journal, remembering(4, 7.0, "tradl"), report(5))
        assert [journal.last_memory(name) for name in ("dqoes", "tradl")] == [
            plain(6.0),
            plain(7.0),
        ]
        with JournalReader(path) as reader:
            assert [one.decision for one in reader.reports()][2::2] == [None, None]


def test_a_shadows_memory_is_not_that_of_the_same_policy_acting(path: Path) -> None:
    shadow = Shadow("dqoes", Decision(memory=Remembered(interval_s=5.0)))
    with opened(path) as journal:
        put(journal, replace(remembering(1, 7.0), shadow=shadow))
        put(journal, replace(report(2), shadow=Shadow("dqoes")))
        assert journal.last_memory("dqoes") == plain(7.0)
        assert journal.last_memory(shadow_name("dqoes")) == plain(5.0)
        assert journal.last_memory(shadow_name("fair")) is None


@contextmanager
def stalled(journal: Journal) -> Iterator[None]:
    """The writer waits before it writes, for as long as this lasts."""
    go_on, write = threading.Event(), journal._store.write

    def later(batch: tuple[CycleReport, ...]) -> tuple[int, str] | None:
        assert go_on.wait(60)
        return write(batch)

    journal._store.write = later  # type: ignore[method-assign]
    try:
        yield
    finally:
        go_on.set()


def test_a_memory_that_is_garbled_is_none(path: Path) -> None:
    with opened(path) as journal:
        put(journal, report(1))
    execute(path, "INSERT INTO memories VALUES ('dqoes', '{{{')")
    with opened(path) as journal:
        assert journal.last_memory("dqoes") is None


def test_a_full_queue_loses_its_oldest_and_the_next_row_is_whole(path: Path) -> None:
    with opened(path, queue_reports=3) as journal:
        put(journal, report(1))
        with stalled(journal):
            for n in range(2, 12):
                journal.write(report(n))
        journal.flush()
        put(journal, report(12))
        lost = journal.lost_cycles

    numbers = kept(path)
    assert lost == 12 - len(numbers)
    assert numbers[-4:] == [9, 10, 11, 12]
    assert set(whole_frames(path)) == {1, *(n for n in numbers if n - 1 not in numbers)}


def test_a_file_that_cannot_grow_is_told_and_goes_on_when_it_can(path: Path) -> None:
    with opened(path) as journal:
        put(journal, report(1))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
        try:
            put(journal, report(2), report(3))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert journal.problem() is not None
        assert "the journal was not written: " in journal.problem()
        assert journal.lost_cycles == 2

        put(journal, report(4), report(5))
        assert journal.problem() is None

    assert kept(path) == [1, 4, 5]
    assert whole_frames(path) == [1, 4]


def test_a_directory_that_cannot_be_made_is_told_and_tried_again(tmp_path: Path) -> None:
    blocked = tmp_path / "state"
    blocked.write_text("a file where the directory should be")

    with opened(blocked / "journal.db") as journal:
        assert "the journal was not written: " in (journal.problem() or "")
        put(journal, report(1))
        assert (journal.lost_cycles, journal.last_cycle()) == (1, 0)

        blocked.unlink()
        put(journal, report(2))
        assert journal.problem() is None
        assert cycle(blocked / "journal.db", 2) == report(2)


def no_database(path: Path) -> None:
    path.write_bytes(b"no database at all " * 100)


def newer_version(path: Path) -> None:
    execute(path, "PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("made", "aside"),
    [(no_database, "journal.db.corrupt-1"), (newer_version, "journal.db.version-99-1")],
)
def test_a_file_of_no_use_is_moved_aside_whole(
    path: Path, made: Callable[[Path], None], aside: str
) -> None:
    path.parent.mkdir()
    made(path)
    before = path.read_bytes()
    with opened(path) as journal:
        put(journal, report(1))
        assert f"the journal was moved to {aside}, and a new one begun" in (journal.problem() or "")
        assert cycle(path, 1) == report(1)
    assert path.with_name(aside).read_bytes() == before


def test_a_file_that_breaks_while_in_use_is_moved_aside(path: Path) -> None:
    with opened(path) as journal:
        put(journal, *(report(n) for n in range(1, 400)))
    size_bytes = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * (size_bytes - 8192))

    with opened(path) as journal:
        put(journal, report(400), report(401), report(402))
        assert "corrupt-1" in (journal.problem() or "")
        assert cycle(path, 402) == report(402)


def test_a_file_deleted_while_in_use_is_made_anew_and_told(path: Path) -> None:
    with opened(path) as journal:
        put(journal, report(1), report(2))
        for part in path.parent.iterdir():
            part.unlink()
        put(journal, report(3))
        assert kept(path) == [3]
        assert whole_frames(path) == [3]
        assert journal.problem() == "the journal was deleted, so a new one was begun"


def test_a_report_that_cannot_be_told_is_lost_alone(path: Path) -> None:
    odd = Decision(memory=Remembered(wants={1, 2}))  # type: ignore[arg-type]

    with opened(path) as journal:
        put(journal, report(1), report(2, decision=odd))
        assert journal.problem() == (
            "the journal was not written: cycle 2: set cannot be recorded: only text, numbers, "
            "lists and mappings can"
        )
        put(journal, report(2), report(3), report(3))
        assert journal.problem() == (
            "the journal was not written: cycle 3: the cycle is not recorded, as its number is not "
            "above that of the journal's last cycle, 3: report this fault of dlsched"
        )

    assert kept(path) == [1, 2, 3]


def test_text_that_is_no_unicode_is_kept_exactly_and_told_legibly(path: Path) -> None:
    hostile = report(1, job(reason="saved at /\ud800"))

    with opened(path) as journal:
        put(journal, hostile)
        assert journal.problem() is None
        assert cycle(path, 1) == hostile

    with JournalReader(path) as reader:
        assert [event.reason for event in reader.events("alpha", 9)] == ["saved at /?"]


def test_old_frames_leave_by_age_as_whole_groups(path: Path) -> None:
    turn = [job(state=JobState.PAUSED), job()]

    with opened(path, frame_s=20.0, max_age_s=50.0) as journal:
        put(journal, *(report(n, turn[n % 2]) for n in range(1, 182)))
        with JournalReader(path) as reader:
            first, last = reader.cycles()[0], reader.cycles()[-1]
            told = reader.events(None, 999)
            assert next(reader.reports(first, last)) == report(first, turn[first % 2])

    assert last == 181
    assert first % 20 == 1
    assert 181 - first <= 50 + 20
    assert {event.cycle for event in told} == set(range(first, 182))


@pytest.mark.long
def test_a_file_past_its_bound_shrinks(path: Path) -> None:
    jobs = [job(f"job-{n}") for n in range(20)]

    with opened(path, frame_s=10.0) as journal:
        put(journal, *(report(n, *jobs) for n in range(1, 700)))
    grown_bytes = path.stat().st_size
    bound_bytes, page_bytes = grown_bytes // 2, 8192

    with opened(path, frame_s=10.0, max_bytes=bound_bytes) as journal:
        # Up to the cycle that drops rows: what is written after that may need another page.
        put(journal, *(report(n, *jobs) for n in range(700, 761)))
        assert journal.problem() is None
        assert growth(path, bound_bytes).bytes <= bound_bytes + page_bytes
    assert path.stat().st_size <= bound_bytes + page_bytes
    assert kept(path)[-1] == 760


def test_growth_tells_how_long_the_bound_lasts(path: Path) -> None:
    with opened(path, max_bytes=10_000_000) as journal:
        put(journal, report(1))
        assert growth(path, 10_000_000).lasts_s is None
        put(journal, *(report(n) for n in range(2, 100)))
        grown = growth(path, 10_000_000)

    assert grown.bytes_per_day is not None
    assert grown.lasts_s == pytest.approx(10_000_000 / grown.bytes_per_day * 86_400)
    assert 50 * 86_400 < grown.bytes_per_day < 500 * 86_400
