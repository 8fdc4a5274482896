"""The socket: its place, its rights, what is cleared away and what is not."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dlsched.api import ApiServer, SocketUnusable
from dlsched.api import server as server_module
from dlsched.api.server import CONNECTIONS_MAX
from dlsched.client import Daemon
from dlsched.errors import AlreadyRunning
from tests.status_source import FakeSource


def serving(folder: Path, group: str | None = None) -> ApiServer:
    server = ApiServer(FakeSource(), folder, group)
    server.start()
    return server


def test_it_answers_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    server = serving(tmp_path / "run" / "dlsched")
    try:
        with Daemon(server.path) as daemon:
            assert daemon.about()["pid"] == 4711
    finally:
        server.stop()
    assert not server.path.exists()


def test_it_takes_no_signal_handlers(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    server = serving(tmp_path)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    server.stop()


def test_the_group_may_ask_and_others_may_not(tmp_path: Path) -> None:
    group = grp.getgrgid(os.getgid())
    server = serving(tmp_path, group.gr_name)
    status = server.path.stat()
    server.stop()
    assert stat.S_IMODE(status.st_mode) == 0o660
    assert status.st_gid == group.gr_gid


def test_without_a_group_nobody_else_may_ask(tmp_path: Path) -> None:
    server = serving(tmp_path, None)
    mode = stat.S_IMODE(server.path.stat().st_mode)
    server.stop()
    assert mode == 0o600


def test_a_missing_group_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        server = serving(tmp_path, "no-such-group-here")
    status = server.path.stat()
    server.stop()
    told = [record.getMessage() for record in caplog.records if "no group" in record.getMessage()]
    assert len(told) == 1
    assert "groupadd --system no-such-group-here" in told[0]
    if os.geteuid() == 0:
        assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (0, 0o660)
    else:
        assert stat.S_IMODE(status.st_mode) == 0o600


def test_a_socket_left_by_a_killed_daemon_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "dlsched.sock"))
    server = serving(tmp_path)
    with Daemon(server.path) as daemon:
        assert daemon.about()["pid"] == 4711
    server.stop()


def test_a_living_daemon_keeps_its_socket(tmp_path: Path) -> None:
    first = serving(tmp_path)
    with pytest.raises(AlreadyRunning, match="another daemon answers"):
        serving(tmp_path)
    with Daemon(first.path) as daemon:
        assert daemon.about()["pid"] == 4711
    first.stop()


def test_stopping_leaves_the_socket_of_a_successor(tmp_path: Path) -> None:
    first = serving(tmp_path)
    first.path.unlink()
    second = serving(tmp_path)
    first.stop()
    with Daemon(second.path) as daemon:
        assert daemon.about()["pid"] == 4711
    second.stop()


def test_a_file_in_its_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "dlsched.sock").write_text("precious")
    with pytest.raises(SocketUnusable, match="is no socket"):
        serving(tmp_path)
    assert (tmp_path / "dlsched.sock").read_text() == "precious"


def test_a_path_too_long_is_said_with_the_bound(tmp_path: Path) -> None:
    with pytest.raises(SocketUnusable, match=r"bytes, at most 107"):
        serving(tmp_path / ("x" * 120))


def test_a_run_dir_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SocketUnusable, match=r"dlsched\.sock: Not a directory"):
        serving(tmp_path / "file" / "run")


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("dlsched.api", ("rich", "httpx2", "click.testing", "dlsched.cli", "pydantic", "docker")),
        ("dlsched.cli", ("rich", "httpx2", "starlette", "uvicorn", "pydantic", "docker")),
    ],
)
def test_what_the_daemon_carries(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([n for n in {absent!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_half_asked_questions_neither_pile_up_nor_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "ASK_WITHIN_S", 0.2)
    server = serving(tmp_path)
    try:
        asking = [socket.socket(socket.AF_UNIX) for _ in range(CONNECTIONS_MAX + 50)]
        for one in asking:
            # Without a timeout: then it waits while others still queue to be let in.
            one.connect(str(server.path))
            one.settimeout(10.0)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                one.sendall(b"GET /v1/jo")
        for one in asking:
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(100) == b"", "hung up, without an answer"
            one.close()
        with Daemon(server.path) as daemon:
            assert daemon.about()["pid"] == 4711
    finally:
        server.stop()
