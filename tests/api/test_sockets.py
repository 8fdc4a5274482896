"""The sockets: their places, their rights, what is cleared away and what is not."""

from __future__ import annotations

import grp
import logging
import os
import socket
import stat
from pathlib import Path

import pytest

from dlsched.api.client import Daemon
from dlsched.api.server import ApiServer
from dlsched.api.sockets import SocketUnusable, open_tcp
from dlsched.model.errors import AlreadyRunning
from tests.api.conftest import serving
from tests.status_source import FakeSource

pytestmark = pytest.mark.timed


def rights(path: Path) -> tuple[int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_gid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a socket to any group")
def test_each_socket_is_for_its_own_group(tmp_path: Path) -> None:
    reading, changing = grp.getgrnam("users"), grp.getgrnam("adm")
    groups = {"status_group": reading.gr_name, "control_group": changing.gr_name}
    with serving(tmp_path, **groups) as server:
        seen = rights(server.status_path), rights(server.control_path)
    assert seen == ((0o660, reading.gr_gid), (0o660, changing.gr_gid))


def test_without_a_group_nobody_else_may_ask(tmp_path: Path) -> None:
    group = grp.getgrgid(os.getgid())
    with serving(tmp_path, status_group=group.gr_name) as server:
        seen = rights(server.status_path), rights(server.control_path)
    assert seen == ((0o660, group.gr_gid), (0o600, os.getegid()))


def test_a_missing_group_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING),
        serving(tmp_path, control_group="no-such-group-here") as server,
    ):
        mode, gid = rights(server.control_path)
    told = [record.getMessage() for record in caplog.records if "no group" in record.getMessage()]
    assert len(told) == 1
    assert "groupadd --system no-such-group-here" in told[0]
    assert (gid, mode) == (0, 0o660) if os.geteuid() == 0 else mode == 0o600


def test_sockets_left_by_a_killed_daemon_are_replaced(tmp_path: Path) -> None:
    for name in ("status.sock", "control.sock"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(tmp_path / name))
    with serving(tmp_path):
        assert Daemon(tmp_path).about()["pid"] == 4711


def test_a_living_daemon_keeps_its_sockets(tmp_path: Path) -> None:
    with serving(tmp_path):
        with pytest.raises(AlreadyRunning, match="another daemon answers"):
            ApiServer(FakeSource(), tmp_path).start()
        assert Daemon(tmp_path).about()["pid"] == 4711


def test_one_that_cannot_have_both_leaves_neither(tmp_path: Path) -> None:
    (tmp_path / "control.sock").write_text("precious")
    with pytest.raises(SocketUnusable, match=r"control\.sock is not a socket"):
        ApiServer(FakeSource(), tmp_path).start()
    assert [file.name for file in tmp_path.iterdir()] == ["control.sock"]
    assert (tmp_path / "control.sock").read_text() == "precious"


def test_stopping_leaves_the_sockets_of_a_successor(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        first.status_path.unlink()
        first.control_path.unlink()
        with serving(tmp_path):
            first.stop()
            assert Daemon(tmp_path).about()["pid"] == 4711


@pytest.mark.parametrize(
    ("folder", "line"),
    [("x" * 120, r"bytes, at most 107"), ("file/run", r"status\.sock: Not a directory")],
)
def test_a_folder_that_cannot_have_sockets_is_one_line(
    tmp_path: Path, folder: str, line: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SocketUnusable, match=line):
        ApiServer(FakeSource(), tmp_path / folder).start()


@pytest.mark.parametrize(("family", "address", "told"), [
    (socket.AF_INET, "127.0.0.1", "127.0.0.1:{}"), (socket.AF_INET6, "::1", "[::1]:{}"),
])  # fmt: skip
def test_a_port_that_is_taken_is_one_line(
    tmp_path: Path, family: int, address: str, told: str
) -> None:
    with socket.socket(family) as taken:
        taken.bind((address, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SocketUnusable) as failed:
            ApiServer(FakeSource(), tmp_path, listen=(address, port)).start()
    assert str(failed.value) == f"listen: {told.format(port)}: Address already in use"
    assert list(tmp_path.iterdir()) == []


def test_small_blocks_to_a_port_are_sent_without_delay() -> None:
    with open_tcp("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP, "else asyncio does not set TCP_NODELAY"
