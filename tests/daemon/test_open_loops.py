"""Services under open loops on a real engine: `adaptive` holds none of them back.

Not beside a service whose target nothing can meet, and not beside a training that wants every core.
"""

from __future__ import annotations

import pytest

from benchmarks.kernel.tail import Service
from benchmarks.real.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]

SERVICES = (Service("fast", 2.0, 0.004, 0.006, 0.05), Service("slow", 2.0, 0.015, 0.025, 0.05))
"""A twentieth of two cores each: requests come by chance, whether or not the last is answered."""
HOPELESS = Service("hopeless", 2.0, 0.02, 0.02, 0.05)

TRAIN = """
import time
from dlsched.report import Progress
progress, began = Progress(), time.monotonic()
step = 0
while True:
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        pass
    step += 1
    if step % 10 == 0:
        progress.step(step, accuracy=min(0.8, 0.1 + step * 1e-4))
"""


def spec(service: Service, target: str) -> str:
    text = service.spec(seed=7)
    # No bounds: only the policy could hold it back.
    text = text.replace('"cpus": {"min": 2.0, "max": 2.0}', '"cpus": {"min": 0.01}')
    return text.replace('{"latency": "50ms", "quantile": "p95"}', f'{{"latency": "{target}"}}')


TRAINING = f"""
name: training
image: dlsched-examples/base:3.11
command:
  - python
  - -c
  - |
{"".join(f"    {line}" + chr(10) for line in TRAIN.splitlines())}
network: none
stop: {{grace: 1s}}
target: {{metric: accuracy, deliver: 0.9, finish: 0.95}}
"""


def test_open_loops_have_no_ceiling_beside_a_hopeless_one_and_a_training(node: Session) -> None:
    for service in SERVICES:
        node.drop(service.name, spec(service, "200ms"))
    node.drop(HOPELESS.name, spec(HOPELESS, "1ms"))
    node.drop("training", TRAINING)
    node.start("adaptive")
    wait_for(lambda: node.running() == 4, 60, "four jobs to run")
    names = [service.name for service in (*SERVICES, HOPELESS)]
    wait_for(lambda: all(known(node, name) for name in names), 60, "enough requests of each")
    cycle = node.cycle()
    wait_for(lambda: node.cycle() >= cycle + 8, 60, "eight cycles more")
    node.stop()
    decided = [report.decision for report in node.reports(1) if report.decision is not None]
    assert decided
    for name in names:
        wanted = {one.limits[name].cpu_cores for one in decided if name in one.limits}
        assert wanted == {None}, name
        container = node.engine.containers.get(f"dlsched-{node.instance}-{name}")
        assert container.attrs["HostConfig"]["CpuQuota"] in (0, -1)


def known(node: Session, name: str) -> bool:
    """Whether the policy says something of that service's latency."""
    rows = {row["name"]: row for row in node.client.jobs()["jobs"]}
    told = [outlook["why"] for outlook in rows[name]["outlook"]]
    return bool(told) and "too few requests" not in told[0]
