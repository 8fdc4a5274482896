"""Services under open loops on a real engine: `adaptive` holds none of them back.

Not beside a service whose target nothing can meet, and not beside a training that wants every core.
"""

from __future__ import annotations

import json

import pytest

from tests.daemon.test_daemon import goes_on, row
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]

WORK_S = {"fast": (0.004, 0.006), "slow": (0.015, 0.025), "hopeless": (0.02, 0.02)}
"""CPU time of a request, at least and at most."""
USE_CORES = 0.1
"""Of each: requests come by chance, whether or not the last is answered."""

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


SERVE = """
import random, sys, time
from dlsched.report import latency
every_s, low_s, high_s = map(float, sys.argv[1:])
draw = random.Random(7)
arrives = time.monotonic()
while True:
    arrives += draw.expovariate(1 / every_s)
    time.sleep(max(0.0, arrives - time.monotonic()))
    until = time.thread_time() + draw.uniform(low_s, high_s)
    while time.thread_time() < until:
        pass
    latency.observe(time.monotonic() - arrives)
"""


def spec(name: str, target: str) -> str:
    """A job file; JSON is YAML. No bounds: only the policy could hold it back."""
    low_s, high_s = WORK_S[name]
    every_s = (low_s + high_s) / 2 / USE_CORES
    return json.dumps(
        {
            "name": name,
            "image": "dlsched-examples/base:3.11",
            "command": ["python", "-c", SERVE, *map(str, (every_s, low_s, high_s))],
            "network": "none",
            "cpus": {"min": 0.01},
            "target": {"latency": target},
            "stop": {"grace": "1s"},
        }
    )


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
    for name in WORK_S:
        node.drop(name, spec(name, "1ms" if name == "hopeless" else "200ms"))
    node.drop("training", TRAINING)
    node.start("adaptive")
    wait_for(lambda: node.running() == 4, 60, "four jobs to run")
    wait_for(lambda: all(known(node, name) for name in WORK_S), 60, "enough requests of each")
    goes_on(node, 8)
    node.stop()
    decided = [report.decision for report in node.reports(1) if report.decision is not None]
    assert decided
    for name in WORK_S:
        wanted = {one.limits[name].cpu_cores for one in decided if name in one.limits}
        assert wanted == {None}, name
        container = node.engine.containers.get(f"dlsched-{node.instance}-{name}")
        assert container.attrs["HostConfig"]["CpuQuota"] in (0, -1)


def known(node: Session, name: str) -> bool:
    """Whether the policy says something of that service's latency."""
    told = [outlook["why"] for outlook in row(node, name)["outlook"]]
    return bool(told) and "too few requests" not in told[0]
