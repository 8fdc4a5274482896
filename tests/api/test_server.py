"""The thread that answers: its begin and end, what it carries, who may crowd it."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.api import server as server_module
from dlsched.api.client import Daemon
from dlsched.api.server import CONNECTIONS_MAX, ApiServer
from dlsched.model.errors import DaemonUnavailable
from tests.api.conftest import client_of, serving
from tests.status_source import FakeSource, example_report
from tests.waiting import until

pytestmark = pytest.mark.timed


def answers(folder: Path) -> bool:
    try:
        return Daemon(folder).about()["pid"] == 4711
    except DaemonUnavailable:
        return False


def test_it_takes_no_signal_handlers(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with serving(tmp_path):
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("dlsched.api", ("rich", "httpx2", "click.testing", "dlsched.cli", "pydantic", "docker")),
        ("dlsched.cli", ("rich", "httpx2", "starlette", "uvicorn", "pydantic", "docker")),
        (  # What `ps` loads: most of its time goes to imports.
            "dlsched.cli.commands.asking, dlsched.api.client, dlsched.cli.pages.why",
            (
                "rich", "textual", "httpx2", "starlette", "asyncio", "pydantic", "numpy", "ssl",
                "email", "yaml", "prometheus_client",
            ),
        ),
        (
            "dlsched.cli.commands.web, dlsched.cli.commands.top",
            ("rich", "textual", "starlette", "uvicorn"),
        ),
    ],
)  # fmt: skip
def test_what_is_loaded(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([n for n in {absent!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("crowded", ["status.sock", "control.sock"])
def test_half_asked_questions_neither_pile_up_nor_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crowded: str
) -> None:
    monkeypatch.setattr(server_module, "ASK_WITHIN_S", 60.0)
    half = b"GET /v1/jo"
    with serving(tmp_path) as server:
        # Each connects without a timeout, so that it waits while others queue to be let in.
        many = [asking(tmp_path, half, crowded) for _ in range(CONNECTIONS_MAX + 50)]
        (free,) = {"status.sock", "control.sock"} - {crowded}
        with client_of(tmp_path / free) as client:
            assert client.get("/v1/about").status_code == 200
        until(
            lambda: open_ones(server) <= CONNECTIONS_MAX + 1,
            "connections beyond the limit are closed",
        )
        for one in many:
            one.close()
        until(lambda: open_ones(server) == 0, "all are closed")

        monkeypatch.setattr(server_module, "ASK_WITHIN_S", 0.5)
        for one in [asking(tmp_path, half, crowded) for _ in range(3)]:
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(100) == b"", "hung up, without an answer"
            one.close()
        until(lambda: answers(tmp_path), "it answers")


def open_ones(server: ApiServer) -> int:
    return len(server._server.server_state.connections)


def asking(folder: Path, request: bytes, name: str = "status.sock") -> socket.socket:
    """A caller, who may have been hung up on before all was sent."""
    one = socket.socket(socket.AF_UNIX)
    one.connect(str(folder / name))
    one.settimeout(60.0)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        one.sendall(request)
    return one


@pytest.mark.parametrize("half", [b"G", b"GET /v1/about HTTP/1.1\r\nHost: dlsched\r\n"])
@pytest.mark.parametrize("body", [b"", b"Content-Length: 1000\r\n"])
def test_half_a_question_after_a_whole_one_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: bytes, body: bytes
) -> None:
    monkeypatch.setattr(server_module, "ASK_WITHIN_S", 4.0)
    with serving(tmp_path):
        whole = b"GET /v1/about HTTP/1.1\r\nHost: dlsched\r\n" + body + b"\r\n"
        with asking(tmp_path, whole) as one:
            monkeypatch.setattr(server_module, "ASK_WITHIN_S", 0.5)
            answer = b""
            while not answer.endswith(b"}"):
                part = one.recv(1000)
                assert part, answer
                answer += part
            with contextlib.suppress(BrokenPipeError):  # hung up already: this half comes late
                one.sendall(half)
            assert one.recv(1000) == b"", "hung up"


@pytest.mark.parametrize("asked_times", [1, 3])
def test_an_answer_that_is_not_taken_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_times: int
) -> None:
    monkeypatch.setattr(server_module, "ASK_WITHIN_S", 4.0)  # until it has asked
    with serving(
        tmp_path, FakeSource(replace(example_report(), alarms=("x" * 4_000_000,)))
    ) as server:
        request = b"GET /v1/jobs HTTP/1.1\r\nHost: dlsched\r\n\r\n"
        with asking(tmp_path, request * asked_times) as one:
            monkeypatch.setattr(server_module, "ASK_WITHIN_S", 0.5)
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
            until(lambda: open_ones(server) == 0, "all are closed")


@pytest.mark.long
def test_an_answer_that_is_taken_slowly_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "ASK_WITHIN_S", 0.5)

    def taken_slowly() -> int:
        request = b"GET /v1/jobs HTTP/1.1\r\nHost: dlsched\r\n\r\n"
        taken = 0
        with asking(tmp_path, request) as one, contextlib.suppress(ConnectionResetError):
            while part := one.recv(50_000):
                taken += len(part)
                time.sleep(0.02)  # 4 MB in longer than the patience for one part
        return taken

    with serving(tmp_path, FakeSource(replace(example_report(), alarms=("x" * 4_000_000,)))):
        # A caller that is not let run for so long takes too little; no other one does.
        assert any(taken_slowly() > 4_000_000 for _ in range(5))
