"""Completion in shells: names of jobs from the daemon, and silence where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete
from click.testing import CliRunner

from dlsched.cli import main
from dlsched.cli.commands import completing
from tests.status_source import FakeSource
from tools.environment import ROOT

pytestmark = pytest.mark.timed

SCRIPTS = ROOT / "config" / "completion"
PATIENT_S = 30.0
RUN = (
    "from dlsched.cli import main; from dlsched.cli.commands import completing;"
    f" completing.WITHIN_S = {PATIENT_S}; main(prog_name='dlsched')"
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on a loaded host answers all the same."""
    monkeypatch.setattr(completing, "WITHIN_S", PATIENT_S)


def names(line: str) -> list[str]:
    """What bash gets to complete the last word of the line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    variables = {**words, "_DLSCHED_COMPLETE": "bash_complete"}
    done = CliRunner().invoke(main, [], env=variables, prog_name="dlsched")
    assert (done.exit_code, done.stderr) == (0, "")
    return [one.removeprefix("plain,") for one in done.stdout.split()]


@pytest.mark.parametrize("command", ["why", "logs", "stop"])
def test_names_of_jobs(daemon: FakeSource, command: str) -> None:
    assert names(f"dlsched {command} dig") == ["digits-mobilenet", "digits-resnet", "digits-vgg"]
    assert len(names(f"dlsched {command} ")) == 8
    assert names(f"dlsched {command} nosuch") == []


@pytest.mark.parametrize("command", ["drop", "export"])
def test_names_of_adopted_containers_alone(
    daemon: FakeSource, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    assert names(f"dlsched {command} ") == []
    rows = [{"name": "asr", "source": "container"}, {"name": "b2", "source": "file"}]
    monkeypatch.setattr("dlsched.api.client.Daemon.jobs", lambda *_: {"jobs": rows})
    assert names(f"dlsched {command} ") == ["asr"]


def test_the_daemon_that_the_line_names(
    daemon: FakeSource, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLSCHED_RUN_DIR", str(folders / "nothing"))
    assert names("dlsched why fa") == []
    assert names(f"dlsched why --run-dir {folders}/run fa") == ["face-unlock"]


def test_silence_without_a_daemon(folders: Path) -> None:
    assert names("dlsched why ") == []


def test_only_what_may_be_a_name_reaches_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = ("$(reboot)", "*", "a b", "x\nplain,y", "abc\n")
    rows = [{"name": name, "source": "file"} for name in hostile]
    monkeypatch.setattr("dlsched.api.client.Daemon.jobs", lambda *_: {"jobs": rows})
    assert names("dlsched why ") == []


@pytest.mark.process
@pytest.mark.parametrize("shell", [BashComplete, ZshComplete, FishComplete])
def test_the_scripts_are_what_click_makes(shell: type[ShellComplete]) -> None:
    made = shell(main, {}, "dlsched", "_DLSCHED_COMPLETE").source()
    assert (SCRIPTS / f"dlsched.{shell.name}").read_text() == made


@pytest.mark.process
def test_bash_completes_a_name(daemon: FakeSource, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash on this machine")
    command = tmp_path / "dlsched"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{RUN}" "$@"\n')
    command.chmod(0o755)
    script = (
        f"source {SCRIPTS}/dlsched.bash; COMP_WORDS=(dlsched why digits-r); COMP_CWORD=2; "
        '_dlsched_completion dlsched; printf "%s\\n" "${COMPREPLY[@]}"; complete -p dlsched'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [bash, "--norc", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout.splitlines(), done.stderr) == (
        ["digits-resnet", "complete -o nosort -F _dlsched_completion dlsched"],
        "",
    )
