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

from dlsched.api.client import Daemon
from dlsched.cli import completing, main
from dlsched.model.errors import DaemonUnavailable
from tests.status_source import FakeSource
from tools.environment import ROOT

pytestmark = pytest.mark.timed

SCRIPTS = ROOT / "config" / "completion"
PATIENT_S = 30.0
RUN = (
    "from dlsched.cli import completing, main;"
    f" completing.WITHIN_S = {PATIENT_S}; main(prog_name='dlsched')"
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on a loaded host answers all the same."""
    monkeypatch.setattr(completing, "WITHIN_S", PATIENT_S)


def suggested(line: str, shell: str = "bash") -> list[str]:
    """What the shell gets to complete the last word of the line, in words."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    if shell == "fish":
        words["COMP_CWORD"] = line.rpartition(" ")[2]
    variables = {**words, "_DLSCHED_COMPLETE": f"{shell}_complete"}
    done = CliRunner().invoke(main, [], env=variables, prog_name="dlsched")
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.split()


def names(line: str) -> list[str]:
    return [one.removeprefix("plain,") for one in suggested(line)]


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


@pytest.mark.parametrize(
    ("shell", "lines"),
    [
        ("bash", ["plain,face-unlock"]),
        ("zsh", ["plain", "face-unlock", "_"]),
        ("fish", ["plain,face-unlock"]),
    ],
)
def test_each_shells_own_form(daemon: FakeSource, shell: str, lines: list[str]) -> None:
    assert suggested("dlsched why fa", shell)[: len(lines)] == lines


def test_the_daemon_that_the_line_names(
    daemon: FakeSource, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLSCHED_RUN_DIR", str(folders / "nothing"))
    assert names("dlsched why fa") == []
    assert names(f"dlsched why --run-dir {folders}/run fa") == ["face-unlock"]


def test_silence_without_a_daemon(folders: Path) -> None:
    assert suggested("dlsched why ") == []


def test_silence_with_settings_that_cannot_be_read(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DLSCHED_RUN_DIR")
    (folders / "broken.yaml").write_text("run_dir: [\n")
    assert suggested(f"dlsched why --config {folders}/broken.yaml ") == []
    assert suggested(f"dlsched why --config {folders}/absent.yaml ") == []


def test_a_daemon_that_hangs_is_waited_for_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    waits_s: list[float] = []

    def hung(_daemon: Daemon, read_s: float) -> None:
        waits_s.append(read_s)
        raise DaemonUnavailable("the daemon does not answer")

    monkeypatch.setattr(Daemon, "jobs", hung)
    assert suggested("dlsched why ") == []
    assert waits_s == [PATIENT_S]


@pytest.mark.parametrize(
    "names",
    [
        ["$(reboot)", "*"],
        ["a b", "x\nplain,y", "abc\n"],
    ],
)
def test_only_what_may_be_a_name_reaches_a_shell(
    monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    rows = [{"name": name, "source": "file"} for name in names]
    monkeypatch.setattr("dlsched.api.client.Daemon.jobs", lambda *_: {"jobs": rows})
    assert suggested("dlsched why ") == []


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
