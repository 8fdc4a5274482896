"""The script for a machine with a GPU."""

from __future__ import annotations

import ast
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import truth
from benchmarks.gpu.jobs import die_with_parent
from benchmarks.gpu.truth import (
    Asked,
    Tell,
    differences,
    flat,
    outcome_of,
    percentiles,
    summary,
    wrong_of,
)
from benchmarks.places import ROOT
from tests.waiting import until


@pytest.mark.timed
def test_a_part_gets_what_is_left_of_the_time_and_none_begins_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = []

    def run(part: object, asked: object, limit_s: float) -> dict[str, Any]:
        limits.append(limit_s)
        return outcome_of("ran", "", {"a": 1})

    monkeypatch.setattr(truth, "run", run)
    long = ("long", 1e6, well)
    result = truth.measure([long, long], tmp_path / "new" / "r.json", {}, deadline_s=50.0)
    assert [limit <= 50.0 for limit in limits] == [True, True]
    assert result["ended"]
    result = truth.measure([long], tmp_path / "r.json", {}, deadline_s=4.0)
    assert len(limits) == 2
    told = result["parts"]["long"]
    assert (told["state"], told["reason"]) == ("not run", "no time left: 4 s")


def imported(file: Path) -> list[tuple[str, bool]]:
    """Modules that a file imports, and whether it does so when it is itself imported."""
    tree = ast.parse(file.read_text())
    found = []
    for node in ast.walk(tree):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module
            names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
        found += [(name, node in tree.body) for name in names]
    return found


def test_only_the_standard_library_torch_pynvml_and_the_reporter_are_imported() -> None:
    files = [ROOT / "benchmarks/gpu/truth.py", ROOT / "benchmarks/gpu/job.py"]
    done: set[Path] = set()
    while files:
        file = files.pop()
        done.add(file)
        for name, early in imported(file):
            top = name.partition(".")[0]
            own = [ROOT.joinpath(*name.split(".")).with_suffix(".py")]
            own += [ROOT.joinpath(*name.split("."), "__init__.py")]
            if top == "benchmarks":
                files += [one for one in own if one.exists() and one not in done]
            elif top == "dlsched":
                assert name.startswith("dlsched.report"), (file, name)
            elif early:
                assert top in sys.stdlib_module_names, (file, name)
            else:
                assert top in {*sys.stdlib_module_names, "torch", "pynvml", "psutil"}, (file, name)
    assert {"job.py", "places.py", "jobs.py"} <= {one.name for one in done}


GPU: dict[str, Any] = {
    "name": "NVIDIA H100", "uuid": "GPU-1", "driver": "570.1", "memory_bytes": 80 << 30,
    "reserved_bytes": 0, "memory_used_bytes": 1 << 30, "compute_mode": "Default",
    "mig": "Disabled", "busy_ratio": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("other", "lines"),
    [
        ({}, []),
        ({"memory_used_bytes": (1 << 30) + (1 << 20), "busy_ratio": 0.6}, []),
        ({"mig": None}, ["GPU-1: mig Disabled, nvidia-smi None"]),
        ({"uuid": "GPU-2"}, ["GPU-1: listed by one of both alone"] * 2),
        ({"busy_ratio": 0.9}, ["GPU-1: busy_ratio 0.5, nvidia-smi 0.9"]),
    ],
)
def test_nvml_and_nvidia_smi_are_compared(other: dict[str, Any], lines: list[str]) -> None:
    found = differences("uuid", [GPU], [GPU | other])
    assert [line.replace("GPU-2", "GPU-1") for line in found] == lines


@pytest.mark.parametrize(
    ("started", "reserved_bytes", "busy_ratio", "told"),
    [
        (7, 1 << 30, 0.9, []),
        (8, 1 << 30, 0.9, ["NVML does not list 8, which was started here"]),
        (7, 4 << 30, 0.9, ["NVML: 3221225472 bytes, of which torch alone has reserved 4294967296"]),
        (7, 1 << 30, None, ["NVML: use of 7, which computes: None"]),
    ],
)
def test_what_nvml_says_of_a_started_process_is_checked(
    started: int, reserved_bytes: int, busy_ratio: float | None, told: list[str]
) -> None:
    ours = [{"pid": 7, "memory_bytes": 3 << 30, "busy_ratio": busy_ratio}]
    assert wrong_of(started, reserved_bytes, ours) == told


def test_figures_are_shown_by_their_whole_names() -> None:
    assert percentiles([float(n) for n in range(1, 101)]) == {
        "requests": 100, "p50_ms": 50.0, "p95_ms": 95.0, "p99_ms": 99.0,
    }  # fmt: skip
    assert percentiles([]) == {"requests": 0}
    figures = {"a": {"b_s": 0.12345, "c": None}, "d": [{"e": True}], "f": [], "g": [1, 2]}
    assert list(flat(figures)) == [
        ("a.b_s", "0.123"), ("a.c", "not known"), ("d.0.e", "yes"), ("f", "none"), ("g", "1; 2"),
    ]  # fmt: skip
    parts = {"one": outcome_of("ran", "", {}), "two": outcome_of("failed", "why", {})}
    assert summary(parts) == "1 of 2 parts ran; failed: two"


LONG_S = 60.0
"""Never reached."""


def well(_: Asked, tell: Tell) -> None:
    tell(a=1)


def fails(_: Asked, tell: Tell) -> None:
    tell(a=1)
    raise RuntimeError("why")


def infinite(_: Asked, tell: Tell) -> None:
    tell(a=float("inf"))


def dies(_: Asked, tell: Tell) -> None:
    tell(a=1)
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(_: Asked, tell: Tell) -> None:
    """Says the PIDs of itself and of a child that has left the session."""
    child = subprocess.Popen(["sleep", "600"], start_new_session=True, preexec_fn=die_with_parent)  # noqa: PLW1509
    tell(pids=[os.getpid(), child.pid])
    if pipe := os.environ.get("PIDS"):
        Path(pipe).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)


@pytest.mark.process
@pytest.mark.long
def test_bad_parts_cost_nothing_but_their_own_figures(tmp_path: Path) -> None:
    parts = [(part.__name__, LONG_S, part) for part in (dies, infinite, fails, well)]
    truth.measure([*parts, ("hangs", 3.0, hangs)], tmp_path / "r.json", {})
    told = json.loads((tmp_path / "r.json").read_text())["parts"]
    assert {name: part["state"] for name, part in told.items()} == {
        "dies": "killed", "infinite": "failed", "fails": "failed", "well": "ran",
        "hangs": "timed out",
    }  # fmt: skip
    assert told["dies"]["figures"] == told["fails"]["figures"] == told["well"]["figures"]
    assert told["fails"]["reason"] == "RuntimeError: why"
    assert "in fails" in told["fails"]["errors"]
    for pid in told["hangs"]["figures"].get("pids", []):
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "the end of all that it started")


SCRIPT = """
import sys
from pathlib import Path
from benchmarks.gpu import truth
from tests.benchmarks.gpu.test_truth import hangs, well
parts = [("machine", 60.0, well), ("well", 60.0, well), ("hangs", 600.0, hangs), ("last", 60, well)]
truth.stop_on_signals()
truth.measure(parts, Path(sys.argv[1]), {})
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_script_keeps_finished_parts_and_leaves_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    pipe, output = tmp_path / "pids", tmp_path / "r.json"
    os.mkfifo(pipe)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(output)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PIDS": str(pipe)},
    ) as script:
        pids = [int(pid) for pid in pipe.read_text().split()]
        handles = [os.pidfd_open(pid) for pid in pids]
        script.send_signal(number)
        script.wait(30)
    for handle in handles:
        assert select.select([handle], [], [], 30)[0], "a process is left"
        os.close(handle)
    result = json.loads(output.read_text())
    told = result["parts"]
    assert (result["machine"], result["ended"]) == ({"a": 1}, False)
    assert (told["well"]["state"], told["well"]["figures"]) == ("ran", {"a": 1})
    by_signal = "the script was asked to end"
    reason = by_signal if number == signal.SIGTERM else "the script ended while it ran"
    assert (told["hangs"]["state"], told["hangs"]["reason"]) == ("killed", reason)
    assert told["last"]["reason"] == "its turn did not come"


# Lets through what a bare machine has; without torch and pynvml.
ONLY = """
import sys
finders = list(sys.meta_path)
own = ("benchmarks.gpu", "benchmarks.options", "benchmarks.places", "dlsched.report")
class Bare:
    @staticmethod
    def find_spec(name, path=None, target=None):
        known = name.partition(".")[0] in sys.stdlib_module_names
        if known or name in ("benchmarks", "dlsched") or name.startswith(own):
            found = (finder.find_spec(name, path, target) for finder in finders)
            return next(filter(None, found), None)
sys.meta_path[:] = [Bare]
"""


@pytest.mark.process
@pytest.mark.long
def test_on_a_bare_machine_each_part_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ONLY)
    output = tmp_path / "r.json"
    environment = {"PYTHONPATH": str(tmp_path), "PATH": str(tmp_path)}
    words = [sys.executable, "-m", "benchmarks.gpu.truth", f"--output={output}", "--commit=abc"]
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(output.read_text())
    assert {name: (part["state"], part["reason"]) for name, part in told["parts"].items()} == {
        "inventory": ("not run", "pynvml is missing"),
        "processes": ("not run", "pynvml is missing"),
        "pacing": ("not run", "torch is missing"),
        "inference": ("not run", "torch is missing"),
        "memory": ("not run", "torch is missing"),
        "mps": ("not run", "nvidia-cuda-mps-control is missing"),
        "container": ("not run", "docker is missing"),
        "suspend": ("not run", "libcuda.so.1 is missing"),
    }
    assert (told["machine"]["gpu"], told["machine"]["torch"]) == (None, None)
    assert (told["rehearsal"], told["ended"], told["script"]["commit"]) == (False, True, "abc")
    assert "0 of 8 parts ran; not run: inventory, processes, " in done.stdout
