"""What ps, why, stop, logs and their like ask of a daemon, and how they end without an answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dlsched.runtime.originals import Original, Originals
from dlsched.store.jobs import lock_state_dir
from tests.cli.conftest import Program
from tests.status_source import FakeSource

pytestmark = pytest.mark.timed

ESCAPES = {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize(
    "words",
    [
        "ps", "ps -o json", "why x", "stop x", "logs x", "events", "events --follow",
        "events --json", "usage", "web",
    ],
)  # fmt: skip
def test_without_a_daemon_is_one_line_and_3(program: Program, folders: Path, words: str) -> None:
    result = program(*words.split())
    assert (result.exit_code, result.stdout) == (3, "")
    socket = f"{folders}/run/{'control' if words == 'stop x' else 'status'}.sock"
    start = "start it with `systemctl start dlsched` or `dlsched run`"
    assert result.stderr == f"error: no daemon answers on {socket}; {start}\n"


def test_limits_that_a_killed_daemon_left_are_named_with_the_remedy(
    program: Program, folders: Path
) -> None:
    originals = Originals(folders / "state")
    for digit, given_back in (("a", False), ("b", True), ("c", False)):
        originals.secure(Original(digit * 64, "job", adopted=True, given_back=given_back))
    left, none = program("ps").stderr.splitlines()
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
    (folders / "state" / "lock").touch()
    started = []

    def still_applied(state_dir: Path) -> None:
        with lock_state_dir(state_dir, "default"):
            started.append(state_dir)

    monkeypatch.setattr("dlsched.cli.commands.leftover.still_applied", still_applied)
    program(command)
    assert started == [folders / "state"]


@pytest.mark.parametrize("words", ["ps", "why x", "logs x", "ps -o json"])
def test_before_the_first_cycle_is_one_line_and_3(
    program: Program, daemon: FakeSource, words: str
) -> None:
    daemon.report = None
    result = program(*words.split())
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "error: the first cycle is not done yet\n"


def test_colour_comes_with_a_word_and_goes_with_no_color(
    program: Program, daemon: FakeSource
) -> None:
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "120"}
    assert "\x1b[1;31mLATE +63%" in program("ps", env={**terminal, "NO_COLOR": None}).stdout
    bare = program("ps", env={**terminal, "NO_COLOR": "1"}).stdout
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", bare)


def test_ps_prints_json_by_option_or_variable(program: Program, daemon: FakeSource) -> None:
    shown = program("ps", "-o", "json").stdout
    assert len(json.loads(shown)["jobs"]) == 8
    assert not ESCAPES & set(shown)
    assert program("ps", "--json").stdout == shown
    assert program("ps", env={"DLSCHED_OUTPUT": "json"}).stdout == shown


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
    assert program("logs", "queued", "--tail", "5").stdout == "red\n50%\n100%\ntail €"
    assert ("logs", "queued", 5, False) in daemon.asked


def test_raw_logs_are_the_bytes_that_came(program: Program, daemon: FakeSource) -> None:
    daemon.log = iter((b"\x1b[31mred\r\n", b"\xff\x00tail"))
    assert program("logs", "queued", "--raw").stdout_bytes == b"\x1b[31mred\r\n\xff\x00tail"


def test_a_daemon_of_another_schema_is_one_line_and_its_json_is_still_printed(
    program: Program, daemon: FakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlsched.api.status.SCHEMA_VERSION", 2)
    result = program("ps")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "the daemon's status schema has version 2" in result.stderr
    assert json.loads(program("ps", "--json").stdout)["schema_version"] == 2
