"""Finding an engine: what does not answer is not one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tools import engine_probe
from tools.engine_probe import answering_host, answers


@pytest.mark.timed
def test_nobody_and_a_dead_socket_do_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "dead.sock"
    assert not answers(f"unix://{path}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    assert path.exists()
    assert not answers(f"unix://{path}")


def test_the_usual_sockets_are_asked_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_probe, "answers", lambda host: host == "unix:///x/docker.sock")
    assert answering_host({"XDG_RUNTIME_DIR": "/x"}) == "unix:///x/docker.sock"
    assert answering_host({}) is None
