"""A record of real containers whose work is known to the core-second."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlsched.simulation.trace import record
from tools.session import Session, session, wait_for

pytestmark = [pytest.mark.engine]

HEAD = """image: dlsched-examples/base:3.11
network: none
cpus: {max: 0.8}
stop: {grace: 1s}
command:
  - python
  - -c
  - |
    import time
    from dlsched.report import Progress, latency
    def burn(core_s):
        end = time.thread_time() + core_s
        while time.thread_time() < end:
            pass
"""
TRAINING = """
    burn(1.0)
    progress = Progress()
    for step in range(1, 151):
        burn(0.04)
        progress.step(step=step, accuracy=step / 200)
"""
SERVICE = """
    while True:
        with latency.measure():
            burn(0.02)
"""


@pytest.fixture
def node(docker_host: str, base_image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A daemon's home on the real engine; every container of it is gone afterwards."""
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    with session() as one:
        yield one


def test_real_containers_come_back_with_the_work_that_they_did(node: Session) -> None:
    node.start("none")
    target = "target: {metric: accuracy, deliver: 0.25, finish: 0.5}\n"
    node.drop("training", f"name: training\n{target}{HEAD}{TRAINING}")
    node.drop("service", f"name: service\ntarget: {{latency: 50ms}}\n{HEAD}{SERVICE}")

    def done() -> bool:
        rows = {row["name"]: row["state"] for row in node.client.jobs()["jobs"]}
        return rows.get("training") == "finished"

    wait_for(done, 90, "the training to end")
    node.stop()
    service, training = record(node.reports(0)).trace.jobs
    assert training.load.work_core_s == pytest.approx(0.04, rel=0.15)
    assert training.load.steps == pytest.approx(150, abs=15)
    # Python itself, and the second that a report may wait, are in it too.
    assert 0.7 <= training.start_up_work_core_s <= 2.5
    assert training.load.curve.value(100) == pytest.approx(0.5, abs=0.02)
    assert training.load.threads == 1.0
    assert service.load.work_core_s == pytest.approx(0.02, rel=0.15)
    assert (service.load.threads, service.load.arrivals_per_s) == (1.0, None)
