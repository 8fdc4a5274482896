"""Helpers of the tests that start private engines: a tiny image, and what must be left behind."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from tools.engine_probe import connect
from tools.engine_remains import command_line, daemons_of, groups_of
from tools.engine_slot import Slot

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 120.0
TINY = "dlsched-test/sleep:latest"

needs_dockerd = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin") is None,
    reason="a private engine needs root and dockerd",
)


def load_sleep_image(host: str) -> None:
    """Give the engine an image of a few megabytes that can only sleep."""
    sleep = shutil.which("sleep")
    assert sleep is not None
    linked = subprocess.run(["ldd", sleep], capture_output=True, text=True, check=True).stdout
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", dereference=True) as tar:
        tar.add(sleep, arcname="bin/sleep")
        for library in re.findall(r"(/\S+) \(0x", linked):
            tar.add(library, arcname=library.lstrip("/"))
    repository, tag = TINY.split(":")
    with closing(connect(host, 120)) as client:
        client.import_image_from_data(archive.getvalue(), repository=repository, tag=tag)


def start_sleep(host: str, *, parent: str | None = None, pause: bool = False) -> tuple[str, int]:
    """Start a sleeping container; returns its id and the pid of its process."""
    with closing(connect(host, 120)) as client:
        settings = client.create_host_config(network_mode="none", cgroup_parent=parent)
        made = client.create_container(TINY, ["/bin/sleep", "1000"], host_config=settings)
        client.start(made["Id"])
        if pause:
            client.pause(made["Id"])
        return made["Id"], client.inspect_container(made["Id"])["State"]["Pid"]


def rules_and_interfaces() -> list[str]:
    """What an engine could have changed in the host's network."""
    seen = sorted(path.name for path in Path("/sys/class/net").iterdir())
    for command in ("iptables-save", "ip6tables-save"):
        found = shutil.which(command, path=f"{os.environ['PATH']}:/usr/sbin")
        if found:
            text = subprocess.run([found], capture_output=True, text=True, check=False).stdout
            # Without the counters of packets, which anybody's traffic moves.
            lines = [line.split(" [")[0] for line in text.splitlines()]
            seen += [line for line in lines if not line.startswith("#")]
    forwarding = Path("/proc/sys/net/ipv4/ip_forward").read_text(encoding="ascii").strip()
    return [*seen, f"ip_forward {forwarding}"]


def mounts_naming(*words: str) -> list[str]:
    """This process's mounts that mention one of the words."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if any(word in line for word in words)]


def assert_nothing_left(slot: Slot, run_folder: Path, *pids: int) -> None:
    """No daemon, group, mount, folder or container process of that engine exists."""
    assert daemons_of(run_folder) == ()
    assert groups_of(slot) == ()
    assert mounts_naming(str(run_folder), str(slot.folder)) == []
    assert not run_folder.exists()
    assert slot.recorded_run_folder() is None
    # A zombie has no command line any more: ended, but its new parent has not looked yet.
    assert [pid for pid in pids if command_line(pid)] == []


def run_folder_of(slot: Slot) -> Path:
    """Where the slot's engine runs."""
    folder = slot.recorded_run_folder()
    assert folder is not None
    return folder
