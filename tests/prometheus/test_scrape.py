"""Debian's Prometheus scrapes a daemon on a real engine, with example and rules as shipped."""

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
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.real.session import Session, wait_for
from tests.daemon.forked import session
from tests.daemon.test_daemon import shows, spec
from tests.prometheus.conftest import CONFIG

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(300)]

Query = Callable[[str], list[dict[str, Any]]]

SERVICE = """
  - sh
  - -c
  - |
    while :; do
      echo "{\\"t\\": 1, \\"latency_s\\": [0.02, 0.02]}" >> "$DLSCHED_METRICS_FILE"
      sleep 0.1
    done
"""
EXAMPLE_ADDRESS = "127.0.0.1:9819"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def node(
    docker_client: docker.APIClient, base_image: str, docker_host: str, monkeypatch: Any
) -> Iterator[Session]:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    with session() as one:
        yield one


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
        with httpx2.Client(base_url=f"http://{own}/api/v1", timeout=10) as client:

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


def test_a_real_prometheus_scrapes_a_real_daemon(
    programs: Path, node: Session, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    node.drop("alpha", spec("alpha", SERVICE, target="{latency: 50ms}"))
    node.start("adaptive", more={"listen": address, "period": "200ms"})
    shows(node, "alpha", lambda one: one.get("ratio"), "to have a ratio")

    page = httpx2.get(f"http://{address}/metrics").text
    check = [programs / "promtool", "check", "metrics"]
    checked = subprocess.run(check, input=page.encode(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")

    with prometheus(programs, tmp_path, address) as query:
        wait_for(lambda: query("dlsched_job_target_ratio"), 60, "the first scrape")
        (target,) = query("/targets")[0]["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        (ratio,) = query("dlsched_job_target_ratio")
        assert ratio["metric"]["job_name"] == "alpha"
        assert ratio["metric"]["job"] == "dlsched"
        assert float(ratio["value"][1]) == pytest.approx(0.4, rel=0.05)

        stored = {one["metric"]["__name__"] for one in query('{job="dlsched"}')}
        shown = {
            sample.name
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }
        assert shown <= stored

        wait_for(lambda: query("rate(dlsched_cycles_total[10s]) > 1"), 60, "cycles to be counted")
        wait_for(lambda: query("dlsched:node_free_cores"), 60, "the recorded series")
        groups = query("/rules")[0]["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}

        node.stop()
        down = 'ALERTS{alertname="DlschedDown",job="dlsched"}'
        wait_for(lambda: query(down), 60, "the alert that the daemon is down")
