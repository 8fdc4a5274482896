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


def test_a_named_host_is_the_only_one_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(engine_probe, "answers", lambda host: bool(asked.append(host)))
    assert answering_host({"DOCKER_HOST": "unix:///named.sock", "XDG_RUNTIME_DIR": "/x"}) is None
    assert asked == ["unix:///named.sock"]


def test_the_usual_sockets_are_asked_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_probe, "answers", lambda host: host == "unix:///x/docker.sock")
    assert answering_host({"XDG_RUNTIME_DIR": "/x"}) == "unix:///x/docker.sock"
    assert answering_host({}) is None


@pytest.mark.engine
def test_a_real_engine_answers(docker_host: str) -> None:
    assert answers(docker_host)
    assert answering_host({"DOCKER_HOST": docker_host}) == docker_host
