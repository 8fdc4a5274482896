"""Which containers with our labels are ours."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from docker.errors import APIError

from dlsched.clock import VirtualClock
from dlsched.model import JobSpec, Limits, Start
from dlsched.runtime.docker.labels import labels_of
from tests.runtime.docker.rig import SLEEP, Rig, fact, job_spec
from tests.runtime.docker.test_listing import FakeEngine, listings_of, refreshed, seen


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(100.0)


def labels(spec: JobSpec) -> Mapping[str, Any]:
    return labels_of(spec, "i", "job.yaml")


def image(labels: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"Config": {"Labels": labels}}


def test_labels_from_the_image_do_not_count_and_the_image_is_looked_at_once(
    engine: FakeEngine, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    spec = job_spec("job-a")
    committed, plain = labels(spec), labels(spec)
    engine.states = {"copy": "running", "own": "running", "plain": "running"}
    engine.names = {"copy": "/brave_newton", "own": "/dlsched-i-job-a", "plain": "/dlsched-i-job-b"}
    engine.labels = {
        "copy": {**committed, "dlsched.job": "job-c"},
        "own": labels(spec),  # made by us, from the committed image
        "plain": {**plain, "dlsched.job": "job-b"},
    }
    engine.images = {
        "image-of-copy": image(committed),
        "image-of-own": image(committed),
        "image-of-plain": image(None),
    }
    listings = listings_of(engine, clock)
    assert seen(listings) == {"own", "plain"}
    assert seen(refreshed(listings)) == {"own", "plain"}
    assert sorted(engine.images_asked) == sorted(engine.images)
    assert caplog.messages == ["container copy is left alone: its labels came with its image"]


def test_of_two_for_a_job_the_one_with_its_name_is_its_container(
    engine: FakeEngine, clock: VirtualClock
) -> None:
    mine = {"dlsched.job": "job"}
    engine.states = {"a": "running"}
    engine.labels = {"a": mine, "b": mine}
    engine.names = {"a": "/dlsched-i-job", "b": "/copy"}
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    engine.states["b"] = "running"
    assert seen(refreshed(listings)) == {"a"}
    engine.names["a"] = "/renamed"
    assert seen(refreshed(listings)) == {"a", "b"}, "neither has the name: whoever asks decides"
    del engine.states["b"]
    assert seen(refreshed(listings)) == {"a"}, "a renamed one stays ours"


@pytest.mark.parametrize("job", ["..", "a/b", "", "x" * 80, "job\n\x1b[2J", "Job"])
def test_a_label_that_names_no_job_is_told_once_in_plain_characters(
    engine: FakeEngine, clock: VirtualClock, caplog: pytest.LogCaptureFixture, job: str
) -> None:
    engine.states = {"a": "running", "bad": "running"}
    engine.labels = {"bad": {"dlsched.job": job}}
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    assert seen(refreshed(listings)) == {"a"}
    assert "bad" not in engine.inspected
    (line,) = caplog.messages
    assert line.startswith("container bad is left alone: no job can be named")
    assert line.isprintable()


@pytest.mark.engine
def test_a_container_of_a_committed_image_is_nobodys_but_a_job_of_it_is_ours(rig: Rig) -> None:
    first = rig.start(job_spec("first"))
    tag = f"dlsched-test/{secrets.token_hex(4)}"
    other = None
    try:
        rig.client.commit(first.container_id, tag, "1")
        other = rig.client.create_container(f"{tag}:1", list(SLEEP))["Id"]
        rig.client.start(other)
        rig.apply(Start(job_spec("second", image=f"{tag}:1"), Limits(0.5), 1024))
        seen = rig.until(lambda s: fact(s, "second") is not None and not s.begun)
        assert {one.job for one in seen.containers} == {"first", "second"}
        assert fact(seen, "first") is not None
        assert other not in {one.container_id for one in seen.containers}
    finally:
        rig.close()
        with suppress(APIError):
            rig.client.remove_container(other, force=True)
        rig.client.remove_image(f"{tag}:1")


@pytest.mark.engine
def test_a_start_does_not_take_over_a_container_of_a_committed_image(rig: Rig) -> None:
    first = rig.start(job_spec("same"))
    tag = f"dlsched-test/{secrets.token_hex(4)}"
    name = f"dlsched-{rig.options.instance}-same"
    try:
        rig.client.commit(first.container_id, tag, "1")
        rig.client.remove_container(first.container_id, force=True)
        rig.until(lambda s: fact(s, "same") is None)
        rig.client.create_container(f"{tag}:1", list(SLEEP), name=name)
        rig.apply(Start(job_spec("same"), Limits(0.5), 1024))
        assert f"the name {name} is taken" in rig.until_failed("same").detail
    finally:
        rig.close()
        rig.client.remove_image(f"{tag}:1")
