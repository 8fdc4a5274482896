"""When the engine is asked for its list, and whom it is asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.runtime.docker.background import Patience
from dlsched.runtime.docker.engine import Body, EngineRefused
from dlsched.runtime.docker.listing import (
    AGAIN_S,
    EVERY_S,
    LATE_S,
    NAME_CHARACTERS,
    SILENT_S,
    Listings,
)
from dlsched.simulation.clock import VirtualClock
from tests.doubles import texts
from tests.runtime.docker.conftest import Background
from tests.runtime.docker.making import instance_of


class FakeEngine:
    """Containers by id, each with its state; counts what it is asked."""

    host = "unix:///fake"

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.labels: dict[str, Any] = {}
        self.listings = 0
        self.inspected: list[str] = []
        self.trouble: Exception | None = None
        self.pinged = 0
        self.pings = True
        """Whether it answers a ping, whatever else it is busy with."""
        self.late: set[str] = set()
        """Containers that cannot be inspected in time."""
        self.gone: set[str] = set()
        self.beyond: set[str] = set()
        """Containers that it lists and cannot describe."""
        self.names: dict[str, str] = {}
        self.images: dict[str, Body] = {}
        self.images_asked: list[str] = []
        self.broken: dict[str, Body] = {}
        self.limits: dict[str, Body] = {}

    def containers(self, labels: Mapping[str, str]) -> list[Body]:
        self.listings += "dlsched.instance" in labels
        if self.trouble is not None:
            raise self.trouble
        return [
            {
                "Id": one,
                "State": state,
                "Labels": self._labels(one),
                "Names": [self.names.get(one, f"/dlsched-i-job-{one}")],
            }
            for one, state in self.states.items()
            if labels.items() <= (self._labels(one) or {}).items()
        ]

    def ping(self) -> None:
        self.pinged += 1
        if not self.pings:
            raise EngineUnavailable("no answer: timed out")

    def inspect(self, container: str) -> Body:
        self.inspected.append(container)
        if container in self.late:
            raise EngineUnavailable("no answer: timed out")
        if container in self.gone:
            raise EngineRefused(404, "No such container")
        if container in self.beyond:
            raise EngineRefused(500, "layer does not exist")
        if container in self.broken:
            return self.broken[container]
        return {
            "Id": container,
            "Name": self.names.get(container, f"/dlsched-i-job-{container}"),
            "Image": f"image-of-{container}",
            "State": {"Status": self.states[container], "Pid": 1, "ExitCode": 0},
            "Config": {"Labels": self._labels(container)},
            "HostConfig": self.limits.get(container, {}),
        }

    def image(self, reference: str) -> Body:
        self.images_asked.append(reference)
        if reference not in self.images:
            raise EngineRefused(404, "No such image")
        return self.images[reference]

    def _labels(self, container: str) -> Any:
        ours = {"dlsched.instance": "i", "dlsched.job": f"job-{container}"}
        return self.labels.get(container, ours)


@pytest.fixture
def engine(without_threads: Background) -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(100.0)


def listings_of(
    engine: FakeEngine,
    clock: VirtualClock,
    wait_s: float = 0.0,
    instance: str = "i",
    booted: str = "",
) -> Listings:
    one = instance_of(engine, name=instance, clock=clock, left_out=frozenset({"agent"}))
    return Listings(one, Patience(wait_s, now_s=clock.now_s), booted)


def seen(listings: Listings) -> set[str]:
    listings.refresh()
    return set(listings.last.containers)


def test_the_first_listing_is_waited_for_and_leaves_out_what_is_not_a_job(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    engine.states = {"a": "running", "agent": "running", "stranger": "running"}
    engine.labels = {"stranger": None}
    listings = listings_of(engine, clock)
    assert listings.problem is not None
    assert seen(listings) == {"a"}
    assert listings.problem is None
    assert engine.inspected == ["a"]


def left_alone(listings: Listings) -> tuple[str, ...]:
    """What is reported on containers that are not touched."""
    return texts(listings.last.left_alone)


def refreshed(listings: Listings) -> Listings:
    listings.want(None)
    return listings


def test_without_an_event_the_list_is_asked_for_only_now_and_then(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    listings = listings_of(engine, clock)
    for _ in range(3):
        listings.refresh()
    assert engine.listings == 1
    clock.advance(EVERY_S)
    listings.refresh()
    assert engine.listings == 2


def test_only_what_changed_is_inspected(engine: FakeEngine, clock: VirtualClock) -> None:
    engine.states = {"a": "running", "b": "running", "c": "running"}
    listings = listings_of(engine, clock)
    listings.refresh()
    engine.inspected.clear()
    engine.states = {"a": "running", "b": "exited", "d": "created", "c": "running"}
    listings.want("c")
    assert seen(listings) == {"a", "b", "c", "d"}
    assert sorted(engine.inspected) == ["b", "c", "d"]
    engine.inspected.clear()
    listings.want(None)
    listings.refresh()
    assert sorted(engine.inspected) == ["a", "b", "c", "d"]


def test_what_vanishes_between_list_and_look_is_left_out(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    engine.states, engine.gone = {"a": "running", "b": "running"}, {"a"}
    assert seen(listings_of(engine, clock)) == {"b"}


def test_a_failure_keeps_the_last_list_and_is_tried_again_after_a_while(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    engine.states = {"a": "running"}
    listings = listings_of(engine, clock)
    listings.refresh()
    engine.trouble = EngineUnavailable("no answer")
    listings.want("a")
    assert seen(listings) == {"a"}
    assert listings.problem == "no answer"
    listings.refresh()
    assert engine.listings == 2
    engine.trouble = None
    clock.advance(AGAIN_S)
    assert seen(listings) == {"a"}
    assert listings.problem is None
    assert engine.inspected == ["a", "a"], "after a failure everybody is suspect"


def test_an_answer_that_is_not_understood_is_a_trouble_not_an_exception(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    engine.trouble = KeyError("Id")
    listings = listings_of(engine, clock)
    listings.refresh()
    assert listings.last is None
    assert "KeyError('Id')" in (listings.problem or "")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"Id": "b", "Name": "/b", "State": None, "Config": {}, "HostConfig": {}},
        {"Id": "b", "Name": "/b", "State": {"Status": "fly\ning"}, "Config": {}, "HostConfig": {}},
    ],
)
def test_one_that_is_not_understood_is_left_out_alone_and_told_once(
    engine: FakeEngine, clock: VirtualClock, caplog: pytest.LogCaptureFixture, body: Body
) -> None:
    engine.states, engine.broken = {"a": "running", "b": "running"}, {"b": body}
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    listings.want(None)
    assert seen(listings) == {"a"}
    assert listings.problem is None
    (line,) = caplog.messages
    assert line.startswith("container b is left alone: its description is not understood")
    assert "\n" not in line
    engine.broken.clear()
    assert seen(refreshed(listings)) == {"a", "b"}


def test_an_event_during_a_listing_asks_for_another_one(
    engine: FakeEngine, clock: VirtualClock, without_threads: Background
) -> None:
    listings = listings_of(engine, clock)
    without_threads.held = {"listing"}
    listings.refresh()
    listings.want("a")
    without_threads.go_on()
    engine.states = {"a": "running"}
    listings.refresh()
    assert seen(listings) == {"a"}
    assert engine.listings == 2


def late_listing(engine: FakeEngine, clock: VirtualClock, without_threads: Background) -> Listings:
    """Listings, the last of which waits for the engine."""
    listings = listings_of(engine, clock)
    listings.refresh()
    without_threads.held = {"listing"}
    listings.want("a")
    listings.refresh()
    return listings


def test_an_engine_that_answers_a_ping_is_not_lost(
    engine: FakeEngine, clock: VirtualClock, without_threads: Background
) -> None:
    listings = late_listing(engine, clock, without_threads)
    for _ in range(5):
        listings.refresh()
        assert listings.problem is None
    assert engine.pinged >= 5


def test_an_engine_that_answers_nothing_is_lost_until_it_lists(
    engine: FakeEngine, clock: VirtualClock, without_threads: Background
) -> None:
    engine.pings = False
    listings = late_listing(engine, clock, without_threads)
    listings.refresh()
    assert listings.problem == "the Docker Engine at unix:///fake does not answer"
    without_threads.go_on()
    listings.refresh()
    assert listings.problem is None


def test_an_engine_that_does_not_answer_a_ping_is_lost(
    engine: FakeEngine, clock: VirtualClock, without_threads: Background
) -> None:
    listings = late_listing(engine, clock, without_threads)
    without_threads.held.add("ping")
    for wait_s in (AGAIN_S, SILENT_S):
        clock.advance(wait_s)
        listings.refresh()
        assert listings.problem is None
    clock.advance(0.1)
    listings.refresh()
    assert listings.problem is not None


def test_one_container_that_keeps_the_engine_busy_hides_no_other(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    engine.states, engine.late = {"a": "running", "b": "running"}, {"a"}
    listings = listings_of(engine, clock)
    assert seen(listings) == {"b"}
    assert (listings.problem, listings.last.undescribed) == (None, {"a"})
    engine.late = set()
    clock.advance(LATE_S)
    assert seen(listings) == {"a", "b"}, "it is asked for again"
    engine.late, engine.pings = {"a"}, False
    assert seen(refreshed(listings)) == {"a", "b"}
    assert listings.problem == "no answer: timed out"


def test_containers_whose_inspection_was_late_do_not_hold_up_each_listing(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    engine.states = dict.fromkeys("abc", "running")
    listings = listings_of(engine, clock)
    listings.refresh()
    engine.late = {"a", "b"}
    refreshed(listings).refresh()
    engine.inspected.clear()

    engine.states["c"] = "exited"
    assert seen(refreshed(listings)) == {"a", "b", "c"}
    assert (engine.inspected, listings.last.undescribed) == (["c"], set())
    engine.states["a"] = "exited"
    clock.advance(EVERY_S)
    listings.refresh()
    assert engine.inspected == ["c", "a"], "the list shows another state"
    clock.advance(3 * LATE_S)
    listings.refresh()
    assert engine.inspected == ["c", "a", "a", "b"], "repeated after a while"


def test_a_job_is_named_also_by_a_container_that_is_left_alone(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    engine.states = {"a": "running", "b": "exited", "c": "running"}
    engine.beyond = {"b"}
    engine.labels["c"] = {"dlsched.enable": "true"}
    listings = listings_of(engine, clock)
    assert "b" not in seen(listings)
    assert listings.last.named == {"job-a", "job-b"}


def test_one_whose_image_cannot_be_described_hides_no_other(
    engine: FakeEngine, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(reference: str) -> Body:
        if reference == "image-of-b":
            raise EngineRefused(500, "content digest not found")
        raise EngineRefused(404, "No such image")

    monkeypatch.setattr(engine, "image", broken)
    engine.states = {"a": "running", "b": "running"}
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    assert listings.problem is None
    (line,) = texts(listings.last.left_alone)
    assert line.endswith("the engine cannot describe it: content digest not found")


def test_one_that_cannot_be_described_stays_as_it_was_and_hides_no_other(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    engine.states = {"a": "running", "b": "running"}
    engine.beyond = {"b"}
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    assert listings.problem is None
    (line,) = texts(listings.last.left_alone)
    assert line.endswith("is left alone: the engine cannot describe it: layer does not exist")
    engine.beyond = set()
    assert seen(refreshed(listings)) == {"a", "b"}
    known = listings.last.containers["b"]
    engine.beyond = {"b"}
    assert seen(refreshed(listings)) == {"a", "b"}
    assert listings.last.containers["b"] == known
    assert texts(listings.last.left_alone) == ()


# ---------------------------------------------------------------------- jobs that left the node


def test_a_hidden_container_that_is_set_aside_does_not_stand_for_its_job(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    engine.states = {"a": "exited", "b": "exited"}
    engine.names = {"a": "/dlsched-i-job-a.BEFORE-MOVE"}
    listings = listings_of(engine, clock)
    listings.hide({"job-a", "job-b"})
    assert seen(listings) == {"b"}, "b has its own name"
    assert set(listings.last.set_aside) == {"a"}
    assert "job-a" in listings.last.named
    last = listings.last
    listings.hide({"job-b", "job-a"})
    assert listings.last is last
    listings.hide({"job-b"})
    assert set(listings.last.containers) == {"a", "b"}
    assert not listings.last.set_aside
    listings.hide({"job-a"})
    assert seen(refreshed(listings)) == {"b"}


def test_one_that_is_started_or_copied_is_not_inspected(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    engine.states = {"a": "running"}
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    engine.inspected.clear()
    engine.states = {"a": "exited", "new": "created"}
    busy = listings._instance.busy
    with busy.of("a"), busy.of("new"):
        assert seen(refreshed(listings)) == {"a"}
        assert listings.last.undescribed == {"new"}
        assert listings.problem is None
        assert engine.inspected == []
    assert seen(listings) == {"a", "new"}
    assert not listings.last.undescribed
    assert sorted(engine.inspected) == ["a", "new"]


def test_what_ended_while_the_engine_was_lost_ended_with_it(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    listings = listings_of(engine, clock)

    def look() -> set[str]:
        listings.want()
        clock.advance(EVERY_S)
        listings.refresh()
        there = listings.last.containers
        return {key for key, one in there.items() if listings.ended_with_engine(one)}

    engine.states = {"a": "running", "b": "exited", "c": "running"}
    assert look() == set()
    engine.trouble = EngineUnavailable("no answer")
    assert look() == set()
    engine.trouble, engine.states = None, {"a": "exited", "b": "exited", "c": "running"}
    assert look() == {"a"}
    assert look() == {"a"}  # until it runs again
    engine.states = {"a": "running", "b": "exited", "c": "exited"}
    assert look() == set()
    engine.states = {"a": "exited", "b": "exited", "c": "exited"}
    assert look() == set()


def test_an_engine_that_is_back_before_anyone_asks_was_lost_too(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    listings = listings_of(engine, clock)
    engine.states = {"a": "running"}
    listings.refresh()
    listings.engine_lost()  # its events have ended
    engine.states = {"a": "exited"}
    clock.advance(EVERY_S)
    listings.refresh()
    assert listings.ended_with_engine(listings.last.containers["a"])


def test_a_listing_that_began_before_the_loss_was_noticed_counts(
    engine: FakeEngine, clock: VirtualClock, without_threads: Background
) -> None:
    listings = listings_of(engine, clock)
    engine.states = {"a": "running"}
    listings.refresh()
    engine.states = {"a": "exited"}  # it was killed, and is back
    without_threads.held = {"listing"}
    clock.advance(EVERY_S)
    listings.refresh()
    clock.advance(0.1)
    listings.engine_lost()
    without_threads.go_on()
    listings.refresh()
    assert listings.ended_with_engine(listings.last.containers["a"])


def test_names_of_others_are_listed_when_asked_for(engine: FakeEngine, clock: VirtualClock) -> None:
    listings = listings_of(engine, clock)
    engine.states |= {"mine": "running", "others": "running"}
    engine.labels["others"] = {}
    engine.names["others"] = "/note\x1bbook" + "x" * 500
    listings.refresh()
    assert listings.last.others == {}
    listings.want_names(frozenset({"others", "gone"}))
    listings.refresh()
    assert listings.last.others == {"others": ("note book" + "x" * 500)[:NAME_CHARACTERS]}
    assert "others" not in listings.last.containers
    asked = engine.listings
    listings.want_names(frozenset({"others", "gone"}))
    listings.refresh()
    assert engine.listings == asked
    listings.want_names(frozenset())


def test_what_ran_before_a_reboot_ended_with_it(engine: FakeEngine, clock: VirtualClock) -> None:
    listings = listings_of(engine, clock, booted="2026-05-01T10:00:00")
    engine.states = dict.fromkeys("abc", "exited")
    for one, at in (("a", "2026-05-01T09:59:59.5Z"), ("b", "2026-05-01T10:00:01Z"), ("c", "")):
        engine.broken[one] = engine.inspect(one)
        engine.broken[one]["State"]["StartedAt"] = at
    listings.refresh()
    there = listings.last.containers
    assert [key for key, one in there.items() if listings.ended_with_engine(one)] == ["a"]
