"""Making traces on the command line."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from dlsched.cli.commands.tracing import generate as generate_command
from dlsched.simulation.trace import Recipe, generate, parse_trace
from tests.cli.conftest import Program, recorded
from tests.texts import same_text

EVERY_OPTION = (
    "--jobs 3 --hours 0.5 --seed 2 --kind inference --schedule fixed --gap 1m30s "
    "--cores 8 --demand 1.4 --impossible 0.5 --stay 10m --cycle 2s --name day-1 "
    "--noise 0.5 --quantile p95 --change 2 --churn 0.5 --stale 0.4 --lying 0.6"
)
EVERY_PART = Recipe(
    jobs=3,
    duration_s=1800.0,
    seed=2,
    kind="inference",
    schedule="fixed",
    cores=8.0,
    demand=1.4,
    impossible_ratio=0.5,
    gap_s=90.0,
    stay_s=600.0,
    cycle_s=2.0,
    name="day-1",
    noise=0.5,
    quantile=0.95,
    change_ratio=2.0,
    churn_ratio=0.5,
    stale_ratio=0.4,
    lying_ratio=0.6,
)


@pytest.mark.parametrize(
    ("words", "recipe"),
    [
        ("--jobs 40 --hours 1 --seed 7", Recipe(jobs=40, seed=7)),
        (EVERY_OPTION, EVERY_PART),
        (
            "--jobs 9 --kind training --families drop,power",
            Recipe(jobs=9, kind="training", families=("power", "drop")),
        ),
    ],
    ids=["few options", "every option", "families"],
)
def test_generate_writes_what_the_recipe_makes(
    program: Program, words: str, recipe: Recipe
) -> None:
    result = program("trace", "generate", *words.split())
    assert (result.exit_code, result.stderr) == (0, "")
    assert parse_trace(result.stdout, "stdout") == generate(recipe)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--families", "power,linear", "there are power, exponential, plateau, drop, restart"),
        ("--quantile", "95", "neither mean nor a quantile from p50 to p99.9"),
        *((option, "40", "'40' has no unit") for option in ("--gap", "--stay", "--cycle")),
    ],
)
def test_generate_tells_what_it_does_not_know(
    program: Program, option: str, value: str, told: str
) -> None:
    result = program("trace", "generate", option, value)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_nan_is_no_number(program: Program) -> None:
    numbers = [one for one in generate_command.params if isinstance(one.type, click.FloatRange)]
    assert len(numbers) == 9
    for one in numbers:
        result = program("trace", "generate", one.opts[0], "nan")
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"'{one.opts[0]}': nan is not a number" in result.stderr


def test_format_tells_the_whole_format(program: Program) -> None:
    same_text("trace-format", program("trace", "format").stdout)


# ------------------------------------------------------------------ record

# Simulated time begins with the epoch, and so does the journal's.
SECOND_30 = "1970-01-01T00:00:30"


@pytest.fixture
def journal(folders: Path) -> Path:
    """Two minutes of three services under `fair`, in the state directory."""
    trace = generate(Recipe(3, 120.0, 3, "inference", "burst", cores=2.0))
    return recorded(folders / "state" / "journal.db", trace, "fair")


@pytest.mark.timed
def test_record_writes_what_was_recorded(program: Program, journal: Path) -> None:
    result = program("trace", "record", str(journal), "--name", "day-1")
    assert result.exit_code == 0, result.stderr
    trace = parse_trace(result.stdout, "stdout")
    assert (trace.name, trace.node.cores, trace.duration_s, trace.cycle_s) == ("day-1", 2.0, 120, 1)
    assert [job.name for job in trace.jobs] == [f"inference-{number}" for number in range(3)]
    assert all(" are a guess: " in line for line in result.stderr.splitlines())


@pytest.mark.timed
def test_record_takes_the_cycles_asked_for(program: Program, journal: Path) -> None:
    result = program("trace", "record", str(journal), "--from", SECOND_30, "--to", "90")
    assert result.exit_code == 0, result.stderr
    trace = parse_trace(result.stdout, "stdout")
    assert 50.0 <= trace.duration_s <= 62.0
    assert "inference-0: ran already when the record begins" in result.stderr


@pytest.mark.timed
def test_record_says_when_no_cycle_is_in_the_range(program: Program, journal: Path) -> None:
    result = program("trace", "record", str(journal), "--from", "9000")
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {journal}: no cycle could be read; the journal holds cycles 1 ")


@pytest.mark.parametrize(("content", "code"), [(b"", 1), (b"no database at all " * 100, 2)])
def test_what_is_no_journal_is_told_in_one_line(
    program: Program, tmp_path: Path, content: bytes, code: int
) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(content)
    result = program("trace", "record", str(path))
    assert (result.exit_code, result.stdout) == (code, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {path}: ")


@pytest.mark.timed
def test_a_wrong_name_is_a_usage_error(program: Program, journal: Path) -> None:
    result = program("trace", "record", str(journal), "--name", "Day 1")
    assert result.exit_code == 2
    assert "'Day 1' is not a name" in result.stderr
