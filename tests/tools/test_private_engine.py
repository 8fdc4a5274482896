"""Private engines on the real Docker: what they leave alone, and what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.tools.live import (
    TINY,
    assert_nothing_left,
    load_sleep_image,
    needs_dockerd,
    rules_and_interfaces,
    run_folder_of,
    start_sleep,
)
from tools.engine_probe import answers, connect
from tools.engine_remains import cgroup_mounts, daemons_of
from tools.engine_slot import Slot
from tools.private_engine import clear_crashed, private_engine


@pytest.mark.slow
@needs_dockerd
@pytest.mark.engine
def test_images_stay_for_the_next_run_and_containers_do_not(engines: Path) -> None:
    with private_engine(engines) as engine:
        load_sleep_image(engine.host)
        start_sleep(engine.host)
    with private_engine(engines) as engine, closing(connect(engine.host)) as client:
        assert [image["RepoTags"] for image in client.images()] == [[TINY]]
        assert client.containers(all=True) == []


@pytest.mark.slow
@pytest.mark.usefixtures("host_network_alone")
@needs_dockerd
@pytest.mark.engine
@pytest.mark.parametrize("paused", [False, True])
def test_after_a_crash_of_the_caller_the_next_run_clears(
    engines: Path, caller: subprocess.Popen[bytes], docker_host: str, paused: bool
) -> None:
    slot = Slot(engines / "0")
    run_folder = run_folder_of(slot)
    before = rules_and_interfaces()
    host = f"unix://{run_folder}/engine.sock"
    load_sleep_image(host)
    _, inside = start_sleep(host)
    parent = f"{slot.cgroup_parent}-jobs"
    _, elsewhere = start_sleep(host, parent=f"/{parent}", pause=paused)
    with closing(connect(host)) as client:
        client.create_network("left-behind")
    assert rules_and_interfaces() != before
    os.killpg(caller.pid, signal.SIGKILL)
    caller.wait()
    if paused:
        # The hard case: not even the engine itself is there to help.
        for pid in daemons_of(run_folder)[:2]:
            with suppress(ProcessLookupError):  # its containerd ends with dockerd
                os.kill(pid, signal.SIGKILL)
    clear_crashed(engines)
    assert_nothing_left(slot, run_folder, inside, elsewhere)
    assert rules_and_interfaces() == before
    for mount in cgroup_mounts():
        # Whoever names a parent group owns it; empty it must be.
        with suppress(FileNotFoundError):
            (mount / parent).rmdir()
    assert answers(docker_host)
    with private_engine(engines) as again, closing(connect(again.host)) as client:
        assert client.containers(all=True) == []
