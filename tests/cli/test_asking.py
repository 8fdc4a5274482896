"""ps, why, stop and logs against a real socket."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from dlsched.model import (
    AccuracyTarget,
    JobState,
    Limits,
    Progress,
    Reached,
    Sample,
    Shadow,
    Tiers,
)
from tests.cli.conftest import Program
from tests.status_source import FakeSource, job

ESCAPES = ("\x1b", "\x07", "\u202e")


@pytest.mark.parametrize(
    "words", [("ps",), ("why", "x"), ("stop", "x"), ("logs", "x"), ("ps", "-o", "json")]
)
def test_without_a_daemon_is_one_line_and_3(
    program: Program, words: tuple[str, ...], folders: object
) -> None:
    result = program(*words)
    assert result.exit_code == 3
    socket = f"{folders}/run/{'control' if words[0] == 'stop' else 'status'}.sock"
    assert result.stderr == f"error: no daemon answers on {socket}; start it with `dlsched run`\n"
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["why", "stop", "logs"])
def test_an_unknown_job_is_one_line_with_the_known(
    program: Program, daemon: FakeSource, command: str
) -> None:
    result = program(command, "nobody")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no job 'nobody'; known are digits-mobilenet, ")
    assert len(result.stderr.splitlines()) == 1


def test_the_flag_goes_before_the_environment(
    program: Program, daemon: FakeSource, tmp_path: object
) -> None:
    assert program("ps", "--run-dir", f"{tmp_path}/elsewhere").exit_code == 3


def test_ps_shows_every_job_with_mark_and_reason(program: Program, daemon: FakeSource) -> None:
    result = program("ps")
    assert result.exit_code == 0
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "1.03 ok" in rows["digits-mobilenet"]
    assert "1.63 slow" in rows["digits-resnet"]
    assert "0.60 fast" in rows["digits-vgg"]
    assert "0.52 / none" in rows["face-unlock"]
    assert "not found" in rows["typo"]
    assert "policy dqoes | 1 of 7 satisfied | 3.65 of 4 cores given" in result.stdout
    assert "rejected: bad.yaml:3:7: cpus.max: 0 is too low" in result.stdout
    assert "alarm: limits stay as they are" in result.stdout


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_ps_keeps_to_the_width(program: Program, daemon: FakeSource, columns: int) -> None:
    result = program("ps", env={"COLUMNS": str(columns)})
    assert max(len(line) for line in result.stdout.splitlines()) <= columns
    assert "has waited 12.3 s" in " ".join(result.stdout.split())
    assert "1.63 slow" in result.stdout
    assert "0.52 / none" in result.stdout


def test_nothing_from_a_container_steers_the_terminal(program: Program, daemon: FakeSource) -> None:
    result = program("ps", color=True)
    assert not any(escape in result.stdout for escape in ESCAPES)
    assert "red" in result.stdout


def test_colour_comes_with_a_word_and_goes_with_no_color(
    program: Program, daemon: FakeSource
) -> None:
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"}
    assert "\x1b[1;31m1.63 slow" in program("ps", env={**terminal, "NO_COLOR": None}).stdout
    bare = program("ps", env={**terminal, "NO_COLOR": "1"}).stdout
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", bare)
    assert "1.63 slow" in bare


@pytest.mark.parametrize(
    ("tiers", "mark"),
    [
        (Tiers(), "under"),
        (Tiers(Reached(910.0, 0.93, 500)), "deliver ok"),
        (Tiers(Reached(910.0, 0.93, 500), Reached(990.0, 0.98)), "finish ok"),
    ],
)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_training_shows_its_tier_and_since_when(
    program: Program, daemon: FakeSource, tiers: Tiers, mark: str, columns: int
) -> None:
    assert daemon.report is not None
    progress = Progress(samples=(Sample(990.0, 1200, (("accuracy", 0.94),)),))
    view = job("lenet", target=AccuracyTarget("accuracy", 0.9, 0.97), progress=progress)
    snapshot = replace(daemon.report.snapshot, jobs=(replace(view, tiers=tiers),))
    daemon.report = replace(daemon.report, snapshot=snapshot)
    shown = program("ps", env={"COLUMNS": str(columns)}).stdout
    since = "deliverable for 1 min 30 s: accuracy 0.93 at step 500 (deliver 0.9)"
    assert mark in shown
    assert max(len(line) for line in shown.splitlines()) <= columns
    assert ("deliverable" in shown) == (mark != "under")
    told = program("why", "lenet").stdout
    assert (since in " ".join(told.splitlines()[0].split())) == (mark != "under")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_who_is_adopted_and_who_is_blind_is_said(
    program: Program, daemon: FakeSource, columns: int
) -> None:
    assert daemon.report is not None
    view = replace(job("web", latency_s=None), adopted=True, blind="no report for 1 min")
    snapshot = replace(daemon.report.snapshot, jobs=(view,))
    daemon.report = replace(daemon.report, snapshot=snapshot, guarded={})
    shown = program("ps", env={"COLUMNS": str(columns)}).stdout
    assert "adopted; blind: no report for 1 min" in " ".join(shown.split())
    (row,) = json.loads(program("ps", "-o", "json").stdout)["jobs"]
    assert (row["source"], row["blind"]) == ("container", "no report for 1 min")
    told = program("why", "web").stdout
    assert told.startswith("web: running, adopted by its labels")
    assert "now: blind: no report for 1 min" in told
    note = "blind, no report for 1 min: an even share by weight instead, 1.000 of 4.000 cores"
    daemon.report = replace(daemon.report, guarded={"web": note})
    told = program("why", "web").stdout
    assert f"now: guard: {note}" in told
    assert "now: blind" not in told


def test_a_stopped_job_is_not_counted(program: Program, daemon: FakeSource) -> None:
    assert daemon.report is not None
    stopped = job("off", latency_s=None, state=JobState.STOPPED)
    served = job("on", latency_s=0.05)
    snapshot = replace(daemon.report.snapshot, jobs=(stopped, served))
    daemon.report = replace(daemon.report, snapshot=snapshot)
    assert "1 of 1 satisfied" in program("ps").stdout


def test_ps_with_a_lost_engine_says_so(program: Program, daemon: FakeSource) -> None:
    assert daemon.report is not None
    daemon.report = replace(daemon.report, engine_ok=False)
    assert "engine does not answer" in " ".join(program("ps").stdout.split())


def test_ps_without_jobs_says_how_to_add_one(program: Program, daemon: FakeSource) -> None:
    assert daemon.report is not None
    snapshot = replace(daemon.report.snapshot, jobs=())
    daemon.report = replace(daemon.report, snapshot=snapshot)
    assert "`dlsched submit FILE` adds one" in program("ps").stdout


def test_ps_json_is_what_the_daemon_said(program: Program, daemon: FakeSource) -> None:
    result = program("ps", "--output", "json")
    assert len(json.loads(result.stdout)["jobs"]) == 8
    assert not any(escape in result.stdout for escape in ESCAPES)
    assert program("ps", env={"DLSCHED_OUTPUT": "json"}).stdout == result.stdout


def test_why_tells_numbers_sentence_guard_and_outcome(program: Program, daemon: FakeSource) -> None:
    told = program("why", "digits-resnet").stdout.splitlines()
    lines = [line.strip() for line in told]
    assert lines[0].endswith("measured 81.7 ms over 100 requests, 1.63 slow of target")
    assert lines[1:] == [
        "2026-11-21T11:00:49Z  starting -> running",
        "2026-11-21T11:01:56Z  resize  1.000 cores -> 1.100 cores  done",
        "slow: p95 90 ms of 50 ms, grows by a tenth",
        "now: slow: p95 81 ms of 50 ms, grows by a tenth",
        "now: guard: 1.4 cores cut to 1.25: the node is full",
        "now: resize failed: engine said: busy",
    ]


def test_why_of_a_waiting_job_tells_what_it_waits_for(program: Program, daemon: FakeSource) -> None:
    told = program("why", "queued").stdout
    assert "no change is recorded yet" in told
    assert "now: floor of 1.5 cores does not fit beside the others" in told


def test_why_of_a_job_that_is_gone(program: Program, daemon: FakeSource) -> None:
    assert "gone: gone; this is what is remembered" in program("why", "gone").stdout


def test_why_json_and_limit(program: Program, daemon: FakeSource) -> None:
    answer = json.loads(program("why", "digits-resnet", "--limit", "3", "-o", "json").stdout)
    assert answer["changes"][0]["after_cores"] == 1.1
    assert ("changes", "digits-resnet", 3) in daemon.asked
    assert program("why", "digits-resnet", "--limit", "0").exit_code == 2


def test_stop_asks_the_daemon_and_keeps_stdout_for_data(
    program: Program, daemon: FakeSource
) -> None:
    result = program("stop", "digits-vgg")
    assert (result.exit_code, result.stdout) == (0, "")
    assert daemon.asked == [("stop", "digits-vgg")]


def test_logs_are_bare_text(program: Program, daemon: FakeSource) -> None:
    daemon.log = iter(
        (b"\x1b[31mred\x1b[0m\r\n", b"50%\r100%\n\x1b]0;title\x07tail \xe2\x82", b"\xac")
    )
    result = program("logs", "queued", "--tail", "5")
    assert result.stdout == "red\n50%\n100%\ntail €"
    assert ("logs", "queued", 5, False) in daemon.asked


def test_raw_logs_are_the_bytes_that_came(program: Program, daemon: FakeSource) -> None:
    daemon.log = iter((b"\x1b[31mred\r\n", b"\xff\x00tail"))
    result = program("logs", "queued", "--raw")
    assert result.stdout_bytes == b"\x1b[31mred\r\n\xff\x00tail"


def test_a_shadow_is_named_by_ps_and_told_by_why(program: Program, daemon: FakeSource) -> None:
    assert daemon.report is not None
    shadow = Shadow(
        "fair",
        limits={"digits-resnet": Limits(0.8)},
        why={"digits-resnet": "weight 1 of 5: 0.9 cores"},
        guarded={"digits-resnet": "bounds: 0.900 cores becomes 0.800 cores"},
    )
    daemon.report = replace(daemon.report, shadow=shadow)
    assert "policy dqoes, shadow fair | 1 of 7 satisfied" in program("ps").stdout
    told = " ".join(program("why", "digits-resnet").stdout.split())
    assert (
        "shadow fair: would give 0.800 cores because weight 1 of 5: 0.9 cores; "
        "guard: bounds: 0.900 cores becomes 0.800 cores" in told
    )
    waits = program("why", "queued").stdout
    assert "shadow fair: would give nothing: the job does not run" in waits
    daemon.report = replace(daemon.report, shadow=replace(shadow, trouble="no longer asked: boom"))
    assert "no longer asked: boom" in program("why", "digits-resnet").stdout
