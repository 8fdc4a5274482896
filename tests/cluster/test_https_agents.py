"""Reports and orders over real TLS: what a node that hangs, lies or is another one changes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from dlsched.cluster import https_agents
from dlsched.cluster.agent.ports import OrderRefused
from dlsched.cluster.certificates import Certificates
from dlsched.cluster.core.records import Order, Verb
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.cluster.core.snapshot import Evaluation
from dlsched.cluster.https_agents import RECENT_S, WANTED_S, HttpsAgents
from dlsched.cluster.store import Member
from dlsched.cluster.wire import report_bytes
from dlsched.simulation.clock import VirtualClock
from tests.cluster.agent.serving import NODE_S, FakeAgent, serving, stage
from tests.cluster.authority import Authority
from tests.waiting import until

pytestmark = pytest.mark.process

ADDRESSES = {"node-1": "127.0.0.1", "node-2": "127.0.0.2"}
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy host may take seconds for an answer, and an order without one is lost."""
    monkeypatch.setattr(https_agents, "ANSWER_S", PATIENCE_S)


@pytest.fixture(scope="module")
def own(authority: Authority) -> Mapping[str, Certificates]:
    return {name: authority.node(name) for name in ADDRESSES}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(50.0)


def members(**other: str) -> dict[str, Member]:
    addresses = {**ADDRESSES, **{name.replace("_", "-"): at for name, at in other.items()}}
    return {name: Member(name, address=address) for name, address in addresses.items()}


@contextlib.contextmanager
def asking(
    certificates: Certificates, port: int, now_s: Callable[[], float] = time.monotonic
) -> Iterator[HttpsAgents]:
    agents = HttpsAgents(certificates, port, now_s)
    agents.start()
    agents.members(members())
    try:
        yield agents
    finally:
        agents.stop()


def problem(agents: HttpsAgents, node: str = "node-1") -> str:
    until(lambda: node in agents.problems())
    return agents.problems()[node]


def test_a_report_comes_with_its_age_and_the_request_names_all_members(
    own: Mapping[str, Certificates], manager: Certificates, port: int, clock: VirtualClock
) -> None:
    one = FakeAgent(report_as=NodeReport("node-1", 8.0, age_s=1.0))
    with serving(one, own["node-1"], port), asking(manager, port, clock.now_s) as agents:
        until(lambda: agents.report("node-1", {"train": 7}) is not None)
        until(lambda: {"train": 7} in one.placed)
        assert one.nodes == set(ADDRESSES)
        until(lambda: agents.report("node-1", {"train": 7}) and NODE_S in one.heard_s)
        assert one.heard_s[0] is None, "none has come before the first request"
    # Nothing is asked any more, so the clock can be moved.
    clock.advance(4.0)
    assert agents.report("node-1", {}) == NodeReport("node-1", 8.0, age_s=5.0, now_s=NODE_S)
    clock.advance(RECENT_S - 4.0)
    assert agents.report("node-1", {}) is not None
    clock.advance(0.1)
    assert agents.report("node-1", {}) is None
    assert agents.report("node-9", {}) is None


def test_a_node_that_hangs_delays_no_other_and_no_caller(
    own: Mapping[str, Certificates],
    manager: Certificates,
    port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(https_agents, "ANSWER_S", 2 * PATIENCE_S)
    released = threading.Event()
    hangs = FakeAgent(wait=lambda: released.wait(2 * PATIENCE_S))
    well = FakeAgent("node-2")
    with (
        serving(hangs, own["node-1"], port),
        serving(well, own["node-2"], port, "127.0.0.2"),
        asking(manager, port) as agents,
    ):

        def asked_all_the_while() -> bool:
            assert agents.report("node-1", {}) is None
            agents.send(Order(Verb.LEAVE, "node-1", "train", 7))
            return agents.report("node-2", {}) is not None and len(well.placed) > 5

        until(asked_all_the_while)
        assert hangs.placed == [], "it hangs still"
        released.set()
        until(lambda: agents.report("node-1", {}) is not None)


def test_a_report_that_lies_makes_the_node_silent(
    own: Mapping[str, Certificates],
    manager: Certificates,
    port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent, name = FakeAgent(), "node-1"

    def written(report: NodeReport) -> bytes:
        return report_bytes(replace(report, node=name))

    monkeypatch.setattr("dlsched.cluster.agent.server.report_bytes", written)
    with serving(agent, own["node-1"], port), asking(manager, port) as agents:
        until(lambda: agents.report("node-1", {}) is not None)
        name = "node-2"
        line = "no report: the report is refused: it is from node node-2"
        assert problem(agents) == line
        assert agents.report("node-1", {}) is None, "nor is the report before it believed"
        name, job = "node-1", JobReport("train")
        agent.report_as = NodeReport("node-1", 8.0, jobs=(job, job))
        until(lambda: agents.report("node-1", {}) or problem(agents) != line)
        assert problem(agents) == "no report: the report is refused: jobs: train appears twice"


def test_orders_arrive_and_refusals_are_kept(
    own: Mapping[str, Certificates], manager: Certificates, port: int
) -> None:
    agent = FakeAgent()
    orders = [Order(Verb.LEAVE, "node-1", f"train-{number}", 7) for number in range(5)]
    with serving(agent, own["node-1"], port), asking(manager, port) as agents:
        for order in orders:
            agents.send(order)
        until(lambda: len(agent.orders) == 5)
        assert agent.orders == orders
        agent.refuses = OrderRefused("it is overtaken")
        agents.send(orders[0])
        assert problem(agents) == "train-0: refused (409): it is overtaken"
        agent.refuses = OrderRefused("a.yaml:1:2: x")
        agents.send(orders[1])
        until(lambda: "more" in problem(agents))
        agents.send(orders[0])
        until(lambda: "a.yaml" in problem(agents))
        assert problem(agents) == "train-1: refused (409): a.yaml:1:2: x (and 1 more)"
        agent.refuses = None
        for order in orders[:2]:
            agents.send(order)
        until(lambda: not agents.problems())


def test_an_order_that_is_too_long_is_a_problem_and_no_exception(
    own: Mapping[str, Certificates], manager: Certificates, port: int
) -> None:
    with serving(FakeAgent(), own["node-1"], port), asking(manager, port) as agents:
        agents.send(Order(Verb.PREPARE, "node-1", "train", 7, text="x" * (300 << 10)))
        assert problem(agents).startswith("train: the order prepare: the message has ")


@pytest.mark.parametrize(
    ("answers_as", "line"),
    [
        (
            lambda authority: authority.node("node-2"),
            (
                "127.0.0.1:PORT: the peer's certificate is refused: Hostname mismatch, "
                "certificate is not"
            ),
        ),
        (
            lambda authority: authority.node("node-1", organisation="cluster-2", as_name="other"),
            "127.0.0.1:PORT: node-1 is of another cluster: cluster-2",
        ),
        (
            lambda authority: authority.node("node-1", days=0, as_name="late"),
            "127.0.0.1:PORT: the peer's certificate is refused: certificate has expired",
        ),
        (
            lambda authority: Authority(authority.folder / "other").make().node("node-1"),
            "127.0.0.1:PORT: the peer's certificate is refused: ",
        ),
    ],
)
def test_another_node_at_the_address_is_refused(
    authority: Authority,
    manager: Certificates,
    port: int,
    answers_as: Callable[[Authority], Certificates],
    line: str,
) -> None:
    agent = FakeAgent()
    certificates = answers_as(authority)
    context = certificates.server_context()
    # The server itself would not answer with some of these.
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_server(("127.0.0.1", port)) as listening,
        asking(manager, port) as agents,
    ):
        listening.settimeout(10.0)
        agents.report("node-1", {})
        while "node-1" not in agents.problems():
            with contextlib.suppress(OSError):
                plain = listening.accept()[0]
                with context.wrap_socket(plain, server_side=True) as tls:
                    assert tls.recv(1) == b"", "no request was sent"
        assert problem(agents).startswith("no report: " + line.replace("PORT", str(port)))
    assert agent.placed == []


def test_a_name_of_the_certificate_that_is_not_the_nodes_is_refused(
    own: Mapping[str, Certificates], manager: Certificates, port: int
) -> None:
    agent = FakeAgent()
    with serving(agent, own["node-1"], port), asking(manager, port) as agents:
        # Each node's certificate has its role as a second name.
        agents.members({"swarm-worker": Member("swarm-worker", address="127.0.0.1")})
        agents.report("swarm-worker", {})
        line = f"no report: 127.0.0.1:{port}: node node-1 answers there, not swarm-worker"
        assert problem(agents, "swarm-worker") == line
    assert agent.placed == []


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (b"SSH-2.0-x\r\n\r\n", "the answer is broken: "),
        (b"HTTP/1.1 200 OK\r\n", "the answer is broken: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "the answer is broken: "),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 40_000, "the answer is broken: "),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9, "the answer is not from a dlsched agent"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            "the report is refused: v is no version, must be 3",
        ),
        (b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", "status 302, without a reason"),
        (b'HTTP/1.1 400 X\r\n\r\n{"error": "a\\u001b[2J"}', "refused (400): a [2J"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * ((8 << 20) + 1), "the answer has more than 8388608"),
    ],
)
def test_an_answer_that_is_none_is_one_line(
    own: Mapping[str, Certificates],
    manager: Certificates,
    port: int,
    answer: bytes,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # This server answers one request, and no other may follow.
    monkeypatch.setattr(https_agents, "ASK_AGAIN_S", 600.0)
    with (
        stage(port, own["node-1"], lambda tls: tls.sendall(answer)),
        asking(manager, port) as agents,
    ):
        agents.report("node-1", {})
        assert problem(agents).startswith(f"no report: {line}")
        assert problem(agents).isprintable()


def test_evaluations_have_the_controllers_time_the_same_in_each_report(
    own: Mapping[str, Certificates], manager: Certificates, port: int, clock: VirtualClock
) -> None:
    job = JobReport("train", evaluations=(Evaluation(NODE_S - 3.0, 0.5),))
    agent = FakeAgent(report_as=NodeReport("node-1", 8.0, jobs=(job,)))
    with serving(agent, own["node-1"], port), asking(manager, port, clock.now_s) as agents:
        until(lambda: agents.report("node-1", {}) is not None)
        for later_s in (0.0, 0.5, 0.5):
            clock.advance(later_s)
            before = len(agent.placed)
            until(
                lambda before=before: agents.report("node-1", {}) and len(agent.placed) > before + 2
            )  # type: ignore[misc]
            report = agents.report("node-1", {})
            assert report is not None
            assert report.jobs[0].evaluations == (Evaluation(47.0, 0.5),)
        # The node has started again, and its clock with it.
        clock.advance(39.0)
        until(lambda: _evaluated_s(agents) == 87.0)


def _evaluated_s(agents: HttpsAgents) -> float:
    report = agents.report("node-1", {})
    return report.jobs[0].evaluations[0].at_s if report else 0.0


def test_a_controller_that_no_longer_wants_reports_gives_no_sign(
    own: Mapping[str, Certificates],
    manager: Certificates,
    port: int,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(https_agents, "ASK_AGAIN_S", 0.02)
    agent = FakeAgent()
    with serving(agent, own["node-1"], port), asking(manager, port, clock.now_s) as agents:
        agents.report("node-1", {})
        until(lambda: len(agent.placed) > 3)
        clock.advance(WANTED_S + 0.1)
        asked = len(agent.placed)
        time.sleep(0.5)
        assert len(agent.placed) <= asked + 1, "one was under way"
        agents.report("node-1", {})
        until(lambda: len(agent.placed) > asked + 1)


def test_members_come_move_and_go(
    own: Mapping[str, Certificates], manager: Certificates, port: int
) -> None:
    agent = FakeAgent("node-2")
    with asking(manager, port) as agents:
        agents.members({})
        assert agents.report("node-2", {}) is None
        agents.members(members(node_2="127.0.0.3"))
        with serving(agent, own["node-2"], port, "127.0.0.3"):
            until(lambda: agents.report("node-2", {}) is not None)
        with serving(agent, own["node-2"], port, "127.0.0.4"):
            agents.members(members(node_2="127.0.0.4"))
            asked = len(agent.placed)
            until(lambda: agents.report("node-2", {}) and len(agent.placed) > asked)
        agents.members({"node-2": replace(members()["node-2"], address="")})
        agents.members({})
        assert agents.report("node-2", {}) is None
        assert agents.problems() == {}


def test_it_can_be_stopped_before_it_began_and_used_no_more(manager: Certificates) -> None:
    agents = HttpsAgents(manager, 1)
    agents.stop()
    agents.send(Order(Verb.LEAVE, "node-1", "train", 7))
    assert agents.report("node-1", {}) is None
