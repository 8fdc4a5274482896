"""A job that is to start elsewhere: the agent ends it where no manager comes, and the controller
waits for that. `World.check` raises where it runs twice, or goes on from less than it saved."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dlsched.cluster.agent.contact import KEPT_S, Contact
from dlsched.cluster.core.leases import LEASE_S, over_s
from dlsched.cluster.core.records import Phase, RecordState
from dlsched.cluster.store import Member
from tests.cluster.agent.played import FILE
from tests.cluster.agent.world import FAILOVER, JOB, SHARED, World, phase

LEASE = int(LEASE_S)


def world_of(folder: Path, text: str = FAILOVER) -> World:
    """The job runs on a, for a minute."""
    world = World(folder, text)
    world.seconds(60)
    assert world.runs_on("a")
    return world


def cut(world: World) -> None:
    world.cut.add("a")
    world.store.members["a"] = Member("a", up=False)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return world_of(tmp_path)


@pytest.fixture
def lonely(world: World) -> World:
    """Node a is cut off, and down in the store."""
    cut(world)
    return world


def mend(world: World) -> None:
    world.cut.discard("a")
    world.store.members["a"] = Member("a")
    if not world.nodes["a"].alive:
        world.nodes["a"].begin()


def over(world: World) -> int:
    return int(over_s(world.record))


def test_it_saves_itself_and_ends_at_the_end_of_its_lease(lonely: World) -> None:
    lonely.seconds(LEASE - 3)
    assert lonely.runs_on("a")
    lonely.seconds(8)
    assert not lonely.runs_on("a")
    assert lonely.nodes["a"].engine.storage[FILE] > LEASE
    assert phase(lonely, "a") is Phase.AWAY


def test_it_starts_elsewhere_after_that_and_goes_on_from_its_checkpoint(lonely: World) -> None:
    lonely.seconds(over(lonely) - 1)
    assert (lonely.record.on, lonely.record.state) == ("a", RecordState.PLACED)
    lonely.seconds(20)
    assert lonely.runs_on("b") and (lonely.record.on, lonely.record.epoch) == ("b", 2)
    assert lonely.nodes["b"].engine.started_from == [lonely.nodes["a"].engine.acknowledged[JOB]]
    mend(lonely)
    lonely.seconds(10)
    assert phase(lonely, "a") is Phase.FENCED and JOB not in lonely.nodes["a"].engine.containers
    assert lonely.runs_on("b")


def test_one_that_saves_nothing_ends_all_the_same(lonely: World) -> None:
    lonely.nodes["a"].engine.saves = False
    lonely.seconds(LEASE + 8)
    assert not lonely.runs_on("a") and phase(lonely, "a") is Phase.AWAY
    lonely.seconds(over(lonely))
    assert lonely.runs_on("b")


def test_while_its_container_has_not_ended_it_is_not_away(world: World) -> None:
    engine = world.nodes["a"].engine
    engine.saves = engine.removes = False
    cut(world)
    world.seconds(LEASE + 8)
    assert world.runs_on("a") and phase(world, "a") is Phase.FAILED
    mend(world)
    world.seconds(3)
    assert world.record.epoch == 1
    engine.removes = True
    world.seconds(6)
    assert world.runs_on("a") and world.record.epoch == 2


@pytest.mark.parametrize("after", [LEASE + 1, LEASE + 2, LEASE + 3, LEASE + 8, LEASE + 60])
def test_an_agent_that_starts_again_does_not_start_it_again(lonely: World, after: int) -> None:
    lonely.seconds(after)
    count = len(lonely.nodes["a"].engine.started_from)
    for _ in range(3):
        lonely.nodes["a"].begin()
        lonely.seconds(2)
    assert not lonely.runs_on("a")
    assert len(lonely.nodes["a"].engine.started_from) == count
    lonely.seconds(over(lonely))
    assert lonely.runs_on("b")


def test_a_host_that_starts_again_waits_for_a_manager(lonely: World) -> None:
    lonely.nodes["a"].host_fails()
    lonely.seconds(10)
    lonely.nodes["a"].begin()
    lonely.seconds(20)
    assert not lonely.runs_on("a")
    mend(lonely)
    lonely.seconds(10)
    assert lonely.runs_on("a") and (lonely.record.on, lonely.record.epoch) == ("a", 2)


def test_it_is_back_where_the_node_is_back_in_time(lonely: World) -> None:
    lonely.seconds(LEASE + 20)
    step = lonely.nodes["a"].engine.storage[FILE]
    mend(lonely)
    lonely.seconds(10)
    assert lonely.runs_on("a") and (lonely.record.on, lonely.record.epoch) == ("a", 2)
    assert lonely.nodes["a"].engine.started_from[-1] == step


@pytest.mark.parametrize(
    ("text", "cut_off", "down"),
    [(SHARED, True, True), (FAILOVER, True, False), (FAILOVER, False, True)],
    ids=["by default", "the store still reaches it", "only the store calls it down"],
)
def test_it_stays_where_it_may_not_be_gone(
    tmp_path: Path, text: str, cut_off: bool, down: bool
) -> None:
    world = world_of(tmp_path, text)
    world.cut = {"a"} if cut_off else set()
    world.store.members["a"] = Member("a", up=not down)
    world.seconds(over(world) + 60)
    assert (world.record.on, world.record.epoch) == ("a", 1)
    assert world.runs_on("a") is (text == SHARED or down)
    world.cut = set()
    world.seconds(10)
    assert world.runs_on("a")


def test_requests_whose_answers_are_lost_are_no_contact(world: World) -> None:
    world.mute = {"a"}
    world.store.members["a"] = Member("a", up=False)
    world.seconds(LEASE + 8)
    assert not world.runs_on("a")
    world.seconds(over(world))
    assert world.runs_on("b")


class Host:
    def __init__(self, folder: Path) -> None:
        self.now_s, self.boot, self.file = 1000.0, "one", folder / "contact.json"

    def contact(self) -> Contact:
        return Contact(self.file, self.boot, lambda: self.now_s)

    def renewed(self) -> Contact:
        """There is contact, and it is written."""
        made = self.contact()
        made.renew()
        made.keep()
        return made


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_next_agent_goes_on_counting(host: Host) -> None:
    assert host.contact().age_s() == math.inf and host.contact().host_started
    first = host.renewed()
    host.now_s += 70.0
    assert first.age_s() == 70.0
    after = host.contact()
    assert after.age_s() == 70.0 and not after.host_started


def test_of_an_earlier_start_of_the_host_nothing_is_known(host: Host) -> None:
    host.renewed()
    host.boot = "two"
    assert host.contact().age_s() == math.inf and host.contact().host_started


def test_it_is_written_now_and_then(host: Host) -> None:
    first = host.renewed()
    written = host.file.stat().st_mtime_ns
    for _ in range(2):
        host.now_s += KEPT_S / 2 - 0.1
        first.renew()
        first.keep()
    assert host.file.stat().st_mtime_ns == written
    assert host.contact().age_s() <= KEPT_S
    host.now_s += 1.0
    first.renew()
    first.keep()
    assert host.contact().age_s() == 0.0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", '{"boot": "one"}', '{"boot": "one", "at_s": "x"}', '{"at_s": 5}',
     '{"boot": "one", "at_s": 5000}', '{"boot": "one", "at_s": NaN}'],
)  # fmt: skip
def test_a_broken_file_is_no_contact(host: Host, text: str) -> None:
    host.file.write_text(text)
    assert host.contact().age_s() == math.inf


def test_a_full_disk_only_shortens_the_next_lease(host: Host) -> None:
    first = host.contact()
    first.renew()
    host.file.mkdir()
    first.keep()
    assert first.age_s() == 0.0
