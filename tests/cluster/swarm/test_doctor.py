"""The cluster's doctor, with a played swarm and agents over real TLS on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlsched import __version__
from dlsched.cluster import https
from dlsched.cluster.certificates import MANAGER, Certificates
from dlsched.cluster.status_file import write_status
from dlsched.cluster.swarm import doctor as doctor_module
from dlsched.cluster.swarm.doctor import ClusterDoctor
from dlsched.config.settings import ClusterSettings, Settings, TlsFiles
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.doctor.finding import Finding
from tests.cluster.agent.serving import FakeAgent, free_port, serving
from tests.cluster.authority import WORKER, Authority
from tests.cluster.swarm.played import PlayedSwarm
from tests.cluster_status import example, written_ago

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy host may take seconds for a handshake."""
    monkeypatch.setattr(doctor_module, "TIMEOUT_S", 60.0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority(tmp_path_factory.mktemp("authority")).make()
    for name, role in (("node1", MANAGER), ("node2", WORKER), ("node3", MANAGER)):
        authority.node(name, role)
    return authority


@pytest.fixture
def swarm() -> PlayedSwarm:
    """node1 is this host; it leads."""
    swarm = PlayedSwarm()
    swarm.info["NodeAddr"] = "127.0.0.1"
    add(swarm, "node1", manages=True)
    add(swarm, "node2")
    return swarm


def add(swarm: PlayedSwarm, name: str, *, manages: bool = False, reached: bool = True) -> None:
    address = f"127.0.0.{name[-1]}"
    reach = "reachable" if reached else "unreachable"
    manager = {"Leader": name == "node1", "Reachability": reach, "Addr": f"{address}:2377"}
    more: dict[str, Any] = {"ManagerStatus": manager} if manages else {}
    swarm.add_node(name, Status={"State": "ready", "Addr": address}, **more)


class Host:
    """What the doctor examines."""

    def __init__(self, root: Path, swarm: PlayedSwarm, certificates: Certificates) -> None:
        self.swarm, self.certificates = swarm, certificates
        self.port = free_port()
        cluster = ClusterSettings(enabled=True, listen=("127.0.0.1", self.port))
        self.settings = Settings(run_dir=root / "run", cluster=cluster)

    def findings(self) -> list[Finding]:
        doctor = ClusterDoctor(
            self.settings, self.swarm, "unix:///played.sock", lambda: self.certificates
        )
        return list(doctor.findings())

    def one(self, what: str) -> tuple[str, str, str]:
        (found,) = [one for one in self.findings() if one.what == what]
        return found.state, found.line, found.remedy

    def node(self, name: str = "node2") -> tuple[str, str, str]:
        who = f"host-of-{name}:"
        (found,) = [one for one in self.findings() if one.line.startswith(who)]
        return found.state, found.line, found.remedy


@pytest.fixture
def host(tmp_path: Path, swarm: PlayedSwarm, authority: Authority) -> Host:
    return Host(tmp_path, swarm, authority.files("node1"))


@contextmanager
def agents(host: Host, authority: Authority, *names: str, instance: str = "") -> Iterator[None]:
    """They answer at 127.0.0.N."""
    instance = instance or host.settings.instance
    with ExitStack() as all_of_them:
        for name in names:
            one, at = FakeAgent(name), f"127.0.0.{name[-1]}"
            server = serving(one, authority.files(name), host.port, at, instance)
            all_of_them.enter_context(server)
        yield


def test_a_whole_cluster_is_well(host: Host, authority: Authority) -> None:
    for name in ("node3", "node4"):
        add(host.swarm, name, manages=True)
    host.swarm.nodes["node4"]["Status"]["State"] = "down"
    status = replace(example(), manager="node1", leader="node1", alarms=(), jobs=())
    write_status(host.settings.run_dir, status)
    with agents(host, authority, "node1", "node2", "node3"):
        found = host.findings()
    assert [one for one in found if one.state == "fail"] == []
    assert [one.what for one in found if one.state == "warn"] == ["restart", "node"]
    lines = {one.what: one.line for one in found}
    assert lines["swarm"] == "active; this host is a manager, node node1"
    assert lines["managers"] == "3 managers: the cluster goes on without 1 of them"
    assert lines["tls"] == "the certificate names node1"
    assert "a restart of the engine ends this host's containers" in lines["restart"]
    assert lines["status"].startswith("the controller leads; ")
    nodes = [one.line for one in found if one.what == "node"]
    assert nodes[0] == "host-of-node4: down, as Swarm reports; no other node gets its jobs"
    assert nodes[1:] == [
        f"host-of-node{n}: 127.0.0.{n}:{host.port} answers with dlsched {__version__}"
        for n in (1, 2, 3)
    ]


def test_nothing_is_asked_of_an_agent_but_whether_it_answers(
    host: Host, authority: Authority
) -> None:
    one = FakeAgent("node2")
    with serving(one, authority.files("node2"), host.port, "127.0.0.2"):
        assert host.node()[0] == "ok"
    assert (one.placed, one.orders) == ([], [])
    assert [call for call in host.swarm.calls if not call.startswith("GET")] == []


def test_a_worker_asks_itself_and_the_managers(
    host: Host, swarm: PlayedSwarm, authority: Authority
) -> None:
    swarm.info.update(
        NodeID="node2",
        NodeAddr="127.0.0.2",
        ControlAvailable=False,
        RemoteManagers=[{"NodeID": "node1", "Addr": "127.0.0.1:2377"}],
    )
    host.certificates = authority.files("node2")
    with agents(host, authority, "node1", "node2"):
        found = host.findings()
    assert [one.line for one in found if one.what == "swarm"] == [
        "active; this host is a worker, its managers: 127.0.0.1"
    ]
    assert [(one.state, one.line.split()[0]) for one in found if one.what == "node"] == [
        ("ok", "node1:"),
        ("ok", "node2:"),
    ]
    assert not {"managers", "status"} & {one.what for one in found}
    assert not any(call.startswith("GET /nodes") for call in swarm.calls)


# ---------------------------------------------------------------------- the swarm


@pytest.mark.parametrize(
    ("state", "line", "remedy"),
    [
        ("inactive", "this engine is in no swarm: inactive", "run `docker swarm init`"),
        ("error", "this engine is in no swarm: error: no ", "run `docker swarm init`"),
        ("locked", "locked (autolock)", "docker swarm unlock"),
    ],
)
def test_an_engine_in_no_swarm_is_one_failure(
    host: Host, swarm: PlayedSwarm, state: str, line: str, remedy: str
) -> None:
    swarm.info.update(LocalNodeState=state, ControlAvailable=False)
    if state == "error":
        swarm.info["Error"] = "no \x1b[2Jroute"
    (found,) = host.findings()
    assert (found.what, found.state, found.line[: len(line)]) == ("swarm", "fail", line)
    assert "\x1b" not in found.line
    assert found.remedy.startswith(remedy)


def test_live_restore_keeps_a_host_out_of_a_swarm(host: Host, swarm: PlayedSwarm) -> None:
    swarm.info.update(LocalNodeState="inactive", ControlAvailable=False)
    swarm.facts["LiveRestoreEnabled"] = True
    assert host.one("restart")[0] == "fail"


def test_an_engine_that_does_not_answer_or_answers_nonsense(host: Host, swarm: PlayedSwarm) -> None:
    swarm.is_cut_off = True
    assert host.one("engine")[0] == "fail"
    swarm.is_cut_off = False
    del swarm.info["NodeID"]
    assert host.one("engine")[:2] == ("fail", "unix:///played.sock: the engine reports no swarm")


@pytest.mark.parametrize(
    ("others", "state", "line"),
    [
        ({}, "warn", "1 manager: when one is lost, nothing is placed or moved; jobs run on"),
        ({"node3": True}, "warn", "2 managers: when one is lost, nothing is placed"),
        ({"node3": True, "node4": True}, "ok", "3 managers: the cluster goes on without 1"),
        ({"node3": True, "node4": False}, "warn", "3 managers: host-of-node4 not reached"),
    ],
)
def test_how_many_managers_can_be_lost(
    host: Host, swarm: PlayedSwarm, others: dict[str, bool], state: str, line: str
) -> None:
    for name, reached in others.items():
        add(swarm, name, manages=True, reached=reached)
    found = host.one("managers")
    assert (found[0], found[1][: len(line)]) == (state, line)


def test_without_a_majority_the_managers_fail(host: Host, swarm: PlayedSwarm) -> None:
    reason = "rpc error: code = Unknown desc = The swarm does not have a leader"
    swarm.fail_at["GET /nodes"] = EngineRefused(503, reason)
    assert host.one("managers")[:2] == ("fail", "The swarm does not have a leader")


# ---------------------------------------------------------------------- certificates


def test_certificates_that_cannot_be_used_say_what_to_do(
    host: Host, authority: Authority, tmp_path: Path
) -> None:
    ca, cert, key = authority.ca, authority.folder / "node1.crt", authority.folder / "node1.key"
    locked = tmp_path / "locked.key"
    locked.write_text("-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n")
    host.certificates = Certificates(ca, cert, locked)
    state, line, remedy = host.one("tls")
    assert (state, "the key is encrypted (autolock)" in line) == ("fail", True)
    assert "docker swarm update --autolock=false" in remedy
    assert host.one("nodes")[1] == "nodes were not asked: this host has no certificate to ask with"
    host.certificates = Certificates(ca, tmp_path / "absent", key)
    assert host.one("tls")[1] == f"{tmp_path}/absent: No such file or directory"
    host.certificates = authority.node("node1", MANAGER, days=-1, as_name="old")
    state, line, remedy = host.one("tls")
    assert (state, line.endswith("certificate has expired")) == ("fail", True)
    assert remedy.startswith("run `docker swarm ca --rotate`")


def test_an_operators_certificate_must_name_this_node_and_make_a_manager(
    host: Host, authority: Authority
) -> None:
    host.certificates = authority.files("node2")
    assert host.one("tls")[1].startswith("the certificate names node2, and this node of the swarm")
    host.certificates = authority.node("node1", WORKER, as_name="worker")
    assert "is not a manager's" in host.one("tls")[1]
    host.certificates = authority.node("node1", MANAGER, days=1, as_name="short")
    assert host.one("tls")[0] == "ok"  # Swarm renews its own
    files = TlsFiles(*(Path("/absent") / one for one in ("ca", "cert", "key")))
    host.settings = replace(host.settings, cluster=replace(host.settings.cluster, tls=files))
    state, line, remedy = host.one("tls")
    assert (state, remedy) == ("warn", "replace the files of cluster.tls")
    assert line.startswith("the certificate of node1 is valid until 20")


# ---------------------------------------------------------------------- nodes


def test_a_node_where_nothing_listens_is_a_warning(host: Host) -> None:
    state, line, remedy = host.node()
    assert (state, "Connection refused" in line) == ("warn", True)
    assert "cluster.enabled: true there" in remedy


def test_a_node_whose_certificate_is_refused_is_to_be_examined_there(
    host: Host, authority: Authority
) -> None:
    at = "127.0.0.2"
    with serving(
        FakeAgent("node2"), authority.files("node3"), host.port, at, host.settings.instance
    ):
        state, line, remedy = host.node()
    assert (state, "the peer's certificate is refused" in line) == ("fail", True)
    assert remedy == "run `dlsched cluster doctor` on that host"


def test_a_node_that_hangs_fails_after_the_time_limit(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_module, "TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.2", host.port)):
        state, line, remedy = host.node()
    assert (state, "no answer within 0.5 s" in line) == ("fail", True)
    assert remedy.startswith(f"open port {host.port} between the nodes")


def test_nodes_that_hang_cost_the_time_limit_once(host: Host, swarm: PlayedSwarm) -> None:
    add(swarm, "node3")
    both = threading.Barrier(2)

    def hangs(listening: socket.socket) -> None:
        """Until the other one is asked, too."""
        listening.settimeout(60.0)
        with listening.accept()[0]:
            both.wait(30.0)

    with (
        socket.create_server(("127.0.0.2", host.port)) as one,
        socket.create_server(("127.0.0.3", host.port)) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        asked = [pool.submit(hangs, node) for node in (one, other)]
        host.findings()
        for node in asked:
            node.result(60.0)


def test_another_instance_fails_and_another_version_warns(
    host: Host, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with agents(host, authority, "node2", instance="lab"):
        state, line, _ = host.node()
    assert (state, "answers for instance lab, not " in line) == ("fail", True)
    monkeypatch.setattr(https, "__version__", "0.0.1\x7f" + "x" * 500)
    with agents(host, authority, "node2"):
        state, line, remedy = host.node()
    assert (state, remedy) == ("warn", "install the same version on all hosts")
    assert "answers with dlsched 0.0.1" in line
    assert "\x7f" not in line and len(line) < 200


# ---------------------------------------------------------------------- controller


def test_the_controllers_status(host: Host) -> None:
    assert host.one("status")[0] == "warn"
    run_dir = host.settings.run_dir
    own = replace(example(), manager="node1", leader="node2", alarms=())
    write_status(run_dir, own)
    assert host.one("status")[1].startswith("the controller follows the leading one")
    write_status(run_dir, replace(own, written_at=written_ago(36_000.0)))
    assert host.one("status")[:2] == (
        "fail",
        "the status is 10 h old: the controller has ended, or hangs",
    )
    write_status(run_dir, replace(own, alarms=("the store: x\x1b[2J", "two")))
    state, line, _ = host.one("status")
    assert (state, line[:12], line[-13:]) == ("warn", "the store: x", " (and 1 more)")
    assert "\x1b" not in line


def test_a_host_that_takes_no_jobs_is_a_warning(host: Host) -> None:
    host.settings = replace(host.settings, cluster=replace(host.settings.cluster, enabled=False))
    assert host.one("agent")[0] == "warn"
