"""Who may ask what: by which socket, as which user, under which name."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dlsched.api.access import Caller
from dlsched.api.server import ApiServer
from dlsched.model.facts import LogFact
from dlsched.model.spec import AccuracyTarget
from dlsched.model.state import Lacks, Progress
from tests.api.conftest import client_of, kept_port, serving
from tests.status_source import FakeSource, job, report_of

pytestmark = pytest.mark.timed

STRANGER = 65534


@pytest.fixture
def port() -> Iterator[int]:
    with kept_port() as port:
        yield port


@pytest.fixture
def server(source: FakeSource, tmp_path: Path, port: int) -> Iterator[ApiServer]:
    listen = ("127.0.0.1", port)
    with serving(tmp_path, source, control_group="dlsched-admin", listen=listen) as server:
        yield server


def ask(path: Path, method: str, url: str, **more: Any) -> httpx2.Response:
    with client_of(path) as client:
        return client.request(method, url, **more)


def by_tcp(port: int, host: str | None, method: str = "GET", url: str = "/v1/about") -> bytes:
    line = b"" if host is None else f"Host: {host}\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        version = b"1.0" if host is None else b"1.1"
        request = b"%s %s HTTP/%s\r\n%sConnection: close\r\n\r\n"
        peer.sendall(request % (method.encode(), url.encode(), version, line))
        return b"".join(iter(lambda: peer.recv(65536), b""))


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("dlsched", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("evil.example", 403),
        ("evil.example:8000", 403),
        ("127.0.0.1.evil.example", 403),
    ],
)
def test_a_name_of_the_internet_leads_to_no_socket_that_ssh_forwards(
    server: ApiServer, host: str, status: int
) -> None:
    for path in (server.status_path, server.control_path):
        assert ask(path, "GET", "/v1/about", headers={"Host": host}).status_code == status


CHANGES = [("POST", "/v1/jobs/queued/stop"), ("POST", "/v1/jobs/nobody/start"), ("POST", "/v1/new"),
           ("PUT", "/v1/jobs"), ("DELETE", "/v1/jobs/queued"), ("PATCH", "/v1/about")]  # fmt: skip


@pytest.mark.parametrize(("method", "url"), CHANGES)
def test_a_change_is_refused_where_one_reads(
    server: ApiServer, source: FakeSource, port: int, method: str, url: str
) -> None:
    answer = ask(server.status_path, method, url)
    assert answer.status_code == 403
    elsewhere = f"ask on {server.control_path} (group dlsched-admin)"
    assert answer.json() == {"error": f"{server.status_path} is not open for changes: {elsewhere}"}
    told = by_tcp(port, f"127.0.0.1:{port}", method, url)
    assert told.startswith(b"HTTP/1.1 403")
    assert f"127.0.0.1:{port} is not open for changes: {elsewhere}".encode() in told
    assert source.asked == []


def test_only_the_control_socket_lists_other_programs_containers(
    server: ApiServer, source: FakeSource
) -> None:
    assert ask(server.control_path, "GET", "/v1/containers").json() == source.found()
    refused = ask(server.status_path, "GET", "/v1/containers")
    assert refused.status_code == 403
    assert "is not open for the list of other programs' containers" in refused.json()["error"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LocalHost:80", "[::1]", "[::1]:8123", "127.0.0.1:99999"]
)
def test_a_loopback_name_is_let_in_by_tcp(server: ApiServer, port: int, host: str) -> None:
    answer = by_tcp(port, host)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"access-control" not in answer.lower(), "no page may read it across origins"


@pytest.mark.parametrize(
    "host", [None, "", "evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]",
             "localhost.evil.example", "[::1].evil.example", "127.0.0.2", "x@localhost"]
)  # fmt: skip
def test_a_name_from_elsewhere_is_refused(server: ApiServer, port: int, host: str | None) -> None:
    answer = by_tcp(port, host)
    assert b" 403 " in answer.splitlines()[0]
    assert b"must be one of 127.0.0.1, [::1], localhost" in answer


def test_two_names_are_no_request(server: ApiServer, port: int) -> None:
    answer = by_tcp(port, "localhost\r\nHost: evil.example")
    assert answer.startswith(b"HTTP/1.1 400")


def test_output_is_never_told_by_tcp(server: ApiServer, source: FakeSource, port: int) -> None:
    answer = by_tcp(port, "localhost", url="/v1/jobs/queued/logs")
    assert answer.startswith(b"HTTP/1.1 403")
    assert source.asked == []


@pytest.mark.parametrize("url", ["/v1/jobs", "/v1/jobs/private/why"])
def test_quotations_of_output_are_for_those_who_may_read_it(
    server: ApiServer, source: FakeSource, port: int, url: str
) -> None:
    log = LogFact(lines=512, example="'token=hunter2'", named=("hunter2_log",))
    progress = Progress(
        log=log,
        bad_lines=2,
        refused="loss: 'hunter2': not a finite number",
        lacks=Lacks(0.0, 3, ("hunter2",)),
    )
    target = AccuracyTarget("accuracy", 0.9, 0.97)
    source.report = report_of(job("private", target=target, progress=progress))
    assert ask(server.control_path, "GET", url).text.count("hunter2") == 4
    by_strangers = by_tcp(port, "localhost", url=url)
    assert by_strangers.startswith(b"HTTP/1.1 200")
    assert b"512" in by_strangers and b"hunter2" not in by_strangers


@pytest.mark.parametrize(("caller", "owner", "may"), [
    (Caller("", "", may_change=True, uid=1001), 1000, True),
    (Caller("", "", uid=1000), 1000, True),
    (Caller("", "", uid=0), 1000, True),
    (Caller("", "", uid=os.geteuid()), 1000, True),
    (Caller("", "", uid=1001), 1000, False),
    (Caller("", "", uid=1001), 0, False),
    (Caller("", "", uid=1001), None, False),
    (Caller("", ""), None, False),
])  # fmt: skip
def test_output_is_for_the_owner_and_who_may_change(
    caller: Caller, owner: int | None, may: bool
) -> None:
    assert caller.may_read_logs(owner) is may


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
@pytest.mark.parametrize(("owner", "status"), [(STRANGER, 200), (1000, 403), (None, 403)])
def test_the_kernel_says_who_asks(
    server: ApiServer, source: FakeSource, tmp_path: Path, owner: int | None, status: int
) -> None:
    view = job("private")
    source.report = report_of(replace(view, spec=replace(view.spec, owner=owner)))
    server.status_path.chmod(0o666)
    tmp_path.chmod(0o711)
    code = (
        f"import os, socket; s = socket.socket(socket.AF_UNIX); os.chdir({str(tmp_path)!r})\n"
        f"os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})\n"
        "s.connect('status.sock')\n"
        "s.sendall(b'GET /v1/jobs/private/logs HTTP/1.1\\r\\nHost: x\\r\\n"
        "Connection: close\\r\\n\\r\\n')\n"
        "print(b''.join(iter(lambda: s.recv(4096), b'')).decode())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"HTTP/1.1 {status} ")
    if owner == 1000:
        assert "the job's owner (uid 1000) may read it here" in done.stdout
