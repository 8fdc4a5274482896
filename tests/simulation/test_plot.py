"""The picture of runs: what stands on it, and that it is only drawn when it is wanted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dlsched.simulation.plot import draw
from dlsched.simulation.run import compare
from dlsched.simulation.scoring import PLAIN, JobResult, RunResult
from dlsched.simulation.trace import Recipe, Trace, generate

pytestmark = pytest.mark.timed

SMALL = Recipe(jobs=4, duration_s=60.0, cores=4.0, seed=1)


def texts(trace: Trace, policies: list[str], folder: Path) -> set[str]:
    """Every text on the picture."""
    file = folder / "day.svg"
    draw(trace, compare(trace, policies, [1]), file)
    return set(re.findall(r"<!-- (.*?) -->", file.read_text()))


@pytest.mark.long
def test_a_mixed_day_has_its_trainings_by_job_and_its_services(tmp_path: Path) -> None:
    found = texts(generate(SMALL), ["fair"], tmp_path)
    assert {"time to the first tier", "time to the second tier", "time to the end"} <= found
    assert {"training-0", "training-2", "mean", "plain Docker", "fair"} <= found
    assert "services within 10 % of the target" in found
    assert any(text.startswith("mixed-random-4: 4 jobs on 4 cores") for text in found)


@pytest.mark.long
def test_of_many_trainings_the_part_that_got_there_is_drawn(tmp_path: Path) -> None:
    recipe = Recipe(jobs=26, duration_s=40.0, cores=8.0, kind="training", seed=2)
    found = texts(generate(recipe), ["fair"], tmp_path)
    assert "trainings that got there (%)" in found
    assert "training-00" not in found


def test_the_mean_of_services_is_by_their_time_as_the_bound_beside_it_is(tmp_path: Path) -> None:
    trace = generate(Recipe(jobs=2, duration_s=90.0, kind="inference", seed=1))
    names = [job.name for job in trace.jobs]
    jobs = tuple(
        JobResult(name, "service", 0.0, there_s, satisfied_ratio=ratio, met_ratio=ratio)
        for name, there_s, ratio in zip(names, (10.0, 90.0), (1.0, 0.0), strict=True)
    )
    file = tmp_path / "day.svg"
    draw(trace, [RunResult(PLAIN, 1, 90.0, 90, 0, jobs)], file)
    assert "plain Docker (mean 10 %)" in file.read_text()


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_the_suffix_chooses_the_format(suffix: str, start: bytes, tmp_path: Path) -> None:
    trace = generate(Recipe(jobs=2, duration_s=20.0, kind="inference", seed=1))
    file = tmp_path / f"day.{suffix}"
    draw(trace, compare(trace, [], [1]), file)
    assert file.read_bytes().startswith(start)


@pytest.mark.process
def test_nobody_imports_matplotlib_before_a_picture_is_wanted() -> None:
    words = (
        "import sys, dlsched.cli, dlsched.simulation.run; assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", words], check=True)
