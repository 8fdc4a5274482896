"""The agent's image, as everybody builds it, but without any network."""

from __future__ import annotations

import io
import json
import secrets
import tarfile
from collections.abc import Iterator
from contextlib import suppress

import docker
import pytest
from docker.errors import APIError

from tools.base_image import BASE
from tools.engine_probe import connect
from tools.environment import ROOT
from tools.wheels import debian_wheels

CONTEXT = ("Dockerfile", "README.md", "pyproject.toml", "config", "dlsched", "requirements")


@pytest.fixture(scope="session")
def image(docker_host: str, docker_client: docker.APIClient, base_image: str) -> Iterator[str]:
    """The agent's image, built from this tree without any network."""
    wheels = debian_wheels(str(docker_client.version()["Arch"]))
    sources = {name: ROOT / name for name in CONTEXT} | {"wheels": wheels}
    tag = f"dlsched-test-{secrets.token_hex(4)}"
    client = connect(docker_host, timeout_s=600)
    with io.BytesIO() as context:
        with tarfile.open(fileobj=context, mode="w") as archive:
            for name, path in sources.items():
                archive.add(path, arcname=name)
        context.seek(0)
        said = [
            json.dumps(event)
            for event in client.build(
                fileobj=context,
                custom_context=True,
                tag=tag,
                rm=True,
                forcerm=True,
                decode=True,
                network_mode="none",
                buildargs={"BASE": BASE},
            )
        ]
    assert client.images(tag), "\n".join(said[-20:])
    yield tag
    with suppress(APIError):
        client.remove_image(tag)
    remove_unnamed(client, "\n".join(said))
    client.close()


def remove_unnamed(client: docker.APIClient, said: str) -> None:
    """Remove the image of a build's first stage: nobody else's image is named by what this build
    said and by nothing else."""
    for unnamed in client.images(filters={"dangling": True}):
        if unnamed["Id"].removeprefix("sha256:")[:12] in said:
            with suppress(APIError):
                client.remove_image(unnamed["Id"])
