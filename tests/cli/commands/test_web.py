"""`dlsched web` as a command: what it prints, and its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlparse

import httpx2
import pytest

from tests.cli.conftest import Program
from tests.status_source import FakeSource


@pytest.mark.timed
def test_a_port_that_is_taken_is_one_line_and_1(program: Program, daemon: FakeSource) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = program("web", "--port", str(port))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: listen: 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_the_address_and_ends_cleanly_with_an_open_stream(
    daemon: FakeSource, folders: Path, number: signal.Signals
) -> None:
    words = [sys.executable, "-m", "dlsched", "web"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        url, _, token = address.partition("/#")
        port = urlparse(url).port
        answer = httpx2.post(f"{url}/enter", headers={"X-Dlsched-Token": token}, timeout=60)
        stream = f"{url}{answer.json()['path']}v1/stream"
        with httpx2.stream("GET", stream, cookies=answer.cookies, timeout=60) as followed:
            next(followed.iter_raw())
            process.send_signal(number)
            rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    forward, works = said.splitlines()
    assert forward.startswith(f"elsewhere: ssh -L {port}:127.0.0.1:{port} ")
    assert works == "the address works once; Ctrl-C ends the page"
