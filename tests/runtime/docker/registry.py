"""A private image registry with a password: Debian's docker-registry, unpacked, not installed.

Installed it would be a service of the machine, on a port that may be somebody's.
"""

from __future__ import annotations

import io
import secrets
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker

from tools import debian
from tools.environment import BUILD
from tools.steps import SetupError, run_step

FOLDER = BUILD / "registry"
BINARY = FOLDER / "usr" / "bin" / "docker-registry"
USER, PASSWORD = "tester", "open sesame"
# bcrypt of the password, with the cheapest cost there is.
HTPASSWD = "tester:$2b$04$JNI04xSEY.HxMZVWQ/OUf.QIEihhdK.5TBNGrye6ZL.7nAZ20Qlhy\n"
UP_WITHIN_S = 60.0

CONFIG = """\
version: 0.1
log: {{accesslog: {{disabled: true}}, level: error}}
storage: {{filesystem: {{rootdirectory: "{folder}/images"}}}}
http: {{addr: "127.0.0.1:{port}"}}
auth: {{htpasswd: {{realm: test, path: "{folder}/htpasswd"}}}}
"""


@dataclass(frozen=True)
class Registry:
    """A registry that answers, at an address that engines take without TLS."""

    address: str

    def push_image(self, client: docker.APIClient) -> str:
        """Put a small image of random content there and nowhere else; returns its reference."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            member = tarfile.TarInfo("content")
            member.size = 1 << 20
            archive.addfile(member, io.BytesIO(secrets.token_bytes(member.size)))
        repository = f"{self.address}/{secrets.token_hex(4)}"
        client.import_image_from_data(content.getvalue(), repository=repository, tag="1")
        auth = {"username": USER, "password": PASSWORD}
        for message in client.push(repository, "1", stream=True, decode=True, auth_config=auth):
            assert "error" not in message, message
        # By force: a test beside this one may make a scratch container from any image there is.
        client.remove_image(f"{repository}:1", force=True)
        return f"{repository}:1"


def registry_binary() -> Path:
    """Debian's docker-registry, downloaded once. Raises SetupError."""
    if not BINARY.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        download = ["apt-get", "download", "docker-registry"]
        try:
            run_step("Debian package docker-registry", download, cwd=FOLDER)
        except SetupError:
            if not debian.installable():
                raise
            run_step("Debian package lists", ["apt-get", "-q", "-y", "update"])
            run_step("Debian package docker-registry", download, cwd=FOLDER)
        package = next(FOLDER.glob("docker-registry_*.deb"))
        run_step("docker-registry unpacked", ["dpkg-deb", "-x", str(package), str(FOLDER)])
    return BINARY


@contextmanager
def serving(folder: Path) -> Iterator[Registry]:
    """A registry that keeps its images in `folder`. Raises SetupError."""
    binary = registry_binary()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "htpasswd").write_text(HTPASSWD, encoding="ascii")
    config = folder / "registry.yml"
    config.write_text(CONFIG.format(folder=folder, port=port), encoding="ascii")
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([binary, "serve", config], stdout=log, stderr=log)
    try:
        deadline_s = time.monotonic() + UP_WITHIN_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise SetupError((folder / "registry.log").read_text()) from None
                time.sleep(0.05)
        yield Registry(f"127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()
