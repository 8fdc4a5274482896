"""Fetching a checkpoint over real TLS: it is whole, or there is no file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.cluster.agent import fetching
from dlsched.cluster.agent.fetching import HttpsCheckpoints
from dlsched.cluster.agent.server import AgentServer
from dlsched.cluster.certificates import Certificates
from dlsched.cluster.core.records import Saved
from tests.cluster.agent.serving import FakeAgent, asked, named, serving, stage
from tests.waiting import until

pytestmark = pytest.mark.process

MOST = 64 << 20
ARCHIVE = bytes(range(256)) * 4096 * 2
PLAIN = b"x" * 1000


def saved(content: bytes) -> Saved:
    return Saved(7, hashlib.sha256(content).hexdigest(), len(content))


SAVED = saved(ARCHIVE)


@pytest.fixture
def agent(tmp_path: Path) -> FakeAgent:
    kept = tmp_path / "outgoing.tar"
    kept.write_bytes(ARCHIVE)
    return FakeAgent(archives={("train", 8, "node-2"): kept})


@pytest.fixture
def server(
    agent: FakeAgent, own: Certificates, manager: Certificates, port: int
) -> Iterator[AgentServer]:
    with serving(agent, own, port) as made:
        asked(manager, port, "POST /v1/cluster/report", named("node-1", "node-2"))
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "incoming"
    made.mkdir()
    return made


@contextlib.contextmanager
def fetcher(
    certificates: Certificates,
    port: int,
    address: Callable[[str], str] = lambda _node: "127.0.0.1",
    most_bytes: int = MOST,
    **more: Any,
) -> Iterator[HttpsCheckpoints]:
    made = HttpsCheckpoints(certificates, address, most_bytes, port, **more)
    made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def checkpoints(worker: Certificates, port: int) -> Iterator[HttpsCheckpoints]:
    with fetcher(worker, port) as made:
        yield made


def result(checkpoints: HttpsCheckpoints, job: str = "train", epoch: int = 8) -> str:
    until(lambda: checkpoints.fetched(job, epoch) is not None, "it is fetched")
    found = checkpoints.fetched(job, epoch)
    assert found is not None
    assert found.isprintable()
    return found


def fetched(checkpoints: HttpsCheckpoints, folder: Path, content: bytes = PLAIN) -> str:
    checkpoints.begin("node-1", "train", 8, folder / "x", saved(content))
    return result(checkpoints)


def test_an_archive_is_fetched_whole(
    server: AgentServer, checkpoints: HttpsCheckpoints, folder: Path
) -> None:
    to = folder / "train-e8.tar"
    (folder / ".train-e8.tar.tmp").write_text("of a killed run")
    checkpoints.begin("node-1", "train", 8, to, SAVED)
    checkpoints.begin("node-1", "train", 8, to, SAVED)
    assert result(checkpoints) == ""
    assert to.read_bytes() == ARCHIVE
    assert [one.name for one in folder.iterdir()] == ["train-e8.tar"]
    # Again: changes nothing, and does not fail because of its own file.
    checkpoints.begin("node-1", "train", 8, to, SAVED)
    assert checkpoints.fetched("train", 8) == ""
    assert checkpoints.fetched("train", 9) is None


def test_one_that_is_too_long_is_not_begun(
    server: AgentServer, worker: Certificates, port: int, folder: Path
) -> None:
    with fetcher(worker, port, most_bytes=len(ARCHIVE) - 1) as checkpoints:
        line = "node-1: the checkpoint has 2 MiB, at most 2 MiB fit"
        assert fetched(checkpoints, folder, ARCHIVE) == line
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (ARCHIVE[1:] + b"x", "the checkpoint has digest "),
        (ARCHIVE + b"x", f"the checkpoint has {len(ARCHIVE)} bytes instead of {len(ARCHIVE) + 1}"),
    ],
)
def test_one_that_was_changed_on_the_way_leaves_no_file(
    server: AgentServer, checkpoints: HttpsCheckpoints, folder: Path, other: bytes, line: str
) -> None:
    assert fetched(checkpoints, folder, other).startswith(f"node-1: {line}")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("free_bytes", "fits"), [(1.19, False), (1.21, True)])
def test_the_disk_must_have_a_fifth_more(
    server: AgentServer,
    worker: Certificates,
    port: int,
    folder: Path,
    free_bytes: float,
    fits: bool,
) -> None:
    free = int(free_bytes * len(ARCHIVE))
    with fetcher(worker, port, free_bytes=lambda _folder: free) as checkpoints:
        checkpoints.begin("node-1", "train", 8, folder / "x", SAVED)
        line = f"{folder}/x: the checkpoint needs 2.4 MiB of free space, there are 2.38 MiB"
        assert result(checkpoints) == ("" if fits else line)
    assert bool(list(folder.iterdir())) is fits


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (HEAD + b"x" * 999, "the answer is broken: "),
        (HEAD, "the answer is broken: "),
        (b"", "the answer is broken: "),
        (b"HTTP/1.1 200 OK\r\n\r\nabc", "the checkpoint has None bytes"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
            "the checkpoint has None bytes",
        ),
        (
            HEAD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001,
            "the checkpoint is longer than its answer says",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "the answer is broken: "),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999\r\n\r\n",
            "the checkpoint has 99999999999999999 bytes instead of 1000",
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1/x\r\nContent-Length: 0\r\n\r\n",
            "status 302, without a reason",
        ),
    ],
)
def test_what_is_cut_or_no_archive_leaves_no_file(
    own: Certificates,
    checkpoints: HttpsCheckpoints,
    port: int,
    folder: Path,
    answer: bytes,
    line: str,
) -> None:
    with stage(port, own, lambda tls: tls.sendall(answer)):
        assert fetched(checkpoints, folder).startswith(f"node-1: {line}")
    assert list(folder.iterdir()) == []


def test_what_follows_the_whole_archive_is_not_read(
    own: Certificates, checkpoints: HttpsCheckpoints, port: int, folder: Path
) -> None:
    with stage(port, own, lambda tls: tls.sendall(HEAD + b"x" * 1001)):
        assert fetched(checkpoints, folder) == ""
    assert (folder / "x").read_bytes() == PLAIN


@pytest.mark.parametrize("sends", [b"", HEAD[:20], HEAD, HEAD + b"x" * 500])
def test_a_silent_source_is_given_up(
    own: Certificates,
    checkpoints: HttpsCheckpoints,
    port: int,
    folder: Path,
    sends: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "SILENT_S", 0.4)

    def answer(tls: socket.socket) -> None:
        if sends:
            tls.sendall(sends)
        tls.recv(1)  # until it hangs up

    with stage(port, own, answer):
        assert fetched(checkpoints, folder) == "node-1: silent for 400 ms"
    assert list(folder.iterdir()) == []


def drip(tls: socket.socket) -> None:
    tls.sendall(HEAD)
    for _ in range(1000):
        tls.sendall(b"x")
        time.sleep(0.02)


def test_a_slow_source_is_waited_for(
    own: Certificates,
    checkpoints: HttpsCheckpoints,
    port: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "SILENT_S", 60.0)
    loop = checkpoints._thread.loop
    later_s = 0.0
    monkeypatch.setattr(loop, "time", lambda: time.monotonic() + later_s)

    def answer(tls: socket.socket) -> None:
        nonlocal later_s
        tls.sendall(HEAD)
        for number in range(1, 11):
            later_s += 0.5 * fetching.SILENT_S
            tls.sendall(b"x" * 100)
            came = 100 * number
            until(lambda came=came: checkpoints.came_bytes("train", 8) == came, "so much")

    with stage(port, own, answer):
        assert fetched(checkpoints, folder) == ""
    assert (folder / "x").read_bytes() == PLAIN


def test_it_begins_once_the_address_is_known(
    server: AgentServer, worker: Certificates, port: int, folder: Path
) -> None:
    known: dict[str, str] = {}
    with fetcher(worker, port, lambda node: known.get(node, "")) as checkpoints:
        assert not checkpoints.begin("node-1", "train", 8, folder / "x", SAVED)
        assert checkpoints.fetched("train", 8) is None
        known["node-1"] = "127.0.0.1"
        assert fetched(checkpoints, folder, ARCHIVE) == ""


def test_a_later_epoch_ends_the_earlier_fetch(
    server: AgentServer,
    agent: FakeAgent,
    worker: Certificates,
    port: int,
    folder: Path,
) -> None:
    agent.archives["train", 10, "node-2"] = agent.archives["train", 8, "node-2"]
    # Nothing listens at the other address.
    with fetcher(
        worker, port, lambda node: "127.0.0.1" if node == "node-1" else "127.0.0.9"
    ) as one:
        one.begin("unknown", "train", 8, folder / "e8", SAVED)
        one.begin("node-1", "train", 10, folder / "e10", SAVED)
        assert result(one, epoch=10) == ""
        one.begin("node-1", "train", 8, folder / "e8", SAVED)
        assert one.fetched("train", 8) is None
        assert one.fetched("train", 10) == ""
    assert [path.name for path in folder.iterdir()] == ["e10"]


@pytest.mark.parametrize("late", [False, True], ids=["on its way", "about to be whole"])
def test_what_is_given_up_leaves_no_file(
    own: Certificates,
    checkpoints: HttpsCheckpoints,
    port: int,
    folder: Path,
    late: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    synced = threading.Event()

    def sync(_descriptor: int) -> None:
        checkpoints._fetches["train"].work = None  # too late to be cancelled
        checkpoints.end("train")
        synced.set()

    monkeypatch.setattr(fetching.os, "fsync", sync)
    answer = HEAD + PLAIN if late else b""
    with stage(port, own, lambda tls: tls.sendall(answer) if late else drip(tls)) as serves:
        checkpoints.begin("node-1", "train", 8, folder / "x", saved(PLAIN))
        if late:
            assert synced.wait(30.0)
        else:
            until(lambda: list(folder.iterdir()), "its folder has something")
            checkpoints.end("train")
        serves.join(30.0)
        assert not serves.is_alive()
        until(lambda: not list(folder.iterdir()), "its folder is empty")
    assert checkpoints.fetched("train", 8) is None


def test_a_stop_leaves_no_part_of_a_file(
    own: Certificates, worker: Certificates, port: int, folder: Path
) -> None:
    with stage(port, own, drip), fetcher(worker, port) as checkpoints:
        checkpoints.begin("node-1", "train", 8, folder / "x", saved(PLAIN))
        until(lambda: list(folder.iterdir()), "its folder has something")
    assert list(folder.iterdir()) == []


def test_a_disk_that_refuses_is_one_line(
    server: AgentServer,
    checkpoints: HttpsCheckpoints,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_descriptor: int) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(fetching.os, "fsync", fails)
    assert fetched(checkpoints, folder, ARCHIVE) == f"{folder}/x: Input/output error"
    assert list(folder.iterdir()) == []
    checkpoints.begin("node-1", "other", 8, folder / "no" / "x", SAVED)
    assert "refused (404)" in result(checkpoints, "other")
