"""The simulator on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.cli.commands.simulating import _metrics_table
from dlsched.simulation.scoring import Row
from tests.cli.conftest import Program

EXAMPLES = Path(__file__).parents[3] / "examples" / "traces"
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


def test_a_seed_that_lacks_a_number_leaves_no_mean_of_the_others() -> None:
    rows = [Row("day", 3, "none", seed, "jct_mean_s", 10.0, 2.0, 1.0) for seed in (1, 2)]
    rows.append(replace(rows[0], metric="makespan_s", value=30.0))
    lines = [line.split() for line in _metrics_table(rows).splitlines()]
    assert lines[1:] == [
        ["jct_mean_s", "none", "10", "2", "1"],
        ["makespan_s", "none", "-", "-", "-"],
    ]


def test_policies_to_compare_run_too(program: Program) -> None:
    also = "fair,tradl?weights=closest&backoff=2"
    result = program("simulate", THREE, "-p", "fair", "--compare", also, "-o", "json")
    runs = json.loads(result.stdout)["runs"]
    assert [run["policy"] for run in runs] == ["none", *also.split(",")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"trace: 1\nnode: {cores: 0}\n", "day.yaml:2:15: node.cores: 0 is out of bounds"),
        (b"\xff\xfe", "day.yaml:1:1: the byte 0xff is not UTF-8"),
        (b"", "day.yaml:1:1: the file is empty"),
        (b"a" * 9_000_000, "day.yaml: the file has more than 8 MiB\n"),
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


SERVICES = str(EXAMPLES / "inference-10-over.yaml")
CLUSTER = str(EXAMPLES / "cluster-3-jobs.yaml")


def test_a_cluster_has_a_line_a_policy_beside_the_first(program: Program) -> None:
    result = program(
        "simulate", CLUSTER, "--cluster", "spread", "--compare", "spread+none", "-p", "fair"
    )
    assert result.exit_code == 0
    head, first, second, best, _, words = result.stdout.splitlines()
    assert head.split()[:3] == ["policies", "mean", "s"]
    assert first.split()[0] == "spread+none" and second.split()[0] == "spread+fair"
    name, mean_s, median_s, _, makespan_s, mean, makespan, *_ = best.split()
    assert (name, median_s) == ("clairvoyant", "-")
    assert float(mean_s) < float(first.split()[1]) and float(makespan_s) <= float(first.split()[4])
    assert 0 < float(mean) < 1 and 0 < float(makespan) <= 1
    assert words.endswith("its mean is a strong schedule, not a proven bound.")


def test_a_cluster_without_moves_is_what_its_moves_are_measured_by(program: Program) -> None:
    result = program(
        "simulate", CLUSTER, "--cluster", "spread", "-p", "none", "--no-moves", "-o", "json"
    )
    found = json.loads(result.stdout)
    assert [row["contender"] for row in found["rows"]] == ["spread+none, no moves", "spread+none"]
    assert [run["nodes"]["second"] for run in found["runs"]] == ["right", "right"]
    assert found["rows"][1]["mean_ratio"] == 1.0
    (best,) = found["clairvoyant"]
    assert (best["seed"], best["mean_s"] < found["rows"][0]["mean_s"]) == (1, True)


def test_a_cluster_whose_trainings_do_not_all_end_says_how_many_did(
    program: Program, tmp_path: Path
) -> None:
    made = program("trace", "generate", "--jobs", "6", "--hours", "0.02", "--kind", "training")
    (tmp_path / "short.yaml").write_text(made.stdout)
    words = ("simulate", str(tmp_path / "short.yaml"), "--cluster", "spread", "--nodes", "2")
    result = program(*words, "-p", "none", "--seeds", "2", "-o", "json")
    found = json.loads(result.stdout)
    ended = sum(job["completion_s"] is not None for run in found["runs"] for job in run["jobs"])
    assert 0 < ended < 12
    assert (
        result.stderr
        == f"spread+none: {ended} of 12 trainings ended; the trace ends before the others\n"
    )


def test_a_trace_of_one_node_runs_on_as_many_as_are_asked_for(program: Program) -> None:
    result = program(
        "simulate", THREE, "--cluster", "spread", "--nodes", "3", "-p", "none", "-o", "json"
    )
    (run,) = json.loads(result.stdout)["runs"]
    assert sorted(run["nodes"].values()) == ["node-01", "node-02", "node-03"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((THREE, "--cluster", "spread"), "--nodes: the trace has one node"),
        ((CLUSTER, "--cluster", "spread", "--nodes", "3"), "--nodes: the trace has 2 nodes"),
        ((CLUSTER, "-p", "none"), "--cluster: the trace has several nodes"),
        ((THREE, "-p", "none", "--nodes", "2"), "--nodes and --no-moves need --cluster"),
        ((THREE, "-p", "none", "--no-moves"), "--nodes and --no-moves need --cluster"),
        ((THREE,), "Missing option --policy"),
        ((THREE, "-p", "fair", "--compare", "fare"), "no policy 'fare'; known are"),
        ((THREE, "-p", "tradl?pace=1"), "no parameter 'pace'; known are weights,"),
        ((THREE, "-p", "tradl?backoff=often"), "backoff is 'often', must be a whole number"),
        ((THREE, "-p", "tradl?weights=best"), "must be growth or closest"),
        ((SERVICES, "--cluster", "spread", "--nodes", "2"), "TRACE: the trace has no training"),
        ((CLUSTER, "--cluster", "spred"), "no policy 'spred'; known are"),
    ],
)
def test_options_that_do_not_fit_are_told(
    program: Program, arguments: tuple[str, ...], said: str
) -> None:
    result = program("simulate", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
