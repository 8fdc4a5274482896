"""The script for a machine with a GPU: what it makes of answers, and what it may import."""

from __future__ import annotations

import ast
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.truth import __main__ as truth
from benchmarks.gpu.truth import running
from benchmarks.gpu.truth.driver import differences, process_differences
from benchmarks.gpu.truth.running import Outcome, Part, Stop, judge
from benchmarks.gpu.truth.sharing import of_shares, percentiles
from benchmarks.gpu.truth.showing import flat, report, summary
from benchmarks.places import ROOT

PART = Part("one", ("a", "b"), 1.0, ())


@pytest.mark.parametrize(
    ("answer", "code", "cut", "state", "reason"),
    [
        (b'{"a": 1}\n{"b": [1.5]}\n', 0, "", "ran", ""),
        (b'{"a": 1}\n', 0, "", "nonsense", "did not answer b"),
        (b'{"a": 1, "b": 2}\nhello\n', 0, "", "nonsense", "line 2: "),
        (b'{"a": 1}\n{"b": NaN}', 0, "", "nonsense", "line 2: "),
        (b'{"a": 1}\n{"b": 1e999}', 0, "", "nonsense", "line 2: "),
        (b'{"a": 1}\n{"c": 1}', 0, "", "nonsense", "line 2: unknown figure 'c'"),
        (b'{"a": 1}\n[1]', 0, "", "nonsense", "line 2: no JSON object"),
        (b'{"a": 1}\n' + b"[" * 100_000, 0, "", "nonsense", "line 2: "),
        (b'{"a": 1}\n\xff', 0, "", "nonsense", "line 2: "),
        (b'{"a": 1}\n{"not_run": "no GPU"}\n', 0, "", "not run", "no GPU"),
        (b'{"a": 1}\n{"b"', -9, "", "killed", "ended by SIGKILL"),
        (b'{"a": 1}\n{"b"', 1, "", "failed", "exit code 1"),
        (b'{"a": 1}\n{"b"', 0, "timed out", "timed out", "its time limit was reached"),
        (b'{"a": 1}\n{"b"', 0, "nonsense", "nonsense", "answered more than 1048576 bytes"),
        (b'{"a": 1}\n', None, "", "killed", "its processes could not be ended"),
    ],
)
def test_an_answer_is_judged_and_its_sound_lines_are_kept(
    answer: bytes, code: int | None, cut: str, state: str, reason: str
) -> None:
    outcome = judge(PART, answer, code, cut)
    assert (outcome.state, outcome.reason[: len(reason)]) == (state, reason)
    assert outcome.figures["a"] == 1
    assert outcome.figures.get("b") == ([1.5] if state == "ran" else outcome.figures.get("b"))
    json.dumps(outcome.figures, allow_nan=False)


@pytest.mark.timed
def test_a_part_gets_what_is_left_of_the_time_and_none_begins_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = []

    def run(part: Part, limit_s: float) -> Outcome:
        limits.append(limit_s)
        return Outcome("ran", figures={"a": 1})

    monkeypatch.setattr(running, "run", run)
    long = Part("long", ("a",), 1e6, ())
    result = truth.measure([long, long], tmp_path / "new" / "r.json", {}, deadline_s=50.0)
    assert [limit <= 50.0 for limit in limits] == [True, True]
    assert result["ended"]
    result = truth.measure([long], tmp_path / "r.json", {}, deadline_s=4.0)
    assert len(limits) == 2
    assert result["parts"]["long"]["state"] == "not run"
    assert result["parts"]["long"]["reason"] == "no time left: 4 s"


@pytest.mark.timed
def test_what_was_finished_before_a_request_to_end_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(part: Part, limit_s: float) -> Outcome:
        if part.name == "second":
            raise Stop("asked")
        return Outcome("ran", figures={"a": 1})

    monkeypatch.setattr(running, "run", run)
    parts = [Part(name, ("a",), 9.0, ()) for name in ("machine", "first", "second", "third")]
    truth.measure(parts, tmp_path / "r.json", {"rehearsal": False})
    result = json.loads((tmp_path / "r.json").read_text())
    states = {name: (part["state"], part["reason"]) for name, part in result["parts"].items()}
    assert states == {
        "first": ("ran", ""),
        "second": ("killed", "asked"),
        "third": ("not run", "its turn did not come"),
    }
    assert (result["machine"], result["ended"]) == ({"a": 1}, False)


def test_every_part_has_a_function() -> None:
    assert len(truth.FIGURES) == 9, "the machine, and eight parts"
    for part, (module, *_) in truth.FIGURES.items():
        assert callable(getattr(import_module(f"benchmarks.gpu.truth.{module}"), part))


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
    files = [*(ROOT / "benchmarks/gpu/truth").glob("*.py"), ROOT / "benchmarks/gpu/job.py"]
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
    assert {"job.py", "places.py", "keeper.py"} <= {one.name for one in done}


GPU: dict[str, Any] = {
    "name": "NVIDIA H100", "uuid": "GPU-1", "driver": "570.1", "memory_bytes": 80 << 30,
    "memory_used_bytes": 1 << 30, "compute_mode": "Default", "mig": "Disabled", "busy_ratio": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("other", "lines"),
    [
        ({}, []),
        ({"memory_used_bytes": (1 << 30) + (1 << 20), "busy_ratio": 0.6}, []),
        ({"mig": None}, ["GPU 0: mig Disabled, nvidia-smi None"]),
        ({"uuid": "GPU-2"}, ["GPU 0: uuid GPU-1, nvidia-smi GPU-2"]),
        ({"busy_ratio": 0.9}, ["GPU 0: busy_ratio 0.5, nvidia-smi 0.9"]),
    ],
)
def test_nvml_and_nvidia_smi_are_compared(other: dict[str, Any], lines: list[str]) -> None:
    assert differences([GPU], [GPU | other]) == lines
    assert differences([GPU], []) == ["GPUs: 1, nvidia-smi 0"]


def test_processes_are_compared_with_what_was_started() -> None:
    mine = {7: {"memory_bytes": 3 << 30, "busy_ratio": 0.9}}
    assert process_differences(7, 1 << 30, mine, {7: {"memory_bytes": 3 << 30}}) == []
    assert process_differences(7, 4 << 30, mine, {7: {"memory_bytes": None}}) == [
        "NVML: 3221225472 bytes, of which torch alone has reserved 4294967296",
        "7: NVML 3221225472 bytes, nvidia-smi None",
    ]
    assert process_differences(8, 1, mine, {}) == [
        "NVML lists 7, which was not started here",
        "NVML does not list 8, which was started here",
        "7: listed by one of both alone",
    ]


def test_shares_percentiles_and_lines() -> None:
    found = of_shares([60.0, 30.0], 100.0, (0.7, 0.3))
    assert found["error_points"] == pytest.approx([-10.0, 0.0])
    assert found["sum_of_exclusive_ratio"] == pytest.approx(0.9)
    assert percentiles([float(n) for n in range(1, 101)]) == {
        "requests": 100, "p50_ms": 50.0, "p95_ms": 95.0, "p99_ms": 99.0,
    }  # fmt: skip
    assert percentiles([]) == {"requests": 0}
    figures = {"a": {"b_s": 0.12345, "c": None}, "d": [{"e": True}], "f": [], "g": [1, 2]}
    assert list(flat(figures)) == [
        ("a.b_s", "0.123"), ("a.c", "not known"), ("d.0.e", "yes"), ("f", "none"), ("g", "1; 2"),
    ]  # fmt: skip
    part = {"state": "ran", "reason": "", "seconds": 1.0, "figures": {"a": 1}}
    parts = {"one": part, "two": part | {"state": "failed", "reason": "why"}}
    assert summary(parts) == "1 of 2 parts ran; failed: two"
    assert "two        failed: why (1.0 s)\n    a: 1\n" in report(parts)
