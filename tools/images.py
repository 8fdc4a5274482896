"""Builds the example images: one for each folder of examples/images with a Dockerfile in it.

Packages are filled in from outside (`pip install --target`, for the image's Python and not the
host's), so that a build needs no network. An image is built again only when the digest of what
goes into it, kept in a label, has changed.

    python -m tools.images [NAME...] [-- COMMAND...]    makes those images (all, if none is named),
                                                        then becomes COMMAND
    python -m tools.images --help                       lists the names
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from tools.base_image import BASE, ensure_base
from tools.engine import MISSING
from tools.engine_probe import connect
from tools.environment import BUILD, ROOT, digest_of
from tools.steps import TAIL_LINES, SetupError, run_step, say, step
from tools.systemd_image import ensure_systemd

SOURCES = ROOT / "examples" / "images"
PACKAGES = BUILD / "images"
REPOSITORY = "dlsched-examples"
# Python and no packages: what the others are built on.
PLAIN = "base"
# Not an example: it takes minutes to make, too long for the first test that needs it.
SYSTEMD = "systemd"
DIGEST_LABEL = "dlsched.image.digest"
BUILD_TIMEOUT_S = 300
PYTHON_VERSION = "3.11"
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
# Debian 12 has glibc 2.36; pip takes each name literally, so every older one is named, too.
GLIBC_MINORS = range(36, 16, -1)
NOT_NEEDED = ("tests", "__pycache__")
# Beside requirements.txt: what of the packages an image does without, one glob a line.
SURPLUS = "surplus.txt"


def platforms(architecture: str) -> list[str]:
    """Wheel platforms that a Debian 12 image of this architecture takes, newest first."""
    machine = ARCHITECTURES.get(architecture, architecture)
    return [f"manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS] + [
        f"manylinux2014_{machine}",
        f"manylinux2010_{machine}",
        f"manylinux1_{machine}",
    ]


def files_of(folder: Path) -> list[Path]:
    """The folder's own files in a fixed order, caches left out."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]


def digest_of_folder(folder: Path, *more: str) -> str:
    """Digest of names, modes and contents of a folder's files, and of what else matters."""
    parts = [text.encode() for text in more]
    for path in files_of(folder):
        executable = "x" if path.stat().st_mode & 0o100 else "-"
        parts += [f"{executable} {path.relative_to(folder)}".encode(), path.read_bytes()]
    return digest_of(parts)


def surplus_of(source: Path) -> list[str]:
    """Globs of what an image of this folder does without, within its packages."""
    listed = source / SURPLUS
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
    return [line for line in lines if line and not line.startswith("#")]


def remove_surplus(packages: Path, globs: Sequence[str]) -> None:
    """Remove what no image needs, and what these globs name.

    Raises SetupError for a glob that names nothing: the package has changed, the list has not.
    """
    surplus = [path for path in packages.rglob("*") if path.is_dir() and path.name in NOT_NEEDED]
    surplus += packages.glob("bin")
    for glob in globs:
        named = list(packages.glob(glob))
        if not named:
            raise SetupError(f"{SURPLUS}: {glob}: matches nothing in the packages")
        surplus += named
    for path in surplus:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def fill_packages(requirements: Path, architecture: str) -> Path:
    """Folder with the packages of a requirements file for the image's Python; cached by content.

    Raises SetupError.
    """
    surplus = surplus_of(requirements.parent)
    digest = digest_of(
        [requirements.read_bytes(), architecture.encode(), *(glob.encode() for glob in surplus)]
    )[:16]
    name = requirements.parent.name
    filled = PACKAGES / name / f"packages-{digest}"
    if filled.is_dir():
        return filled
    shutil.rmtree(PACKAGES / name, ignore_errors=True)
    partial_folder = PACKAGES / name / "partial"
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    # The file is complete: pip would judge further requirements by the host's own Python.
    command += [
        "--no-deps",
        "--no-compile",
        "--only-binary=:all:",
        "--python-version",
        PYTHON_VERSION,
    ]
    for platform in platforms(architecture):
        command += ["--platform", platform]
    command += ["--target", str(partial_folder), "-r", str(requirements)]
    partial_folder.mkdir(parents=True)
    run_step(f"image {name}: packages for Python {PYTHON_VERSION}", command)
    remove_surplus(partial_folder, surplus)
    partial_folder.rename(filled)
    return filled


def build_context(source: Path, packages: Path | None) -> IO[bytes]:
    """Archive to build from: the folder's files, and the packages as site-packages/.

    A file of its own without a name: it can be larger than the memory at hand.
    """
    context = tempfile.TemporaryFile()  # noqa: SIM115 - who asked for it closes it
    with tarfile.open(fileobj=context, mode="w") as archive:
        for path in files_of(source):
            archive.add(path, arcname=str(path.relative_to(source)))
        if packages is not None:
            archive.add(packages, arcname="site-packages")
    context.seek(0)
    return context


def built_digest(client: docker.APIClient, image: str) -> str | None:
    """The digest in the label of the engine's image, or None without such an image."""
    for known in client.images(image):
        return (known["Labels"] or {}).get(DIGEST_LABEL)
    return None


def ensure_image(client: docker.APIClient, source: Path, base_id: str) -> str:
    """Make sure that the engine has the image of this folder as it is now; returns its tag.

    Raises SetupError with the end of the build's output when it cannot be built.
    """
    tag = f"{REPOSITORY}/{source.name}:latest"
    architecture = str(client.version()["Arch"])
    digest = digest_of_folder(source, base_id, architecture)
    if built_digest(client, tag) == digest:
        return tag
    requirements = source / "requirements.txt"
    packages = fill_packages(requirements, architecture) if requirements.is_file() else None
    said: list[str] = []
    with (
        step(f"image {source.name}: building") as note,
        build_context(source, packages) as context,
    ):
        events = client.build(
            fileobj=context,
            custom_context=True,
            tag=tag,
            rm=True,
            forcerm=True,
            decode=True,
            network_mode="none",
            buildargs={"BASE": BASE},
            labels={DIGEST_LABEL: digest},
        )
        for event in events:
            if "error" in event:
                for line in said[-TAIL_LINES:]:
                    say(f"         | {line}")
                raise SetupError(f"image {source.name}: {event['error']}")
            said += str(event.get("stream", "")).splitlines()
            note(said[-1] if said else "")
    return tag


def ensure_all(host: str, names: Sequence[str] = (), sources: Path = SOURCES) -> list[str]:
    """Make sure of the base image and of these example images, or of all; returns their tags.

    Raises SetupError, also for a name that no folder has.
    """
    folders = examples(sources)
    for name in names:
        if name not in (PLAIN, *folders):
            raise SetupError(f"images: {name!r} is none of {', '.join((PLAIN, *folders))}")
    made = [folders[name] for name in names or folders if name != PLAIN]
    try:
        base_id = ensure_base(host)
        with closing(connect(host, BUILD_TIMEOUT_S)) as client:
            return [BASE, *(ensure_image(client, folder, base_id) for folder in made)]
    except (DockerException, RequestException) as error:
        raise SetupError(f"images: the engine at {host} fails: {error}") from error


def examples(sources: Path = SOURCES) -> dict[str, Path]:
    """The folders of example images, by name."""
    return {path.parent.name: path.parent for path in sorted(sources.glob("*/Dockerfile"))}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.images",
        usage="python -m tools.images [NAME...] [-- COMMAND...]",
        description="Make example images on the engine of DOCKER_HOST, then run COMMAND, if one is "
        f"given. An image that is made already is kept. Each is {REPOSITORY}/NAME, and {BASE} is "
        "always made.",
    )
    known = ", ".join((PLAIN, *examples(), SYSTEMD))
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help=f"one of {known}; none: all but {SYSTEMD}, a host for tests. It is made beside the "
        "others that are named, or beside all",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the images on DOCKER_HOST's engine, then become the command, if one is given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--") if "--" in given else len(given)
    names, command = _parser().parse_args(given[:at]).names, given[at + 1 :]
    try:
        if MISSING not in os.environ:
            host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
            ensure_all(host, [name for name in names if name != SYSTEMD])
            if SYSTEMD in names and os.geteuid() == 0:
                ensure_systemd(host)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    if command:
        # The same process goes on as the command, so that signals reach it directly.
        os.execvp(command[0], command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
