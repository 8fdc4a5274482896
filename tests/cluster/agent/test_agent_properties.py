"""Whatever is lost, late or killed: a job runs once at most, and at the end it runs."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from dlsched.cluster.core.leases import over_s
from dlsched.cluster.core.records import Order, RecordState, Verb
from tests.cluster.agent.world import (
    FAILOVER,
    JOB,
    MOVABLE_S,
    TEXT,
    World,
    kill_at,
)
from tests.properties import examples

NODES = st.sampled_from(("a", "b"))
DOWN_AFTER_S = 15
"""A node is down in the store once it has been cut off, or its agent dead, for so long."""
MENDED_S = 400


class Moving(NamedTuple):
    """A move, and trouble on one of the nodes after so many seconds of it."""

    count: int
    trouble: str
    node: str
    which: int
    """Of the old orders."""
    more: int


MOVES = st.builds(
    Moving,
    st.integers(1, 9),
    st.sampled_from(("an old order", "cut off", "killed", "killed at a write", "none")),
    NODES,
    st.integers(0, 50),
    st.sampled_from((5, 100)),
)


class Troubles(RuleBasedStateMachine):
    """A job, two nodes, and everything that can go wrong between them. `World.check` runs after
    each second."""

    text = TEXT

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.no_fsync = mock.patch("os.fsync")  # only agents are killed here
        self.no_fsync.start()
        self.world = World(self.folder, self.text)
        self.silent_s = dict.fromkeys(self.world.nodes, 0)
        self.placed: dict[tuple[str, int], None] = {}
        """Owners that the record has named, by epoch."""

    @rule(count=st.sampled_from((1, 1, 2, 3, 5, 100)))
    def time_passes(self, count: int) -> None:
        for _ in range(count):
            for name, silent_s in self.silent_s.items():
                self.silent_s[name] = 0 if self.world.reaches(name) else silent_s + 1
                self._up(name, is_up=self.silent_s[name] < DOWN_AFTER_S)
            self.world.second()
            record = self.world.record
            if record.state is RecordState.PLACED:
                self.placed[record.on, record.epoch] = None

    @initialize(move=MOVES)
    def it_runs(self, move: Moving) -> None:
        self.world.seconds(MOVABLE_S)
        self.it_moves(move)

    @rule(move=MOVES)
    def it_moves(self, move: Moving) -> None:
        self.world.begin()  # a new controller knows of no rest after a move
        self.world.move("b" if self.world.record.on == "a" else "a")
        self.time_passes(move.count)
        if move.trouble == "an old order":
            self.an_old_order_comes(move.which)
        elif move.trouble == "cut off":
            self.world.cut.add(move.node)
        elif move.trouble == "killed":
            self.world.nodes[move.node].alive = False
        elif move.trouble == "killed at a write":
            kill_at(1, self.world.nodes[move.node], after=move.which % 2 == 0)
        self.time_passes(move.more)

    @rule()
    def all_is_mended(self) -> None:
        for name in self.world.nodes:
            self.world.cut.discard(name)
            if not self.world.nodes[name].alive:
                self.world.nodes[name].begin()
        self.time_passes(30)

    @rule(after=st.integers(1, 4))
    def an_order_is_lost(self, after: int) -> None:
        self.world.loses.add(len(self.world.sent) + after)

    @rule(which=st.integers(0, 50))
    def an_old_order_comes(self, which: int) -> None:
        """One that was sent, or that a controller could have sent while it led."""
        orders = dict.fromkeys(self.world.sent)
        for node, epoch in self.placed:
            other = "b" if node == "a" else "a"
            orders[Order(Verb.GIVE_BACK, node, JOB, epoch)] = None
            orders[Order(Verb.LEAVE, node, JOB, epoch, target=other)] = None
        self.world.deliver(list(orders)[which % len(orders)])

    @rule(name=NODES)
    def a_node_is_cut_off(self, name: str) -> None:
        self.world.cut.add(name)

    @rule(name=NODES)
    def a_node_is_back(self, name: str) -> None:
        self.world.cut.discard(name)

    @rule(name=NODES)
    def an_agent_is_killed(self, name: str) -> None:
        self.world.nodes[name].alive = False

    @rule(name=NODES, after=st.booleans(), write=st.integers(1, 3))
    def an_agent_is_killed_at_a_write(self, name: str, after: bool, write: int) -> None:
        kill_at(write, self.world.nodes[name], after=after)

    @rule(name=NODES)
    def an_agent_starts(self, name: str) -> None:
        self.world.nodes[name].begin()

    @rule()
    def another_controller_leads(self) -> None:
        self.world.begin()

    def teardown(self) -> None:
        """All is mended."""
        try:
            world = self.world
            world.cut.clear()
            world.loses.clear()
            world.policy.wanted = ()
            for name, node in world.nodes.items():
                self._up(name, is_up=True)
                node.begin()
            world.until(self._runs_where_it_belongs, MENDED_S)
            world.seconds(20)
            assert self._runs_where_it_belongs()
        finally:
            self.no_fsync.stop()
            shutil.rmtree(self.folder)

    def _runs_where_it_belongs(self) -> bool:
        record = self.world.record
        return record.state is RecordState.PLACED and self.world.runs_on(record.on)

    def _up(self, name: str, *, is_up: bool) -> None:
        self.world.store.members[name] = replace(self.world.store.nodes()[name], up=is_up)


class Failovers(Troubles):
    """The same with a job that starts elsewhere when its node is down. An agent that is killed is
    started again at once, or dies with its host: a node that is cut off, and whose agent is dead,
    can run what it has for as long as it likes."""

    text = FAILOVER

    @rule(count=st.sampled_from((1, 2, 5, 100)))
    def time_passes(self, count: int) -> None:
        for _ in range(count):
            for name, node in self.world.nodes.items():
                if not node.alive and name not in self.failed:
                    node.begin()
            super().time_passes(1)

    @initialize(move=MOVES)
    def it_runs(self, move: Moving) -> None:
        self.failed: set[str] = set()
        super().it_runs(move)

    @rule(name=NODES)
    def a_host_fails(self, name: str) -> None:
        self.failed.add(name)
        self.world.nodes[name].host_fails()

    @rule(name=NODES)
    def a_host_starts(self, name: str) -> None:
        self.failed.discard(name)

    @rule()
    def all_is_mended(self) -> None:
        self.failed.clear()
        super().all_is_mended()

    @rule(name=NODES)
    def an_agent_starts(self, name: str) -> None:
        if name not in self.failed:
            super().an_agent_starts(name)

    @rule(name=NODES)
    def it_starts_elsewhere(self, name: str) -> None:
        """In bounded time, unless the other node fails, too."""
        self.all_is_mended()
        self.world.policy.wanted = ()
        self.world.until(self._runs_where_it_belongs, MENDED_S)
        owner = self.world.record.on
        self.world.cut.add(owner)
        self.world.begin()  # no rest after a move
        self.time_passes(int(over_s(self.world.record)) + DOWN_AFTER_S + 15)
        assert self.world.record.on != owner and self._runs_where_it_belongs()


TestFailovers = Failovers.TestCase
TestFailovers.settings = settings(max_examples=examples(12), stateful_step_count=6)
TestTroubles = Troubles.TestCase
TestTroubles.settings = settings(max_examples=examples(60), stateful_step_count=10)
