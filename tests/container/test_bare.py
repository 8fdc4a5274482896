"""`dlsched` on a machine where nothing was prepared for it: no settings, no rights, no folders, no
engine. Each thing that is missing is one line that says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import docker
import pytest
from docker.errors import APIError

from tools.session import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine, pytest.mark.timeout(900)]

SOCKET = "/var/run/docker.sock"
NOBODY = "65534:65534"
FOLDERS = (("state", "/var/lib/dlsched", "/var/lib"), ("run", "/run/dlsched", "/run"))
INSTALL = (
    "install or start Docker (systemctl start docker), or set another address (DOCKER_HOST, "
    "setting engine.host)"
)
NO_ENGINE = (
    f"error: no answer from the Docker Engine at unix://{SOCKET}: No such file or directory; "
    f"{INSTALL}"
)


@dataclass
class Ran:
    """What a command came to."""

    code: int
    lines: list[str]


Run = Callable[..., Ran]


@pytest.fixture
def run(image: str, docker_client: docker.APIClient, docker_host: str) -> Iterator[Run]:
    """`dlsched` in a fresh container of the agent's image, with nothing else in it."""
    made: list[str] = []

    def in_container(*words: str, user: str = "0:0", until: str | None = None, **host: Any) -> Ran:
        container = docker_client.create_container(
            image,
            list(words),
            user=user,
            host_config=docker_client.create_host_config(network_mode="none", **host),
        )["Id"]
        made.append(container)
        docker_client.start(container)

        def lines() -> list[str]:
            return [str(line) for line in docker_client.logs(container).decode().splitlines()]

        if until is not None:
            wait_for(lambda: any(until in line for line in lines()), 60, f"{until!r}")
            docker_client.stop(container, timeout=30)
        code = int(docker_client.wait(container, timeout=60)["StatusCode"])
        wait_for(lines, 30, "what it said, which a busy engine has after its end")
        return Ran(code, lines())

    yield in_container
    for container in made:
        with suppress(APIError):
            docker_client.remove_container(container, force=True, v=True)


def socket_of(docker_host: str) -> str:
    """A mount of the engine's socket where everybody looks for it."""
    if not docker_host.startswith("unix://"):
        pytest.skip(f"the engine's socket cannot be mounted: {docker_host}")
    return f"{docker_host.removeprefix('unix://')}:{SOCKET}"


def test_root_without_an_engine(run: Run) -> None:
    assert run("run") == Ran(3, [NO_ENGINE])


def test_a_user_without_anything_learns_all_of_it_together(run: Run) -> None:
    ran = run("run", user=NOBODY)
    assert ran.code == 1
    mine = "run as root, or set {0}_dir (--{0}-dir) to a folder of yours"
    assert ran.lines == [
        f"error: {path} does not exist, and cannot be created in {above}: {mine.format(name)}"
        for name, path, above in FOLDERS
    ] + [f"error: the Docker Engine at unix://{SOCKET}: {INSTALL}"]


def test_a_user_with_folders_and_without_permission_for_the_socket(
    run: Run, docker_host: str
) -> None:
    words = ("run", "--state-dir", "/tmp/state", "--run-dir", "/tmp/run")
    ran = run(*words, user=NOBODY, binds=[socket_of(docker_host)])
    assert ran.code == 3
    (line,) = ran.lines
    assert line.startswith(
        f"error: no answer from the Docker Engine at unix://{SOCKET}: Permission"
    )
    assert "; run as root" in line


def test_root_in_a_read_only_container_is_not_told_to_be_root(run: Run, docker_host: str) -> None:
    ran = run("run", read_only=True, binds=[socket_of(docker_host)])
    assert ran.code == 1
    assert ran.lines == [
        f"error: {path} does not exist, and cannot be created in {above}: set {name}_dir "
        f"(--{name}-dir) to a folder of yours"
        for name, path, above in FOLDERS
    ]


def test_without_settings_and_watch_folder_it_runs_and_says_so(run: Run, docker_host: str) -> None:
    ran = run("run", until="`dlsched probe` shows", binds=[socket_of(docker_host)])
    assert ran.code == 0
    for text in (
        "no settings file /etc/dlsched/dlsched.yaml: every setting has its default; --config names",
        "kept for the host (setting reserve)",
        (
            "/etc/dlsched/jobs.d cannot be listed: No such file or directory (`mkdir -p "
            "/etc/dlsched/jobs.d`, or `--watch` another folder)"
        ),
        "first start: nothing has been changed yet; dlsched manages 0 adopted containers and 0",
        "/etc/dlsched/jobs.d has no job file; `dlsched probe` shows what could be adopted, and how",
    ):
        assert sum(text in line for line in ran.lines) == 1, ran.lines
    assert not any("does not run as root" in line for line in ran.lines)


@pytest.mark.parametrize(
    ("user", "words"),
    [("0:0", ("ps",)), (NOBODY, ("ps",)), (NOBODY, ("adopt", "web", "--latency", "1s"))],
)
def test_without_a_daemon_one_line_says_how_to_start_it(
    run: Run, words: tuple[str, ...], user: str
) -> None:
    ran = run(*words, user=user)
    assert ran.code == 3
    (line,) = ran.lines
    assert line.startswith("error: no daemon answers on /run/dlsched/")
    assert line.endswith("or `dlsched run`")
