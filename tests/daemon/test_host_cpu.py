"""Who uses the host's CPU while a target is missed, on a real engine and its kernel."""

from __future__ import annotations

import json
import os

import pytest

from tests.daemon.forked import ok
from tests.daemon.strangers import Strangers
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]

LATE = "import time\nwhile True:\n    print('took 900 ms')\n    time.sleep(0.1)\n"
BURN = f"for one in $(seq {os.cpu_count()}); do while :; do :; done & done; wait"


def test_a_late_job_names_the_container_that_burns(node: Session, strangers: Strangers):
    late, burner = f"late-{node.instance}", f"burner-{node.instance}"
    strangers.named(late, ["python", "-u", "-c", LATE])
    strangers.named(burner, ["sh", "-c", BURN])
    node.start("none")
    took = r"pattern=took (?P<latency_ms>[0-9.]+) ms"
    ok(node, "adopt", late, "--latency", "50ms", "--metrics", took)
    helps = f"container {burner}, "
    wait_for(lambda: helps in ok(node, "why", late), 60, "why to name the burner")
    found = json.loads(ok(node, "why", late, "--output", "json"))["host_cpu"]
    (user,) = (one for one in found["users"] if one["name"] == burner)
    assert user["command"] == f"dlsched adopt {burner} --background"
    assert late not in (one["name"] for one in found["users"])
    assert f"host CPU: short, {found['busy_cores']:.2f} of " in ok(node, "ps")
