"""The daemon's part in a cluster, and the node's membership of a swarm, which comes and goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.cluster.certificates import MANAGER
from dlsched.cluster.wire import read_report
from dlsched.config.settings import ClusterSettings, Settings
from dlsched.control.ledger.desired import Desired
from dlsched.daemon.cluster_agent import ClusterPart
from dlsched.model.alarms import AlarmKey
from dlsched.runtime.clock import SystemClock
from tests.cluster.agent.serving import asked, free_port, named
from tests.cluster.agent.world import PlayedEngine, PlayedNode
from tests.cluster.authority import Authority


pytestmark = pytest.mark.process  # openssl


class NoJobs:
    """A watch folder without jobs."""

    def scan(self, now_s: float) -> Desired:
        return Desired()


def test_a_node_outside_a_swarm_runs_on_and_answers_once_it_has_joined_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca").make()
    own = authority.files("node")
    manager = authority.node("boss", MANAGER)
    port = free_port()
    listens = replace(ClusterSettings(), enabled=True, listen=("127.0.0.1", port))
    part = ClusterPart(
        Settings(state_dir=tmp_path / "state", cluster=listens),
        own,
        NoJobs(),
        PlayedNode(PlayedEngine()),
        SystemClock(),
        lambda: "fair",
    )
    part.start()
    try:
        assert part.scan(0.0).specs == {}
        (alarm,) = part.alarms()
        assert alarm.key is AlarmKey.CLUSTER_DOWN
        assert alarm.text.endswith("No such file or directory (docker swarm join)")
        for name in ("node-7", "node-8"):  # it leaves, and joins again
            authority.node(name, as_name="node")
            assert part.alarms() == ()
            status, body = asked(manager, port, "POST /v1/cluster/report", named(name), to=name)
            assert status == 200
            assert read_report(body)[0].node == name
    finally:
        part.stop()
