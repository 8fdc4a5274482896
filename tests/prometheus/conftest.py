"""Debian's Prometheus, unpacked and not installed: no service of it starts."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import httpx2
import pytest

from tests.daemon.forked import session
from tools import debian
from tools.environment import BUILD, ROOT
from tools.session import Session, wait_for

CONFIG = ROOT / "config" / "prometheus"


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of `prometheus` and `promtool`."""
    debian.unpack("prometheus", BUILD / "prometheus", "the tests of metrics and alerts")
    return BUILD / "prometheus" / "usr" / "bin"


@pytest.fixture
def node(
    docker_client: docker.APIClient, base_image: str, docker_host: str, monkeypatch: Any
) -> Iterator[Session]:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    with session() as one:
        yield one


Query = Callable[[str], list[dict[str, Any]]]

EXAMPLE_ADDRESS = "127.0.0.1:9819"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def prometheus(programs: Path, folder: Path, address: str) -> Iterator[Query]:
    """A Prometheus with the example's settings but for the address and the intervals."""
    text = (CONFIG / "prometheus.yml").read_text()
    assert EXAMPLE_ADDRESS in text
    text = text.replace(EXAMPLE_ADDRESS, address).replace("15s", "1s")
    (folder / "prometheus.yml").write_text(text)
    rules = (CONFIG / "dlsched.rules.yml").read_text()
    (folder / "dlsched.rules.yml").write_text(rules)
    own = f"127.0.0.1:{free_port()}"
    words = [f"--config.file={folder / 'prometheus.yml'}", f"--web.listen-address={own}"]
    words.append(f"--storage.tsdb.path={folder / 'tsdb'}")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([programs / "prometheus", *words], stdout=log, stderr=log)
    try:
        with httpx2.Client(base_url=f"http://{own}/api/v1", timeout=60) as client:

            def ready() -> bool:
                assert process.poll() is None, (folder / "prometheus.log").read_text()
                try:
                    return client.get("/status/buildinfo").status_code == 200
                except httpx2.TransportError:
                    return False

            wait_for(ready, 60, "Prometheus to answer")

            def query(expression: str) -> list[dict[str, Any]]:
                if expression.startswith("/"):
                    return [client.get(expression).json()["data"]]
                answer = client.get("/query", params={"query": expression}).json()
                assert answer["status"] == "success", answer
                return list(answer["data"]["result"])

            yield query
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
