"""What becomes of the errors of the client library, in one line each."""

from __future__ import annotations

import base64
import gc
import json
import os
import socket
import socketserver
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from requests.exceptions import ConnectionError as RequestsConnectionError

from dlsched.model.errors import EngineUnavailable
from dlsched.report.lines import LINE_BYTES
from dlsched.runtime.docker.doctor.engine import out_of_reach, remedy, require
from dlsched.runtime.docker.engine import (
    Engine,
    EngineFacts,
    EngineRefused,
    PathStat,
    root_cause,
    whole_lines,
)
from dlsched.runtime.machine.outcomes import one_line
from tests.runtime.docker.fake_engine import FakeEngine, Faulty


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.timed
def test_no_socket_at_all(tmp_path: Path) -> None:
    host = f"unix://{tmp_path}/none.sock"
    with pytest.raises(EngineUnavailable) as caught:
        Engine(host, 1.0).info()
    assert str(caught.value) == (
        f"no answer from the Docker Engine at {host}: No such file or directory"
    )


@pytest.mark.parametrize("host", ["http://1.2.3.4:99999", "ssh://root@x", "bogus", "fd://x"])
def test_an_address_that_cannot_be_one_is_said_to_be_wrong(host: str) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        Engine(host, 1.0).info()
    assert str(caught.value) == (
        f"the engine's address '{host}' is not unix:///PATH or tcp://HOST:PORT, "
        "with a port up to 65535"
    )
    assert remedy(host) == "set another address (DOCKER_HOST, setting engine.host)"


@pytest.mark.timed
def test_an_engine_that_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with pytest.raises(EngineUnavailable, match="timed out"):
            Engine(f"unix://{path}", 0.1).containers({})


@pytest.mark.timed
def test_refused_connections_leave_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "refusing.sock"
    with socket.socket(socket.AF_UNIX) as refusing:
        refusing.bind(str(path))
    engine = Engine(f"unix://{path}", 1.0)
    before = open_descriptors()
    gc.disable()  # reference cycles stay, as they do for long in the daemon
    try:
        for _ in range(20):
            with pytest.raises(EngineUnavailable, match="Connection refused"):
                engine.info()
        assert open_descriptors() < before + 20, "threads of other tests may open and close some"
    finally:
        gc.enable()


TWO_STREAMS = [(2, b"5%\r6% acc=0."), (1, b"96 files saved\n"), (2, b"10\n"), (2, b"no end")]
"""A bar that the engine cuts, and a line of the other stream between its pieces."""


class _Answers(BaseHTTPRequestHandler):
    """Everything that is asked of the engine: a container, a version."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "/silent/logs?" in self.path:
            self._begin_and_wait()
            return
        body = b'{"ApiVersion": "1.44", "Config": {"Tty": true}}'
        if "/two-streams" in self.path:
            body = body.replace(b"true", b"false")
        if "/two-streams/logs?" in self.path:
            body = b"".join(struct.pack(">BxxxL", at, len(one)) + one for at, one in TWO_STREAMS)
        elif "/logs?" in self.path:
            body = b"a line\r\n" * 40_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _begin_and_wait(self) -> None:
        """A log of one line, which then is silent until its reader has left."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"7\r\nbegun\r\n\r\n")
        self.rfile.read(1)

    def do_HEAD(self) -> None:
        told = {"name": "7.pt", "size": 700, "mode": 420, "mtime": "", "linkTarget": ""}
        found = "path=%2Fckpt%2F7.pt" in self.path
        self.send_response(200 if found else 404)
        if found:
            text = base64.b64encode(json.dumps(told).encode()).decode()
            self.send_header("X-Docker-Container-Path-Stat", text)
        self.end_headers()

    def address_string(self) -> str:
        return "a unix socket"

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str) -> None:
        super().__init__(path, _Answers)
        self.accepted = 0

    def get_request(self) -> tuple[socket.socket, object]:
        self.accepted += 1
        return super().get_request()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Engine, _Server]]:
    """An engine's client and the server that answers it."""
    path = str(tmp_path / "engine.sock")
    with _Server(path) as server, closing(Engine(f"unix://{path}", 60.0)) as engine:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield engine, server
        server.shutdown()


@pytest.mark.timed
def test_calls_one_after_another_share_a_connection(served: tuple[Engine, _Server]) -> None:
    engine, server = served
    for at in range(12):
        assert engine.inspect(f"container-{at}")["ApiVersion"] == "1.44"
    assert server.accepted == 1


@pytest.mark.timed
def test_what_is_at_a_path_of_a_container(served: tuple[Engine, _Server]) -> None:
    engine, _ = served
    assert engine.stat("c", "/ckpt/7.pt") == PathStat(700, 0o644, "")
    with pytest.raises(EngineRefused) as caught:
        engine.stat("c", "/ckpt/8.pt")
    assert caught.value.status == 404


@pytest.mark.timed
def test_a_terminals_output_is_not_read_byte_by_byte(served: tuple[Engine, _Server]) -> None:
    engine, _ = served
    chunks = list(engine.logs("container", 40_000, follow=False, until_s=1e9))
    assert b"".join(chunks) == b"a line\r\n" * 40_000
    assert len(chunks) < 200


@pytest.mark.timed
def test_no_line_of_one_stream_is_read_within_one_of_the_other(
    served: tuple[Engine, _Server],
) -> None:
    engine, _ = served
    lines = [b"5%\r", b"96 files saved\n", b"6% acc=0.10\n"]
    assert list(engine.follow("two-streams", None)) == lines
    assert list(engine.logs("two-streams", 9, follow=False, until_s=1e9)) == lines
    as_it_is = [piece for _, piece in TWO_STREAMS]
    assert list(engine.logs("two-streams", 9, follow=False)) == as_it_is


def test_what_waits_for_the_end_of_its_line_is_bounded() -> None:
    endless = [(1, b"x" * 16_384)] * 3
    (line,) = whole_lines([*endless, (2, b"y"), (1, b"z\n")])
    assert len(line) == LINE_BYTES + 2
    assert line.endswith(b"xz\n")


@pytest.mark.timed
def test_a_silent_log_ends_when_another_thread_closes_it(served: tuple[Engine, _Server]) -> None:
    engine, _ = served
    log = engine.logs("silent", 10, follow=True)
    assert next(log) == b"begun\r\n"

    def read() -> None:
        with suppress(EngineUnavailable):
            list(log)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    log.close()
    reader.join(10.0)
    assert not reader.is_alive()


def test_the_root_of_a_chain_is_told() -> None:
    try:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as error:
            raise RequestsConnectionError("pool\nof noise") from error
    except RequestsConnectionError as error:
        assert root_cause(error) == "Connection refused"
    assert root_cause(TimeoutError()) == "timed out"
    assert one_line("a\n  b\tc") == "a b c"


@pytest.mark.contract
@pytest.mark.engine
def test_an_answer_that_says_no_has_its_status_and_reason(docker_host: str) -> None:
    engine = Engine(docker_host, 60.0)
    with pytest.raises(EngineRefused) as caught:
        engine.inspect("no-such-container-of-anybody")
    assert caught.value.status == 404
    assert "No such container" in caught.value.reason
    assert engine.version()["ApiVersion"]
    engine.close()


@pytest.mark.contract
@pytest.mark.engine
def test_a_call_without_a_method_here(docker_host: str) -> None:
    with closing(Engine(docker_host, 60.0)) as engine:
        asked = {"filters": '{"name": ["no-such-volume-of-anybody"]}'}
        assert not engine.exchange("GET", "/volumes", asked)["Volumes"]
        name = engine.exchange("POST", "/volumes/create", body={"Labels": {"a": "b"}})["Name"]
        assert engine.exchange("GET", f"/volumes/{name}")["Labels"]["a"] == "b"
        assert engine.exchange("DELETE", f"/volumes/{name}") is None
        with pytest.raises(EngineRefused) as caught:
            engine.exchange("GET", f"/volumes/{name}")
        assert caught.value.status == 404


@pytest.fixture
def engine(tmp_path: Path) -> Faulty:
    return Faulty(FakeEngine(tmp_path))


@pytest.fixture
def facts(engine: Any) -> EngineFacts:
    return EngineFacts(engine)


@pytest.mark.parametrize(
    ("version", "cgroup", "newer", "shares"),
    [("1.1.5+ds1", "2", False, 2598), ("1.3.2", "2", True, 1024), ("1.1.5", "1", False, 1024)],
)
def test_default_shares_are_on_the_scale_of_its_runc(
    engine: Faulty, facts: EngineFacts, version: str, cgroup: str, newer: bool, shares: int
) -> None:
    runc = {"Name": "runc", "Version": version}
    engine.answers = {
        "version": {"Components": [{"Name": "Engine"}, runc]},
        "info": {"CgroupVersion": cgroup},
    }
    assert (facts.has_newer_runc, facts.default_shares()) == (newer, shares)


def test_it_is_asked_once(engine: Faulty, facts: EngineFacts) -> None:
    for _ in range(3):
        assert (facts.cores, facts.identity(), facts.has_newer_runc) == (2, "fake", False)
    assert len(engine.asked) == 3


def test_who_it_is_can_be_asked_anew_and_may_not_be_known(
    engine: Faulty, facts: EngineFacts
) -> None:
    assert facts.identity() == "fake"
    engine.answers["info"] = {"ID": "two"}
    known = (facts.identity(), facts.identity(fresh=True), facts.identity())
    assert known == ("fake", "two", "two")
    engine.away = True
    assert facts.identity(fresh=True) == ""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A socket's file where nobody listens."""
    made = tmp_path / "d.sock"
    os.mknod(made, 0o700 | stat.S_IFSOCK)
    return made


def test_without_a_socket_docker_is_to_be_installed_or_started(tmp_path: Path) -> None:
    text = remedy(f"unix://{tmp_path}/no.sock")
    assert text.startswith("install or start Docker (systemctl start docker), or set another")


def test_where_nobody_listens_it_is_to_be_started(path: Path) -> None:
    assert out_of_reach(f"unix://{path}") is None
    assert remedy(f"unix://{path}").startswith("start Docker (systemctl start docker)")
    assert remedy("tcp://10.0.0.1:2375").startswith("start Docker ")


def barred(path: Path, gid: int, mode: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its host, when the file seems to have that group and mode, and this user may not open it."""
    facts = list(path.stat())
    facts[0], facts[5] = stat.S_IFSOCK | mode, gid
    monkeypatch.setattr(Path, "stat", lambda *_, **__: os.stat_result(facts))
    monkeypatch.setattr(os, "access", lambda *_: False)
    return f"unix://{path}"


def test_who_may_not_open_the_socket_is_sent_to_root_or_its_group(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = barred(path, 1, 0o660, monkeypatch)
    assert remedy(host).startswith(f"run as root, or join the group of {path}")


@pytest.mark.parametrize(("gid", "mode"), [(0, 0o660), (1, 0o600)])
def test_nobody_is_sent_into_a_group_that_does_not_help(
    path: Path, gid: int, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = remedy(barred(path, gid, mode, monkeypatch))
    assert text == "run as root: only root may use the engine's socket"


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
