"""Pulls: progress, one for all, credentials, and a registry's refusals."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from docker.errors import APIError

from dlsched.model.actions import Start
from dlsched.model.errors import EngineUnavailable
from dlsched.model.spec import ContainerSpec, Limits
from dlsched.runtime.docker.create.images import ASKED_S, LISTED_S, ImageMissing, Images
from dlsched.runtime.docker.engine import Body, EngineRefused
from tests.runtime.docker.conftest import Background
from tests.runtime.docker.fake_engine import FakeEngine, Faulty
from tests.runtime.docker.registry import PASSWORD, USER, Registry, serving
from tests.runtime.docker.rig import Rig, job_spec, options_for
from tools.steps import SetupError

MIB = 1 << 20


def layer(name: str, status: str, current: int = 0, total: int = 0) -> Body:
    figures = {"current": current, "total": total} if total else {}
    return {"id": name, "status": status, "progressDetail": figures}


@pytest.fixture
def engine(tmp_path: Path) -> Faulty:
    """One without images."""
    fake = FakeEngine(tmp_path / "host")
    fake.there = set()
    return Faulty(fake)


def images_of(engine: Any, file: Path | None = None) -> Images:
    return Images(engine, file, lambda: 0.0)


def test_progress_is_the_part_of_what_is_downloaded(engine: Faulty) -> None:
    seen: list[str] = []
    progress: list[Callable[[], str]] = []

    def messages() -> Iterator[Body]:
        for message in (
            {"status": "Pulling from library/thing", "id": "latest"},
            layer("a", "Downloading", 10 * MIB, 100 * MIB),
            layer("b", "Downloading", 50 * MIB, 205 * MIB),
            layer("a", "Download complete"),
            layer("a", "Extracting", 1 * MIB, 100 * MIB),
        ):
            yield message
            seen.append(progress[0]())

    engine.engine.pulling = messages
    images_of(engine).require("thing", "missing", progress.append)
    assert engine.of("pull") == [("thing", "latest", None)]
    assert seen == [
        "asking the registry",
        "10 % of 100 MiB",
        "19 % of 305 MiB",
        "49 % of 305 MiB",
        "49 % of 305 MiB",
    ]


def test_jobs_of_one_image_share_its_pull(engine: Faulty) -> None:
    joined = Mock(side_effect=InterruptedError)
    images = images_of(engine)

    def another() -> tuple[()]:
        with pytest.raises(InterruptedError):  # or it would wait for this pull
            images.require("x", "missing", joined)
        return ()

    engine.engine.pulling = another
    assert "Config" in images.require("x", "missing", lambda _: None)
    joined.assert_called_once()
    assert len(engine.of("pull")) == 1
    engine.there.clear()
    engine.engine.pulling = tuple
    images.require("x", "missing", lambda _: None)
    assert len(engine.of("pull")) == 2, "one that is over is shared no more"


@pytest.mark.parametrize(
    ("reason", "retryable"),
    [
        ("pull access denied for x, repository does not exist", False),
        ("manifest for x:2 not found: manifest unknown", False),
        ("Get http://localhost:5000/v2/: no basic auth credentials", False),
        ("dial tcp: lookup registry.example: no such host", True),
        ("Get https://registry.example/v2/: net/http: TLS handshake timeout", True),
    ],
)
def test_a_refusal_is_one_line_and_says_whether_to_try_again(
    engine: Faulty, reason: str, retryable: bool
) -> None:
    engine.refused["pull"] = EngineRefused(500, reason)
    with pytest.raises(ImageMissing) as caught:
        images_of(engine).require("x:2", "missing", lambda _: None)
    assert str(caught.value) == f"image x:2 cannot be pulled: {reason}"
    assert caught.value.retryable is retryable


def test_an_error_in_the_middle_of_a_pull_counts(engine: Faulty) -> None:
    engine.engine.pulling = lambda: [
        layer("a", "Downloading", 1, 2),
        {"error": "unexpected\n EOF"},
    ]
    with pytest.raises(ImageMissing, match="cannot be pulled: unexpected EOF"):
        images_of(engine).require("x", "always", lambda _: None)


def test_an_image_that_is_there_is_pulled_only_where_always_is_wanted(engine: Faulty) -> None:
    engine.there.add("x:1")
    images = images_of(engine)
    images.require("x:1", "missing", lambda _: None)
    images.require("x:1", "never", lambda _: None)
    assert engine.of("pull") == []
    images.require("x:1", "always", lambda _: None)
    assert engine.of("pull") == [("x", "1", None)]
    engine.there.clear()
    with pytest.raises(ImageMissing, match=r"is not on this host, and pull_policy is never$"):
        images.require("x:1", "never", lambda _: None)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file or directory"), ('{"auths": {"x": 1}}', "x")]
)
def test_a_credentials_file_that_cannot_be_used(
    engine: Faulty, tmp_path: Path, content: str | None, reason: str
) -> None:
    file = tmp_path / "config.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ImageMissing, match=f"credentials.*{reason}"):
        images_of(engine, file).require("x", "missing", lambda _: None)
    assert engine.of("pull") == []


@pytest.fixture
def registry(docker_host: str, tmp_path: Path) -> Iterator[Registry]:
    if not docker_host.startswith("unix://"):
        pytest.skip("the engine under test is not on this machine")
    folder = tmp_path / "registry"
    folder.mkdir()
    try:
        with serving(folder) as registry:
            yield registry
    except SetupError as error:
        pytest.skip(f"no private registry can be had: {error}")


@pytest.mark.engine
def test_a_private_registry_wants_the_credentials_of_the_config_file(
    registry: Registry, docker_host: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    options = options_for(
        docker_host, f"t{secrets.token_hex(3)}", tmp_path / "state", config_file=config
    )
    rig = Rig(options, docker_host)
    image = registry.push_image(rig.client)
    start = Start(job_spec("private", ("/content",), image=image), Limits(0.5), 1024)
    try:
        rig.apply(start)
        denied = rig.until_failed("private")
        assert denied.detail.startswith(f"image {image} cannot be pulled: ")
        assert "no basic auth credentials" in denied.detail
        assert not denied.retryable
        with pytest.raises(APIError):
            rig.client.inspect_image(image)

        word = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        config.write_text(json.dumps({"auths": {registry.address: {"auth": word}}}))
        rig.apply(start)
        rig.until(lambda seen: any(word.stage == "pulled" for word in seen.begun))
        rig.apply(start)
        # The image is there now; what fails is only that its one file is no program.
        rig.until(lambda seen: any("exec" in word.detail for word in seen.begun))
        assert rig.client.inspect_image(image)["RepoTags"] == [image]
    finally:
        with suppress(APIError):
            rig.client.remove_image(image, force=True)
        rig.close()


JOB = ContainerSpec("train:2")


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def images(engine: Any, now: list[float], without_threads: Background) -> Images:
    return Images(engine, None, lambda: now[0])


def test_names_are_listed_now_and_then(
    images: Images, engine: Faulty, now: list[float], without_threads: Background
) -> None:
    engine.tagged[:] = [
        {"RepoTags": ["train:1", "train:2"], "RepoDigests": ["train@sha256:aa"]},
        {"RepoTags": ["<none>:<none>"]},
        {"RepoTags": None, "RepoDigests": ["serve@sha256:bb"]},
    ]
    without_threads.held = {"images"}
    assert images.names() == frozenset()
    without_threads.go_on()
    assert images.names() == {"train:1", "train:2"}
    engine.tagged[:] = [{"RepoTags": ["train:2"]}]
    assert len(images.names()) == 2 and len(engine.of("images")) == 1
    now[0] = LISTED_S
    assert images.names() == {"train:2"}
    engine.away = True
    now[0] = 2 * LISTED_S
    assert images.names() == {"train:2"}, "the last that is known"
    assert len(engine.of("images")) == 3


def test_an_image_is_pulled_meanwhile(
    images: Images, engine: Faulty, without_threads: Background
) -> None:
    seen: list[str | None] = []

    def pulling() -> Iterator[Body]:
        yield layer("layer", "Downloading", 1 * MIB, 4 * MIB)
        seen.extend([images.progress(JOB), images.fetch(JOB)])

    engine.engine.pulling = pulling
    without_threads.held = {"fetch"}
    assert images.fetch(JOB) is None
    assert images.progress(JOB) == ""
    without_threads.go_on()
    assert seen == ["25 % of 4 MiB", None]
    assert images.fetch(JOB) == ""
    assert engine.there == {"train:2"} and images.progress(JOB) == ""


def test_result_that_nobody_asked_for_is_too_old(
    images: Images, engine: Faulty, now: list[float], without_threads: Background
) -> None:
    engine.refused["pull"] = EngineRefused(500, "denied")
    without_threads.held = {"fetch"}
    assert images.fetch(JOB) is None
    without_threads.go_on()
    engine.refused.clear()
    engine.there.add("train:2")
    now[0] = ASKED_S + 1.0
    assert images.fetch(JOB) == ""


def test_reason_why_an_image_cannot_be_had(images: Images, engine: Faulty) -> None:
    engine.refused["pull"] = EngineRefused(500, "denied: who are you?")
    assert images.fetch(JOB) == "image train:2 cannot be pulled: denied: who are you?"


@pytest.mark.parametrize("cut_off", [False, True])
def test_lost_engine_says_nothing_of_the_image(
    images: Images, engine: Faulty, cut_off: bool
) -> None:
    if cut_off:
        engine.refused["pull"] = EngineUnavailable("the engine is away")
    else:
        engine.there.add("train:2")
        engine.away = True
    assert [images.fetch(JOB) for _ in range(4)] == [None] * 4
    engine.away = False
    engine.refused.clear()
    assert images.fetch(JOB) == ""
