"""A child of ours that enters a container's group and opens device nodes, and leaves no trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlsched.runtime.cgroup.read import hierarchies
from dlsched.runtime.docker.gpus import canary
from dlsched.runtime.docker.gpus.canary import Probe, ProbeFailed, probe
from tests.runtime.docker.fake_host import CONTAINER, PID, FakeHost
from tests.waiting import until


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path, v2=True)
    (host.cpu / "cgroup.procs").touch()
    return host


@pytest.mark.process
def test_it_enters_the_group_and_opens_what_is_there(host: FakeHost, tmp_path: Path) -> None:
    nodes = ["/dev/null", str(tmp_path / "none"), "/dev/zero", str(tmp_path)]
    seen = probe(PID, CONTAINER, nodes, host.proc)
    assert seen == Probe(frozenset({"/dev/null", "/dev/zero"}), frozenset())
    assert (host.cpu / "cgroup.procs").read_text() == "0"


def test_without_a_node_there_is_nothing_to_see(host: FakeHost, tmp_path: Path) -> None:
    with pytest.raises(ProbeFailed, match="none of the container's GPU device nodes"):
        probe(PID, CONTAINER, [str(tmp_path / "nvidia0")], host.proc)
    with pytest.raises(ProbeFailed, match="File name too long"):
        probe(PID, CONTAINER, ["/dev/null", f"/dev/{'n' * 300}"], host.proc)
    assert (host.cpu / "cgroup.procs").read_text() == ""


@pytest.mark.process
def test_it_is_killed_at_its_deadline(host: FakeHost) -> None:
    (host.cpu / "cgroup.procs").unlink()
    os.mkfifo(host.cpu / "cgroup.procs")  # nobody reads: it would wait for ever
    before = time.monotonic()
    with pytest.raises(ProbeFailed, match=r"took longer than 0\.5 s"):
        probe(PID, CONTAINER, ["/dev/null"], host.proc, within_s=0.5)
    assert time.monotonic() - before < 30


@pytest.mark.process
def test_a_group_that_cannot_be_entered_or_is_anothers(host: FakeHost) -> None:
    (host.cpu / "cgroup.procs").unlink()
    (host.cpu / "cgroup.procs").mkdir()
    with pytest.raises(
        ProbeFailed, match="the container's control group cannot be entered: IsADirectoryError"
    ):
        probe(PID, CONTAINER, ["/dev/null"], host.proc)
    (host.proc / str(PID) / "cgroup").write_text("0::/docker/another\n")
    with pytest.raises(ProbeFailed, match="does not see the container's control group"):
        probe(PID, CONTAINER, ["/dev/null"], host.proc)
    (host.proc / str(PID) / "cgroup").unlink()
    with pytest.raises(ProbeFailed, match="the container's control group cannot be found"):
        probe(PID, CONTAINER, ["/dev/null"], host.proc)


@pytest.mark.process
def test_it_ends_by_itself_where_nobody_is_left_to_kill_it(tmp_path: Path) -> None:
    group = tmp_path / "cgroup.procs"
    os.mkfifo(group)
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        canary._CHILD,
        "0.5",
        str(group),
        "/dev/null",
    ]
    assert subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGALRM


@pytest.mark.long
@pytest.mark.process
def test_nobody_waits_for_one_that_cannot_be_killed(tmp_path: Path) -> None:
    """A frozen group of cgroup v1 stands for a driver that does not come back."""
    freezer = next((one for one in hierarchies() if "freezer" in one.controllers), None)
    folder = None if freezer is None else freezer.folder(f"/{CONTAINER}")
    if folder is None or not os.access(folder.parent, os.W_OK):
        pytest.skip("no freezer of cgroup v1 can be written here")
    proc = tmp_path / "proc"
    for name, file, text in (
        (str(PID), "cgroup", f"3:devices:/{CONTAINER}\n"),
        ("self", "mountinfo", f"30 20 0:1 / {folder.parent} rw - cgroup cgroup rw,devices\n"),
    ):
        (proc / name).mkdir(parents=True)
        (proc / name / file).write_text(text)
    folder.mkdir()
    try:
        (folder / "freezer.state").write_text("FROZEN")
        before = time.monotonic()
        # Time to begin and to enter the group, on a busy host.
        with pytest.raises(ProbeFailed, match="took longer than 5 s"):
            probe(PID, CONTAINER, ["/dev/null"], proc, within_s=5.0)
        assert time.monotonic() - before < 30
        left = (folder / "cgroup.procs").read_text().split()
        assert len(left) == 1
    finally:
        (folder / "freezer.state").write_text("THAWED")
        until(lambda: not (folder / "cgroup.procs").read_text(), "its end")
        folder.rmdir()
    until(lambda: not Path(f"/proc/{left[0]}").exists(), "no zombie is left either")
