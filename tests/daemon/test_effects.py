"""`dlsched why` tells of a daemon on a real engine what a change of limits came to."""

from __future__ import annotations

import json

import pytest

from tests.daemon.forked import command
from tests.daemon.test_daemon import SERVE, reaches, row, shows, spec
from tools.session import Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


def effect(node: Session, verdict: str) -> dict[str, object] | None:
    """The newest effect with that verdict."""
    found = node.client.why("alpha", 10)["effects"]
    return next((one for one in found if one["verdict"] == verdict), None)


def test_a_service_that_gets_five_times_the_cpu_was_helped(node: Session) -> None:
    target = "{latency: 100ms}"
    node.start("fair")
    node.drop("alpha", spec("alpha", SERVE, target=target, cpus="{min: 0.05, max: 0.1}"))
    reaches(node, "alpha", "running")
    # 20 ms of CPU a request, of 10 ms in each 100 ms: about 5 requests a second, so 60 in 12 s.
    shows(node, "alpha", lambda one: one["requests"] >= 60, "60 requests under 0.1 cores", 60)
    slow_s = row(node, "alpha")["measured_s"]
    node.drop("alpha", spec("alpha", SERVE, target=target, cpus="{min: 0.05, max: 0.5}"))
    wait_for(lambda: effect(node, "not yet"), 30, "the change")
    assert "  its effect is known in " in command(node, "why", "alpha").stdout
    wait_for(lambda: effect(node, "helped"), 90, "its effect")
    helped = effect(node, "helped")
    assert helped is not None
    assert helped["after_s"] < 0.6 * slow_s
    assert helped["requests_before"] >= 60
    assert helped["requests_after"] >= 100
    assert helped["others"] == 0
    told = command(node, "why", "alpha")
    assert f"      {helped['text']}\n" in told.stdout, json.dumps(helped)
