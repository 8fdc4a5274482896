"""What the client says when nobody, somebody else or a refusal answers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.api import ApiServer
from dlsched.client import Daemon, Refused
from dlsched.errors import DaemonUnavailable
from tests.status_source import FakeSource


def test_nobody_answers(tmp_path: Path) -> None:
    path = tmp_path / "dlsched.sock"
    with (
        Daemon(path) as daemon,
        pytest.raises(DaemonUnavailable, match=f"no daemon answers on {path}; start it with"),
    ):
        daemon.jobs()


def test_a_socket_left_by_a_dead_daemon_is_nobody(tmp_path: Path) -> None:
    path = tmp_path / "dlsched.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with Daemon(path) as daemon, pytest.raises(DaemonUnavailable, match="no daemon answers"):
        daemon.jobs()


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that this process may not enter; root is made somebody else meanwhile."""
    folder, user = tmp_path / "closed", os.geteuid()
    folder.mkdir(mode=0)
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)


def test_a_socket_that_is_not_ours_says_so(closed: Path) -> None:
    with (
        Daemon(closed / "dlsched.sock") as daemon,
        pytest.raises(DaemonUnavailable, match="not open to you"),
    ):
        daemon.jobs()


def test_a_peer_that_hangs_up_is_not_a_daemon(tmp_path: Path) -> None:
    path = tmp_path / "dlsched.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()

        def hang_up() -> None:
            connection, _ = other.accept()
            connection.close()

        peer = threading.Thread(target=hang_up)
        peer.start()
        with Daemon(path) as daemon, pytest.raises(DaemonUnavailable, match="broke off"):
            daemon.jobs()
        peer.join()


def test_a_refusal_carries_the_daemons_line(tmp_path: Path) -> None:
    server = ApiServer(FakeSource(), tmp_path, None)
    server.start()
    with (
        Daemon(server.path) as daemon,
        pytest.raises(Refused, match="first cycle is not done") as no,
    ):
        daemon.jobs()
    server.stop()
    assert no.value.status == 503


def test_a_job_name_is_quoted_whole(tmp_path: Path) -> None:
    server = ApiServer(FakeSource(), tmp_path, None)
    server.start()
    with Daemon(server.path) as daemon, pytest.raises(Refused) as no:
        daemon.stop("a/../b?x=1#y")
    server.stop()
    assert no.value.status == 404
