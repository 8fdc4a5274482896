"""Engine tests without an engine: left out and counted, or an error where one is demanded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ONE_OF_EACH = """
import pytest

def test_plain():
    pass

@pytest.mark.engine
def test_real(docker_host):
    raise AssertionError("must not run")
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("required", "code", "said"),
    [
        ("0", 0, "LEFT OUT: 1 engine tests: engine on strike"),
        ("1", 4, "DLSCHED_REQUIRE_ENGINE=1, but engine on strike"),
    ],
)
def test_without_an_engine(tmp_path: Path, required: str, code: int, said: str) -> None:
    (tmp_path / "test_each.py").write_text(ONE_OF_EACH, encoding="utf-8")
    configuration = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", *configuration, str(tmp_path)],
        cwd=ROOT,
        env={
            **os.environ,
            "DLSCHED_ENGINE_MISSING": "engine on strike",
            "DLSCHED_REQUIRE_ENGINE": required,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
