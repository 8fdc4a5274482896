"""Memory limits on a real engine: raised while a container leaks, and given back."""

from __future__ import annotations

import json
from typing import Any

import docker
import pytest

from dlsched.cli.pages.why import change_cells
from dlsched.store.journal.reader import JournalReader
from tests.daemon.forked import command
from tests.daemon.strangers import Strangers
from tests.daemon.test_daemon import row
from tests.torture.kernel import kernel_files
from tools.base_image import BASE
from tools.session import JOURNAL, Session, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.engine, pytest.mark.long]

MIB = 1 << 20
LEAKS = """
import signal, sys, time
to, over_s = int(sys.argv[1]) << 20, float(sys.argv[2])
kept, held = [], 0
signal.signal(signal.SIGUSR1, lambda *_: kept.clear())
while held < to:
    kept.append(bytearray(4 << 20))
    held += 4 << 20
    time.sleep(over_s * (4 << 20) / to)
while True:
    time.sleep(3600)
"""
"""Takes that many MiB in that many seconds, and frees them on SIGUSR1."""


def leaks(to_mib: int, over_s: float) -> list[str]:
    return ["python", "-c", LEAKS, str(to_mib), str(over_s)]


def memory_of(client: docker.APIClient, name: str) -> tuple[int, int]:
    host = client.inspect_container(name)["HostConfig"]
    return host["Memory"], host["MemorySwap"]


def changes(node: Session, name: str) -> list[str]:
    with JournalReader(node.state_dir / JOURNAL) as reader:
        return [" ".join(change_cells(one)) for one in reversed(reader.last_changes(name, 50))]


def state(client: docker.APIClient, name: str) -> dict[str, Any]:
    return dict(client.inspect_container(name)["State"])


def memory_files(client: docker.APIClient, name: str) -> dict[str, str]:
    """What the kernel says of its memory limits, word for word. Its CPU limits may have been
    changed before a test can read them."""
    files = kernel_files(state(client, name)["Pid"])
    return {key: text for key, text in files.items() if key.startswith("memory.")}


def used(node: Session, job: str) -> int:
    """What it uses; 0: unknown."""
    memory: dict[str, int | None] = row(node, job).get("memory", {})
    return memory.get("working_set_bytes") or 0


def raised(node: Session, strangers: Strangers, client: docker.APIClient) -> tuple[str, Any]:
    """A container that leaks beyond its own limit and lives, since dlsched raises it; its name, and
    the kernel's files before."""
    labels = {"dlsched.enable": "true", "dlsched.memory.max": "256MiB"}
    name = strangers.run(leaks(120, 15), labels, mem_limit=64 * MIB, memswap_limit=80 * MIB)
    before = memory_files(client, name)
    wait_for(lambda: used(node, name) > 120 * MIB, 90, "its leak")
    limit, both = memory_of(client, name)
    assert 120 * MIB < limit <= 256 * MIB
    assert both - limit == 16 * MIB
    assert any(one.startswith("limit of memory 64 MiB -> ") for one in changes(node, name))
    return name, before


def test_an_adopted_container_that_leaks_lives_and_gets_its_limit_back_when_it_uses_less(
    node: Session, strangers: Strangers, docker_client: docker.APIClient
) -> None:
    node.start("fair")
    plain = strangers.run(leaks(120, 15), {}, mem_limit=64 * MIB, memswap_limit=64 * MIB)
    name, before = raised(node, strangers, docker_client)
    assert state(docker_client, plain)["OOMKilled"]
    now = memory_of(docker_client, name)
    back = node.client.drop(name)
    assert "its memory limit stays at " in (back["failure"] or "")
    assert memory_of(docker_client, name) == now
    docker_client.kill(name, "SIGUSR1")
    wait_for(lambda: memory_files(docker_client, name) == before, 90, "the daemon to give it back")
    assert memory_of(docker_client, name) == (64 * MIB, 80 * MIB)
    assert state(docker_client, name)["Running"]


def test_after_a_kill_release_gives_the_limit_back_as_soon_as_it_can(
    node: Session, strangers: Strangers, docker_client: docker.APIClient
) -> None:
    node.start("fair")
    name, before = raised(node, strangers, docker_client)
    node.kill()
    done = command(node, "release")
    assert done.returncode == 1
    assert "its memory limit stays at " in done.stdout + done.stderr
    assert strangers.limits(name) == (0, 0, 100_000, 1024)
    docker_client.kill(name, "SIGUSR1")
    wait_for(lambda: command(node, "release").returncode == 0, 60, "its memory to be free")
    assert memory_files(docker_client, name) == before
    assert state(docker_client, name)["Running"]


def test_job_of_a_file_starts_with_its_min_and_is_raised(
    node: Session, docker_client: docker.APIClient
) -> None:
    node.start("fair")
    words = json.dumps(leaks(120, 15))
    node.drop(
        "leaks",
        f"name: leaks\nimage: {BASE}\ncommand: {words}\n"
        "memory: {min: 64MiB, max: 256MiB}\nnetwork: none\n",
    )
    name = f"dlsched-{node.instance}-leaks"
    wait_for(lambda: used(node, "leaks") > 120 * MIB, 120, "its leak")
    limit, both = memory_of(docker_client, name)
    assert 120 * MIB < limit == both
    docker_client.kill(name, "SIGUSR1")
    wait_for(lambda: used(node, "leaks") < 40 * MIB, 30, "its memory to be free")
    node.stop()
    assert memory_of(docker_client, name) == (64 * MIB, 64 * MIB)
    assert state(docker_client, name)["Running"]
