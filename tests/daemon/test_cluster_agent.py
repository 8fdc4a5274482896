"""The daemon's part in a cluster, and the node's membership of a swarm, which comes and goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched import __version__
from dlsched.cluster.agent.assignments import Assignment, Assignments, has_assignments
from dlsched.cluster.certificates import MANAGER, Certificates
from dlsched.cluster.core.records import Phase
from dlsched.cluster.https import Destination
from dlsched.cluster.swarm import doctor
from dlsched.cluster.swarm.doctor import Probe, probe
from dlsched.cluster.wire import read_report
from dlsched.config.settings import ClusterSettings, Settings
from dlsched.control.ledger.desired import Desired
from dlsched.daemon.cluster_agent import ClusterPart
from dlsched.model.alarms import AlarmKey
from dlsched.model.cycle import CycleReport
from dlsched.model.state import NodeView, Snapshot
from dlsched.runtime.clock import SystemClock
from tests.cluster.agent.played import PlayedEngine, PlayedNode
from tests.cluster.agent.serving import asked, free_port, named
from tests.cluster.agent.world import PlayedImages
from tests.cluster.authority import Authority

pytestmark = pytest.mark.process  # openssl


class NoJobs:
    """A watch folder without jobs."""

    def scan(self, now_s: float) -> Desired:
        return Desired()


def made(settings: Settings, certificates: Certificates) -> ClusterPart:
    node = PlayedNode(PlayedEngine())
    clock, images = SystemClock(), PlayedImages()
    return ClusterPart(settings, certificates, NoJobs(), node, images, clock, lambda: "fair")


def test_a_node_outside_a_swarm_runs_on_and_answers_once_it_has_joined_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "TIMEOUT_S", 60.0)  # a busy host answers late
    authority = Authority(tmp_path / "ca").make()
    own = authority.files("node")
    manager = authority.node("boss", MANAGER)
    port = free_port()
    listens = replace(ClusterSettings(), enabled=True, listen=("127.0.0.1", port))
    part = made(Settings(state_dir=tmp_path / "state", instance="lab", cluster=listens), own)
    part.start()
    try:
        assert part.scan(0.0).specs == {}
        part.step(CycleReport(Snapshot(1, 0.0, NodeView(8.0, 8.0, 1 << 30), ()), "fair"))
        (alarm,) = part.alarms()
        assert alarm.key is AlarmKey.CLUSTER_DOWN
        assert alarm.text.startswith("this node cannot answer the managers, as its certificate")
        for name in ("node-7", "node-8"):  # it leaves, and joins again
            authority.node(name, as_name="node")
            assert part.alarms() == ()
            status, body = asked(manager, port, "POST /v1/cluster/report", named(name), to=name)
            assert status == 200
            assert read_report(body).name == name
            (found,) = probe(manager, [Destination(name, "127.0.0.1", port)])
            assert found == Probe(name, version=__version__, instance="lab")
    finally:
        part.stop()


def test_jobs_of_the_cluster_run_on_where_it_is_switched_off(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    assert not has_assignments(state_dir)
    text = "name: resnet\nimage: trainer:1\n"
    Assignments(state_dir, 0.0).write(Assignment("resnet", 3, Phase.RUNNING, text), 0.0)
    assert has_assignments(state_dir)
    part = made(Settings(state_dir=state_dir), Authority(tmp_path).files("node"))
    part.start()
    try:
        assert part.scan(0.0).specs.keys() == {"resnet"}
        (alarm,) = part.alarms()
        assert (
            alarm.text == "cluster.enabled is false, but jobs of the cluster still run here: resnet"
        )
    finally:
        part.stop()
