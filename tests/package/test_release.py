"""What a release consists of, and that one commit gives the same bytes everywhere."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dlsched import __version__
from tools.environment import ROOT
from tools.release import SUMS, release

AT_MOST = 12


def test_the_agent_needs_few_packages_and_the_rest_are_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= AT_MOST
    assert {"top", "web", "lab"} <= project["optional-dependencies"].keys()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_builds_of_one_commit_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in ("docs", "release"):
        command = [sys.executable, "-m", "tools.environment", "--make", needed]
        subprocess.run(command, check=True, cwd=ROOT)
    sums = []
    for name in ("one", "another-place"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
        monkeypatch.setenv("TMPDIR", str(tmp_path / name))
        release("HEAD", tmp_path / name / "dist", level=0)
        sums.append((tmp_path / name / "dist" / SUMS).read_text())
    assert sums[0] == sums[1]
    made = {line.split("  ")[1]: line.split("  ")[0] for line in sums[0].splitlines()}
    assert made.keys() == {
        f"dlsched-{__version__}-py3-none-any.whl",
        f"dlsched_report-{__version__}-py3-none-any.whl",
        f"dlsched_{__version__}_amd64.deb",
        f"dlsched-{__version__}.cdx.json",
    }
    for file, digest in made.items():
        there = tmp_path / "one" / "dist" / file
        assert hashlib.sha256(there.read_bytes()).hexdigest() == digest
    bill = json.loads((tmp_path / "one" / "dist" / f"dlsched-{__version__}.cdx.json").read_text())
    about = bill["metadata"]["component"]
    assert (about["name"], about["version"]) == ("dlsched", __version__)
    assert {"docker", "pydantic", "numpy"} <= {one["name"] for one in bill["components"]}
