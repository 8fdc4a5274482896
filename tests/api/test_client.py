"""What the client says when nobody, somebody else or a refusal answers."""

from __future__ import annotations

import grp
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.api import client
from dlsched.api.client import Daemon
from dlsched.model.errors import DaemonUnavailable, Refused
from tests.api.conftest import serving

pytestmark = pytest.mark.timed


def test_nobody_answers(tmp_path: Path) -> None:
    path = tmp_path / "status.sock"
    with pytest.raises(DaemonUnavailable, match=f"no daemon answers on {path}; start it with"):
        Daemon(tmp_path).jobs()


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
    with pytest.raises(DaemonUnavailable, match="not open to you"):
        Daemon(closed).jobs()


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (b"", "closed the connection: its answer ends too early"),
        (b"220 mail ESMTP\r\n", "closed the connection: its answer is not HTTP"),
        (b"HTTP/1.1\r\n", "closed the connection: its answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "its answer ends too early"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}", "closed the connection: invalid"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", "ends too early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", "connection: invalid"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", "did not answer in JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999\r\n\r\nno", "ends too early"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nno", "ends too early"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\n\r\n", None),
    ],
)
def test_a_peer_that_is_no_daemon_is_one_line(
    tmp_path: Path, answer: bytes, line: str | None
) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "status.sock"))
        other.listen()

        def reply() -> None:
            connection, _ = other.accept()
            connection.recv(4096)
            connection.sendall(answer)
            connection.close()

        peer = threading.Thread(target=reply)
        peer.start()
        if line is None:
            assert Daemon(tmp_path).jobs() == {}
        else:
            with pytest.raises(DaemonUnavailable, match=line) as caught:
                Daemon(tmp_path).jobs()
            assert "\n" not in str(caught.value)
        peer.join()


def test_a_job_name_is_quoted_whole(tmp_path: Path) -> None:
    with serving(tmp_path), pytest.raises(Refused) as no:
        Daemon(tmp_path).stop("a/../b?x=1#y")
    assert no.value.status == 404


@pytest.mark.parametrize(("open_to_us", "read", "logs"), [
    ({"status.sock"}, "status.sock", "status.sock"),
    ({"control.sock"}, "control.sock", "control.sock"),
    ({"status.sock", "control.sock"}, "status.sock", "control.sock"),
    (set(), "status.sock", "status.sock"),
])  # fmt: skip
def test_each_question_goes_to_the_socket_that_answers_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_to_us: set[str], read: str, logs: str
) -> None:
    monkeypatch.setattr(client.os, "access", lambda path, *_, **__: path.name in open_to_us)
    daemon = Daemon(tmp_path)
    with pytest.raises(DaemonUnavailable, match=f"{tmp_path}/{read};"):
        daemon.jobs()
    with pytest.raises(DaemonUnavailable, match=f"{tmp_path}/{logs};"):
        next(daemon.logs("job", 1, False))
    with pytest.raises(DaemonUnavailable, match=f"{tmp_path}/control.sock;"):
        daemon.stop("job")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a socket to another group")
@pytest.mark.parametrize(("mode", "group", "remedy"), [
    (0o660, "adm", r"join group adm \(usermod -aG adm USER, then log in again\), or use sudo"),
    (0o600, "adm", "only the socket's owner may connect, so use sudo"),
])  # fmt: skip
def test_a_closed_socket_tells_which_group_to_join(
    tmp_path: Path, mode: int, group: str, remedy: str
) -> None:
    tmp_path.chmod(0o711)
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        os.chown(path, 0, grp.getgrnam(group).gr_gid)
        path.chmod(mode)
        here = Path.cwd()
        os.chdir(tmp_path)  # the folders above are root's alone
        os.seteuid(65534)
        try:
            line = f"control.sock is not open to you: {remedy}"
            with pytest.raises(DaemonUnavailable, match=line):
                Daemon(Path()).stop("job")
        finally:
            os.seteuid(0)
            os.chdir(here)
