"""Finds and clears what one private engine leaves behind.

Only what provably belongs to that engine is touched: daemons with its run folder (a random name) on
their command line, and control groups with its own parent's name or the id of one of its
containers. Mounts end with the engine's mount namespace.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import socket
import struct
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.engine_slot import DAEMONS_SUFFIX, Slot

DAEMONS = ("dockerd", "containerd", "containerd-shim", "containerd-shim-runc-v2", "docker-proxy")
CGROUP_TYPES = ("cgroup", "cgroup2")
CLEAR_WITHIN_S = 60.0
POLL_S = 0.05

# Of linux/sockios.h.
SET_INTERFACE_FLAGS = 0x8914
REMOVE_BRIDGE = 0x89A1


@dataclass(frozen=True)
class Remains:
    """What is left of one engine at this moment."""

    daemons: tuple[int, ...]
    groups: tuple[Path, ...]


def command_line(pid: int) -> list[str]:
    """Arguments of a process; empty when it is gone or a zombie."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return raw.decode(errors="replace").split("\0")[:-1]


def is_daemon_of(pid: int, run_folder: Path, names: Sequence[str] = DAEMONS) -> bool:
    """Whether this process is one of the named daemons of the engine in `run_folder`."""
    arguments = command_line(pid)
    if not arguments or Path(arguments[0]).name not in names:
        return False
    return any(f"{run_folder}/" in argument for argument in arguments)


def daemons_of(run_folder: Path) -> tuple[int, ...]:
    """Daemons of the engine, dockerd first, so that it cannot revive what is ended next."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = [(pid, command_line(pid)) for pid in pids if is_daemon_of(pid, run_folder)]

    def rank(daemon: tuple[int, list[str]]) -> tuple[int, int]:
        pid, arguments = daemon
        name = Path(arguments[0]).name if arguments else DAEMONS[-1]
        return DAEMONS.index(name), pid

    return tuple(pid for pid, _ in sorted(found, key=rank))


def cgroup_mounts() -> list[Path]:
    """Where the control group hierarchies are mounted, version 1 and 2 alike."""
    mounts = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] in CGROUP_TYPES:
            mounts.append(Path(left.split()[4]))
    return mounts


def groups_of(slot: Slot) -> tuple[Path, ...]:
    """Control groups of the slot's engine, inner ones before the ones that hold them."""
    parents = {slot.cgroup_parent, slot.cgroup_parent + DAEMONS_SUFFIX}
    return groups_named(slot.container_ids() | parents)


def groups_named(names: Collection[str]) -> tuple[Path, ...]:
    """Control groups of these names and all within them, inner ones first."""
    found: set[Path] = set()
    for mount in cgroup_mounts():
        for folder, _, _ in os.walk(mount):
            path = Path(folder)
            if path.name in names or path.parent in found:
                found.add(path)
    return tuple(sorted(found, key=lambda path: -len(path.parts)))


def end_process(
    pid: int, how: signal.Signals, is_ours: Callable[[int], bool], wait_s: float = 0.0
) -> None:
    """Signal a process if it is still the one meant, and wait up to wait_s for its end. A pidfd
    pins it before the check, so a reused PID is never hit."""
    try:
        pinned = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if is_ours(pid):
            signal.pidfd_send_signal(pinned, how)
            ended = select.poll()
            ended.register(pinned, select.POLLIN)
            ended.poll(wait_s * 1000)
    except ProcessLookupError:
        pass
    finally:
        os.close(pinned)


def end_dockerd(run_folder: Path, within_s: float) -> None:
    """Ask the engine's dockerd to end, and wait for it."""

    def is_dockerd(pid: int) -> bool:
        return is_daemon_of(pid, run_folder, ("dockerd",))

    for pid in filter(is_dockerd, daemons_of(run_folder)):
        end_process(pid, signal.SIGTERM, is_dockerd, within_s)


def end_containerd(run_folder: Path, within_s: float) -> None:
    """End the containerd of a dockerd that was killed. It dies with that one, but a zombie of it,
    or another process that has its PID by now, would pass for it at the next start."""

    def is_containerd(pid: int) -> bool:
        return is_daemon_of(pid, run_folder, ("containerd",))

    for pid in filter(is_containerd, daemons_of(run_folder)):
        end_process(pid, signal.SIGKILL, is_containerd, within_s)
    (run_folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)


def thaw(group: Path) -> None:
    """Thaw a paused group: on version 1 a frozen process does not even die."""
    for name, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        with suppress(OSError):
            if (group / name).exists():
                (group / name).write_text(value, encoding="ascii")


def processes_in(group: Path) -> list[int]:
    """Processes of one control group, without inner groups."""
    try:
        return [int(pid) for pid in (group / "cgroup.procs").read_text(encoding="ascii").split()]
    except OSError:
        return []


def in_group(pid: int, group: Path) -> bool:
    """Whether the process is in this control group now."""
    return pid in processes_in(group)


def end_group(group: Path) -> None:
    """Kill the processes of one control group, without inner groups."""
    thaw(group)
    for pid in processes_in(group):
        end_process(pid, signal.SIGKILL, partial(in_group, group=group))


def remove_bridges(slot: Slot) -> None:
    """Remove bridge interfaces of networks in this engine's own network database."""
    database = slot.data_root / "network" / "files" / "local-kv.db"
    if not database.is_file():
        return
    known = database.read_bytes()
    for bridge in Path("/sys/class/net").glob("br-*"):
        # Docker names a bridge by twelve hexadecimal digits of its network's random id.
        name = bridge.name.encode()
        if len(name) == len("br-") + 12 and name[len("br-") :] in known:
            # Through ioctl, since a minimal machine has no `ip` command.
            with suppress(OSError), socket.socket() as control:
                fcntl.ioctl(control, SET_INTERFACE_FLAGS, struct.pack("16sH14x", name, 0))
                fcntl.ioctl(control, REMOVE_BRIDGE, name + b"\0")


def clear(slot: Slot, run_folder: Path) -> Remains:
    """End and remove all that is left of the slot's engine; returns what resisted. Never raises."""
    deadline_s = time.monotonic() + CLEAR_WITHIN_S
    while True:
        for pid in daemons_of(run_folder):
            end_process(pid, signal.SIGKILL, partial(is_daemon_of, run_folder=run_folder))
        for group in groups_of(slot):
            end_group(group)
            with suppress(OSError):
                group.rmdir()
        left = Remains(daemons_of(run_folder), groups_of(slot))
        if left == Remains((), ()) or time.monotonic() > deadline_s:
            break
        time.sleep(POLL_S)
    remove_bridges(slot)
    if not left.daemons:
        shutil.rmtree(run_folder, ignore_errors=True)
        if not left.groups:
            slot.forget()
    return left
