"""Traces on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlsched.trace import Recipe, generate, parse_trace
from tests.cli.conftest import Program

EXAMPLES = Path(__file__).parents[2] / "examples" / "traces"
THREE = str(EXAMPLES / "three-jobs.yaml")


def test_generate_writes_what_the_recipe_makes(program: Program) -> None:
    words = ["--jobs", "40", "--hours", "1", "--seed", "7"]
    result = program("trace", "generate", *words)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert parse_trace(result.stdout, "stdout") == generate(Recipe(jobs=40, seed=7))


def test_generate_takes_every_option(program: Program) -> None:
    words = (
        "--jobs 3 --hours 0.5 --seed 2 --kind inference --schedule fixed --gap 1m30s "
        "--cores 8 --demand 1.4 --impossible 0.5 --stay 10m --cycle 2s --name day-1"
    )
    made = parse_trace(program("trace", "generate", *words.split()).stdout, "stdout")
    assert made == generate(
        Recipe(3, 1800.0, 2, "inference", "fixed", 8.0, 1.4, 0.5, 90.0, 600.0, 2.0, "day-1")
    )


@pytest.mark.parametrize("option", ["--gap", "--stay", "--cycle"])
def test_a_wrong_duration_is_a_usage_error(program: Program, option: str) -> None:
    result = program("trace", "generate", option, "40")
    assert result.exit_code == 2
    assert "'40' has no unit" in result.stderr


def test_format_tells_the_whole_format(program: Program) -> None:
    result = program("trace", "format")
    assert result.exit_code == 0
    assert result.stdout.startswith("The format, version 1")
    for word in ("evaluate_every: 50", "Families of curves", "kind: lying"):
        assert word in result.stdout


def test_the_table_has_metrics_beside_plain_docker_and_the_jobs(program: Program) -> None:
    result = program("simulate", THREE, "--policy", "fair")
    assert result.exit_code == 0
    metrics, jobs = result.stdout.split("\n\n")
    lines = [line.split() for line in metrics.splitlines()]
    assert lines[0] == ["metric", "policy", "value", "of", "optimum", "of", "plain"]
    assert ["makespan_s", "none"] in [line[:2] for line in lines]
    assert ["makespan_s", "fair"] in [line[:2] for line in lines]
    assert [line.split()[0] for line in jobs.splitlines()] == ["job", "lstm", "mnist", "vae"]


def test_json_has_a_row_a_number(program: Program) -> None:
    result = program("simulate", THREE, "-p", "fair", "--seeds", "2", "-o", "json")
    found = json.loads(result.stdout)
    assert set(found["rows"][0]) == {
        "scenario", "n", "policy", "seed", "metric", "value", "of_optimum", "of_plain",
    }  # fmt: skip
    assert {(row["policy"], row["seed"]) for row in found["rows"]} == {
        ("none", 1), ("none", 2), ("fair", 1), ("fair", 2),
    }  # fmt: skip
    assert [len(run["jobs"]) for run in found["runs"]] == [3, 3, 3, 3]


def test_policies_to_compare_run_too(program: Program) -> None:
    result = program("simulate", THREE, "-p", "fair", "--compare", "dqoes,fair", "-o", "json")
    runs = json.loads(result.stdout)["runs"]
    assert [run["policy"] for run in runs] == ["none", "fair", "dqoes"]


def test_an_unknown_policy_names_the_known_ones(program: Program) -> None:
    result = program("simulate", THREE, "-p", "fair", "--compare", "fare")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no policy 'fare'; known are" in result.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"trace: 1\nnode: {cores: 0}\n", "day.yaml:2:15: node.cores: 0 is out of bounds"),
        (b"\xff\xfe", "day.yaml: is not UTF-8 text"),
        (b"", "day.yaml:1:1: the file is empty"),
        (b"a" * 9_000_000, "at most 8192 KiB"),
    ],
)
def test_a_wrong_trace_is_refused_with_every_problem(
    program: Program, tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "day.yaml"
    path.write_bytes(content)
    result = program("simulate", str(path), "-p", "fair")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
