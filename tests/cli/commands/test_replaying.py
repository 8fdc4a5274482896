"""`dlsched replay`: rows and figures, which cycles, and what of a journal that is not whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlsched.simulation.trace import Recipe, generate
from tests.cli.conftest import Program, recorded

pytestmark = pytest.mark.timed


@pytest.fixture
def journal(folders: Path) -> Path:
    """Two minutes of five services under `fair`, in the state directory."""
    trace = generate(Recipe(jobs=5, duration_s=120.0, kind="inference", cores=2.0, seed=3))
    return recorded(folders / "state" / "journal.db", trace, "fair")


def parsed(program: Program, *words: str) -> dict:
    result = program("replay", *words, "-o", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


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
    assert "plain Docker: dlsched sets no limit" in lines[0]
    *jobs, last = summary.splitlines()
    assert [line.split()[0] for line in jobs] == ["JOB", *sorted(found["summary"]["jobs"]), "all"]
    cycles = found["summary"]["cycles"]
    assert (
        last == f"none: asked {cycles} times, failed 0; in the record fair decided {cycles} times"
    )


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
        (("-p", "dqoes?gian=1"), "no parameter 'gian'; known are "),
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "1000"), "no cycle in that range; the journal holds cycles 1 to 12"),
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
        "the policy failed 3 times; the last failure: policy "
        "broken_policy:Broken failed: ValueError: boom ; it is not asked any more\n"
    )
    assert "asked 3 times, failed 3" in result.stdout
    assert "\x1b" not in result.stdout
