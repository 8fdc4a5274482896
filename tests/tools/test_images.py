"""Images: the base, a whole host with systemd, and the examples."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import docker
import pytest
from docker.errors import ImageNotFound

from tools import images
from tools.base_image import base_id
from tools.engine import MISSING
from tools.engine_probe import connect
from tools.images import digest_of_folder, ensure_image
from tools.steps import SetupError


@pytest.mark.engine
def test_the_base_image_has_python_3_11_by_both_names(
    docker_client: docker.APIClient, base_image: str, instance: str
) -> None:
    look = "import json, sys; print(json.dumps(sys.version_info[:2]))"
    for name in ("python", "python3"):
        made = docker_client.create_container(
            base_image,
            [name, "-c", look],
            labels={"dlsched.instance": instance},
            host_config=docker_client.create_host_config(network_mode="none"),
        )
        docker_client.start(made["Id"])
        assert docker_client.wait(made["Id"], timeout=60)["StatusCode"] == 0
        assert json.loads(docker_client.logs(made["Id"])) == [3, 11]


DOCKERFILE = "ARG BASE\nFROM ${BASE}\nCOPY hello.txt /hello.txt\n"


def test_the_base_image_alone_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "ensure_base", lambda host: "sha256:0")
    monkeypatch.setattr(images, "connect", lambda host, timeout_s: io.BytesIO())
    assert images.ensure_all("unix:///nowhere", ["base"]) == [images.BASE]


def test_a_name_that_no_image_has_is_refused_before_the_engine_is_asked() -> None:
    with pytest.raises(SetupError, match="'trainign' is none of base, inference, training"):
        images.ensure_all("unix:///nowhere", ["trainign"])


def test_a_folders_digest_knows_names_modes_and_contents(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    seen = []
    file.write_text("1", encoding="utf-8")
    seen.append(digest_of_folder(tmp_path))
    file.write_text("2", encoding="utf-8")
    seen.append(digest_of_folder(tmp_path))
    file.chmod(0o755)
    seen.append(digest_of_folder(tmp_path))
    file = file.rename(tmp_path / "b.txt")
    seen.append(digest_of_folder(tmp_path))
    seen.append(digest_of_folder(tmp_path, "another base"))
    assert len(set(seen)) == 5
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "b.pyc").touch()
    assert digest_of_folder(tmp_path) == seen[3]


@pytest.fixture
def source(tmp_path: Path, docker_client: docker.APIClient) -> Iterator[Path]:
    """An image folder of a random name; its image is removed at the end."""
    folder = tmp_path / f"test-{secrets.token_hex(4)}"
    folder.mkdir()
    (folder / "Dockerfile").write_text(DOCKERFILE, encoding="utf-8")
    (folder / "hello.txt").write_text("hello", encoding="utf-8")
    yield folder
    with suppress(ImageNotFound):
        docker_client.remove_image(f"{images.REPOSITORY}/{folder.name}")


@pytest.mark.slow
@pytest.mark.engine
def test_an_image_is_built_once_and_again_after_a_change(
    docker_host: str, base_image: str, source: Path
) -> None:
    def image_id() -> str:
        return str(client.images(ensure_image(client, source, base))[0]["Id"])

    with closing(connect(docker_host, 60)) as client:
        base = base_id(client)
        assert base is not None
        first = image_id()
        assert image_id() == first
        (source / "hello.txt").write_text("changed", encoding="utf-8")
        assert image_id() != first


def test_without_an_engine_the_command_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setenv(MISSING, "no engine")
    monkeypatch.setattr("os.execvp", lambda _file, argv: became.append(argv))
    assert images.main(["--", "pytest", "-q"]) == 0
    assert became == [["pytest", "-q"]]
