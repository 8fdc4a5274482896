"""Reading and writing traces: the whole format, every problem with its place, and back the same."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import dlsched.simulation.trace
from dlsched.model.spec import AccuracyTarget, Bounds, LatencyTarget
from dlsched.simulation.node.learning_curves import Curve, Measured
from dlsched.simulation.node.workloads import (
    Fault,
    HostLoad,
    ServiceLoad,
    Shift,
    Trace,
    TrainingLoad,
)
from dlsched.simulation.trace import Recipe, TraceError, generate, parse_trace, render_trace
from dlsched.simulation.trace.generating import Kind

EXAMPLES = Path(__file__).parents[3] / "examples" / "traces"
HEAD = "trace: 1\nnode: {cores: 2}\nduration: 1m\njobs:\n"


def problems(text: str) -> list[str]:
    with pytest.raises(TraceError) as caught:
        parse_trace(text, "day.yaml")
    return [str(problem) for problem in caught.value.problems]


def documented() -> Trace:
    """The example in the package's own words."""
    words = dlsched.simulation.trace.__doc__ or ""
    block = re.search(r"::\n\n((?: {4}.*\n|\n)+)", words)
    return parse_trace(re.sub(r"^ {4}", "", block[1], flags=re.M), "docstring")


def test_the_documented_example_means_what_it_says() -> None:
    read = documented()
    assert (read.name, read.node.cores, read.node.memory_bytes) == ("small", 8.0, 64 << 30)
    assert (read.duration_s, read.cycle_s, read.window_s) == (3600.0, 1.0, 30.0)
    assert read.host == (HostLoad(600.0, 300.0, 2.0, 1024),)
    detector, digits = read.jobs
    assert detector.name == "detector"
    assert (detector.arrives_s, detector.leaves_s, detector.start_up_s) == (0.0, 1800.0, 1.0)
    assert (detector.start_up_work_core_s, digits.start_up_work_core_s) == (2.5, 0.0)
    assert detector.spec.target == LatencyTarget(0.05, 0.95)
    assert detector.spec.bounds == Bounds(0.1, 4.0)
    assert detector.spec.container.restart.name == "on-failure"
    assert detector.load == ServiceLoad(0.02, 0.002, 2.0, 0.2, 12.0)
    assert detector.shifts == (Shift(600.0, 2.0, 0.5),)
    assert detector.faults == (
        Fault("silent", 300.0, 60.0),
        Fault("lying", 480.0, 60.0, 0.5),
        Fault("crash", 540.0),
    )
    assert digits.spec.target == AccuracyTarget("accuracy", 0.9, 0.97, 7200.0)
    assert digits.load == TrainingLoad(
        steps=3000,
        work_core_s=0.5,
        evaluate_every=50,
        curve=Curve(0.1, 1.0, 300.0, "power", 1.0),
        threads=4.0,
        noise=0.01,
        validation_set=200,
        checkpoint_every=500,
    )


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_right_and_named_as_their_files(path: Path) -> None:
    assert parse_trace(path.read_text(), path.name).name == path.stem


def test_all_problems_at_once_each_with_its_place() -> None:
    text = (
        "trace: 2\n"
        "node: {core: 1}\n"
        "duration: 5\n"
        "jobs:\n"
        "  - name: one\n"
        "    service: {work: 0}\n"
        "    faults: [{kind: crsh, at: 1s}]\n"
    )
    assert problems(text) == [
        "day.yaml:1:8: trace: 2 is out of bounds: 1 to 1",
        "day.yaml:2:7: node.cores: is required, but missing",
        "day.yaml:2:8: node.core: unknown key; did you mean cores?",
        "day.yaml:3:11: duration: '5' has no unit: write 5s or 5ms",
        "day.yaml:6:21: jobs[0].service.work: 0 is out of bounds: 1e-06 to 1e+09",
        ("day.yaml:7:21: jobs[0].faults[0].kind: 'crsh' is not one of crash, silent, lying"),
    ]


TRAINING = "training: {steps: 9, work: 1, evaluate_every: 1, curve: "
RISING = TRAINING + "{family: exponential, start: 0, end: 1, scale: 3}}"


@pytest.mark.parametrize(
    ("job", "what"),
    [
        ("at: 0s", "needs either service or training"),
        ("service: {work: 1}, leaves: 0s", "leaves at 0 s, but comes at 0 s"),
        (
            "service: {work: 1}, target: {metric: accuracy, deliver: 0.5, finish: 0.6}",
            "a metric is not what a service is asked for",
        ),
        (RISING + ", target: {latency: 1s}", "a latency is not what a training is asked for"),
        (RISING + ", shifts: [{at: 1s}]", "shifts are for services only"),
        (
            RISING + ", target: {metric: loss, deliver: 0.6, finish: 0.5}",
            "its curve rises, its target does not",
        ),
        (
            TRAINING + "{family: drop, start: 0, end: 1, scale: 3}}",
            "the family drop needs at, in steps",
        ),
        (
            TRAINING + "{family: power, start: 0, end: 1, scale: 3, every: 2}}",
            "every means nothing to the family power",
        ),
        (
            TRAINING + "{family: drop, at: 2, start: 0, end: 1, scale: 3, exponent: 2}}",
            "exponent means nothing to the family drop",
        ),
        (
            TRAINING + "{family: power, start: 1, end: 1, scale: 3}}",
            "start and end are both 1: nothing is learnt",
        ),
        (
            TRAINING + "{family: power, start: 1, end: 2}}",
            "the family power needs scale",
        ),
        (TRAINING + "{family: points}}", "the family points needs points"),
        (
            TRAINING + "{family: points, points: [[0, 1], [5, 2]], scale: 3}}",
            "scale means nothing to the family points",
        ),
        (
            TRAINING + "{family: points, points: [[5, 1], [5, 2]]}}",
            "points are in order of their steps: 5 is after 5",
        ),
        (
            TRAINING + "{family: points, points: [[5, 1]]}}",
            "a curve has at least two points",
        ),
        (
            TRAINING + "{family: points, points: [[5, 1], 6]}}",
            "6 is not a step and a value, such as [50, 0.34]",
        ),
        (
            TRAINING + "{family: points, points: [[5, 1], [-6, 2]]}}",
            "-6 is out of bounds: 0 to 1000000000",
        ),
        (
            "service: {work: 1}, faults: [{kind: lying, at: 1s}]",
            "a fault of kind lying needs factor",
        ),
        (
            "service: {work: 1}, faults: [{kind: silent, at: 1s, factor: 2}]",
            "a fault of kind silent has no factor",
        ),
        (
            "service: {work: 1}, faults: [{kind: crash, at: 1s, for: 2s}]",
            "a crash takes no time: leave for out",
        ),
        ("service: {work: 1}, at: 2m", "120 s is not before the end of the trace, 60 s"),
        (
            "service: {work: 1}, faults: [{kind: crash, at: 2m}]",
            "120 s is not before the end of the trace, 60 s",
        ),
    ],
)
def test_what_only_shows_when_single_keys_are_right(job: str, what: str) -> None:
    (problem,) = problems(f"{HEAD}  - {{name: one, {job}}}\n")
    assert problem.startswith("day.yaml:5:")
    assert problem.endswith(f" {what}")


MEASURED = "{family: points, points: [[5, 0.5], [9, 0.25], [20, 1]]}}"


@pytest.mark.parametrize(
    ("target", "rises"),
    [
        ("", True),
        (", target: {metric: accuracy, deliver: 0.5, finish: 0.6}", True),
        (", target: {metric: loss, deliver: 0.5, finish: 0.3}", False),
    ],
)
def test_a_measured_curve_rises_as_its_target_does(target: str, rises: bool) -> None:
    trace = parse_trace(f"{HEAD}  - {{name: one, {TRAINING}{MEASURED}{target}}}\n", "day.yaml")
    load = trace.jobs[0].load
    assert load.curve == Measured(((5, 0.5), (9, 0.25), (20, 1.0)), rises)
    assert parse_trace(render_trace(trace), "again") == trace


TWICE = "  - {name: one, service: {work: 1}}\n" * 2
MANY = f"  - {{name: one, {RISING.replace('steps: 9', 'steps: 1000000000')}}}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + MANY, "more than 1000000 evaluations: raise evaluate_every"),
        (HEAD + TWICE, "day.yaml:6:12: jobs[1].name: the name is already that of jobs[0]"),
        (HEAD[:-1] + " []\n", "day.yaml:4:7: jobs: is empty: a trace has at least one job"),
    ],
)
def test_what_only_shows_in_the_whole(text: str, said: str) -> None:
    (problem,) = problems(text)
    assert said in problem


NODES = """
trace: 1
%s
duration: 10m
jobs:
  - name: lone
    training:
      {steps: 10, work: 1, evaluate_every: 1,
       curve: {family: exponential, start: 0, end: 1, scale: 5}}
"""


def test_a_cluster_has_nodes_with_host_speed_and_times() -> None:
    nodes = """
nodes:
  - {name: small, cores: 4, joins: 5m, leaves: 8m}
  - {name: large, cores: 8, speed: 1.2, host: [{at: 1m, for: 2m, cores: 6}]}
network: 10MiB"""
    trace = parse_trace(NODES % nodes, "cluster")
    large, small = trace.nodes
    assert (large.name, large.node.cores, large.speed) == ("large", 8.0, 1.2)
    assert large.host == (HostLoad(60.0, 120.0, 6.0, 1024),)
    assert (small.joins_s, small.leaves_s) == (300.0, 480.0)
    assert trace.network_bytes_per_s == 10 << 20


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("cycle: 1s", "needs either node or nodes"),
        ("node: {cores: 1}\nnodes: [{name: one, cores: 1}]", "needs either node or nodes"),
        (
            "nodes: [{name: one, cores: 1}, {name: one, cores: 2}]",
            "two of its nodes have the same name",
        ),
        (
            "nodes: [{name: one, cores: 1}]\nhost: [{at: 0s, for: 1s, cores: 1}]",
            "host is a key of each of its nodes",
        ),
        (
            "nodes: [{name: one, cores: 1, joins: 5m, leaves: 4m}]",
            "leaves at 240 s, but joins at 300 s",
        ),
        ("nodes: [{name: one, cores: 1, speed: 0}]", "speed: 0 is out of bounds"),
    ],
)
def test_nodes_that_cannot_be_are_refused(nodes: str, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        parse_trace(NODES % nodes, "cluster")


def test_every_key_comes_back_the_same() -> None:
    assert parse_trace(render_trace(documented()), "again") == documented()


@pytest.mark.parametrize("kind", ["training", "inference", "mixed"])
def test_a_generated_trace_comes_back_the_same(kind: Kind) -> None:
    trace = generate(Recipe(jobs=40, kind=kind, seed=7, impossible_ratio=0.2))
    assert parse_trace(render_trace(trace), "again") == trace


def test_what_has_its_default_is_left_out() -> None:
    text = render_trace(parse_trace((EXAMPLES / "three-jobs.yaml").read_text(), "file"))
    assert "weight" not in text and "faults" not in text and "0s" not in text.split("jobs:")[0][:20]
    assert "node: {cores: 4.0, memory: 64GiB}" in text


@pytest.mark.parametrize(
    "name", ["0o17", "0x1f", "010", "1e3", "1_000", "2026-11-21", "no", "null"]
)
def test_a_name_that_could_be_read_as_something_else_comes_back_the_same(name: str) -> None:
    trace = replace(generate(Recipe(jobs=1)), name=name)
    assert parse_trace(render_trace(trace), "again").name == name
