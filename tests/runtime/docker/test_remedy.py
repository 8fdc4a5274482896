"""What somebody is told to do whose engine does not answer."""

from __future__ import annotations

import grp
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.doctor.engine import require
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.remedy import out_of_reach, remedy


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A socket's file where nobody listens."""
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "d.sock"))
        yield tmp_path / "d.sock"


@pytest.fixture
def barred(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that this user may not open."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    return path


def owned(path: Path, gid: int, mode: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its host, when the file seems to have that group and mode."""
    facts = list(path.stat())
    facts[0], facts[5] = 0o140000 | mode, gid
    monkeypatch.setattr(Path, "stat", lambda *_, **__: os.stat_result(facts))
    return f"unix://{path}"


def test_without_a_socket_docker_is_to_be_installed_or_started(tmp_path: Path) -> None:
    text = remedy(f"unix://{tmp_path}/no.sock")
    assert text.startswith("install or start Docker (systemctl start docker), or name another")


@pytest.mark.timed
def test_where_nobody_listens_it_is_to_be_started(path: Path) -> None:
    assert out_of_reach(f"unix://{path}") is None
    assert remedy(f"unix://{path}").startswith("start it (systemctl start docker)")
    assert remedy("tcp://10.0.0.1:2375").startswith("start it ")


@pytest.mark.timed
def test_the_group_of_the_socket_is_named(barred: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = next(one for one in grp.getgrall() if one.gr_gid != 0)
    host = owned(barred, group.gr_gid, 0o660, monkeypatch)
    name = group.gr_name
    assert remedy(host) == (
        f"run as root, or join group {name} (sudo usermod -aG {name} USER) and log in again"
    )


@pytest.mark.timed
def test_a_group_without_a_name_is_told_by_its_number(
    barred: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = owned(barred, 4_000_000, 0o660, monkeypatch)
    assert remedy(host) == "run as root, or as a member of its socket's group (gid 4000000)"


@pytest.mark.parametrize(("gid", "mode"), [(0, 0o660), (1, 0o600)])
@pytest.mark.timed
def test_nobody_is_sent_into_a_group_that_does_not_help(
    barred: Path, gid: int, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = remedy(owned(barred, gid, mode, monkeypatch))
    assert text == "run as root: its socket is open to root alone"


def test_a_closed_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", closed)
    assert remedy("unix:///run/x/d.sock") == "run as root: this user may not look into /run/x"


@pytest.mark.timed
def test_a_start_without_an_engine_says_what_to_do_in_one_line(tmp_path: Path) -> None:
    host = f"unix://{tmp_path}/no.sock"
    with pytest.raises(EngineUnavailable) as caught:
        require(Engine(host, 1.0))
    assert str(caught.value) == (
        f"no answer from the Docker Engine at {host}: No such file or directory; {remedy(host)}"
    )
