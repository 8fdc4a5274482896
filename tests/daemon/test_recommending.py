"""`dlsched recommend` on the journal of a real daemon that only observed."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.daemon.forked import command
from tests.daemon.strangers import Strangers
from tests.daemon.test_adoption import SERVE, SOURCE
from tests.daemon.test_daemon import reaches
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]

TARGET_S = 0.1
OBSERVED_REQUESTS = 600
"""Several of the slices by which use is counted."""


def test_the_limit_recommended_after_observing_is_what_its_requests_need(
    node: Session, strangers: Strangers
) -> None:
    asks = {"dlsched.enable": "true", **SOURCE, "dlsched.target.latency": f"{TARGET_S * 1e3:g}ms"}
    name = strangers.run(SERVE, asks)
    hopeless = strangers.run(SERVE, {**asks, "dlsched.target.latency": "5ms"})
    node.start("none")
    reaches(node, name, "running")

    def enough() -> bool:
        done = command(node, "recommend", "--json")
        jobs = json.loads(done.stdout)["jobs"] if done.returncode == 0 else []
        return any(
            (one["measured"] or {"requests": 0})["requests"] >= OBSERVED_REQUESTS
            and one["use"] is not None
            for one in jobs
            if one["name"] == name
        )

    wait_for(enough, 120, "enough of its requests to be recorded")
    done = command(node, "recommend", "--json")
    found = {one["name"]: one for one in json.loads(done.stdout)["jobs"]}
    assert found[name]["adopted"]
    need = found[name]["need"]
    if need["cores"] is None:  # on a host so full of other work that its requests took too long
        assert "the target is 100 ms" in need["out_of_reach"]
    else:
        # 20 ms of computation in 95 ms; more where others on the host hid how long it waits.
        assert 0.19 <= need["cores"] <= 0.5
        assert need["out_of_reach"] is None or "other work leaves" in need["out_of_reach"]
    assert "the target is 5 ms" in found[hopeless]["need"]["out_of_reach"]
    patch = yaml.safe_load(command(node, "recommend", "--format", "compose").stdout)
    assert patch["services"].keys() == {name, hopeless}
