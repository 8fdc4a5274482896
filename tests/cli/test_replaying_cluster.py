"""`dlsched cluster replay`: its pages, ranges and exit codes."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

from dlsched.cluster.core.decider import ClusterDecider
from dlsched.cluster.core.model import ClusterJob, ClusterSnapshot, NodeSummary
from dlsched.cluster.core.registry import load
from dlsched.cluster.journal import RoundJournal
from dlsched.cluster.round_report import RoundReport
from dlsched.cluster.store import Member
from tests.cli.conftest import Program

pytestmark = pytest.mark.timed

NODE = "abcdefghijklmnopqrstuvwx1"
OTHER = "abcdefghijklmnopqrstuvwx2"


@pytest.fixture
def journal(folders: Path) -> Path:
    """That of this host's controller: three rounds, a job placed in each."""
    path = folders / "state" / "controller" / "rounds.db"
    journal = RoundJournal(path, "spread", {})
    decider = ClusterDecider("spread", load("spread"))
    members = {NODE: Member(NODE, host="gpu-1"), OTHER: Member(OTHER, host="gpu-2")}
    for number in range(1, 4):
        snapshot = ClusterSnapshot(
            number,
            number * 10.0,
            (NodeSummary(NODE, 8.0), NodeSummary(OTHER, 4.0)),
            queue=(ClusterJob(f"job-{number}"),),
        )
        report = RoundReport(snapshot, members, answer=decider.ask(snapshot))
        journal.take(report, f"2026-01-01T00:00:0{number}.000Z")
        journal.flush()
    journal.close()
    return path


def change(journal: Path, row: int) -> None:
    """As if another node had been chosen."""
    with sqlite3.connect(journal) as connection:
        found = connection.execute("SELECT decision FROM rounds WHERE row = ?", (row,)).fetchone()
        decision = json.loads(found[0])
        decision["place"] = dict.fromkeys(decision["place"], OTHER)
        values = json.dumps(decision), row
        connection.execute("UPDATE rounds SET decision = ? WHERE row = ?", values)


def test_every_decision_is_reproduced(program: Program, journal: Path) -> None:
    done = program("cluster", "replay")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "3 rounds, 3 with a placement or a move: 3 reproduced\n"


def test_one_that_is_not_reproduced_is_shown_with_host_names(
    program: Program, journal: Path
) -> None:
    change(journal, 2)
    done = program("cluster", "replay", str(journal))
    assert done.exit_code == 1
    head, row, last = done.stdout.splitlines()
    assert head.split() == ["ROW", "TIME", "JOB", "DONE", "WOULD", "WHY"]
    assert row.split()[:5] == ["2", "2026-01-01T00:00:02.000Z", "job-2", "gpu-2", "gpu-1"]
    assert last == "3 rounds, 3 with a placement or a move: 2 reproduced"


def test_another_policy_and_json(program: Program, journal: Path) -> None:
    change(journal, 1)
    done = program("cluster", "replay", "--policy", "least-work", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["summary"] == {
        "policy": "least-work",
        "rounds": 3,
        "acted": 3,
        "same": 2,
        "failures": 0,
    }
    assert [(one["job"], one["done"], one["would"]) for one in found["rows"]] == [
        ("job-1", "gpu-2", "gpu-1")
    ]


@pytest.mark.parametrize(
    ("words", "rounds"),
    [
        (("--from", "2"), 2),
        (("--to", "1"), 1),
        (("--from", "2026-01-01T00:00:02"), 2),
        (("--to", "2026-01-01T01:00:02+01:00"), 2),
    ],
)
def test_a_range_by_row_or_time(
    program: Program, journal: Path, words: tuple[str, ...], rounds: int
) -> None:
    assert program("cluster", "replay", *words).stdout.startswith(f"{rounds} rounds, ")


def test_what_cannot_be_read_or_asked_is_one_line(
    program: Program, journal: Path, tmp_path: Path
) -> None:
    def refused(*words: str, code: int = 2) -> str:
        done = program("cluster", "replay", *words)
        assert done.exit_code == code
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()[-1:]
        return line

    assert "no round in that range" in refused("--from", "9", code=1)
    assert "neither a cycle's number nor a time" in refused("--from", "noon")
    assert "gone" in refused("--policy", "gone")
    os.mkfifo(tmp_path / "fifo")
    assert refused(str(tmp_path / "fifo")) == f"error: {tmp_path}/fifo: not a file"
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 20)
    assert refused(str(tmp_path / "text")).endswith("/text: file is not a database")
    journal.unlink()
    assert "no such journal" in refused()
    assert refused(str(tmp_path)) == f"error: {tmp_path} holds no rounds.db"
