"""Certificates of one cluster, and a controller whose store and agents are plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dlsched.cluster.certificates import MANAGER, Certificates
from dlsched.cluster.controller import ClusterController
from dlsched.cluster.core.decider import ClusterDecider
from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.policies.spread import SpreadParameters, SpreadPolicy
from dlsched.cluster.core.records import Holding, Order, Phase, Record, Verb, file_version
from dlsched.cluster.core.reports import JobReport, NodeReport
from dlsched.cluster.core.snapshot import Left, Move
from dlsched.cluster.store import Member, MemoryStore
from dlsched.model.spec import ContainerSpec, JobSpec
from tests.cluster.agent.serving import free_port
from tests.cluster.agent.world import Moves
from tests.cluster.authority import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority")).make()


@pytest.fixture(scope="module")
def manager(authority: Authority) -> Certificates:
    return authority.node("boss", MANAGER)


@pytest.fixture
def port() -> int:
    return free_port()


SPEC = JobSpec("", ContainerSpec("image"))


class World:
    """A store, agents and desired jobs that a test sets."""

    def __init__(self, policy: SpreadPolicy | None = None) -> None:
        self.store = MemoryStore([Member("a"), Member("b")], leader="me")
        self.now = 0.0
        self.jobs: dict[str, DesiredJob] = {}
        self.unreadable: set[str] = set()
        self.holdings: dict[str, list[Holding]] = {"a": [], "b": []}
        self.left = Left(400.0, 500.0, 600.0)
        self.orders: list[Order] = []
        self.written_when_ordered: list[dict[str, Record]] = []
        self.confirmed: dict[str, Mapping[str, int]] = {}
        self.unmovable: str | None = None
        self._policy = policy or SpreadPolicy(SpreadParameters())
        self.start_controller()

    def start_controller(self) -> None:
        """A controller that knows nothing yet."""
        decider = ClusterDecider("test", self._policy)
        self.controller = ClusterController("me", self.store, self, self, decider, self.now_s)

    def report(self, node: str, placed: Mapping[str, int]) -> NodeReport | None:
        self.confirmed[node] = placed
        if node not in self.holdings:
            return None
        held = self.holdings[node]
        jobs = [
            JobReport(one.job, 1.0, 100.0, 100, 9, self.left, 1.0, (), self.unmovable, 8.0)
            for one in held
            if one.phase is Phase.RUNNING
        ]
        return NodeReport(node, 8.0, holdings=tuple(held), jobs=tuple(jobs))

    def send(self, order: Order) -> None:
        self.orders.append(order)
        self.written_when_ordered.append(self.records)

    def scan(self, now_s: float) -> Mapping[str, DesiredJob]:
        return self.jobs

    def unread(self) -> set[str]:
        return self.unreadable

    def now_s(self) -> float:
        return self.now

    def fail(self, node: str) -> None:
        """It is down, and does not answer."""
        del self.holdings[node]
        self.store.members[node] = Member(node, up=False)

    @property
    def records(self) -> dict[str, Record]:
        return {job: one.record for job, one in self.store.records().items()}

    def want(self, *names: str, digest: str = "one", text: str = "") -> None:
        spec = replace(SPEC, digest=digest)
        self.jobs = {name: DesiredJob(replace(spec, name=name), text=text) for name in names}

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def round(self, after_s: float = 10.0) -> list[tuple[Verb, str]]:
        """The orders of the next round."""
        self.now += after_s
        self.orders.clear()
        self.written_when_ordered.clear()
        self.last = self.controller.round()
        return [(one.verb, one.node) for one in self.orders]


def running(world: World, file: str = "") -> None:
    """The job runs on a, by that file."""
    world.want("job", text=file)
    world.round()
    world.holdings["a"] = [Holding("job", 1, Phase.RUNNING, 100, file=file_version(file))]
    assert world.round() in ([], [(Verb.PREPARE, "b")])


@pytest.fixture
def empty() -> World:
    return World()


@pytest.fixture
def world(empty: World) -> World:
    running(empty)
    return empty


@pytest.fixture
def restless() -> World:
    """The job runs on a, and is to move."""
    policy = Moves(SpreadParameters())
    policy.wanted = (Move("job", "b"),)
    world = World(policy)
    running(world)
    return world
