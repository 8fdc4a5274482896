"""The base image of all examples and tests: Debian 12 with Python 3.11, under one name.

Where a registry answers, it is the official slim Python image; where none does, a bootstrapped
Debian of the same Python. Nothing else depends on which of the two it is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from tools import debian
from tools.engine_probe import connect
from tools.environment import BUILD
from tools.steps import SetupError, step

REPOSITORY, TAG = "dlsched-examples/base", "3.11"
BASE = f"{REPOSITORY}:{TAG}"
OFFICIAL = "python:3.11-slim-bookworm"
REGISTRY_TIMEOUT_S = 20
TRANSFER_TIMEOUT_S = 120
ROOT_ARCHIVE = BUILD / "images" / f"base-{debian.SUITE}.tar"

# Nothing that a container of ours reads: documents, translations, lists. Byte code it does read:
# without it each new container compiles what it imports, a fifth of a second for one that reports.
DOCUMENTS = (
    "usr/share/doc/*",
    "usr/share/man/*",
    "usr/share/info/*",
    "usr/share/locale/*",
    "var/cache/apt/*",
    "var/cache/debconf/*",
    "var/lib/apt/lists/*",
    "var/log/*",
)
IMPORT_CHANGES = ["ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]


def base_id(client: docker.APIClient) -> str | None:
    """Id of the engine's base image, or None when it does not have one."""
    return next((str(image["Id"]) for image in client.images(BASE)), None)


def registry_answers(host: str) -> bool:
    """Whether the engine reaches the official image's registry within the time limit."""
    try:
        with closing(connect(host, REGISTRY_TIMEOUT_S)) as client:
            client.inspect_distribution(OFFICIAL)  # type: ignore[no-untyped-call]
    except (DockerException, RequestException):
        return False
    return True


def pull_official(client: docker.APIClient) -> bool:
    """Pull the official image under our name; False when the registry fails on the way."""
    try:
        with step(f"base image: pulling {OFFICIAL}") as note:
            for event in client.pull(OFFICIAL, stream=True, decode=True):
                note(f"{event.get('status', '')} {event.get('progress', '')}")
                if "error" in event:
                    return False
            client.tag(OFFICIAL, REPOSITORY, tag=TAG)
    except (DockerException, RequestException):
        return False
    return True


def trim(root: Path, surplus: Sequence[str] = DOCUMENTS) -> None:
    """Take out of a Debian tree what no container of ours reads, and name its Python."""
    for pattern in surplus:
        for path in list(root.glob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    with suppress(FileExistsError):
        (root / "usr" / "bin" / "python").symlink_to("python3")


def bootstrap_archive() -> None:
    """Make the archive of a minimal Debian with Python. Raises SetupError."""
    if os.geteuid() != 0:
        raise SetupError(
            f"no registry answers, and only root can make the base image: "
            f"run as root once, or give the engine {BASE}"
        )
    debian.bootstrap_archive(ROOT_ARCHIVE, "base image", ["python3"], trim)


def import_archive(client: docker.APIClient) -> None:
    """Give the engine the base image from the archive."""
    with step("base image: importing"):
        client.import_image_from_file(
            str(ROOT_ARCHIVE), repository=REPOSITORY, tag=TAG, changes=IMPORT_CHANGES
        )


def ensure_base(host: str) -> str:
    """Make sure that the engine at `host` has the base image; returns its id. Raises SetupError,
    DockerException or requests' RequestException."""
    with closing(connect(host, TRANSFER_TIMEOUT_S)) as client:
        known = base_id(client)
        if known is None and not ROOT_ARCHIVE.is_file():
            with step("base image: asking for the official one"):
                there = registry_answers(host)
            if there and pull_official(client):
                known = base_id(client)
            else:
                bootstrap_archive()
        if known is None:
            import_archive(client)
            known = base_id(client)
    if known is None:
        raise SetupError(f"the engine took the base image, but does not know {BASE}")
    return known
