"""The run of the tests: exit codes, what is said of lost cases, and the end when interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lanes import LANES, but_the_first_long
from tests.tools.live import ROOT, WITHIN_S
from tests.waiting import until
from tools import test_lanes
from tools.test_lanes import Part, Tally, lost

PASSES = "def test_it(): pass"
FAILS = "def test_it(): assert False"
ENDS = "import os\n\ndef test_it(): os._exit(1)"


def case(lane: str, outcome: str = "passed", **more: float) -> dict[str, Any]:
    times = {"begin_s": 10.0, "end_s": 75.0, "wall_s": 65.0, "own_s": 3.0, "children_s": 2.0}
    return {"lane": lane, "outcome": outcome, **times, **more}


def test_a_collected_case_that_did_not_run_is_an_error() -> None:
    tally = Tally(cases={"a": case("unit")}, collected={"unit": 2, "slow": 7})
    assert lost(tally, ["unit", "engine"]) == ["lane unit: 2 cases collected, but 1 ran"]


def test_every_lane_belongs_to_a_part_of_everything_or_to_the_emulated_host() -> None:
    found = [lane for group in test_lanes.ALL for part in group for lane in part.lanes]
    assert sorted([*found, "v2host"]) == sorted(LANES)


def play(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> int:
    """Run a part for each of these test files beside each other."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")

    def command(part: Part, account: Path, more: object) -> list[str]:
        words = ["-p", "tests.accounting", f"--account={account}", f"--rootdir={folder}"]
        words += ["-c", str(ROOT / "pyproject.toml")]
        file = str(folder / f"test_{part.name}.py")
        return [sys.executable, "-m", "pytest", "-p", "tests.conftest", *words, file]

    monkeypatch.setattr(test_lanes, "command_of", command)
    parts = [Part(name, ("unit",), 0) for name in files]
    return test_lanes.run_all([parts], folder / "accounts", [])


@pytest.mark.process
def test_one_failure_in_any_part_is_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert play(tmp_path, monkeypatch, one=PASSES) == 0
    assert play(tmp_path, monkeypatch, one=PASSES, two=FAILS) == 1
    told = capfd.readouterr().out
    assert "two     | " in told
    end = told.split("CPU of the tests' processes")[-1]
    assert "\nfailed: test_two.py::test_it\n        assert False\n" in end


MARKED = """
import pytest

@pytest.mark.gate
@pytest.mark.slow
def test_of_the_gate(): pass

@pytest.mark.slow
def test_of_everything(): pass

def test_pure(): pass
"""


@pytest.mark.process
def test_a_case_outside_the_gate_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_one.py").write_text(MARKED, encoding="utf-8")
    command_of = test_lanes.command_of

    def command(part: Part, account: Path, more: object) -> list[str]:
        words = [
            "-p",
            "tests.conftest",
            f"--rootdir={tmp_path}",
            "-c",
            str(ROOT / "pyproject.toml"),
        ]
        taken = "gate or not slow"
        return command_of(part, account, [*words, "-m", taken, str(tmp_path / "test_one.py")])

    monkeypatch.setattr(test_lanes, "command_of", command)
    parts = [Part(lane, (lane,), 0, only_gate=True) for lane in ("unit", "slow")]
    assert test_lanes.run_all([parts], tmp_path / "accounts", []) == 0


@pytest.mark.long
@pytest.mark.process
def test_an_end_without_an_account_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert play(tmp_path, monkeypatch, ends=ENDS, one=PASSES) == 1


INTERRUPTED = """
import time
from pathlib import Path
import pytest

@pytest.fixture
def kept():
    yield
    Path({cleaned!r}).touch()

def test_long(kept):
    Path({begun!r}).touch()
    time.sleep(1000)
"""
RUN = """
import sys
from pathlib import Path
from tools import test_lanes
from tools.test_lanes import Part
file, workers = sys.argv[1:]
folder = Path(file).parent
def command(part, account, more):
    words = ["-m", "pytest", "-p", "tests.conftest", "-c", "pyproject.toml", file]
    return [sys.executable, *words, *(["-n", workers] if int(workers) else [])]
test_lanes.command_of = command
test_lanes.INTERRUPT_GRACE_S = 1000.0  # it has to end by itself
sys.exit(test_lanes.run_all([[Part("one", ("unit",), 0)], [Part("two", ("unit",), 0)]], folder, []))
"""


@pytest.mark.process
@pytest.mark.parametrize("workers", but_the_first_long([1, 0]))
@pytest.mark.parametrize("number", but_the_first_long([signal.SIGINT, signal.SIGTERM]))
def test_interrupted_it_cleans_up_starts_no_more_and_says_so(
    tmp_path: Path, workers: int, number: signal.Signals
) -> None:
    begun, cleaned = tmp_path / "begun", tmp_path / "cleaned"
    file = tmp_path / "test_one.py"
    file.write_text(INTERRUPTED.format(begun=str(begun), cleaned=str(cleaned)), encoding="utf-8")
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(file), str(workers)], cwd=ROOT, stderr=subprocess.PIPE
    )
    with run:
        try:
            until(begun.exists, "the case begins")
            run.send_signal(number)
            _, told = run.communicate(timeout=WITHIN_S)
        finally:
            run.kill()
    assert run.returncode == 128 + number
    assert f"interrupted by {number.name}" in told.decode()
    assert cleaned.exists()
