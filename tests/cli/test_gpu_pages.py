"""GPUs in `ps` and `why`, at the widths that terminals have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dlsched.model.actions import Move, Outcome, Start
from dlsched.model.spec import Checkpoint, Limits
from tests.cli.conftest import Program
from tests.status_source import CHANGE, FakeSource, gpu_report

pytestmark = pytest.mark.timed


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


@pytest.fixture
def gpus(daemon: FakeSource) -> FakeSource:
    daemon.report = gpu_report()
    return daemon


def test_ps_shows_the_gpus_under_the_jobs(program: Program, gpus: FakeSource) -> None:
    told = lines_of(program("ps", env={"COLUMNS": "120"}).stdout)
    at = next(number for number, line in enumerate(told) if line.startswith("GPU"))
    header, whole, more, part, lost, kept = told[at : at + 6]
    assert header.split() == ["GPU", "UUID", "MODEL", "MEMORY", "BUSY", "JOBS"]
    assert whole.startswith("  0  GPU-11111111  NVIDIA A100-SXM4-40GB")
    assert "21 GiB / 40 GiB" in whole
    assert "83 %" in whole
    assert whole.endswith("shared-one 60 %, shared-two 40 %, 2")
    assert more.strip() == "foreign processes (3 GiB)"
    assert "unknown (MIG)" in part
    assert "? / 40 GiB" in lost
    assert "failed" in lost
    assert lost.endswith("solitary 100 %")
    assert kept.endswith("0 %            reserved, exclusive-process")


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_ps_keeps_to_the_width_with_gpus(program: Program, gpus: FakeSource, columns: int) -> None:
    told = program("ps", env={"COLUMNS": str(columns)}).stdout
    assert max(len(line) for line in told.splitlines()) <= columns
    assert ("MODEL" in told) == (columns >= 110)
    words = " ".join(told.split())
    for one in ("GPU-11111111", "21 GiB / 40 GiB", "83 %", "unknown (MIG)", "failed"):
        assert one in words
    assert "alarm" in words


@pytest.mark.parametrize("columns", [80, 120])
def test_ps_tells_by_job_what_is_enforced_and_what_is_not(
    program: Program, gpus: FakeSource, columns: int
) -> None:
    told = " ".join(program("ps", env={"COLUMNS": str(columns)}).stdout.split())
    assert told.count("enforced: devices (CDI), cpu (the engine); advisory: time, memory") == 2
    if columns == 80:
        assert (
            "shared-two: enforced: devices (NVIDIA hook, legacy mode), memory (MPS, 8 GiB on each"
            " at start), cpu (control group file, set again when lost); advisory: time" in told
        )


def test_a_node_without_gpus_says_no_word_of_them(program: Program, daemon: FakeSource) -> None:
    for columns in ("60", "80", "120"):
        told = program("ps", env={"COLUMNS": columns}).stdout
        assert not any(word in told for word in ("GPU", "gpu", "enforced", "advisory"))
    assert "GPU" not in program("why", "digits-resnet").stdout


def test_why_tells_each_bound_in_words(program: Program, gpus: FakeSource) -> None:
    used = "share 60 %, 50 % to 100 %; 58 % used; 58 % used as reported by the job; 7 GiB in use"
    told = lines_of(program("why", "shared-one", env={"COLUMNS": "120"}).stdout)
    assert [line.strip() for line in told[1:6]] == [
        f"gpus: GPU-11111111-aaaa; {used}",
        "devices: enforced by CDI",
        "time: advisory: sent to the job, which paces itself",
        "memory: advisory: sent to the job; fit_to_allotment() has its framework keep to it",
        "cpu: enforced by the engine",
    ]
    alone = program("why", "solitary", env={"COLUMNS": "120"}).stdout
    assert "gpus: MIG-22222222-bbbb, GPU-33333333-dddd; alone; 7 GiB in use" in alone
    assert "time: advisory: its GPUs are its alone, so it is not bounded" in alone
    assert "gpus: none of 1 yet" in program("why", "waits").stdout
    assert "gpus:" not in program("why", "without").stdout


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"kind": "start", "before_cores": None, "gpus": "GPU-11111111-aaaa,GPU-33333333-dddd"},
            "start  1.100 cores  GPU share 0.5  GPU-11111111, GPU-33333333  done",
        ),
        ({"kind": "move", "after_share": None, "gpus": "GPU-3-d"}, "move  GPU-3-d  done"),
        (
            {"before_cores": 1.1, "before_share": 0.25},
            "resize  GPU share 0.25 -> 0.5  done",
        ),
        (
            {"before_share": 0.25},
            "resize  1.000 cores -> 1.100 cores  GPU share 0.25 -> 0.5  done",
        ),
        ({"before_share": 0.5}, "resize  1.000 cores -> 1.100 cores  done"),
        ({"before_cores": 1.1, "after_share": None}, "resize  1.100 cores, as before  done"),
        (
            {"before_cores": None, "after_cores": None, "after_share": None},
            "resize  no limit, as before  done",
        ),
        ({"kind": "remove", "after_cores": None, "after_share": None}, "remove  done"),
    ],
)
def test_why_tells_gpus_and_shares_of_a_change(
    program: Program,
    gpus: FakeSource,
    monkeypatch: pytest.MonkeyPatch,
    change: Mapping[str, object],
    line: str,
) -> None:
    told = {**CHANGE, "after_share": 0.5, **change}
    monkeypatch.setattr(gpus, "changes", lambda job, limit: [told])
    lines = lines_of(program("why", "shared-one").stdout)
    assert f"  2026-11-21T11:01:56Z  {line}" in lines


def test_why_tells_a_move_under_way(program: Program, gpus: FakeSource) -> None:
    assert gpus.report is not None
    spec = gpus.report.snapshot.jobs[0].spec
    start = Start(spec, Limits(1.0), 1024, gpus=("GPU-44444444-eeee",))
    move = Move("0" * 64, start, Checkpoint("SIGUSR1", 30.0, "/ckpt"), "makes room for waits")
    outcome = Outcome(move, "begun", "waits for its checkpoint")
    gpus.report = replace(gpus.report, outcomes=(outcome,))
    told = program("why", "shared-one").stdout
    assert "now: move begun: waits for its checkpoint" in told
    assert '"kind": "move"' in program("why", "-o", "json", "shared-one").stdout
