"""ps, why, stop and logs against a real socket."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.model.cycle import Shadow
from dlsched.model.decision import Decision
from dlsched.model.facts import LogFact, Sample
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import AccuracyTarget, Limits
from dlsched.model.state import Diverged, JobState, Progress, Reached, Tiers
from dlsched.runtime.originals import Original, Originals
from dlsched.store.jobs import lock_state_dir
from tests.cli.conftest import Program
from tests.status_source import FakeSource, foretold, job

pytestmark = pytest.mark.timed

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


def test_limits_that_a_killed_daemon_left_are_named_with_the_remedy(
    program: Program, folders: Path
) -> None:
    originals = Originals(folders / "state")
    for digit, given_back in (("a", False), ("b", True), ("c", False)):
        originals.secure(Original(digit * 64, "job", adopted=True, given_back=given_back))
    result = program("ps")
    assert result.exit_code == 3
    left, none = result.stderr.splitlines()
    assert left.startswith("the limits of 2 containers are still as dlsched set them: `dlsched rel")
    assert none.startswith("error: no daemon answers on ")
    with lock_state_dir(folders / "state", "default"):  # a daemon runs, and only its API does not
        assert program("ps", "-o", "json").stderr.splitlines() == [none]
    (folders / "state" / "originals").rename(folders / "state" / "gone")
    assert program("ps").stderr.splitlines() == [none]


@pytest.mark.parametrize("command", ["ps", "doctor"])
def test_while_its_records_are_read_a_daemon_can_start(
    program: Program, folders: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (folders / "state").mkdir(exist_ok=True)
    (folders / "state" / "lock").touch()
    started = []

    def still_applied(state_dir: Path) -> None:
        with lock_state_dir(state_dir, "default"):
            started.append(state_dir)

    monkeypatch.setattr("dlsched.cli.leftover.still_applied", still_applied)
    program(command)
    assert started == [folders / "state"]


@pytest.mark.parametrize("words", [("ps",), ("why", "x"), ("logs", "x"), ("ps", "-o", "json")])
def test_before_the_first_cycle_is_one_line_and_3(
    program: Program, source: FakeSource, daemon: FakeSource, words: tuple[str, ...]
) -> None:
    source.report = None
    result = program(*words)
    assert result.exit_code == 3
    assert result.stderr == "error: the first cycle is not done yet\n"
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
    assert "p95 51.6 ms / 50 ms  LATE +3%" in rows["digits-mobilenet"]
    assert "p95 81.7 ms / 50 ms  LATE +63%" in rows["digits-resnet"]
    assert "mean 30 ms / 50 ms  OK" in rows["digits-vgg"]
    assert "accuracy 0.8731 / 0.9  NOT YET" in rows["lenet-train"]
    assert "0.52 / none" in rows["face-unlock"]
    assert "not found" in rows["typo"]
    footer = " ".join(result.stdout.split())
    assert (
        "policy dqoes | 1 of 7 services OK, 1 within 10 % | 0 of 1 training delivered | capacity "
        "4 cores, 3.12 used, CPU limits add up to 3.65, 1 job without | engine ok" in footer
    )
    assert "rejected: bad.yaml:3:7: cpus.max: 0 is too low" in result.stdout
    assert "alarm: limits stay as they are" in result.stdout


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_ps_keeps_to_the_width(program: Program, daemon: FakeSource, columns: int) -> None:
    result = program("ps", env={"COLUMNS": str(columns)})
    assert max(len(line) for line in result.stdout.splitlines()) <= columns
    assert "has waited 12.3 s" in " ".join(result.stdout.split())
    assert "LATE +63%" in result.stdout
    assert "0.52 / none" in result.stdout


def test_nothing_from_a_container_steers_the_terminal(program: Program, daemon: FakeSource) -> None:
    result = program("ps", color=True)
    assert not any(escape in result.stdout for escape in ESCAPES)
    assert "red" in result.stdout


def test_colour_comes_with_a_word_and_goes_with_no_color(
    program: Program, daemon: FakeSource
) -> None:
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"}
    assert "\x1b[1;31mLATE +63%" in program("ps", env={**terminal, "NO_COLOR": None}).stdout
    bare = program("ps", env={**terminal, "NO_COLOR": "1"}).stdout
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", bare)
    assert "LATE +63%" in bare


@pytest.mark.parametrize(
    ("tiers", "mark"),
    [
        (Tiers(), "0.94 / 0.9  NOT YET"),
        (Tiers(Reached(910.0, 0.93, 500)), "0.94 / 0.97  DELIVERED"),
        (Tiers(Reached(910.0, 0.93, 500), Reached(990.0, 0.98)), "0.94 / 0.97  FINISHED"),
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
    assert ("deliverable for" in " ".join(shown.split())) == ("NOT YET" not in mark)
    assert f"{int('NOT YET' not in mark)} of 1 training delivered" in " ".join(shown.split())
    assert "services OK" not in shown, "there is none"
    told = program("why", "lenet").stdout
    assert (since in " ".join(told.splitlines()[0].split())) == ("NOT YET" not in mark)


@pytest.mark.parametrize("tiers", [Tiers(), Tiers(Reached(910.0, 0.93, 500))])
def test_a_diverged_training_says_so(program: Program, daemon: FakeSource, tiers: Tiers) -> None:
    assert daemon.report is not None
    progress = Progress(samples=(Sample(990.0, 1200, (("accuracy", 0.94),)),))
    view = job("lenet", target=AccuracyTarget("accuracy", 0.9, 0.97), progress=progress)
    view = replace(view, tiers=tiers, diverged=Diverged("loss", "nan", 990.0, 1300))
    daemon.report = replace(
        daemon.report, snapshot=replace(daemon.report.snapshot, jobs=(view,)), outlooks={}
    )
    shown = " ".join(program("ps", env={"COLUMNS": "200"}).stdout.split())
    assert "DIVERGED" in shown
    assert "diverged: loss nan at step 1300" in shown
    assert ("deliverable for" in shown) == (tiers.delivered is not None)
    assert "diverged: loss nan at step 1300" in program("why", "lenet").stdout


def test_what_is_wrong_with_a_log_is_said(program: Program, daemon: FakeSource) -> None:
    assert daemon.report is not None
    log = LogFact(lines=512, example=r"'step 1 \x1b[31mloss'", buffered=True)
    why = "latency_ms: 'fast': not a finite number"
    view = job("lenet", progress=Progress(log=log, bad_lines=2, refused=why))
    daemon.report = replace(
        daemon.report, snapshot=replace(daemon.report.snapshot, jobs=(view,)), outlooks={}
    )
    for command in (("ps",), ("why", "lenet")):
        shown = " ".join(program(*command, env={"COLUMNS": "300"}).stdout.split())
        assert r"0 of 512 lines match, the first: 'step 1 \x1b[31mloss'" in shown
        assert "its output is buffered: set PYTHONUNBUFFERED=1" in shown
        assert f"2 bad lines, the first: {why}" in shown
    log = replace(log, matched=1, example=None, buffered=False)
    view = replace(view, progress=Progress(log=log))
    daemon.report = replace(
        daemon.report, snapshot=replace(daemon.report.snapshot, jobs=(view,)), outlooks={}
    )
    assert "lines" not in program("ps").stdout


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
    assert told.startswith("web: running, adopted")
    assert "now: blind: no report for 1 min" in told
    note = "blind, no report for 1 min: an even share by weight instead, 1.000 of 4.000 cores"
    daemon.report = replace(daemon.report, guarded={"web": note})
    told = program("why", "web").stdout
    assert f"now: guard: {note}" in told
    assert "now: blind" not in told


def table(shown: str) -> dict[str, str]:
    """The lines of a page by their first word."""
    return {line.split()[0]: line for line in shown.splitlines() if line.strip()}


@pytest.mark.parametrize("columns", [80, 100, 140])
def test_ps_shows_what_is_expected_of_the_next_target(
    program: Program, daemon: FakeSource, columns: int
) -> None:
    assert daemon.report is not None
    daemon.report = foretold(daemon.report)
    shown = program("ps", env={"COLUMNS": str(columns)}).stdout
    assert max(len(line) for line in shown.splitlines()) <= columns
    rows = table(shown)
    assert ("FORECAST" in rows["NAME"]) == (columns > 80)
    assert "p95 81.7 ms / 50 ms  LATE +63%" in rows["digits-resnet"]
    if columns == 80:
        assert "  digits-vgg: at best 64 ms" in shown
        return
    assert " met " in rows["digits-mobilenet"]
    assert " lacks 1.2 cores " in rows["digits-resnet"]
    assert " at best 64 ms " in rows["digits-vgg"]
    assert " ? " in rows["face-unlock"]
    assert " in 4 min (3-6) " in rows["lenet-train"]
    assert "needs 1.2 cores more: from digits-vgg, lenet-train" in " ".join(shown.split())


def test_a_narrow_ps_tells_the_outlook_below(program: Program, daemon: FakeSource) -> None:
    assert daemon.report is not None
    daemon.report = foretold(daemon.report)
    shown = program("ps", env={"COLUMNS": "60"}).stdout
    assert max(len(line) for line in shown.splitlines()) <= 60
    assert "FORECAST" not in shown
    assert "lenet-train: in 4 min (3-6)" in shown
    assert "digits-vgg: at best 64 ms" in shown
    assert "digits-resnet: needs 1.2 cores more: from digits-vgg" in shown


def test_few_columns_are_enough_for_short_targets_and_outlooks(
    program: Program, daemon: FakeSource
) -> None:
    assert daemon.report is not None
    report = foretold(daemon.report)
    short = tuple(view for view in report.snapshot.jobs if view.name == "digits-vgg")
    met = {"digits-vgg": (Forecast(ForecastKind.MET, "latency"),)}
    snapshot = replace(report.snapshot, jobs=short)
    daemon.report = replace(report, snapshot=snapshot, outlooks=met)
    rows = table(program("ps", env={"COLUMNS": "80"}).stdout)
    assert rows["digits-vgg"].endswith("mean 30 ms / 50 ms  OK      met       0.52 / 0.60")


def test_without_outlooks_there_is_no_column(program: Program, daemon: FakeSource) -> None:
    assert "FORECAST" not in program("ps").stdout


def test_the_outlook_of_a_tier_that_is_met_gives_way_to_the_next(
    program: Program, daemon: FakeSource
) -> None:
    assert daemon.report is not None
    report = foretold(daemon.report)
    deliver, finish = report.outlooks["lenet-train"]
    met = replace(deliver, kind=ForecastKind.MET)
    daemon.report = replace(report, outlooks={"lenet-train": (met, finish)})
    assert "at best 0.952" in table(program("ps").stdout)["lenet-train"]
    daemon.report = replace(report, outlooks={"lenet-train": (met, met)})
    assert " met " in table(program("ps").stdout)["lenet-train"]


def test_why_tells_each_targets_outlook_with_the_numbers(
    program: Program, daemon: FakeSource
) -> None:
    assert daemon.report is not None
    daemon.report = foretold(daemon.report)
    told = [
        " ".join(program("why", name).stdout.split()) for name in ("digits-resnet", "lenet-train")
    ]
    assert told[0].endswith(
        "forecast latency: not beside these others, needs 2.45 cores, would be met with 0.8 cores "
        "from digits-vgg, 0.4 cores from lenet-train: p95 81 ms of 50 ms with 1.25 cores"
    )
    assert told[1].endswith(
        "forecast deliver: expected in 4 min 10 s (80 %: 3 min to 6 min 2 s): 0.9 at step 1800 "
        "forecast finish: not on this node, at best 0.952"
    )


def test_what_the_outlook_tells_is_not_told_again_as_the_reason(
    program: Program, daemon: FakeSource
) -> None:
    assert daemon.report is not None
    words = "p95 50 ms: 51 ms now, given 0.6 cores, it needs 0.52"
    met = Forecast(ForecastKind.MET, "latency", why=words)
    daemon.report = replace(
        daemon.report,
        outlooks={"digits-mobilenet": (met,)},
        decision=Decision(why={"digits-mobilenet": words}),
        guarded={},
    )
    lines = [line.strip() for line in program("why", "digits-mobilenet").stdout.splitlines()]
    assert lines[1:] == ["no change is recorded yet", f"forecast latency: met: {words}"]


def test_an_outlook_cannot_steer_the_terminal(program: Program, daemon: FakeSource) -> None:
    assert daemon.report is not None
    hostile = Forecast(
        ForecastKind.CROWDED, "latency", lacks=(("\x1b[31mred", 1.0),), why="\x07\u202eback"
    )
    daemon.report = replace(daemon.report, outlooks={"digits-vgg": (hostile,)})
    for words in (("ps",), ("why", "digits-vgg"), ("ps", "-o", "json")):
        shown = program(*words, color=True).stdout
        assert "red" in shown
        assert not any(escape in shown for escape in ESCAPES)


def test_a_blind_job_is_shown_as_blind_with_what_its_policy_does_about_it(
    program: Program, daemon: FakeSource
) -> None:
    """`why` as a policy says it that heeds no progress, so that no guard speaks in its place."""
    assert daemon.report is not None
    report = foretold(daemon.report)
    jobs = tuple(
        replace(view, blind="no report for 1 min") if view.name == "lenet-train" else view
        for view in report.snapshot.jobs
    )
    holds = "nothing heard for 1 min: holds 0.600 cores, the floor in 4 min"
    daemon.report = replace(
        report,
        snapshot=replace(report.snapshot, jobs=jobs),
        decision=Decision({"lenet-train": Limits(0.6)}, {"lenet-train": holds}),
        guarded={"lenet-train": "dead-band: 0.600 cores is within 2% of 0.595"},
    )
    shown = program("ps").stdout
    assert " blind " in table(shown)["lenet-train"]
    assert "in 4 min (3-6)" not in shown, "what was expected of it is no longer known"
    assert "lenet-train: blind: no report for 1 min" in shown
    lines = [line.strip() for line in program("why", "lenet-train").stdout.splitlines()]
    assert f"now: {holds}" in lines
    assert "now: blind: no report for 1 min" in lines
    assert "now: guard: dead-band: 0.600 cores is within 2% of 0.595" in lines
    assert "forecast finish before: not on this node, at best 0.952" in lines


def test_a_stopped_job_is_not_counted(program: Program, daemon: FakeSource) -> None:
    assert daemon.report is not None
    stopped = job("off", latency_s=None, state=JobState.STOPPED)
    served = job("on", latency_s=0.05)
    snapshot = replace(daemon.report.snapshot, jobs=(stopped, served))
    daemon.report = replace(daemon.report, snapshot=snapshot)
    assert "1 of 1 services OK, 1 within 10 %" in program("ps").stdout


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
    assert lines[0].endswith("measured 81.7 ms over 100 requests: LATE +63%")
    assert lines[1:] == [
        "2026-11-21T11:00:49Z  starting -> running",
        "2026-11-21T11:01:56Z  resize  1.000 cores -> 1.100 cores  done",
        "slow: p95 90 ms of 50 ms, grows by a tenth",
        "helped: 90 -> 81.7 ms (212 requests), 2 others changed too; expected 84 ms",
        "now: slow: p95 81 ms of 50 ms, grows by a tenth",
        "now: guard: 1.4 cores cut to 1.25: the node is full",
        "now: resize failed: engine said: busy",
    ]


def test_why_of_a_waiting_job_tells_what_it_waits_for(program: Program, daemon: FakeSource) -> None:
    told = program("why", "queued").stdout
    assert "no change is recorded yet" in told
    assert "now: floor of 1.5 cores does not fit beside the others" in told


def test_why_of_a_job_that_is_gone(program: Program, daemon: FakeSource) -> None:
    assert "gone: no longer there; this is its history" in program("why", "gone").stdout


def test_why_json_and_limit(program: Program, daemon: FakeSource) -> None:
    answer = json.loads(program("why", "digits-resnet", "--limit", "3", "-o", "json").stdout)
    assert answer["changes"][0]["after_cores"] == 1.1
    assert ("changes", "digits-resnet", 3) in daemon.asked
    assert program("why", "digits-resnet", "--limit", "0").exit_code == 2


def test_a_refused_stop_is_one_line_and_1(program: Program, daemon: FakeSource) -> None:
    daemon.refuses = "digits-vgg is adopted"
    result = program("stop", "digits-vgg")
    assert (result.exit_code, result.stderr) == (1, "error: digits-vgg is adopted\n")


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
    assert "policy dqoes, shadow fair | 1 of 7 services OK" in program("ps").stdout
    told = " ".join(program("why", "digits-resnet").stdout.split())
    assert (
        "shadow fair: would give 0.800 cores because weight 1 of 5: 0.9 cores; "
        "guard: bounds: 0.900 cores becomes 0.800 cores" in told
    )
    waits = program("why", "queued").stdout
    assert "shadow fair: would give nothing: the job does not run" in waits
    daemon.report = replace(daemon.report, shadow=replace(shadow, trouble="no longer asked: boom"))
    assert "no longer asked: boom" in program("why", "digits-resnet").stdout


def test_ps_takes_dockers_a_and_json(program: Program, daemon: FakeSource) -> None:
    assert program("ps", "-a").stdout == program("ps", "--all").stdout == program("ps").stdout
    assert program("ps", "--json").stdout == program("ps", "-o", "json").stdout
    assert (
        program("why", "queued", "--json").stdout == program("why", "queued", "-o", "json").stdout
    )


def test_a_daemon_of_another_schema_is_one_line_and_its_json_is_still_printed(
    program: Program, daemon: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlsched.api.status.SCHEMA_VERSION", 2)
    result = program("ps")
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert "the daemon's status schema has version 2" in result.stderr
    assert json.loads(program("ps", "--json").stdout)["schema_version"] == 2


@pytest.mark.parametrize(
    ("latency_s", "mark"),
    [
        (0.02, "OK"), (0.049, "OK"), (0.0504, "LATE +1%"), (0.0545, "LATE +9%"),
        (0.098, "LATE +96%"), (0.16, "LATE 3.2x"), (0.85, "LATE 17x"), (900.0, "LATE 999x"),
    ],
)  # fmt: skip
def test_a_late_service_is_shown_with_how_much(
    program: Program, daemon: FakeSource, latency_s: float, mark: str
) -> None:
    assert daemon.report is not None
    snapshot = replace(daemon.report.snapshot, jobs=(job("one", latency_s=latency_s),))
    daemon.report = replace(daemon.report, snapshot=snapshot)
    assert f" / 50 ms  {mark}" in program("ps").stdout
