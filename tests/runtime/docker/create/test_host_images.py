"""Which images the host has, and pulls before a job comes: nothing blocks the loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dlsched.model.errors import EngineUnavailable
from dlsched.model.spec import ContainerSpec
from dlsched.runtime.docker.create.host_images import ASKED_S, LISTED_S, HostImages
from dlsched.runtime.docker.engine import EngineRefused
from tests.waiting import until

pytestmark = pytest.mark.timed

JOB = ContainerSpec("train:2")


class FakeEngine:
    """An engine that pulls when it is let."""

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []
        self.listings = 0
        self.asked = 0
        self.down = False
        self.there: set[str] = set()
        self.may_pull = threading.Event()
        self.refuses = ""
        self.pulls = 0
        self.cuts = False

    def images(self) -> list[dict[str, Any]]:
        self.listings += 1
        if self.down:
            raise EngineUnavailable("the engine is away")
        return self.listed

    def image(self, reference: str) -> dict[str, Any]:
        self.asked += 1
        if self.down:
            raise EngineUnavailable("the engine is away")
        if reference not in self.there:
            raise EngineRefused(404, "no such image")
        return {"Id": reference}

    def pull(self, repository: str, tag: str, auth: bytes | None) -> Iterator[dict[str, Any]]:
        figures = {"current": 1 << 20, "total": 4 << 20}
        yield {"status": "Downloading", "id": "layer", "progressDetail": figures}
        assert self.may_pull.wait(60.0)
        self.pulls += 1
        if self.cuts:
            raise EngineUnavailable("the engine is away")
        if self.refuses:
            yield {"error": self.refuses}
        self.there.add(f"{repository}:{tag}")


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def images(engine: FakeEngine, now: list[float]) -> HostImages:
    return HostImages(engine, None, lambda: now[0])  # type: ignore[arg-type]


def answer(images: HostImages) -> str | None:
    return until(lambda: images.fetch(JOB), "an answer", so=lambda text: text is not None)


def test_names_are_tags(images: HostImages, engine: FakeEngine) -> None:
    engine.listed = [
        {"RepoTags": ["train:1", "train:2"], "RepoDigests": ["train@sha256:aa"]},
        {"RepoTags": ["<none>:<none>"]},
        {"RepoTags": None, "RepoDigests": ["serve@sha256:bb"]},
    ]
    until(lambda: images.names() == {"train:1", "train:2"}, "both names")


def test_they_are_listed_now_and_then(
    images: HostImages, engine: FakeEngine, now: list[float]
) -> None:
    engine.listed = [{"RepoTags": ["train:1"]}]
    until(lambda: images.names() == {"train:1"}, "one name")
    engine.listed = [{"RepoTags": ["train:2"]}]
    assert images.names() == {"train:1"} and engine.listings == 1
    now[0] = LISTED_S
    until(lambda: images.names() == {"train:2"}, "the other name")
    engine.down = True
    now[0] = 2 * LISTED_S
    until(lambda: bool(images.names()) and engine.listings == 3, "a third listing")
    assert images.names() == {"train:2"}, "the last that is known"


def test_an_image_is_pulled_meanwhile(images: HostImages, engine: FakeEngine) -> None:
    assert images.fetch(JOB) is None
    until(lambda: images.progress(JOB) == "25 % of 4 MiB", "a quarter is pulled")
    assert images.fetch(JOB) is None
    engine.may_pull.set()
    assert answer(images) == ""
    assert engine.there == {"train:2"} and images.progress(JOB) == ""


def test_result_that_nobody_asked_for_is_too_old(
    images: HostImages, engine: FakeEngine, now: list[float]
) -> None:
    engine.refuses = "denied"
    assert images.fetch(JOB) is None
    engine.may_pull.set()
    until(images._fetches[JOB.image, JOB.pull_policy].future.done, "the pull ends")
    engine.refuses = ""
    engine.there.add("train:2")
    now[0] = ASKED_S + 1.0
    assert answer(images) == ""


def test_reason_why_an_image_cannot_be_had(images: HostImages, engine: FakeEngine) -> None:
    engine.refuses = "denied: who are you?"
    engine.may_pull.set()
    assert answer(images) == "image train:2 cannot be pulled: denied: who are you?"


@pytest.mark.parametrize("cut_off", [False, True])
def test_lost_engine_says_nothing_of_the_image(
    images: HostImages, engine: FakeEngine, cut_off: bool
) -> None:
    engine.may_pull.set()
    if cut_off:
        engine.cuts = True
    else:
        engine.there.add("train:2")
        engine.down = True
    found = set[str | None]()
    until(lambda: bool(found.add(images.fetch(JOB)) or engine.asked > 3), "a fourth call")
    assert found == {None}
    engine.down = engine.cuts = False
    assert answer(images) == ""
