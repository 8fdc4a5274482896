"""The controller's journal: which rounds it keeps, what of them, and what bounds it."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest

from dlsched.cluster import journal as journals
from dlsched.cluster.core.decider import ClusterAnswer, DeciderState
from dlsched.cluster.core.guards import Approved, GuardMemory, Passed
from dlsched.cluster.core.model import (
    ClusterJob,
    ClusterSnapshot,
    Evaluation,
    Left,
    Move,
    NodeState,
    NodeSummary,
    Transit,
)
from dlsched.cluster.core.shadow import Otherwise, Shadowed
from dlsched.cluster.journal import EVERY_S, RecordedRound, RoundJournal, RoundReader
from dlsched.cluster.round_report import RoundReport
from dlsched.cluster.store import Member
from dlsched.store.journal.schema import open_for_writing

pytestmark = pytest.mark.timed

AT = "2026-01-02T03:04:05.000Z"


class Item(NamedTuple):
    job: str
    value: float


@dataclass(frozen=True, slots=True)
class Memory:
    items: tuple[Item, ...] = ()


JOB = ClusterJob(
    "resnet",
    node="n1",
    left=Left(1.0 / 3.0, 0.1 + 0.2, math.inf),
    evaluations=(Evaluation(7.25, 0.5),),
    requires={"gpu": "a"},
)
SNAPSHOT = ClusterSnapshot(
    3,
    1000.5,
    (NodeSummary("n1", 8.0, images=frozenset({"a", "b"}), state=NodeState.DRAINING),),
    (JOB,),
    (ClusterJob("vgg", arrived_s=3.0),),
    (Transit("resnet", "n1", "n2", 1.0, 2.0),),
)
BEFORE = DeciderState(Memory((Item("a", 0.1),)), GuardMemory((Passed("a", "x", "y", 1.5),)), 2)
ANSWER = ClusterAnswer(
    Approved({"vgg": "n1"}, (Move("resnet", "n2", undo=True),), {"x": "no room"}),
    {"vgg": "least"},
    asked=True,
    failure="it failed",
    before=BEFORE,
)
NOTHING = ClusterAnswer(asked=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "controller" / "rounds.db"


@pytest.fixture
def journal(path: Path) -> Iterator[RoundJournal]:
    journal = RoundJournal(path, "adaptive?moves=true", {"round_s": 5.0})
    yield journal
    journal.close()


def report(snapshot: ClusterSnapshot | None, answer: ClusterAnswer = NOTHING) -> RoundReport:
    return RoundReport(
        snapshot, {"n1": Member("n1", host="gpu-1"), "n2": Member("n2")}, None, {}, answer
    )


def take(journal: RoundJournal, *reports: RoundReport, at: str = AT) -> None:
    for one in reports:
        journal.take(one, at)
        journal.flush()


def rows(path: Path, *within: int | str | None) -> Sequence[RecordedRound]:
    with RoundReader(path) as reader:
        found = list(reader.rounds(*within))
        assert reader.problem is None
    return found


def test_a_round_is_read_exactly_as_it_was(journal: RoundJournal, path: Path) -> None:
    take(journal, report(SNAPSHOT, ANSWER))
    (one,) = rows(path)
    assert one.snapshot == SNAPSHOT
    assert one.memory == {"items": [["a", 0.1]]}
    assert (one.guards, one.failures) == (BEFORE.guards, 2)
    approved = ANSWER.approved
    assert (one.decided.place, one.decided.moves) == (approved.place, approved.moves)
    assert (one.decided.refused, one.decided.why) == (approved.refused, ANSWER.why)
    assert (one.decided.failure, one.hosts) == ("it failed", {"n1": "gpu-1"})
    assert (one.policy, one.options) == ("adaptive?moves=true", {"round_s": 5.0})
    assert (one.wall_time, one.snapshot.round) == (AT, 3)
    assert one.shadow is None


def test_a_row_has_what_the_shadow_decided(journal: RoundJournal, path: Path) -> None:
    journal.take(report(SNAPSHOT), AT, Shadowed("specon", ANSWER))
    later = report(replace(SNAPSHOT, now_s=SNAPSHOT.now_s + 1.0))
    journal.take(later, AT, Shadowed("specon", ANSWER))  # a failure
    sound = replace(ANSWER, failure=None)
    journal.take(later, AT, Shadowed("specon", sound))  # as before
    otherwise = Otherwise("vgg", "-", "n1", None, "least")
    journal.take(later, AT, Shadowed("specon", sound, (otherwise,)))
    journal.flush()
    first, failed, last = (one.shadow for one in rows(path))
    assert first is not None and last is not None
    assert (first, first.policy) == (failed, "specon")
    assert (first.decided.place, first.decided.why) == ({"vgg": "n1"}, {"vgg": "least"})
    assert first.decided.moves == ANSWER.approved.moves
    assert (first.decided.failure, last.decided.failure) == ("it failed", None)
    assert [one.decided.place for one in rows(path)] == [{}] * 3


def test_a_round_in_which_nothing_happens_has_a_row_once_a_minute(
    journal: RoundJournal, path: Path
) -> None:
    def at(now_s: float, **more: object) -> ClusterSnapshot:
        return replace(SNAPSHOT, now_s=now_s, **more)  # type: ignore[arg-type]

    take(
        journal,
        report(at(100.0)),
        report(at(110.0)),  # nothing new
        report(None, ANSWER),  # another manager leads
        report(at(111.0), ClusterAnswer()),  # not asked
        report(at(120.0), ANSWER),  # decided
        report(at(130.0, queue=())),  # another job
        report(at(131.0, queue=())),
        report(at(130.0 + EVERY_S, queue=())),
        report(at(5.0, queue=())),  # the host has started again
    )
    assert [one.snapshot.now_s for one in rows(path)] == [100.0, 120.0, 130.0, 190.0, 5.0]


def test_rows_between_two_rows_or_times(journal: RoundJournal, path: Path) -> None:
    for second in range(45):
        take(journal, report(SNAPSHOT, ANSWER), at=f"2026-01-02T03:04:{second:02}.500Z")
    assert [one.row for one in rows(path)] == list(range(1, 46))
    assert [one.row for one in rows(path, 44)] == [44, 45]
    assert [one.row for one in rows(path, None, 2)] == [1, 2]
    within = rows(path, "2026-01-02T03:04:10", "2026-01-02T03:04:12")
    assert [one.row for one in within] == [11, 12, 13]


def test_old_rows_go(path: Path) -> None:
    journal = RoundJournal(path, "spread", {}, max_age_s=3600.0)
    for at in ("2026-01-01T00:00:00.000Z", "2026-01-01T00:30:00.000Z", "2026-01-01T01:10:00.000Z"):
        take(journal, report(SNAPSHOT, ANSWER), at=at)
    journal.close()
    assert [one.wall_time[11:16] for one in rows(path)] == ["00:30", "01:10"]


def test_the_oldest_rows_go_for_the_size(path: Path) -> None:
    journal = RoundJournal(path, "spread", {}, max_bytes=200_000)
    noise = "".join(chr(0x4E00 + 7919 * n % 20_000) for n in range(9_000))
    for number in range(60):
        large = replace(SNAPSHOT, round=number, jobs=(replace(JOB, image=f"{number}{noise}"),))
        take(journal, report(large, ANSWER))
    journal.close()
    numbers = [one.snapshot.round for one in rows(path)]
    assert numbers[-1] == 59
    assert 2 < len(numbers) < 30
    assert path.stat().st_size < 500_000


def test_a_full_disk_fails_no_round_and_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []

    def small(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
        connection = open_for_writing(path, migrations)
        connection.execute("PRAGMA max_page_count = 5")
        opened.append(connection)
        return connection

    monkeypatch.setattr(journals, "open_for_writing", small)
    journal = RoundJournal(path, "spread", {})
    noise = "".join(chr(0x4E00 + 7919 * n % 20_000) for n in range(20_000))
    large = replace(SNAPSHOT, jobs=(replace(JOB, image=noise),))
    take(journal, report(large, ANSWER))
    assert journal.problem() == "journal not written: database or disk is full"
    opened[0].execute("PRAGMA max_page_count = 1000")
    take(journal, report(large, ANSWER))
    assert journal.problem() is None
    journal.close()
    assert len(rows(path)) == 1


def test_a_memory_that_is_not_plain_costs_its_row_alone(journal: RoundJournal, path: Path) -> None:
    odd = replace(ANSWER, before=DeciderState(memory=object()))
    take(journal, report(SNAPSHOT, odd))
    assert "memory is not plain" in str(journal.problem())
    take(journal, report(SNAPSHOT, ANSWER))
    assert journal.problem() is None
    assert len(rows(path)) == 1


@pytest.mark.parametrize(
    "change",
    ["digest = 'f00'", "body = x'00'", "decision = '{}x'", "decision = '[1]'"],
)
def test_a_damaged_row_ends_the_reading_in_one_line(
    journal: RoundJournal, path: Path, change: str
) -> None:
    for _ in range(3):
        take(journal, report(SNAPSHOT, ANSWER))
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE rounds SET {change} WHERE row = 2")
    with RoundReader(path) as reader:
        assert [one.row for one in reader.rounds()] == [1]
    assert reader.problem is not None
    assert reader.problem.startswith(f"{path}: row 2 cannot be read: ")
    assert "\n" not in reader.problem


def test_no_journal_and_another_file_are_one_line(tmp_path: Path) -> None:
    for content, line in (
        (None, "no such journal"),
        (b"x" * 5000, "not a database"),
        (b"", "table"),
    ):
        path = tmp_path / "rounds.db"
        if content is not None:
            path.write_bytes(content)
        with RoundReader(path) as reader:
            assert list(reader.rounds()) == []
        assert line in str(reader.problem)
