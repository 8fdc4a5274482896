"""When the engine is asked for its list, and whom it is asked about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
from tests.runtime.docker.fake_engine import FakeEngine, Faulty
from tests.runtime.docker.making import instance_of

LATE = EngineUnavailable("no answer: timed out")
BEYOND = EngineRefused(500, "layer does not exist")


@pytest.fixture
def engine(tmp_path: Path, without_threads: Background) -> Faulty:
    return Faulty(FakeEngine(tmp_path / "host"))


def ours(engine: Faulty, **states: str) -> None:
    """Containers of ours are there, in these states."""
    for key, state in states.items():
        if key not in engine.all:
            labels = {"dlsched.instance": "i", "dlsched.job": f"job-{key}"}
            stranger(engine, f"dlsched-i-job-{key}", labels, key)
        engine.all[key].status = state


def stranger(
    engine: Faulty, name: str, labels: Mapping[str, str] | None, key: str = "", **limits: int
) -> None:
    """Somebody starts a container of a plain image."""
    engine.put(key or name, name, {"Image": "x", "Labels": labels, "HostConfig": limits})
    engine.start(key or name)


def lists(engine: Faulty) -> int:
    """How often it was asked for its list."""
    return sum("dlsched.instance" in labels for labels in engine.of("containers"))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(100.0)


def listings_of(
    engine: Faulty,
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
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="running", agent="running")
    stranger(engine, "stranger", None)
    listings = listings_of(engine, clock)
    assert listings.problem is not None
    assert seen(listings) == {"a"}
    assert listings.problem is None
    assert engine.of("inspect") == ["a"]


def left_alone(listings: Listings) -> tuple[str, ...]:
    """What is reported on containers that are not touched."""
    return texts(listings.last.left_alone)


def refreshed(listings: Listings) -> Listings:
    listings.want(None)
    return listings


def test_without_an_event_the_list_is_asked_for_only_now_and_then(
    engine: Faulty, clock: VirtualClock
) -> None:
    listings = listings_of(engine, clock)
    for _ in range(3):
        listings.refresh()
    assert lists(engine) == 1
    clock.advance(EVERY_S)
    listings.refresh()
    assert lists(engine) == 2


def test_only_what_changed_is_inspected(engine: Faulty, clock: VirtualClock) -> None:
    ours(engine, a="running", b="running", c="running")
    listings = listings_of(engine, clock)
    listings.refresh()
    engine.asked.clear()
    ours(engine, a="running", b="exited", d="created", c="running")
    listings.want("c")
    assert seen(listings) == {"a", "b", "c", "d"}
    assert sorted(engine.of("inspect")) == ["b", "c", "d"]
    engine.asked.clear()
    listings.want(None)
    listings.refresh()
    assert sorted(engine.of("inspect")) == ["a", "b", "c", "d"]


def test_what_vanishes_between_list_and_look_is_left_out(
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="running", b="running")
    engine.refused["inspect a"] = EngineRefused(404, "No such container")
    assert seen(listings_of(engine, clock)) == {"b"}


def test_a_failure_keeps_the_last_list_and_is_tried_again_after_a_while(
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="running")
    listings = listings_of(engine, clock)
    listings.refresh()
    engine.refused["containers"] = EngineUnavailable("no answer")
    listings.want("a")
    assert seen(listings) == {"a"}
    assert listings.problem == "no answer"
    listings.refresh()
    assert lists(engine) == 2
    engine.refused.clear()
    clock.advance(AGAIN_S)
    assert seen(listings) == {"a"}
    assert listings.problem is None
    assert engine.of("inspect") == ["a", "a"], "after a failure everybody is suspect"


def test_an_answer_that_is_not_understood_is_a_trouble_not_an_exception(
    engine: Faulty, clock: VirtualClock
) -> None:
    engine.refused["containers"] = KeyError("Id")
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
    engine: Faulty, clock: VirtualClock, caplog: pytest.LogCaptureFixture, body: Body
) -> None:
    ours(engine, a="running", b="running")
    engine.answers["inspect b"] = body
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    listings.want(None)
    assert seen(listings) == {"a"}
    assert listings.problem is None
    (line,) = caplog.messages
    assert line.startswith(
        "container b is left alone: the engine's description of the container is not understood"
    )
    assert "\n" not in line
    engine.answers.clear()
    assert seen(refreshed(listings)) == {"a", "b"}


def test_an_event_during_a_listing_asks_for_another_one(
    engine: Faulty, clock: VirtualClock, without_threads: Background
) -> None:
    listings = listings_of(engine, clock)
    without_threads.held = {"listing"}
    listings.refresh()
    listings.want("a")
    without_threads.go_on()
    ours(engine, a="running")
    listings.refresh()
    assert seen(listings) == {"a"}
    assert lists(engine) == 2


def late_listing(engine: Faulty, clock: VirtualClock, without_threads: Background) -> Listings:
    """Listings, the last of which waits for the engine."""
    listings = listings_of(engine, clock)
    listings.refresh()
    without_threads.held = {"listing"}
    listings.want("a")
    listings.refresh()
    return listings


def test_an_engine_that_answers_a_ping_is_not_lost(
    engine: Faulty, clock: VirtualClock, without_threads: Background
) -> None:
    listings = late_listing(engine, clock, without_threads)
    for _ in range(5):
        listings.refresh()
        assert listings.problem is None
    assert len(engine.of("ping")) >= 5


def test_an_engine_that_answers_nothing_is_lost_until_it_lists(
    engine: Faulty, clock: VirtualClock, without_threads: Background
) -> None:
    engine.refused["ping"] = LATE
    listings = late_listing(engine, clock, without_threads)
    listings.refresh()
    assert listings.problem == "the Docker Engine at unix:///fake does not answer"
    without_threads.go_on()
    listings.refresh()
    assert listings.problem is None


def test_an_engine_that_does_not_answer_a_ping_is_lost(
    engine: Faulty, clock: VirtualClock, without_threads: Background
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
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="running", b="running")
    engine.refused["inspect a"] = LATE
    listings = listings_of(engine, clock)
    assert seen(listings) == {"b"}
    assert (listings.problem, listings.last.undescribed) == (None, {"a"})
    engine.refused.clear()
    clock.advance(LATE_S)
    assert seen(listings) == {"a", "b"}, "it is asked for again"
    engine.refused = {"inspect a": LATE, "ping": LATE}
    assert seen(refreshed(listings)) == {"a", "b"}
    assert listings.problem == "no answer: timed out"


def test_containers_whose_inspection_was_late_do_not_hold_up_each_listing(
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="running", b="running", c="running")
    listings = listings_of(engine, clock)
    listings.refresh()
    engine.refused = {"inspect a": LATE, "inspect b": LATE}
    refreshed(listings).refresh()
    engine.asked.clear()

    ours(engine, c="exited")
    assert seen(refreshed(listings)) == {"a", "b", "c"}
    assert (engine.of("inspect"), listings.last.undescribed) == (["c"], set())
    ours(engine, a="exited")
    clock.advance(EVERY_S)
    listings.refresh()
    assert engine.of("inspect") == ["c", "a"], "the list shows another state"
    clock.advance(3 * LATE_S)
    listings.refresh()
    assert engine.of("inspect") == ["c", "a", "a", "b"], "repeated after a while"


def test_a_job_is_named_also_by_a_container_that_is_left_alone(
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="running", b="exited")
    engine.refused["inspect b"] = BEYOND
    stranger(engine, "c", {"dlsched.enable": "true"})
    listings = listings_of(engine, clock)
    assert "b" not in seen(listings)
    assert listings.last.named == {"job-a", "job-b"}


def test_one_whose_image_cannot_be_described_hides_no_other(
    engine: Faulty, clock: VirtualClock
) -> None:
    engine.refused["image image-of-b"] = EngineRefused(500, "content digest not found")
    ours(engine, a="running", b="running")
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    assert listings.problem is None
    (line,) = texts(listings.last.left_alone)
    assert line.endswith("the engine cannot describe the container: content digest not found")


def test_one_that_cannot_be_described_stays_as_it_was_and_hides_no_other(
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="running", b="running")
    engine.refused["inspect b"] = BEYOND
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    assert listings.problem is None
    (line,) = texts(listings.last.left_alone)
    assert line.endswith(
        "is left alone: the engine cannot describe the container: layer does not exist"
    )
    engine.refused.clear()
    assert seen(refreshed(listings)) == {"a", "b"}
    known = listings.last.containers["b"]
    engine.refused["inspect b"] = BEYOND
    assert seen(refreshed(listings)) == {"a", "b"}
    assert listings.last.containers["b"] == known
    assert texts(listings.last.left_alone) == ()


# ---------------------------------------------------------------------- jobs that left the node


def test_a_hidden_container_that_is_set_aside_does_not_stand_for_its_job(
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="exited", b="exited")
    engine.all["a"].name = "dlsched-i-job-a.BEFORE-MOVE"
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
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="running")
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    engine.asked.clear()
    ours(engine, a="exited", new="created")
    busy = listings._instance.busy
    with busy.of("a"), busy.of("new"):
        assert seen(refreshed(listings)) == {"a"}
        assert listings.last.undescribed == {"new"}
        assert listings.problem is None
        assert engine.of("inspect") == []
    assert seen(listings) == {"a", "new"}
    assert not listings.last.undescribed
    assert sorted(engine.of("inspect")) == ["a", "new"]


def test_what_ended_while_the_engine_was_lost_ended_with_it(
    engine: Faulty, clock: VirtualClock
) -> None:
    listings = listings_of(engine, clock)

    def look() -> set[str]:
        listings.want()
        clock.advance(EVERY_S)
        listings.refresh()
        there = listings.last.containers
        return {key for key, one in there.items() if listings.ended_with_engine(one)}

    ours(engine, a="running", b="exited", c="running")
    assert look() == set()
    engine.refused["containers"] = EngineUnavailable("no answer")
    assert look() == set()
    engine.refused.clear()
    ours(engine, a="exited")
    assert look() == {"a"}
    assert look() == {"a"}  # until it runs again
    ours(engine, a="running", c="exited")
    assert look() == set()
    ours(engine, a="exited")
    assert look() == set()


def test_an_engine_that_is_back_before_anyone_asks_was_lost_too(
    engine: Faulty, clock: VirtualClock
) -> None:
    listings = listings_of(engine, clock)
    ours(engine, a="running")
    listings.refresh()
    listings.engine_lost()  # its events have ended
    ours(engine, a="exited")
    clock.advance(EVERY_S)
    listings.refresh()
    assert listings.ended_with_engine(listings.last.containers["a"])


def test_a_listing_that_began_before_the_loss_was_noticed_counts(
    engine: Faulty, clock: VirtualClock, without_threads: Background
) -> None:
    listings = listings_of(engine, clock)
    ours(engine, a="running")
    listings.refresh()
    ours(engine, a="exited")  # it was killed, and is back
    without_threads.held = {"listing"}
    clock.advance(EVERY_S)
    listings.refresh()
    clock.advance(0.1)
    listings.engine_lost()
    without_threads.go_on()
    listings.refresh()
    assert listings.ended_with_engine(listings.last.containers["a"])


def test_names_of_others_are_listed_when_asked_for(engine: Faulty, clock: VirtualClock) -> None:
    listings = listings_of(engine, clock)
    ours(engine, mine="running")
    stranger(engine, "note\x1bbook" + "x" * 500, {}, "others")
    listings.refresh()
    assert listings.last.others == {}
    listings.want_names(frozenset({"others", "gone"}))
    listings.refresh()
    assert listings.last.others == {"others": ("note book" + "x" * 500)[:NAME_CHARACTERS]}
    assert "others" not in listings.last.containers
    asked = lists(engine)
    listings.want_names(frozenset({"others", "gone"}))
    listings.refresh()
    assert lists(engine) == asked
    listings.want_names(frozenset())


def test_what_ran_before_a_reboot_ended_with_it(engine: Faulty, clock: VirtualClock) -> None:
    listings = listings_of(engine, clock, booted="2026-05-01T10:00:00")
    ours(engine, a="exited", b="exited", c="exited")
    for one, at in (("a", "2026-05-01T09:59:59.5Z"), ("b", "2026-05-01T10:00:01Z"), ("c", "")):
        engine.all[one].started_at = at
    listings.refresh()
    there = listings.last.containers
    assert [key for key, one in there.items() if listings.ended_with_engine(one)] == ["a"]
