"""Importing the reporter: harmless in every job, standard library only, old Pythons too."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dlsched.runtime.allotment import install_reporter
from tests.report.jobs import run_job

pytestmark = pytest.mark.process

JOB = """
from dlsched.report import (
    LatencyMiddleware, Progress, allotment, fit_to_allotment, latency, pace
)
Progress().step(5, loss=0.5)
with latency.measure():
    pass
latency.error()
assert allotment() is None
assert fit_to_allotment(at_most=1)[0] == 1
assert fit_to_allotment().gpu_memory_bytes is None
pace()
with pace:
    pass
LatencyMiddleware(print)
"""


def old_python() -> list[str]:
    """A Python 3.8 that runs here, as a command; the test is left out where there is none."""
    for candidate in (["python3.8"], ["env", "PYENV_VERSION=3.8.18", "python3.8"]):
        if shutil.which(candidate[-1]) is None:
            continue
        asked = [*candidate, "-c", "import sys; sys.exit(sys.version_info[:2] != (3, 8))"]
        if not subprocess.run(asked, capture_output=True, check=False).returncode:
            return candidate
    pytest.skip("no python3.8 runs on this host: the reporter was not tried on it")


def test_the_installed_copy_runs_on_python_3_8(tmp_path: Path) -> None:
    metrics, lib = tmp_path / "metrics.jsonl", install_reporter(tmp_path)
    # More than two lines where the job took longer than a second.
    lines = run_job(JOB, metrics, *old_python(), "-W", "error", lib=lib)
    assert [(line["step"], line["loss"]) for line in lines if "step" in line] == [(5, 0.5)]
    latencies = [line["latency"] for line in lines if "latency" in line]
    assert sum(each["count"] for each in latencies) == 1
    assert sum(each.get("errors", 0) for each in latencies) == 1


def test_every_module_of_the_copy_imports_on_python_3_8(tmp_path: Path) -> None:
    text = """
import importlib, pkgutil, dlsched.report
names = [each.name for each in pkgutil.iter_modules(dlsched.report.__path__)]
assert {"lightning", "transformers", "keras"} <= set(names)
for name in names:
    importlib.import_module("dlsched.report." + name)
import dlsched_report
"""
    run_job(text, None, *old_python(), "-W", "error", lib=install_reporter(tmp_path))


@pytest.mark.parametrize("missing", ["threading", "fcntl", "json", "typing", "queue"])
def test_an_import_that_fails_within_does_not_reach_the_job(missing: str) -> None:
    text = f"import sys\nsys.modules[{missing!r}] = None\n{JOB}\ndel sys.modules[{missing!r}]\n"
    run_job(text)


def test_the_copy_imports_the_standard_library_alone(tmp_path: Path) -> None:
    text = """
import sys
before = set(sys.modules)
import dlsched.report
new = {name.split(".")[0] for name in set(sys.modules) - before} - {"dlsched"}
assert new <= sys.stdlib_module_names, new - sys.stdlib_module_names
assert not any(name.startswith("dlsched.") and not name.startswith("dlsched.report")
               for name in sys.modules)
"""
    run_job(text, None, sys.executable, "-S", lib=install_reporter(tmp_path))


@pytest.mark.parametrize("place", ["/nowhere/metrics.jsonl", "/dev/full", "/proc/version", ""])
def test_a_metrics_file_that_cannot_be_written_does_not_fail_the_job(place: str) -> None:
    run_job(JOB, DLSCHED_METRICS_FILE=place)


def test_a_job_that_closes_all_descriptors_has_its_files_alone(tmp_path: Path) -> None:
    text = f"""
import os
from dlsched.report import latency
from dlsched.report.writer import current
latency.observe(0.1)
current().flush()
os.closerange(3, 64)
mine = [os.open({str(tmp_path / "own")!r} + str(n), os.O_CREAT | os.O_WRONLY) for n in range(9)]
latency.observe(0.2)
"""
    assert len(run_job(text, tmp_path / "metrics.jsonl")) == 2
    assert [(tmp_path / f"own{n}").stat().st_size for n in range(9)] == [0] * 9
