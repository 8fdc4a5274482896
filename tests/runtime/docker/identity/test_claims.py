"""Which containers with our labels are ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlsched.config.metrics.loading import load_presets
from dlsched.model.sources import MetricsEndpoint, MetricsFile
from dlsched.model.spec import JobSpec, LatencyTarget
from dlsched.runtime.docker.background import Patience
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.identity.claims import REASONS_MOST
from dlsched.runtime.docker.identity.labels import labels_of
from dlsched.runtime.docker.listing import EVERY_S, Listings
from dlsched.simulation.clock import VirtualClock
from tests.runtime.docker.fake_engine import Faulty
from tests.runtime.docker.making import instance_of
from tests.runtime.docker.rig import job_spec
from tests.runtime.docker.test_listing import (
    clock,
    engine,
    left_alone,
    listings_of,
    ours,
    refreshed,
    seen,
    stranger,
)

__all__ = ["clock", "engine"]


def labels(spec: JobSpec) -> Mapping[str, Any]:
    return labels_of(spec, "i", "job.yaml")


def image(labels: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"Config": {"Labels": labels}}


def test_labels_from_the_image_do_not_count_and_the_image_is_looked_at_once(
    engine: Faulty, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    spec = job_spec("job-a")
    committed, plain = labels(spec), labels(spec)
    stranger(engine, "brave_newton", {**committed, "dlsched.job": "job-c"}, "copy")
    # Made by us, from the committed image.
    stranger(engine, "dlsched-i-job-a", labels(spec), "own")
    stranger(engine, "dlsched-i-job-b", {**plain, "dlsched.job": "job-b"}, "plain")
    engine.answers = {
        "image image-of-copy": image(committed),
        "image image-of-own": image(committed),
        "image image-of-plain": image(None),
    }
    listings = listings_of(engine, clock)
    assert seen(listings) == {"own", "plain"}
    assert seen(refreshed(listings)) == {"own", "plain"}
    assert sorted(f"image {one}" for one in engine.of("image")) == sorted(engine.answers)
    assert caplog.messages == [
        (
            "container copy is left alone: labels that come from the image do not count: set "
            "dlsched's labels on the container itself"
        )
    ]


def test_other_presets_are_applied_to_containers_that_are_adopted_already(
    engine: Faulty, clock: VirtualClock, tmp_path: Path
) -> None:
    enabled = {"dlsched.enable": "true", "dlsched.instance": "i"}
    stranger(engine, "web", {**enabled, "dlsched.metrics": "asr"})
    listings = listings_of(engine, clock)
    assert seen(listings) == set()
    for port in (9000, 9001):
        (tmp_path / "own.yaml").write_text(f"asr: {{port: {port}}}")
        listings.use(load_presets(tmp_path))
        assert seen(listings) == {"web"}
        (source,) = listings.last.containers["web"].sources
        assert isinstance(source, MetricsEndpoint) and source.ports == (port,)


def test_of_two_for_a_job_the_one_with_its_name_is_its_container(
    engine: Faulty, clock: VirtualClock
) -> None:
    mine = {"dlsched.instance": "i", "dlsched.job": "job"}
    stranger(engine, "dlsched-i-job", mine, "a")
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    stranger(engine, "copy", mine, "b")
    assert seen(refreshed(listings)) == {"a"}
    engine.all["a"].name = "renamed"
    assert seen(refreshed(listings)) == {"a", "b"}, (
        "neither has the name: the job that asks decides"
    )
    del engine.all["b"]
    assert seen(refreshed(listings)) == {"a"}, "a renamed one stays ours"


@pytest.mark.parametrize("job", ["..", "a/b", "", "x" * 80, "job\n\x1b[2J", "Job"])
def test_a_label_that_names_no_job_is_told_once_in_plain_characters(
    engine: Faulty, clock: VirtualClock, caplog: pytest.LogCaptureFixture, job: str
) -> None:
    ours(engine, a="running")
    stranger(engine, "bad", {"dlsched.instance": "i", "dlsched.job": job})
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    assert seen(refreshed(listings)) == {"a"}
    assert "bad" not in engine.of("inspect")
    (line,) = caplog.messages
    assert line.startswith("container bad is left alone: ") and "not a valid job name" in line
    assert line.isprintable()


# ---------------------------------------------------------------------- adopted ones

ENABLE = {"dlsched.enable": "true", "dlsched.instance": "i"}


def test_a_labelled_container_is_listed_beside_ours_and_called_as_it_is_called(
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="running")
    stranger(
        engine,
        "web",
        {**ENABLE, "dlsched.target.latency": "20ms", "dlsched.metrics.path": "/tmp/m"},
        NanoCpus=1_500_000_000,
        Memory=1 << 30,
    )
    stranger(engine, "other", {"team": "vision"})
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a", "web"}
    web = listings.last.containers["web"]
    assert (web.job, web.instance, web.digest, web.restart) == ("web", "i", "", None)
    assert web.adopted.target == LatencyTarget(0.02)
    assert web.adopted.bounds.ceiling_cores == 1.5
    assert web.adopted.container.memory_bytes == 1 << 30
    assert web.sources == (MetricsFile("/tmp/m"),)
    assert listings.last.containers["a"].adopted is None
    assert left_alone(listings) == ()


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (
            {"target.metric": "accuracy", "target.deliver": "0.9", "target.finish": "0.95"},
            (
                "dlsched.metrics.pattern: the pattern's groups (acc, step) lack the target's "
                "metric 'accuracy'"
            ),
        ),
        (
            {"target.latency": "20ms"},
            (
                "dlsched.metrics.pattern: the pattern's groups (acc, step) lack a latency: "
                "latency_s, "
                "latency_ms, latency_us or latency"
            ),
        ),
    ],
)
def test_a_pattern_that_cannot_read_the_target_is_refused(
    engine: Faulty, clock: VirtualClock, labels: dict[str, str], why: str
) -> None:
    asked = {f"dlsched.{name}": value for name, value in labels.items()}
    pattern = {"dlsched.metrics.pattern": r"(?P<step>\d+) (?P<acc>\S+)"}
    stranger(engine, "web", {**ENABLE, **asked, **pattern})
    stranger(engine, "both", {**ENABLE, **asked, **pattern, "dlsched.metrics.path": "/data/m"})
    listings = listings_of(engine, clock)
    assert seen(listings) == {"both"}, "another source may have it"
    (text,) = left_alone(listings)
    assert text.endswith(why)


def test_the_ceiling_is_what_it_came_with_whatever_its_limit_is_now(
    engine: Faulty, clock: VirtualClock
) -> None:
    labels = {**ENABLE, "dlsched.memory.max": "512MiB"}  # its owner has set more since
    stranger(engine, "web", labels, CpuQuota=20_000, CpuPeriod=100_000)
    originals = SimpleNamespace(
        cores_before=lambda _, cores: 10 * cores,
        memory_before=lambda *_: 1 << 30,
        holds=lambda _: True,
    )
    instance = instance_of(engine, clock=clock, originals=originals)
    listings = Listings(instance, Patience(20.0, now_s=clock.now_s))
    assert seen(listings) == {"web"}
    adopted = listings.last.containers["web"].adopted
    assert (adopted.bounds.ceiling_cores, adopted.container.memory_bytes) == (2.0, 1 << 30)


_NO_INSTANCE = (
    "container web is not adopted: without a label dlsched.instance the container belongs to "
    "instance default, and this is instance i: start the container with dlsched.instance=i to "
    "have it here"
)


@pytest.mark.parametrize(
    ("instance", "labels", "ours", "logged"),
    [
        ("default", {}, True, []),
        ("i", {}, False, [_NO_INSTANCE]),
        ("default", {"dlsched.instance": "i"}, False, []),
        ("i", {"dlsched.instance": "i"}, True, []),
        ("i", {"dlsched.instance": "i", "dlsched.enable": "yes"}, False, []),
    ],
)
def test_without_an_instance_it_is_the_default_ones(
    engine: Faulty,
    clock: VirtualClock,
    instance: str,
    labels: dict[str, str],
    ours: bool,
    logged: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    stranger(engine, "web", {"dlsched.enable": "true", **labels})
    listings = listings_of(engine, clock, instance=instance)
    for _ in range(2):
        assert seen(listings) == ({"web"} if ours else set())
        listings.want("web")
    assert caplog.messages == logged


def test_of_labels_that_came_with_the_image_none_counts(
    engine: Faulty, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stranger(engine, "vendors", {**ENABLE, "dlsched.weight": "2"})
    stranger(engine, "mine", {**ENABLE, "dlsched.weight": "2", "dlsched.cpus.max": "1"})
    engine.answers["image image-of-vendors"] = image(ENABLE)
    engine.answers["image image-of-mine"] = image({"dlsched.weight": "2", "dlsched.cpus.max": "9"})
    stranger(engine, "lost", ENABLE)
    engine.refused["image image-of-lost"] = EngineRefused(404, "No such image")
    listings = listings_of(engine, clock)
    assert seen(listings) == {"mine"}
    adopted = listings.last.containers["mine"].adopted
    assert (adopted.weight, adopted.bounds.ceiling_cores) == (1.0, 1.0)
    why = "the container's image is gone, so the image's labels are unknown"
    assert left_alone(listings) == (f"container lost (lost) is left alone: {why}",)
    assert caplog.messages == [f"container lost is left alone: {why}"]


def test_one_from_a_jobs_committed_container_can_be_adopted(
    engine: Faulty, clock: VirtualClock
) -> None:
    committed = labels(job_spec("job-a"))
    stranger(engine, "copy", {**committed, **ENABLE})
    engine.answers["image image-of-copy"] = image(committed)
    listings = listings_of(engine, clock, instance="default")
    assert seen(listings) == {"copy"}, "the instance, too, came with the image"
    assert listings.last.containers["copy"].job == "copy"


def test_wrong_labels_are_told_in_every_listing_and_read_once_until_something_happens(
    engine: Faulty, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stranger(engine, "web", {**ENABLE, "dlsched.cpus.max": "lots\x1b[2J"})
    stranger(engine, "_loud", ENABLE)
    listings = listings_of(engine, clock)
    for _ in range(2):
        assert seen(listings) == set()
        loud, web = sorted(left_alone(listings))
        assert loud.startswith(
            "container _loud (_loud) is left alone: the container's name '_loud' is not"
        )
        why = r"label dlsched.cpus.max: 'lots\x1b[2J' is not a number"
        assert web == f"container web (web) is left alone: {why}"
        clock.advance(EVERY_S)
    assert sorted(engine.of("inspect")) == ["_loud", "web"]
    engine.all["web"].body["Labels"] = ENABLE
    listings.want("web")
    assert seen(listings) == {"web"}
    assert len(caplog.messages) == 2


def test_one_that_is_renamed_is_a_job_of_another_name_without_any_event(
    engine: Faulty, clock: VirtualClock
) -> None:
    stranger(engine, "web", ENABLE)
    listings = listings_of(engine, clock)
    assert seen(listings) == {"web"}
    engine.all["web"].name = "front"
    clock.advance(EVERY_S)
    assert seen(listings) == {"web"}
    assert listings.last.containers["web"].job == "front"


def test_under_the_name_of_a_job_of_ours_none_is_adopted(
    engine: Faulty, clock: VirtualClock
) -> None:
    ours(engine, a="running")
    stranger(engine, "job-a", ENABLE)
    listings = listings_of(engine, clock)
    assert seen(listings) == {"a"}
    line = (
        "container job-a (job-a) is left alone: a job from a file already has the container's name"
    )
    assert left_alone(listings) == (line,)
    del engine.all["a"]
    assert seen(refreshed(listings)) == {"job-a"}


def test_of_many_that_are_left_alone_only_the_number_is_told(
    engine: Faulty, clock: VirtualClock
) -> None:
    for number in range(REASONS_MOST + 3):
        stranger(engine, f"web{number}", {**ENABLE, "dlsched.weight": "-1"})
    listings = listings_of(engine, clock)
    assert seen(listings) == set()
    assert len(listings.last.left_alone) == REASONS_MOST + 1
    assert left_alone(listings)[-1] == "3 more containers are left alone"


# ---------------------------------------------------------------------- set aside for a move


def test_one_that_is_set_aside_is_kept_apart_once_another_has_taken_its_place(
    engine: Faulty, clock: VirtualClock
) -> None:
    labels = {"dlsched.instance": "i", "dlsched.job": "train"}
    stranger(engine, "dlsched-i-train.BEFORE-MOVE", labels, "old")
    ours(engine, old="exited")
    listings = listings_of(engine, clock)
    assert seen(listings) == {"old"}, "alone, it stands for its job"
    stranger(engine, "dlsched-i-train", labels, "new")
    assert seen(refreshed(listings)) == {"new"}
    assert listings.last.set_aside.keys() == {"old"}
    assert left_alone(listings) == ()


def test_a_name_of_ours_that_changes_is_looked_at_anew(engine: Faulty, clock: VirtualClock) -> None:
    ours(engine, a="running")
    listings = listings_of(engine, clock)
    listings.refresh()
    engine.all["a"].name = "dlsched-i-job-a.BEFORE-MOVE"
    clock.advance(EVERY_S)
    assert seen(listings) == {"a"}
    assert listings.last.containers["a"].name == "dlsched-i-job-a.BEFORE-MOVE"
