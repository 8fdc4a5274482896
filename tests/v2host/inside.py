"""Looking and acting inside the emulated host, where these tests themselves run.

Owns that, with deadlines for a machine 20 times slower than others. It must not know what is
tested.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import docker

from dlsched.runtime.cgroup.read import group_folders

WITHIN_S = 300.0
POLL_S = 1.0
"""Polling takes the CPU from what is waited for."""
LIMITS = (
    "cpu.idle",
    "cpu.max",
    "cpu.max.burst",
    "cpu.weight",
    "memory.high",
    "memory.low",
    "memory.max",
    "memory.swap.max",
    "pids.max",
)


def shell(script: str, *, code: int | None = 0) -> str:
    """What a script writes, on both streams; `code` None takes every exit code."""
    done = subprocess.run(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert code is None or done.returncode == code, f"{script}: {done.returncode}\n{done.stdout}"
    return done.stdout.strip()


def until(true: Callable[[], bool], what: str, told: Callable[[], str] = str) -> None:
    """Poll; when the deadline passes it fails with `what`, and what is `told` then."""
    deadline_s = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < deadline_s, f"waited {WITHIN_S:.0f} s for {what}\n{told()}"
        time.sleep(POLL_S)


def group_of(client: docker.APIClient, container: str) -> Path:
    """The folder of a running container's group."""
    return group_folders(client.inspect_container(container)["State"]["Pid"])[""]


def limits_of(client: docker.APIClient, container: str) -> Mapping[str, str]:
    """What the kernel says of its limits, byte for byte; a file that is not there is left out."""
    folder = group_of(client, container)
    return {name: (folder / name).read_text() for name in LIMITS if (folder / name).exists()}
