"""The run of the tests: exit codes, what is said of lost cases, and the end when interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lanes import LANES, but_the_first_long
from tests.tools.live import ROOT, WITHIN_S
from tests.waiting import until
from tools import test_lanes
from tools.cpu_time import Reading, foreign_cores, read_clocks
from tools.test_lanes import Part, Runner, Tally, lost

PASSES = "def test_it(): pass"
FAILS = "def test_it(): assert False"
ENDS = "import os\n\ndef test_it(): os._exit(1)"


def case(lane: str, outcome: str = "passed", **more: float) -> dict[str, Any]:
    times = {"begin_s": 10.0, "end_s": 75.0, "wall_s": 65.0, "own_s": 3.0, "children_s": 2.0}
    return {"lane": lane, "outcome": outcome, **times, **more}


def test_a_collected_case_that_did_not_run_is_an_error() -> None:
    tally = Tally(cases={"a": case("unit")}, collected={"unit": 2, "slow": 7})
    assert lost(tally, ["unit", "engine"]) == ["lane unit: 2 cases collected, but 1 ran"]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([], ["pure", "timed", "process", "gate"]),
        (["--all"], ["pure", "timed", "process", "engines", "slow", "browser", "stacks"]),
        (["--only", "browser"], ["browser"]),
    ],
)
def test_the_gate_everything_or_one_part_runs(
    given: list[str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run_all(groups: Sequence[Sequence[Part]], *_: object) -> int:
        ran.extend(part.name for parts in groups for part in parts)
        return 3

    monkeypatch.setattr(test_lanes, "run_all", run_all)
    assert test_lanes.main(given) == 3
    assert ran == names


def test_every_lane_belongs_to_a_part_of_everything_or_to_the_emulated_host() -> None:
    found = [lane for group in test_lanes.ALL for part in group for lane in part.lanes]
    assert sorted([*found, "v2host"]) == sorted(LANES)


@pytest.mark.timed
def test_foreign_load_is_what_is_busy_beyond_our_own(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 10 50 900 70 3 2 35 0 0\ncpu0 1 2 3\n", encoding="ascii")
    assert read_clocks(stat).busy_s == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))
    assert foreign_cores(Reading(0.0, 0.0), Reading(10.0, 12.0), 7.0) == pytest.approx(0.5)
    assert foreign_cores(Reading(0.0, 0.0), Reading(10.0, 12.0), 12.5) == 0.0


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
    assert "processes of the tests" in told
    end = told.split("processes of the tests")[-1]
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


@pytest.mark.process
def test_a_signal_while_parts_are_started_ends_those_and_starts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, tally = Runner(tmp_path, [], os.environ), Tally()

    class Reader:
        def __init__(self, args: tuple[str, subprocess.Popen[str]], **_: object) -> None:
            self.process = args[1]

        def start(self) -> None:
            runner.pass_on(signal.SIGINT, None)

        def join(self, _within_s: float) -> None:
            assert self.process.stdout is not None
            self.process.stdout.close()

    monkeypatch.setattr(test_lanes, "command_of", lambda *_: ["sleep", "1000"])
    # A shell's background has the signal ignored, and what a process ignores its children do, too.
    before = signal.signal(signal.SIGINT, runner.pass_on)
    try:
        with monkeypatch.context() as reading:
            reading.setattr(test_lanes.threading, "Thread", Reader)
            runner.run([Part("one", ("unit",), 0), Part("two", ("process",), 0)], tally)
    finally:
        signal.signal(signal.SIGINT, before)
    assert tally.codes == [-signal.SIGINT]


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
