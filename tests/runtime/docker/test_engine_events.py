"""Whose events wake the loop: those of containers that are ours or ask to be, and no stranger's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dlsched.runtime.docker import listing as events
from dlsched.runtime.docker.listing import KINDS, Events
from tests.runtime.docker.making import instance_of

pytestmark = pytest.mark.usefixtures("without_threads")


class Engine:
    """Its streams of events end by themselves, each but the last one with a lost connection."""

    def __init__(self, *streams: list[dict[str, Any]]) -> None:
        self._streams = list(streams)
        self.asked: list[tuple[str, ...]] = []
        self.at_end: Callable[[], None]

    def events(self, kinds: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        self.asked.append(kinds)
        yield from self._streams.pop(0)
        if not self._streams:
            self.at_end()


def listened(engine: Engine, listening: Events) -> None:
    """Listen until its last stream has ended."""
    engine.at_end = listening.close
    listening.start()


def event(container: str, **labels: str) -> dict[str, Any]:
    attributes = {"name": f"name-of-{container}", "image": "model:1"}
    attributes |= {f"dlsched.{label}": value for label, value in labels.items()}
    return {"Action": "start\nnow", "Actor": {"ID": container, "Attributes": attributes}}


@pytest.mark.parametrize(
    ("instance", "wanted"),
    [
        ("lab", {"own": "job-a: start now", "asks-lab": "name-of-asks-lab: start now"}),
        ("default", {"asks": "name-of-asks: start now", "by-default": "job-b: start now"}),
        ("third", {}),
    ],
)
def test_only_what_may_be_ours_wakes(instance: str, wanted: dict[str, str]) -> None:
    engine = Engine(
        [
            event("own", instance="lab", job="job-a"),
            event("asks-lab", instance="lab", enable="true"),
            event("asks", enable="true"),
            event("by-default", instance="default", job="job-b"),
            event("declines", enable="false"),
            event("stranger"),
            {"Action": "start"},
            {"Action": "start", "Actor": {"ID": "bare", "Attributes": None}},
        ]
    )
    asked, wakes = list[str | None](), list[str]()
    one = instance_of(engine, name=instance)
    listened(engine, Events(one, asked.append, wakes.append))
    assert engine.asked[0] == KINDS
    assert asked == [None, *wanted], "a connection stands for an event of every container"
    assert wakes == list(wanted.values())


def test_each_loss_and_return_of_the_engine_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "FIRST_RETRY_S", 0.0)
    losses, wakes = list[int](), list[str]()
    engine = Engine([], [], [])
    listened(
        engine, Events(instance_of(engine), lambda _: None, wakes.append, lambda: losses.append(1))
    )
    ended, back = "the Docker Engine sends no more events", "the Docker Engine answers again"
    assert (wakes, len(losses)) == ([ended, back, ended, back], 2)
