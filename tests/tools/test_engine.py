"""Which engine a command gets, and how the command and its engine end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.live import ROOT, WITHIN_S, assert_nothing_left, needs_dockerd, run_folder_of
from tools import engine as engine_module
from tools.engine import CGROUP_PARENT, MISSING, REQUIRE
from tools.engine_probe import answers
from tools.engine_slot import Slot
from tools.private_engine import NoEngine


@pytest.mark.slow
@needs_dockerd
@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_command_and_engine(
    engines: Path, caller: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    slot = Slot(engines / "0")
    run_folder = run_folder_of(slot)
    caller.send_signal(number)
    assert caller.wait(timeout=WITHIN_S) == 128 + number
    assert_nothing_left(slot, run_folder)


IN_A_FINALIZER = """
import os, signal, sys, time, weakref
from tools.engine import end_with_signal
signal.signal(signal.SIGTERM, end_with_signal)
class Client:
    def __del__(self):
        if KIND == "del":
            os.kill(os.getpid(), signal.SIGTERM)
client = Client()
if KIND == "finalize":
    weakref.finalize(client, os.kill, os.getpid(), signal.SIGTERM)
class Known(set):
    def discard(self, _item):
        os.kill(os.getpid(), signal.SIGTERM)
known = weakref.WeakSet()
if KIND == "weak set":
    known.data = Known()
    known.add(client)
class Locks(dict):
    def __delitem__(self, name):
        super().__delitem__(name)
        os.kill(os.getpid(), signal.SIGTERM)
if KIND == "import":
    sys.modules["_frozen_importlib"]._module_locks = Locks()
    import colorsys
del client
time.sleep(600)
"""


@pytest.mark.process
@pytest.mark.parametrize("kind", ["del", "finalize", "weak set", "import"])
def test_a_signal_in_a_finalizer_is_not_lost(kind: str) -> None:
    words = [sys.executable, "-c", f"KIND = {kind!r}\n{IN_A_FINALIZER}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=WITHIN_S, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, b"")


@pytest.mark.slow
@needs_dockerd
@pytest.mark.engine
def test_command_line_passes_the_engine_and_the_exit_code_on(engines: Path) -> None:
    look = f'test -S "${{DOCKER_HOST#unix://}}" && echo "in ${CGROUP_PARENT}"; exit 7'
    command = [sys.executable, "-m", "tools.engine", "--engines", str(engines)]
    done = subprocess.run(
        [*command, "run", "--private", "--", "sh", "-c", look],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout == f"in /{Slot(engines / '0').cgroup_parent}\n"


@pytest.mark.slow
@needs_dockerd
@pytest.mark.engine
def test_clear_refuses_while_a_command_uses_its_engine(
    engines: Path, caller: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    host = f"unix://{run_folder_of(Slot(engines / '0'))}/engine.sock"
    assert engine_module.main(["--engines", str(engines), "clear"]) == 1
    assert "1 private engines are in use" in capsys.readouterr().err
    assert answers(host)
    caller.terminate()
    caller.wait(timeout=WITHIN_S)
    assert engine_module.main(["--engines", str(engines), "clear"]) == 0


@pytest.fixture
def neither_engine_nor_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "answering_host", lambda environment: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv(REQUIRE, raising=False)


@pytest.mark.process
@pytest.mark.usefixtures("neither_engine_nor_root")
def test_neither_engine_nor_root_runs_optional_commands_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    said = tmp_path / "said"
    command = ["sh", "-c", f'echo "${{DOCKER_HOST-none}} ${MISSING}" > {said}; exit 3']
    assert engine_module.run(command, private=False, optional=True, engines=tmp_path) == 3
    host, _, reason = said.read_text(encoding="utf-8").strip().partition(" ")
    assert host == "none"
    assert "not root" in reason
    assert "docker.io" in reason


@pytest.mark.usefixtures("neither_engine_nor_root")
@pytest.mark.parametrize(("optional", "required"), [(False, "0"), (True, "1")])
def test_neither_engine_nor_root_fails_where_an_engine_is_demanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optional: bool, required: str
) -> None:
    monkeypatch.setenv(REQUIRE, required)
    with pytest.raises(NoEngine, match="not root"):
        engine_module.run(["false"], private=False, optional=optional, engines=tmp_path)
