"""`dlsched usage`: through the daemon and from a journal file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.api.codec import read
from dlsched.api.usage_schema import UsageStatus
from tests.cli.conftest import Program
from tests.status_source import FakeSource
from tests.store.journal.hours import cycle, view, write
from tests.texts import same_text

pytestmark = pytest.mark.timed


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Ten minutes in which `busy` uses what `idle` leaves."""
    path = tmp_path / "state" / "journal.db"
    write(
        path,
        (
            cycle(
                number,
                view("busy", usage_cores=3.0, limit_cores=None, owner=4_000_000_001),
                view("idle", usage_cores=0.5),
            )
            for number in range(1, 602)
        ),
    )
    return path


@pytest.mark.parametrize("by", ["user", "job"])
def test_a_row_for_each_user_or_job(program: Program, journal: Path, by: str) -> None:
    result = program("usage", str(journal), "--by", by)
    assert (result.exit_code, result.stderr) == (0, "")
    same_text(f"usage-{by}", result.stdout)


def test_the_same_through_the_daemon(program: Program, journal: Path, daemon: FakeSource) -> None:
    daemon.journal = journal
    assert daemon.report is not None
    daemon.report = replace(daemon.report, wall_time="2025-11-21T09:50:01Z")
    assert program("usage").stdout == program("usage", str(journal)).stdout


def test_json_is_the_published_schema(program: Program, journal: Path) -> None:
    answer = json.loads(program("usage", str(journal), "--json", "--by", "job").stdout)
    found = read(UsageStatus, answer)
    assert [row.name for row in found.rows] == ["busy", "idle"]
    assert found.total.used_core_s == pytest.approx(found.used_core_s) == 2100.0


def test_since_counts_from_the_last_cycle(program: Program, journal: Path) -> None:
    answer = json.loads(program("usage", str(journal), "--json", "--since", "2min").stdout)
    assert answer["to_s"] - answer["from_s"] == 120
    assert 60 <= answer["recorded_s"] <= 120


@pytest.mark.parametrize("since", ["5s", "-1h", "nan", "1y", ""])
def test_a_bad_time_is_refused(program: Program, journal: Path, since: str) -> None:
    result = program("usage", str(journal), "--since", since)
    assert result.exit_code == 2
    assert "--since" in result.stderr


def test_a_journal_without_a_cycle_says_so(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    write(path, [])
    result = program("usage", str(path))
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "nothing is recorded of this time: give an earlier --since\n"


def test_a_hostile_name_cannot_steer_the_terminal(program: Program, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    write(path, (cycle(number, view("\x1b[2Jforged\nline")) for number in range(1, 90)))
    out = program("usage", str(path), "--by", "job").stdout
    assert "\x1b" not in out
    assert len(out.splitlines()) == 3
