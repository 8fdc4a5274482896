"""Finds the container that the agent itself runs in, which it must never act on."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from dlsched.runtime.cgroup.read import PROC

_ID = re.compile(r"[0-9a-f]{64}")


def own_containers(proc: Path = PROC) -> frozenset[str]:
    """Ids that may be the agent's own container; empty on a host."""
    found: set[str] = set()
    with suppress(OSError):
        found.update(_ID.findall((proc / "self" / "cgroup").read_text(encoding="utf-8")))
    with suppress(OSError):
        for line in (proc / "self" / "mountinfo").read_text(encoding="utf-8").splitlines():
            fields = line.split()
            # In its own cgroup namespace only the files that the engine binds reveal the id.
            if len(fields) > 4 and fields[4] in ("/etc/hostname", "/etc/resolv.conf"):
                found.update(_ID.findall(fields[3]))
    return frozenset(found)
