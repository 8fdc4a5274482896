"""History and usage of a real daemon, over its restart."""

from __future__ import annotations

import json

import pytest

from dlsched.api.history_schema import History
from dlsched.api.reading import read
from dlsched.api.usage_schema import UsageStatus
from tests.daemon.forked import command
from tests.daemon.test_daemon import goes_on, reaches, spec
from tools.session import Session

pytestmark = [pytest.mark.e2e, pytest.mark.engine]


def test_history_and_usage_are_of_both_runs(node: Session) -> None:
    node.drop("alpha", spec("alpha", cpus="{min: 0.05, max: 0.5}"))
    node.start("fair")
    reaches(node, "alpha", "running")
    goes_on(node)
    node.stop()
    node.drop("beta", spec("beta"))
    node.start("fair")
    reaches(node, "beta", "running")

    history = read(History, node.client._reading.ask("GET", "/v1/history"))
    assert history.notes == ()
    limits = [cores for cores in history.jobs["alpha"]["limit_cores"] if cores is not None]
    assert max(limits) == pytest.approx(0.5)
    started = [one.job for one in history.changes if one.kind == "start"]
    assert started[:2] == ["alpha", "beta"]
    assert any(cores is not None for cores in history.node["capacity_cores"])
    states = [one.after for one in history.events if (one.job, one.kind) == ("alpha", "state")]
    assert "running" in states and "unmanaged" not in states, "its file is known in the first cycle"

    node.stop()
    kept = command(node, "usage", str(node.root / "state"), "--by", "job", "--json")
    assert kept.returncode == 0
    usage = read(UsageStatus, json.loads(kept.stdout))
    assert {row.name for row in usage.rows} >= {"alpha"}
    assert usage.total.given_core_s > 0.0
    assert usage.total.used_core_s <= usage.capacity_core_s
    assert usage.used_core_s == pytest.approx(usage.total.used_core_s, rel=1e-3, abs=0.01)
