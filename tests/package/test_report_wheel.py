"""The wheel dlsched-report, installed into an environment that has nothing else."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dlsched import __version__
from dlsched.runtime import allotment
from dlsched.runtime.progress.sidecar import SidecarReader
from tools.environment import ROOT

pytestmark = pytest.mark.process

PID = 71
PROGRAM = """
import importlib.metadata, dlsched, dlsched.report
from dlsched.report import LatencyMiddleware, Progress, allotment, latency
progress = Progress()
progress.step(7, accuracy=0.912, loss=float("nan"))
for _ in range(3):
    latency.observe(0.25)
latency.error()
assert allotment() is None
print(importlib.metadata.version("dlsched-report"), dlsched.report.__file__)
try:
    import dlsched.model
except ModuleNotFoundError:
    print("alone")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As packaging/report/pyproject.toml says, without any index."""
    folder = tmp_path_factory.mktemp("report")
    words = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([sys.executable, *words, str(ROOT / "packaging" / "report")], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """The interpreter of an environment with that wheel alone."""
    environment = wheel.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    interpreter = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "-q", "--no-index"]
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    return interpreter


@pytest.mark.long
def test_it_packs_what_dlsched_gives_to_its_own_jobs(wheel: Path) -> None:
    given = allotment._reporter_files()
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    modules = {name: text for name, text in packed.items() if name.endswith(".py")}
    # As a top-level module it is there in both.
    assert modules.pop("dlsched/report/entry_points.py") == modules["dlsched_report.py"]
    assert modules == {
        name: text
        for name, text in given.items()
        if name.endswith(".py") and name != "dlsched/__init__.py"
    }
    (entries,) = (text for name, text in packed.items() if name.endswith("entry_points.txt"))
    read = [configparser.ConfigParser(), configparser.ConfigParser()]
    for parser, text in zip(read, (entries, allotment._ENTRY_POINTS), strict=True):
        parser.read_string(text.decode())
    assert read[0] == read[1]
    assert any(name.endswith("licenses/LICENSE") for name in packed)


@pytest.mark.long
def test_what_a_program_reports_is_what_dlsched_reads(python: Path, tmp_path: Path) -> None:
    out = tmp_path / "proc" / str(PID) / "root" / "tmp"
    out.mkdir(parents=True)
    (tmp_path / "proc" / str(PID) / "mountinfo").symlink_to("/proc/self/mountinfo")
    ended = subprocess.run(
        [str(python), "-W", "error", "-c", PROGRAM],
        env={"PATH": os.defpath, "DLSCHED_METRICS_FILE": str(out / "metrics.jsonl")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    version, file, alone = ended.stdout.split()
    assert version == __version__
    assert file.startswith(str(python.parent.parent))
    assert alone == "alone"

    reader = SidecarReader(
        PID, "/tmp/metrics.jsonl", proc_root=tmp_path / "proc", expect=lambda: True
    )
    reading = reader.read(5.0)
    reader.close()
    assert (reading.problem, reading.bad_lines) == (None, 0)
    (sample,) = (report.sample for report in reading.reports if report.sample)
    assert (sample.step, dict(sample.metrics)["accuracy"]) == (7, 0.912)
    # More than one where the program took longer than a second.
    latencies = [report.latency for report in reading.reports if report.latency]
    assert sum(each.count for each in latencies) == 3
    assert sum(each.sum_s for each in latencies) == pytest.approx(0.75)
    assert sum(each.errors for each in latencies) == 1
