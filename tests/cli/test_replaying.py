"""`dlsched replay`: rows and figures, which cycles, and what of a journal that is not whole."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.model.cycle import CycleReport
from dlsched.model.spec import Limits
from dlsched.simulation.trace import Recipe, generate
from dlsched.store.journal.schema import VERSION
from dlsched.store.journal.writer import Journal
from tests.cli.conftest import Program, recorded
from tests.doubles import snapshot, view

pytestmark = pytest.mark.timed

# Simulated time begins with the epoch, and so does the journal's.
MINUTE_1 = "1970-01-01T00:01:00"


@pytest.fixture
def journal(folders: Path) -> Path:
    """Two minutes of five services under `fair`, in the state directory."""
    trace = generate(Recipe(jobs=5, duration_s=120.0, kind="inference", cores=2.0, seed=3))
    return recorded(folders / "state" / "journal.db", trace, "fair")


def parsed(program: Program, *words: str) -> dict:
    result = program("replay", *words, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_recorded_policy_agrees_in_every_row(program: Program, journal: Path) -> None:
    found = parsed(program, str(journal), "--policy", "fair", "--all")
    assert len(found["rows"]) == found["summary"]["all"]["cycles"] > 300
    assert all(row["done_cores"] == row["would_cores"] for row in found["rows"])
    summary = found["summary"]
    assert summary["all"]["agreed_ratio"] == 1.0
    assert summary["all"]["mean_apart_cores"] == summary["failures"] == 0
    assert summary["asks"] == summary["recorded"]["fair"] == summary["cycles"]
    assert len(summary["jobs"]) == 5


def test_another_policy_is_told_where_either_limit_changes(program: Program, journal: Path) -> None:
    some = parsed(program, str(journal), "-p", "dqoes?gain=0.2")
    every = parsed(program, str(journal), "-p", "dqoes?gain=0.2", "--all")
    assert (some["policy"], some["summary"]) == ("dqoes?gain=0.2", every["summary"])
    assert 5 < len(some["rows"]) < len(every["rows"])
    told: dict[str, tuple[float, float]] = {}
    for row in some["rows"]:
        now = (row["done_cores"], row["would_cores"])
        assert told.get(row["job"]) != now
        told[row["job"]] = now


def test_the_table_has_the_rows_and_a_line_a_job(program: Program, journal: Path) -> None:
    found = parsed(program, str(journal), "-p", "none")
    result = program("replay", str(journal), "-p", "none")
    assert (result.exit_code, result.stderr) == (0, "")
    rows, summary = result.stdout.rstrip("\n").split("\n\n")
    head, *lines = rows.splitlines()
    assert head.split() == ["CYCLE", "TIME", "JOB", "DONE", "WOULD", "DIFF", "WHY"]
    assert len(lines) == len(found["rows"])
    first, row = found["rows"][0], lines[0].split()
    assert row[:3] == [str(first["cycle"]), first["wall_time"], first["job"]]
    assert row[3] == f"{first['done_cores']:.3f}"
    assert "plain Docker: no ceiling" in lines[0]
    *jobs, last = summary.splitlines()
    assert [line.split()[0] for line in jobs] == ["JOB", *sorted(found["summary"]["jobs"]), "all"]
    cycles = found["summary"]["cycles"]
    assert last == f"none: asked {cycles} times, failed 0; recorded: fair decided {cycles} times"


def test_a_range_goes_by_cycles_or_by_time(program: Program, journal: Path) -> None:
    whole = parsed(program, str(journal), "-p", "none", "--all")
    in_time = [row["cycle"] for row in whole["rows"] if 60.0 <= row["now_s"] <= 90.0]
    some = parsed(
        program, str(journal), "-p", "none", "--all",
        "--from", MINUTE_1, "--to", "1970-01-01T01:01:30+01:00",
    )  # fmt: skip
    assert [row["cycle"] for row in some["rows"]] == in_time
    same = parsed(
        program, str(journal), "-p", "none", "--all",
        "--from", str(in_time[0]), "--to", str(in_time[-1]),
    )  # fmt: skip
    assert same == some


def test_one_job_is_told_alone_but_not_decided_alone(program: Program, journal: Path) -> None:
    whole = parsed(program, str(journal), "-p", "dqoes", "--all")
    name = whole["rows"][0]["job"]
    one = parsed(program, str(journal), "-p", "dqoes", "--all", "--job", name)
    assert one["rows"] == [row for row in whole["rows"] if row["job"] == name]
    assert one["summary"]["jobs"] == {name: whole["summary"]["jobs"][name]}


def test_guards_are_the_settings_unless_a_flag_says_otherwise(
    program: Program, journal: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "dlsched.yaml"
    settings.write_text("dead_band: 0.5\n")
    filed = parsed(program, str(journal), "-p", "dqoes", "-c", str(settings))
    flagged = parsed(program, str(journal), "-p", "dqoes", "--dead-band", "0.5")
    assert filed == flagged != parsed(program, str(journal), "-p", "dqoes")
    refused = program("replay", str(journal), "-p", "dqoes", "--cooldown", "7")
    assert refused.exit_code == 2
    assert "--cooldown" in refused.stderr


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-p", "ghost"), "no policy 'ghost'; known are adaptive, dqoes, dqoes-published, "),
        (("-p", "dqoes?gian=1"), "no parameter 'gian'; it has "),
        (("-p", "none", "--from", "yesterday"), "'yesterday' is neither a cycle's number nor a"),
        ((), "Missing option '--policy'"),
    ],
)
def test_wrong_words_are_2(
    program: Program, journal: Path, words: tuple[str, ...], told: str
) -> None:
    result = program("replay", str(journal), *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_where_there_is_no_journal_is_2(program: Program, folders: Path) -> None:
    for place in (folders / "state", folders / "absent.db"):
        result = program("replay", str(place), "-p", "none")
        assert result.exit_code == 2
        assert str(place) in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "1000"), "no cycle in that range; it holds cycles 1 to 12"),
        (("--from", "50", "--to", "40"), "no cycle in that range"),
        (("--job", "ghost"), "no job 'ghost' ran in these cycles; known are "),
    ],
)
def test_nothing_to_tell_is_1_and_says_why(
    program: Program, journal: Path, words: tuple[str, ...], told: str
) -> None:
    result = program("replay", str(journal), "-p", "none", *words)
    assert result.exit_code == 1
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert bool(result.stdout) == ("--job" in words), "no table where nothing was read"


def test_a_journal_of_another_version_is_read_and_said_so(program: Program, journal: Path) -> None:
    whole = program("replay", str(journal), "-p", "none")
    with closing(sqlite3.connect(journal)) as connection:
        connection.execute("PRAGMA user_version = 99")
    result = program("replay", str(journal), "-p", "none")
    assert (result.exit_code, result.stdout) == (1, whole.stdout)
    assert result.stderr == (
        f"error: {journal}: has version 99, this program knows versions up to {VERSION};"
        " only what could be read is shown\n"
    )


def test_a_damaged_journal_is_read_around_the_damage(program: Program, journal: Path) -> None:
    with closing(sqlite3.connect(journal)) as connection:
        connection.execute("UPDATE frames SET body = x'00' WHERE cycle = 55")
        connection.commit()
    result = program("replay", str(journal), "-p", "none", "--all", "-o", "json")
    assert result.exit_code == 1
    assert "cycle 55 cannot be read" in result.stderr
    told = {row["cycle"] for row in json.loads(result.stdout)["rows"]}
    assert 54 in told
    assert 55 not in told
    assert max(told) > 100


@pytest.mark.parametrize("output", ["table", "json"])
def test_no_journal_at_all_is_2_and_no_table(program: Program, folders: Path, output: str) -> None:
    file = folders / "notes.txt"
    file.write_text("no database at all " * 100)
    result = program("replay", str(file), "-p", "none", "-o", output)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {file}: file is not a database\n"


def test_the_database_of_another_program_is_no_journal(program: Program, folders: Path) -> None:
    file = folders / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE cookies (name TEXT)")
    result = program("replay", str(file), "-p", "none")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {file}: not a journal of dlsched's\n"


def test_a_policy_that_fails_is_said_and_counted(
    program: Program, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_policy.py").write_text(
        "from dlsched.policies.none import NonePolicy\n"
        "class Broken(NonePolicy):\n"
        "    def decide(self, snapshot, memory):\n"
        "        raise ValueError('boom \\x1b[31m')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    result = program("replay", str(journal), "-p", "broken_policy:Broken")
    assert result.exit_code == 0
    assert result.stderr == (
        "failed 3 times, the last: no longer asked: policy broken_policy:Broken failed:"
        " ValueError: boom \n"
    )
    assert "asked 3 times, failed 3" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.fixture
def forged(folders: Path) -> Path:
    """What no agent writes: lines in names, and a node without a number."""
    path = folders / "forged.db"
    journal = Journal(path)
    for number, grain_cores in enumerate((0.001, 0.0, math.nan, 0.001), 1):
        seen = snapshot(view("ab\x1b[2J\nFAKE", actual=1.0))
        node = replace(seen.node, grain_cores=grain_cores)
        seen = replace(seen, cycle=number, node=node)
        limits = {"ab\x1b[2J\nFAKE": Limits(math.inf)}
        journal.write(CycleReport(seen, "fair\nFAKE", limits=limits, wall_time="now\nFAKE"))
    journal.flush()  # however long it takes: closing waits ten seconds
    journal.close()
    assert journal.lost_cycles == 0
    return path


def test_senseless_numbers_cost_their_cycle_alone(program: Program, forged: Path) -> None:
    result = program("replay", str(forged), "-p", "fair", "--all", "-o", "json")
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {forged}: cycle 2 has inconsistent numbers: float division by zero;"
        " only what could be read is shown\n"
    )
    told = json.loads(result.stdout, parse_constant=pytest.fail)
    assert [(row["cycle"], row["done_cores"]) for row in told["rows"]] == [(1, "inf"), (4, "inf")]


def test_a_forged_name_forges_no_line(program: Program, forged: Path) -> None:
    for words in (["--all"], ["--job", "web", "--to", "1"]):
        result = program("replay", str(forged), "-p", "fair", *words)
        assert not any(line.startswith("FAKE") for line in result.output.splitlines())
        assert "\x1b" not in result.output
        assert "ab FAKE" in result.output
