"""Owns the image of a whole host: Debian with systemd as its first process and an engine inside.

For tests of the service, which need a systemd that they may stop and break. Made here,
never pulled: no registry has it.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from tools import debian
from tools.base_image import DOCUMENTS, TRANSFER_TIMEOUT_S, trim
from tools.engine_probe import connect
from tools.environment import BUILD, digest_of
from tools.steps import SetupError, step

REPOSITORY = "dlsched-tests/systemd"
PACKAGES = ("systemd-sysv", "procps", "docker.io", "python3-venv", "make", "busybox-static")
BUSYBOX = "root/busybox"
"""The tree of a small image for the engine inside, to be imported there."""

# As a private engine: no bridge, no rules, nothing of the network outside.
ENGINE_SETTINGS = '{"bridge": "none", "iptables": false, "ip6tables": false, "ip-forward": false}\n'
# An engine makes the cgroup mounts of a container read-only, whatever its capabilities.
FIRST = """#!/bin/sh
for mount in /sys/fs/cgroup /sys/fs/cgroup/*; do
    mountpoint -q "$mount" && mount -o remount,bind,rw "$mount"
done
exec /lib/systemd/systemd
"""
# Work of a host that lives for longer than a test.
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "getty.target",
    "console-getty.service",
)


def finish(root: Path) -> None:
    """Make the Debian tree a host for tests."""
    trim(root, DOCUMENTS)
    (root / "etc" / "docker").mkdir(exist_ok=True)
    (root / "etc" / "docker" / "daemon.json").write_text(ENGINE_SETTINGS, encoding="ascii")
    first = root / "sbin" / "first"
    first.write_text(FIRST, encoding="ascii")
    first.chmod(0o755)
    for unit in MASKED:
        (root / "etc" / "systemd" / "system" / unit).symlink_to("/dev/null")
    programs = root / BUSYBOX / "bin"
    programs.mkdir(parents=True)
    (programs / "busybox").write_bytes((root / "bin" / "busybox").read_bytes())
    (programs / "busybox").chmod(0o755)
    for name in ("sh", "sleep", "id"):
        (programs / name).symlink_to("busybox")


def ensure_systemd(host: str) -> str:
    """Make sure that the engine at `host` has the image; returns its name. Raises SetupError."""
    digest = digest_of([Path(__file__).read_bytes()])[:16]
    name = f"{REPOSITORY}:{digest}"
    archive = BUILD / "images" / f"systemd-{digest}.tar"
    with closing(connect(host, TRANSFER_TIMEOUT_S)) as client:
        if client.images(name):
            return name
        if not archive.is_file():
            if os.geteuid() != 0:
                raise SetupError("only root can make the image of a host with systemd: run as root")
            for former in archive.parent.glob("systemd-*.tar"):
                former.unlink()
            debian.bootstrap_archive(archive, "systemd image", PACKAGES, finish)
        with step("systemd image: importing"):
            client.import_image_from_file(str(archive), repository=REPOSITORY, tag=digest)
    return name
