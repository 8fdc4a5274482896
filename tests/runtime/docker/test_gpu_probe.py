"""A child of ours that enters a container's group and opens device nodes, and leaves no trace."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dlsched.runtime.docker.gpu_probe import Probe, ProbeFailed, probe
from tests.runtime.docker.fake_host import CONTAINER, PID, FakeHost


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path, v2=True)
    (host.cpu / "cgroup.procs").touch()
    return host


def test_it_enters_the_group_and_opens_what_is_there(host: FakeHost, tmp_path: Path) -> None:
    nodes = ["/dev/null", str(tmp_path / "none"), "/dev/zero", str(tmp_path)]
    seen = probe(PID, CONTAINER, nodes, host.proc)
    assert seen == Probe(frozenset({"/dev/null", "/dev/zero"}), frozenset())
    assert (host.cpu / "cgroup.procs").read_text() == "0"


def test_without_a_node_there_is_nothing_to_see(host: FakeHost, tmp_path: Path) -> None:
    with pytest.raises(ProbeFailed, match="none of its device nodes can be seen"):
        probe(PID, CONTAINER, [str(tmp_path / "nvidia0")], host.proc)
    assert (host.cpu / "cgroup.procs").read_text() == ""


def test_it_is_killed_at_its_deadline(host: FakeHost) -> None:
    (host.cpu / "cgroup.procs").unlink()
    os.mkfifo(host.cpu / "cgroup.procs")  # nobody reads: it would wait for ever
    before = time.monotonic()
    with pytest.raises(ProbeFailed, match=r"took longer than 0\.5 s"):
        probe(PID, CONTAINER, ["/dev/null"], host.proc, within_s=0.5)
    assert time.monotonic() - before < 5


def test_a_group_that_cannot_be_entered_or_is_anothers(host: FakeHost) -> None:
    (host.cpu / "cgroup.procs").unlink()
    (host.cpu / "cgroup.procs").mkdir()
    with pytest.raises(ProbeFailed, match="its group cannot be entered: IsADirectoryError"):
        probe(PID, CONTAINER, ["/dev/null"], host.proc)
    (host.proc / str(PID) / "cgroup").write_text("0::/docker/another\n")
    with pytest.raises(ProbeFailed, match="cannot be seen from here"):
        probe(PID, CONTAINER, ["/dev/null"], host.proc)
    (host.proc / str(PID) / "cgroup").unlink()
    with pytest.raises(ProbeFailed, match="its control group cannot be found"):
        probe(PID, CONTAINER, ["/dev/null"], host.proc)
