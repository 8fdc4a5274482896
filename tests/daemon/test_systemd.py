"""What systemd hears, on path and abstract sockets, and what nobody hears."""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dlsched.daemon.systemd import Notify

pytestmark = pytest.mark.timed


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    """A socket like systemd's."""
    abstract = request.param == "abstract"
    name = f"\0dlsched-test-{secrets.token_hex(8)}" if abstract else str(tmp_path / "notify")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as hears:
        hears.bind(name)
        hears.setblocking(False)
        yield hears


def environ(systemd: socket.socket, **more: str) -> dict[str, str]:
    name = systemd.getsockname()
    path = f"@{name[1:].decode()}" if isinstance(name, bytes) else str(name)
    return {"NOTIFY_SOCKET": path, **more}


def heard(systemd: socket.socket) -> list[str]:
    messages: list[str] = []
    while True:
        try:
            messages.append(systemd.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_ready_is_told_once_and_again_after_a_reload(systemd: socket.socket) -> None:
    notify = Notify(environ(systemd))
    notify.ready()
    notify.ready()
    assert heard(systemd) == ["READY=1"]
    notify.reloading()
    (reloading,) = heard(systemd)
    kind, since = reloading.splitlines()
    assert kind == "RELOADING=1"
    assert since.removeprefix("MONOTONIC_USEC=").isdecimal()
    notify.ready()
    notify.stopping()
    assert heard(systemd) == ["READY=1", "STOPPING=1"]


def test_a_status_is_one_line_whatever_is_in_it_and_told_when_it_changes(
    systemd: socket.socket,
) -> None:
    notify = Notify(environ(systemd))
    notify.status("1 of 2 jobs run")
    notify.status("1 of 2 jobs run")
    notify.status("evil\nMAINPID=1\r\n")
    assert heard(systemd) == ["STATUS=1 of 2 jobs run", "STATUS=evil MAINPID=1"]


def test_the_watchdog_is_fed_three_times_as_often_as_it_asks(systemd: socket.socket) -> None:
    notify = Notify(environ(systemd, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid())))
    assert notify.feed_s == 10.0
    notify.alive()
    assert heard(systemd) == ["WATCHDOG=1"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"},
    ],
    ids=["none", "zero", "nonsense", "another's"],
)
def test_without_a_watchdog_of_ours_nothing_is_fed(
    systemd: socket.socket, more: dict[str, str]
) -> None:
    notify = Notify(environ(systemd, **more))
    assert notify.feed_s == math.inf
    notify.alive()
    assert heard(systemd) == []


def test_without_systemd_nothing_is_told_and_nothing_said(caplog: pytest.LogCaptureFixture) -> None:
    notify = Notify({"WATCHDOG_USEC": "30000000"})
    for tell in (notify.ready, notify.reloading, notify.alive, notify.stopping):
        tell()
    notify.status("running")
    assert notify.feed_s == math.inf
    assert caplog.records == []


def test_a_systemd_that_is_gone_is_said_once_and_told_again_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "notify"
    notify = Notify({"NOTIFY_SOCKET": str(path)})
    with caplog.at_level(logging.WARNING):
        notify.ready()
        notify.ready()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd:
        systemd.bind(str(path))
        systemd.setblocking(False)
        notify.ready()
        assert heard(systemd) == ["READY=1"]


def test_a_systemd_that_does_not_read_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dlsched.daemon.systemd.HEARD_WITHIN_S", 0.01)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        notify = Notify({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"})
        for _ in range(1000):  # more than any queue holds
            notify.alive()
            if caplog.records:
                break
    assert "timed out" in caplog.text
