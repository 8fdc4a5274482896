"""What the demo of three hosts ends with, and what it tells of the controller's log."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from benchmarks.real.cluster_demo import Course, table, verdict
from benchmarks.real.cluster_trainings import Ran, Seen, training

DIGITS = training("digits", "cnn", 20.0, 0.0, 1)


def seen(first_step: int = 120) -> Seen:
    source = Ran("digits", "node1", 0.0, 30.0, 143, 0, 4.0, 120, 29.0)
    target = Ran("digits", "node3", 33.0, 80.0, 0, first_step, 36.5, 309, 79.0)
    return Seen({"b": target, "a": source}, listings=80)


def shown(what: Any) -> str:
    told = io.StringIO()
    Console(width=100, file=told).print(what)
    return told.getvalue()


def test_the_table_says_where_each_ran_and_from_which_step() -> None:
    row = shown(table([DIGITS], seen()))
    for cell in ("digits", "309", "node1 from step 0, node3 from step 120", "80 s"):
        assert cell in row


def test_the_verdict_counts_moves_lost_steps_and_doubles() -> None:
    assert verdict(seen()).startswith("moves: 1, median pause 7.5 s; steps lost: 0;")
    assert "steps lost: 20;" in verdict(seen(first_step=100))
    assert verdict(seen(first_step=0), ["a"]).startswith("moves: 0,"), "it was killed, and begins"
    assert verdict(Seen()).startswith("moves: 0, median pause 0.0 s")


def test_the_controllers_new_lines_are_told_once_without_time_and_level(tmp_path: Path) -> None:
    log = tmp_path / "cluster.log"
    log.write_text("2026-01-01T00:00:00.000Z info     node node2: ready, was silent\n")
    told = io.StringIO()
    host: Any = SimpleNamespace(folder=tmp_path)
    with closing(Course(Console(file=told), [host])) as course:
        with log.open("a") as more:
            more.write("2026-01-01T00:00:01.000Z info     digits: placed on node1\n")
            more.write("2026-01-01T00:00:02.000Z warning  node node2: silent, was ready\n")
        course.tell()
        course.tell()
    assert told.getvalue() == "   digits: placed on node1\n   node node2: silent, was ready\n"
