"""The controller's loop, from job files to placements, with a store in memory and played agents."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.api.cluster_schema import ClusterStatus
from dlsched.cluster.certificates import MANAGER
from dlsched.cluster.core.records import (
    Holding,
    Order,
    Phase,
    RecordState,
    Request,
    Saved,
    Verb,
    Wanted,
)
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.cluster.core.snapshot import Left
from dlsched.cluster.round_report import PAUSE_S
from dlsched.cluster.status_file import (
    FILE_NAME,
    UnreadableStatus,
    latest_status,
    read_status,
    status_file,
    write_status,
)
from dlsched.cluster.store import Member, MemoryStore, StoreError
from dlsched.config.settings import ClusterSettings, Settings, TlsFiles
from dlsched.daemon.cluster import ClusterLoop, ClusterParts
from dlsched.daemon.cluster_wiring import connect
from dlsched.model.errors import DaemonUnavailable
from dlsched.runtime.clock import CHANGES_S, SystemClock
from dlsched.runtime.docker.engine import Engine
from dlsched.simulation.clock import VirtualClock
from tests.cluster.authority import Authority
from tests.cluster.swarm.played import PlayedSwarm
from tests.cluster_status import example

pytestmark = pytest.mark.timed


RESNET = "name: resnet\nimage: lab/resnet\n"


class PlayedAgents:
    """Nodes that do as they are ordered."""

    def __init__(self, *nodes: str) -> None:
        self.held: dict[str, dict[str, Holding]] = {node: {} for node in nodes}
        self.orders: list[Order] = []
        self.left: Left | None = None
        """Of each job that runs."""

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        if node not in self.held:
            return None
        held = self.held[node].values()
        runs = [one.job for one in held if one.phase is Phase.RUNNING]
        jobs = [JobReport(job, 2.0, left=self.left) for job in runs]
        return NodeReport(node, 8.0, 0.5, holdings=tuple(held), jobs=tuple(jobs))

    def send(self, order: Order) -> None:
        self.orders.append(order)
        if order.verb is Verb.ARRIVE:
            self.held[order.node][order.job] = Holding(order.job, order.epoch, Phase.RUNNING, 1)
        elif order.verb is Verb.PREPARE:
            self.held[order.node][order.job] = Holding(order.job, order.epoch, Phase.PREPARED)
        elif order.verb is Verb.LEAVE:
            away = Holding(order.job, order.epoch, Phase.AWAY, saved=Saved(1))
            self.held[order.node][order.job] = away
        elif order.verb is Verb.CLEAR:
            self.held[order.node][order.job] = Holding(order.job, order.epoch, Phase.FENCED)


class Site:
    """One manager: its folder, its store, its nodes."""

    def __init__(
        self,
        root: Path,
        name: str = "m1",
        store: MemoryStore | None = None,
        policy: str = "spread",
    ) -> None:
        self.name, self.watch = name, root / name / "cluster.d"
        self.watch.mkdir(parents=True)
        members = [Member("m1", host="gpu-1", address="10.0.0.1"), Member("m2", host="gpu-2")]
        self.store = store or MemoryStore(members, leader="m1")
        self.agents = PlayedAgents("m1", "m2")
        self.clock = VirtualClock(100.0)
        self.settings = Settings(
            state_dir=root / name / "state",
            run_dir=root / name / "run",
            presets=root / "presets",
            cluster=ClusterSettings(watch=self.watch, policy=policy),
        )
        self.problems: dict[str, str] = {}
        self.start()

    def start(self) -> None:
        """A controller that knows nothing yet."""
        parts = ClusterParts(
            self.name, self.store, self.agents, node_problems=lambda: self.problems
        )
        self.loop = ClusterLoop(self.settings, parts, self.clock)

    def steps(self, count: int = 5) -> ClusterStatus:
        for _ in range(count):
            self.clock.advance(max(self.loop.step(), 0.2))
        return self.status()

    def status(self) -> ClusterStatus:
        return read_status(self.settings.run_dir)

    @property
    def states(self) -> dict[str, RecordState]:
        return {job: one.record.state for job, one in self.store.records().items()}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def placed(site: Site) -> Site:
    """One with a job that runs on m1."""
    (site.watch / "a.yaml").write_text(RESNET)
    site.steps()
    return site


def test_a_job_file_becomes_a_placement_and_its_removal_an_end(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (site.watch / "a.yaml").write_text(RESNET)
    status = site.steps()
    assert [(one.verb, one.node, one.text) for one in site.agents.orders] == [
        (Verb.ARRIVE, "m1", RESNET)
    ]
    (job,) = status.jobs
    assert (job.name, job.node, job.state, job.granted_cores) == ("resnet", "m1", "running", 2.0)
    assert [one.text for one in job.events] == ["placed on gpu-1"]
    assert [(one.name, one.state, one.jobs, one.used_cores) for one in status.nodes] == [
        ("m1", "ready", 1, 2.5),
        ("m2", "ready", 0, 0.5),
    ]
    (site.watch / "a.yaml").unlink()
    assert site.steps().jobs == ()
    assert site.states == {"resnet": RecordState.ENDED}
    assert [line for line in caplog.messages if "resnet" in line] == [
        "resnet: the job was submitted to the cluster",
        "resnet: placed on gpu-1",
        "resnet: the job was withdrawn, as its file was removed",
        "resnet: ends on gpu-1: the job was withdrawn",
        "resnet: no container of the job runs on gpu-1 any more",
    ]


def test_a_changed_job_file_ends_the_wait_for_the_next_round(placed: Site) -> None:
    placed.steps()
    began_s = placed.clock.now_s()
    placed.loop._sleep(PAUSE_S)
    assert placed.clock.now_s() == began_s + PAUSE_S
    placed.loop.step()
    (placed.watch / "a.yaml").write_text(f"{RESNET}weight: 2\n")
    placed.loop._sleep(PAUSE_S)
    assert placed.clock.now_s() == began_s + PAUSE_S + CHANGES_S
    placed.steps(3)
    assert placed.store.submissions()["resnet"].text.endswith("weight: 2\n")


def test_what_people_ask_is_in_the_status_then_in_the_log(
    placed: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    placed.store.ask(Request(Wanted.PAUSE))
    move = Request(Wanted.MOVE, "resnet", "m1")
    placed.store.ask(move)
    status = placed.steps(1)
    assert status.asked == ("pause: `dlsched cluster resume` ends it",)
    text = f"asked to {move}: resnet is on m1"
    assert text in caplog.messages
    assert [one.text for one in status.jobs[0].events] == ["placed on gpu-1", text]
    # Nothing is due in a pause.
    assert placed.loop.step() == PAUSE_S
    placed.store.done(Request(Wanted.PAUSE))
    assert placed.steps(1).asked == ()


def test_a_move_is_in_the_status_with_what_came_of_it(placed: Site) -> None:
    placed.store.ask(Request(Wanted.MOVE, "resnet", "m2"))
    status = placed.steps(20)
    (job,) = status.jobs
    assert (job.node, job.state, job.moves) == ("m2", "running", 1)
    (moved,) = job.moved
    assert (moved.source, moved.target, moved.outcome) == ("m1", "m2", "completed")
    assert (moved.forecast_s, moved.measured_s, moved.pending) == (None, None, False)
    assert status.totals is not None
    assert (status.totals.completed, status.totals.failed) == (1, 0)


def test_a_round_that_raises_is_an_alarm_and_the_next_one_runs_as_usual(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (site.watch / "a.yaml").write_text(RESNET)
    before = site.steps()

    def scan(_: float) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr(site.loop._folder, "scan", scan)
        failed = site.steps(2)
    line = "a round of the controller failed, by a fault of dlsched: RuntimeError: a fault"
    assert (failed.alarms, failed.jobs) == ((line,), before.jobs)
    assert caplog.messages.count(line) == 1
    assert len(site.agents.orders) == 1
    assert site.steps(1).alarms == ()


def test_a_follower_submits_and_says_who_leads(tmp_path: Path) -> None:
    leader = Site(tmp_path)
    follower = Site(tmp_path, "m2", leader.store)
    (follower.watch / "a.yaml").write_text(RESNET)
    status = follower.steps()
    assert (status.manager, status.leader, status.jobs) == ("m2", "m1", ())
    assert status.totals is None
    assert follower.agents.orders == []
    assert [job.name for job in leader.steps().jobs] == ["resnet"]
    leader.store.leading = "m2"
    assert leader.steps().jobs == ()
    assert follower.steps().leader == "m2"


def test_a_waiting_job_says_what_it_waits_for(site: Site) -> None:
    (site.watch / "a.yaml").write_text(RESNET + "cpus: {min: 64}\n")
    (waiting,) = site.steps().queue
    assert waiting.name == "resnet"
    assert "the job's floor is 64.00 cores" in waiting.why


def test_a_store_that_does_not_answer_leaves_the_last_status_with_its_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.watch / "a.yaml").write_text(RESNET)
    before = site.steps()

    def silent(_: object) -> str:
        raise StoreError("no manager of the swarm leads")

    monkeypatch.setattr(MemoryStore, "leader", silent)
    after = site.steps()
    assert (after.jobs, after.observed_at) == (before.jobs, before.observed_at)
    assert after.written_at > before.written_at
    assert after.alarms == ("the store: no manager of the swarm leads",)


def test_nodes_that_do_not_answer_are_shown_and_logged_once(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    del site.agents.held["m2"]
    site.problems = {"m2": "no report: connection refused"}
    site.store.members["m3"] = Member("m3", up=False)
    rows = {row.name: row for row in site.steps().nodes}
    assert [rows[name].state for name in ("m1", "m2", "m3")] == ["ready", "silent", "down"]
    assert rows["m2"].problem == "no report: connection refused"
    assert caplog.messages.count("node gpu-2: silent: no report: connection refused") == 1


def test_the_status_is_whole_or_refused(site: Site) -> None:
    with pytest.raises(DaemonUnavailable, match="no controller of a cluster has run here"):
        site.status()
    site.steps(1)
    file = status_file(site.settings.run_dir)
    # The daemon's folder goes with the daemon.
    assert site.settings.run_dir not in file.parents
    whole = file.read_text()
    for broken in ("", "[]", whole.replace('"schema_version": 1', '"other": 2'),
                   whole.replace('"nodes": [', '"nodes": [3, ')):  # fmt: skip
        file.write_text(broken)
        with pytest.raises(UnreadableStatus, match=FILE_NAME):
            site.status()


@pytest.mark.process
def test_the_real_parts_fit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A played swarm, and a node where no agent listens."""
    swarm = PlayedSwarm()
    for node, leads in (("node1", True), ("node2", False)):
        manager = {"ManagerStatus": {"Leader": leads}} if leads else {}
        swarm.add_node(node, Status={"State": "ready", "Addr": "127.0.0.1"}, **manager)
    monkeypatch.setattr(
        Engine, "exchange", lambda _, *words, **more: swarm.exchange(*words, **more)
    )
    Authority(tmp_path / "tls").make().node("node1", MANAGER)
    tls = TlsFiles(*(tmp_path / "tls" / name for name in ("ca.crt", "node1.crt", "node1.key")))
    (tmp_path / "cluster.d").mkdir()
    (tmp_path / "cluster.d" / "a.yaml").write_text(RESNET)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        settings = Settings(
            run_dir=tmp_path / "run",
            state_dir=tmp_path / "state",
            presets=tmp_path / "presets",
            cluster=ClusterSettings(
                listen=unused.getsockname(), tls=tls, watch=tmp_path / "cluster.d", policy="spread"
            ),
        )
        clock = SystemClock()
        parts = connect(settings, clock)
        try:
            loop = ClusterLoop(settings, parts, clock)
            for _ in range(600):
                loop.step()
                status = read_status(tmp_path / "run")
                if status.queue and all(row.problem for row in status.nodes):
                    break
                clock.sleep_until(clock.now_s() + 0.1)
        finally:
            parts.close()
    assert [(row.name, row.host, row.state) for row in status.nodes] == [
        ("node1", "host-of-node1", "silent"),
        ("node2", "host-of-node2", "silent"),
    ]
    assert all("Connection refused" in row.problem for row in status.nodes)
    why = "waits for a report of node1, node2, which may hold the job, at most 170 s"
    assert [row.why for row in status.queue] == [why]
    assert [one.by for one in parts.store.submissions().values()] == ["node1"]


PROGRAM = """
import sys
from pathlib import Path
from dlsched.cluster.store import MemoryStore
from dlsched.config.settings import ClusterSettings, Settings
from dlsched.daemon import cluster
from tests.daemon.test_cluster import PlayedAgents
root = Path(sys.argv[1])
settings = Settings(state_dir=root / "state", run_dir=root / "run", presets=root / "presets",
                    cluster=ClusterSettings(watch=root / "cluster.d"))
parts = cluster.ClusterParts("m1", MemoryStore((), leader="m1"), PlayedAgents())
sys.exit(cluster.run(settings, lambda *_: parts))
"""


@pytest.mark.process
def test_sigterm_ends_the_controller(tmp_path: Path) -> None:
    (tmp_path / "cluster.d").mkdir()
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert running.stderr is not None
    for line in running.stderr:
        if "this manager leads" in line:
            break
    running.send_signal(signal.SIGTERM)
    rest = running.communicate(timeout=30)[1]
    assert running.returncode == 0
    assert "the cluster's controller ended; the nodes and their jobs go on" in rest
    assert replace(read_status(tmp_path / "run"), written_at="").leader == "m1"


def test_the_status_file_is_parsed_once_each_time_that_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "run"
    assert latest_status(run_dir) is None, "no controller has run here"
    write_status(run_dir, example())
    first = latest_status(run_dir)
    assert first is not None
    assert first.jobs == example().jobs
    assert latest_status(run_dir) is first
    write_status(run_dir, replace(example(), jobs=()))
    second = latest_status(run_dir)
    assert second is not None
    assert second.jobs == ()
    path = status_file(run_dir)
    path.write_text("[]")
    with pytest.raises(UnreadableStatus, match="not the status of a cluster"):
        latest_status(run_dir)
