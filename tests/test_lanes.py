"""Which lane a case is in, and what the unit lane does not allow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CASES = """
import os, subprocess, sys
import pytest
from dlsched.runtime.clock import SystemClock

def test_plain():
    pass

def test_starts_a_process():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.process
def test_may_start_a_process():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_reads_it():
    SystemClock()

@pytest.fixture(scope="module")
def clock():
    return SystemClock()

def test_has_what_reads_it(clock):
    pass

@pytest.mark.timed
def test_may_read_the_clock(clock):
    SystemClock()

@pytest.mark.slow
@pytest.mark.engine
def test_of_two_lanes():
    pass

@pytest.mark.long
@pytest.mark.timed
def test_of_everything():
    pass

@pytest.mark.gate
@pytest.mark.slow
def test_of_the_gate():
    pass
"""

pytestmark = pytest.mark.process


def outcome(tmp_path: Path, *arguments: str) -> str:
    (tmp_path / "test_cases.py").write_text(CASES, encoding="utf-8")
    configuration = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", *configuration, "-v"]
    done = subprocess.run(
        [*command, *arguments, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "DLSCHED_ENGINE_MISSING": "none here", "DLSCHED_REQUIRE_ENGINE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_unit_case_that_is_not_pure_fails(tmp_path: Path) -> None:
    told = outcome(tmp_path, "--lane=unit")
    assert "mark it `process`" in told
    wrong = re.findall(r"^ERROR \S+::(\w+)", told, re.MULTILINE)
    assert wrong == ["test_starts_a_process", "test_reads_it", "test_has_what_reads_it"]
    assert "reads the real clock (time.clock_gettime, dlsched/runtime/clock.py:" in told


def test_the_gate_leaves_out_what_is_long_and_takes_what_is_marked(tmp_path: Path) -> None:
    told = outcome(tmp_path, "--gate", "--lane=timed,slow")
    assert re.findall(r"::(\w+) PASSED", told) == ["test_may_read_the_clock", "test_of_the_gate"]
    assert "2 passed, 7 deselected" in told
