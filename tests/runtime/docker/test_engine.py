"""What becomes of the errors of the client library, in one line each."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from requests.exceptions import ConnectionError as RequestsConnectionError

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.engine import Engine, EngineRefused, one_line, root_cause


def test_no_socket_at_all(tmp_path: Path) -> None:
    host = f"unix://{tmp_path}/none.sock"
    with pytest.raises(EngineUnavailable) as caught:
        Engine(host, 1.0).info()
    assert str(caught.value) == (
        f"no answer from the Docker Engine at {host}: No such file or directory"
    )


def test_an_engine_that_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with pytest.raises(EngineUnavailable, match="timed out"):
            Engine(f"unix://{path}", 0.1).containers({})


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


@pytest.mark.engine
def test_an_answer_that_says_no_has_its_status_and_reason(docker_host: str) -> None:
    engine = Engine(docker_host, 10.0)
    with pytest.raises(EngineRefused) as caught:
        engine.inspect("no-such-container-of-anybody")
    assert caught.value.status == 404
    assert "No such container" in caught.value.reason
    assert engine.version()["ApiVersion"]
    engine.close()
