"""Whose events wake the loop: those of containers that are ours or ask to be, and no stranger's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dlsched.runtime.docker import events
from dlsched.runtime.docker.events import KINDS, Events
from tests.runtime.docker.making import instance_of

pytestmark = pytest.mark.timed


class Stream:
    """Events that come to an end when it is closed."""

    def __init__(self, content: list[dict[str, Any]]) -> None:
        self._events = content
        self.drained, self._closed = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from self._events
        self.drained.set()
        self._closed.wait(60)

    def close(self) -> None:
        self._closed.set()


class FakeEngine:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.asked: list[tuple[str, ...]] = []

    def events(self, kinds: tuple[str, ...]) -> Stream:
        self.asked.append(kinds)
        return self._stream


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
    stream = Stream(
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
    engine, asked, wakes = FakeEngine(stream), list[str | None](), list[str]()
    one = instance_of(engine, name=instance)
    listening = Events(one, asked.append, wakes.append)
    listening.start()
    assert stream.drained.wait(60)
    listening.close()
    assert engine.asked[0] == KINDS
    assert asked == [None, *wanted], "a connection stands for an event of every container"
    assert wakes == list(wanted.values())


def test_each_loss_and_return_of_the_engine_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "FIRST_RETRY_S", 0.01)
    losses, wakes, twice = [], list[str](), threading.Event()

    def lost() -> None:
        losses.append(1)
        if len(losses) == 2:
            twice.set()

    stream = Stream([])
    stream.close()  # so that each connection ends at once
    instance = instance_of(FakeEngine(stream))
    listening = Events(instance, lambda _: None, wakes.append, lost)
    listening.start()
    assert twice.wait(60)
    listening.close()
    assert wakes[:2] == ["the Docker Engine's events ended", "the Docker Engine answers again"]
