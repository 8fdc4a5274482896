"""In the host's network 127.0.0.1 is asked only where the container itself listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.runtime.progress import listening
from dlsched.runtime.progress.http_page import Unanswered
from dlsched.runtime.progress.listening import (
    NO_ADDRESS,
    listening_of,
    loopback_of,
    require_own,
    shows_sockets,
)

CONTAINER = "c" * 64
NOT_ITS = "a program outside the container listens on"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The container's control group, so far without a process."""
    folder = tmp_path / CONTAINER
    folder.mkdir()
    (folder / "cgroup.procs").write_text("")
    monkeypatch.setattr(listening, "group_folders", lambda *_, **__: {"": folder})
    return folder


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


@pytest.mark.timed
def test_a_process_of_the_container_listens(server: socket.socket, group: Path) -> None:
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert loopback_of(os.getpid(), CONTAINER, port_of(server)) == "127.0.0.1"


@pytest.mark.timed
def test_a_process_in_a_group_that_the_container_made(server: socket.socket, group: Path) -> None:
    (group / "init.scope").mkdir()
    (group / "init.scope" / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert loopback_of(os.getpid(), CONTAINER, port_of(server)) == "127.0.0.1"


@pytest.mark.timed
@pytest.mark.parametrize("listed", ["", "cpu"])
def test_a_container_in_the_group_of_one_version_alone(
    listed: str, server: socket.socket, group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    folders = {**dict.fromkeys(("", "cpu"), group.parent), listed: group}
    monkeypatch.setattr(listening, "group_folders", lambda *_, **__: folders)
    assert loopback_of(os.getpid(), CONTAINER, port_of(server)) == "127.0.0.1"


@pytest.mark.timed
def test_another_programs_socket_is_not_asked(server: socket.socket, group: Path) -> None:
    with pytest.raises(Unanswered, match=NOT_ITS):
        loopback_of(os.getpid(), CONTAINER, port_of(server))


@pytest.mark.timed
def test_a_port_that_two_programs_share_is_not_asked(
    group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    own = set(listening.sockets_of(os.getpid(), CONTAINER, listening.PROC))
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as one:
        assert loopback_of(os.getpid(), CONTAINER, port_of(one)) == "127.0.0.1"
        monkeypatch.setattr(listening, "sockets_of", lambda *_: frozenset(own))
        with pytest.raises(Unanswered, match=NOT_ITS):
            loopback_of(os.getpid(), CONTAINER, port_of(one))


@pytest.mark.timed
def test_a_port_without_a_listener_is_said(server: socket.socket, group: Path) -> None:
    port = port_of(server)
    server.close()
    with pytest.raises(Unanswered, match="nothing in the container's network listens"):
        loopback_of(os.getpid(), CONTAINER, port)


def test_another_network_has_another_loopback(group: Path, tmp_path: Path) -> None:
    for name, network in (("self", "net:[1]"), ("7", "net:[2]")):
        (tmp_path / name / "ns").mkdir(parents=True)
        (tmp_path / name / "ns" / "net").symlink_to(network)
    with pytest.raises(Unanswered) as raised:
        loopback_of(7, CONTAINER, 80, tmp_path)
    assert str(raised.value) == NO_ADDRESS


@pytest.mark.parametrize(
    "table", ["", "\0" * 9, "sl\n0: x 0A\n1: 0100007F:0050 0:0 0A", "a\n" * 99]
)
def test_a_table_that_is_none_names_no_socket(group: Path, tmp_path: Path, table: str) -> None:
    for name in ("self", "7"):
        (tmp_path / name / "ns").mkdir(parents=True)
        (tmp_path / name / "ns" / "net").symlink_to("net:[1]")
    (tmp_path / "7" / "net").mkdir()
    (tmp_path / "7" / "net" / "tcp").write_text(table)
    with pytest.raises(Unanswered, match="nothing in the container's network listens"):
        loopback_of(7, CONTAINER, 80, tmp_path)


@pytest.mark.timed
def test_only_the_containers_own_sockets_are_listed(
    server: socket.socket, group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {one.port for one in listening_of(os.getpid(), CONTAINER)}
    assert ports == set(), "the group has no process yet"
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    own = {one.port: str(one.address) for one in listening_of(os.getpid(), CONTAINER)}
    assert own[port_of(server)] == "127.0.0.1"


@pytest.mark.timed
def test_a_socket_on_another_address_is_not_the_one_asked(
    server: socket.socket, group: Path
) -> None:
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    require_own(os.getpid(), CONTAINER, "127.0.0.1", port_of(server))
    with pytest.raises(Unanswered, match=r"network listens on 10\.0\.0\.2"):
        require_own(os.getpid(), CONTAINER, "10.0.0.2", port_of(server))


def test_where_processes_cannot_be_read_nothing_is_said(group: Path, tmp_path: Path) -> None:
    assert not shows_sockets(7, CONTAINER, tmp_path), "no process of the container is seen"
    (group / "cgroup.procs").write_text("7\n")
    assert not shows_sockets(7, CONTAINER, tmp_path), "nor are its descriptors"
    (tmp_path / "7" / "fd").mkdir(parents=True)
    (tmp_path / "7" / "fd" / "0").symlink_to("/dev/null")
    assert shows_sockets(7, CONTAINER, tmp_path)
