"""A host in a container: systemd as its first process, a Docker Engine inside, no network.

Owns its making, its end, and the ways to act in it. It must not know what is tested.
"""

from __future__ import annotations

import io
import json
import secrets
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
from docker.errors import APIError

from tests.inside import run_inside
from tests.waiting import until
from tools.environment import ROOT
from tools.systemd_image import BUSYBOX, ensure_systemd
from tools.wheels import debian_wheels

SOURCES = ("Makefile", "README.md", "pyproject.toml", "config", "dlsched", "requirements", "tools")
IMAGE = "busybox:here"
READY_WITHIN_S = 60.0

# Beyond what every container has: mounts, the engine's own networks, other processes' roots, and
# files of other users. A bounding set without them is what `--privileged` would not show.
CAPABILITIES = ["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH"]


class Host:
    """One such host."""

    def __init__(self, client: docker.APIClient, container: str) -> None:
        self._client = client
        self._container = container
        self._groups: dict[str, str] = {}

    def run(self, script: str, *, code: int | None = 0) -> str:
        """What a shell in the host writes, on both streams; `code` None takes every exit code."""
        ended, said = run_inside(self._client, self._container, ["sh", "-c", script])
        told = said.decode(errors="replace")
        assert code is None or ended == code, f"{script}: exit code {ended}\n{told}"
        return told.strip()

    def write(self, path: str, text: str) -> None:
        """A file in the host, with the folders above it."""
        # Not as an archive: those do not reach what is mounted later, as /run is.
        mark = secrets.token_hex(8)
        parent = Path(path).parent
        self.run(f"mkdir -p {parent} && cat >{path} <<'{mark}'\n{text.strip()}\n{mark}")

    def carry_in(self, folder: str, files: dict[str, Path]) -> None:
        """Files and folders of this host into a new folder of that one, by name."""
        self.run(f"mkdir -p {folder}")
        with io.BytesIO() as stream:
            with tarfile.open(fileobj=stream, mode="w") as archive:
                for name, path in files.items():
                    archive.add(path, arcname=name, filter=_without_caches)
            self._client.put_archive(self._container, folder, stream.getvalue())

    def show(self, *properties: str) -> dict[str, str]:
        """What systemd says of the service."""
        told = self.run(f"systemctl show dlsched -p {','.join(properties)}")
        return dict(line.partition("=")[::2] for line in told.splitlines())

    def log(self) -> str:
        """What the service and systemd wrote of it."""
        return self.run("journalctl -u dlsched --no-pager -o cat")

    def cpu_group(self, container: str) -> str:
        """Folder with the container's files of CPU limits; empty while it does not run.

        Looked for once: a container of that name must not be made anew.
        """
        if not self._groups.get(container):
            self._groups[container] = self.run(
                f"id=$(docker inspect -f '{{{{.Id}}}}' {container} 2>/dev/null) && find"
                ' /sys/fs/cgroup -path "*$id/*" -name cpu.shares -o -path "*$id/*" -name cpu.weight'
                " | head -1 | xargs -r dirname",
                code=None,
            )
        return self._groups[container]

    def inspect(self, container: str) -> dict[str, object]:
        """What the engine inside says of a container."""
        (told,) = json.loads(self.run(f"docker inspect {container}"))
        return dict(told)

    def engine_answers(self) -> bool:
        """Whether the engine inside does."""
        return self.run("docker version >/dev/null && echo yes", code=None).endswith("yes")

    def wait(self, condition: Callable[[], object], deadline_s: float, what: str) -> None:
        """Poll until true; fails with the service's log when the deadline passes."""
        until(condition, what, deadline_s, 0.2, shown=lambda: self.log()[-4000:])


@contextmanager
def host(docker_host: str, client: docker.APIClient, instance: str) -> Iterator[Host]:
    """A host that runs, with this repository in /src; all of it is gone at the end."""
    made = client.create_container(
        ensure_systemd(docker_host),
        ["/sbin/first"],
        name=f"dlsched-test-host-{secrets.token_hex(4)}",
        hostname="host",
        labels={"dlsched.instance": instance},
        environment={"container": "docker"},
        # The engine inside cannot keep its layers on layers.
        volumes=["/var/lib/docker", "/var/lib/containerd"],
        host_config=client.create_host_config(
            network_mode="none",
            cgroupns="private",
            cap_add=CAPABILITIES,
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            tmpfs={"/run": "", "/tmp": "exec"},
        ),
    )
    one = Host(client, made["Id"])
    try:
        client.start(made["Id"])
        one.wait(one.engine_answers, READY_WITHIN_S, "the engine inside")
        wheels = debian_wheels(str(client.version()["Arch"]))
        one.carry_in("/src", {name: ROOT / name for name in SOURCES} | {"wheels": wheels})
        one.run(f"tar -C /{BUSYBOX} -c . | docker import - {IMAGE}")
        yield one
    finally:
        with suppress(APIError):
            client.remove_container(made["Id"], force=True, v=True)


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in entry.name else entry
