"""The simulator on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Program

EXAMPLES = Path(__file__).parents[2] / "examples" / "traces"
THREE = str(EXAMPLES / "three-jobs.yaml")


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
