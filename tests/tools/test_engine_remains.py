"""What counts as an engine's own: identity comes before every signal."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.engine_remains import clear, daemons_of, end_process, is_daemon_of
from tools.engine_slot import Slot

pytestmark = pytest.mark.process

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts idle processes under any name and with any arguments; ends them afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start_named(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        idle = "import sys; print('up', flush=True); sys.stdin.read()"
        process = subprocess.Popen(
            [name, "-c", idle, *arguments],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start_named
    for process in started:
        process.kill()
        process.communicate()


def test_only_daemons_that_name_the_run_folder_are_the_engines(
    tmp_path: Path, start: Start
) -> None:
    own = start("dockerd", f"--exec-root={tmp_path}/exec")
    shim = start("/usr/bin/containerd-shim-runc-v2", "-address", f"{tmp_path}/exec/c.sock")
    foreign = start("dockerd", "--exec-root=/var/run/docker")
    similar = start("dockerd", f"--exec-root={tmp_path}2/exec")
    reader = start("vim", f"{tmp_path}/exec/config")
    assert daemons_of(tmp_path) == (own.pid, shim.pid)
    assert not any(is_daemon_of(each.pid, tmp_path) for each in (foreign, similar, reader))


def test_clear_ends_its_own_and_nobody_elses(tmp_path: Path, start: Start) -> None:
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    own = start("dockerd", f"--exec-root={run_folder}/exec")
    foreign = start("dockerd", "--exec-root=/var/run/docker")
    slot = Slot(tmp_path / "slot")
    slot.folder.mkdir()
    slot.remember(run_folder)
    left = clear(slot, run_folder)
    assert (left.daemons, left.groups) == ((), ())
    assert own.wait(timeout=60) == -signal.SIGKILL
    assert foreign.poll() is None
    assert not run_folder.exists()
    assert slot.recorded_run_folder() is None


def test_a_process_that_is_another_by_now_gets_no_signal(start: Start) -> None:
    other = start("dockerd")
    end_process(other.pid, signal.SIGKILL, lambda pid: False)
    assert other.poll() is None
    end_process(other.pid, signal.SIGKILL, lambda pid: pid == other.pid)
    assert other.wait(timeout=60) == -signal.SIGKILL
