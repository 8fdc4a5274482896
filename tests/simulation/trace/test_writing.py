"""What is written is read back the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.simulation.trace import Recipe, generate, parse_trace, render_trace
from dlsched.simulation.trace.generating import Kind
from tests.simulation.trace.test_reading import documented

EXAMPLES = Path(__file__).parents[3] / "examples" / "traces"


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
