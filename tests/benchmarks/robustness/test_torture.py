"""What the table of deaths counts."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from benchmarks.places import ROOT
from benchmarks.robustness.torture import by_act, by_action
from tests.torture.play import Run
from tests.torture.points import Phase, Point

START = Point("engine: start", "alpha", 1, has_inside=True)
RENAME = Point("put in place allotment", "alpha", 1)


def run(point: Point, phase: Phase, *wrong: str, reached: bool = True, act: str = "one") -> Run:
    return Run(act, "fair", point, phase, reached, wrong, 1.0)


def test_deaths_and_answers_are_counted_apart_and_losses_told_once():
    runs = [
        run(START, "before"),
        run(START, "inside", "alpha: no container"),
        run(START, "lost"),
        run(START, "slow", "alpha: no container"),
        run(RENAME, "before", reached=False),
        run(RENAME, "after", act="two"),
    ]
    start, rename, everything = by_action(runs)
    assert start == {
        "action": "engine: start",
        "points": 1,
        "deaths": 2,
        "answers lost or late": 2,
        "survived": 2,
        "not reached": 0,
        "lost": "alpha: no container",
    }
    assert (rename["points"], rename["deaths"], rename["not reached"]) == (2, 1, 1)
    assert rename["lost"] == "nothing"
    assert everything["action"] == "all"
    assert (everything["points"], everything["deaths"], everything["survived"]) == (3, 3, 3)
    assert [(row["act"], row["points"]) for row in by_act(runs)] == [("one", 2), ("two", 1)]


PARENT = """
import os, time
from benchmarks.robustness.torture import workers
if __name__ == "__main__":
    with workers(1) as play:
        print(play(os.getpgid, [(0,)])[0], flush=True)
        time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.process
def test_a_worker_ends_with_a_parent_that_was_killed(tmp_path):
    file = tmp_path / "parent.py"
    file.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, file],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        assert worker.is_running()
        parent.kill()
        worker.wait(60)
