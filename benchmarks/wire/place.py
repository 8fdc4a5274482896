"""Where the bench runs: in a network of its own, with processes that look like containers.

A stand-in for a container is a process in a control group named by 64 hexadecimal digits, and if
asked in a network of its own on a pair of interfaces, as a bridge network has it. No packet leaves
the namespaces that the bench makes, and they end with it.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.places import ROOT
from dlsched.runtime.cgroup.read import hierarchies
from tools import debian
from tools.steps import SetupError

INSIDE = "DLSCHED_WIRE_BENCH"
"""Environment variable of a process that is in the bench's own namespaces."""
_SEPARATE = """
set -e
kept=$(mktemp -d)
mount --rbind /sys/fs/cgroup "$kept"
mount -t sysfs sysfs /sys
mount --rbind "$kept" /sys/fs/cgroup
umount -l "$kept"
rmdir "$kept"
ip link set lo up
exec "$@"
"""
_JOIN = """
for group in $GROUPS_TO_JOIN; do echo $$ >"$group/cgroup.procs" || exit 70; done
"""
_OWN_NETWORK = """
mount -t sysfs sysfs /sys && ip link set lo up && echo ready && read -r _ || exit 71
"""
ANSWERS_WITHIN_S = 60.0
_NETWORK = ipaddress.ip_network("10.123.0.0/16")
"""Of pairs of interfaces, four addresses each; no other network sees them."""


def enter(arguments: Sequence[str]) -> None:
    """Go on in namespaces of the bench's own: becomes another process, unless it is there already.
    Raises SetupError."""
    if os.environ.get(INSIDE):
        return
    if os.geteuid() != 0:
        raise SetupError("the bench needs root, for its own network and for packet sockets")
    command = ["unshare", "--net", "--mount", "--", "sh", "-c", _SEPARATE, "sh", sys.executable]
    command += ["-m", "benchmarks", "run", "wire", *arguments]
    os.chdir(ROOT)
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


def install(programs: Mapping[str, str]) -> None:
    """See to these programs: by the name of each, its Debian package. Raises SetupError."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    found = {p for p in programs if any(Path(f, p).exists() for f in path.split(":"))}
    if missing := sorted({programs[one] for one in programs.keys() - found}):
        debian.install(missing, "the bench of the wire")


@dataclass
class StandIn:
    """A process that looks like a container."""

    container: str
    process: subprocess.Popen[bytes]
    address: str = "127.0.0.1"

    @property
    def pid(self) -> int:
        return self.process.pid


@contextmanager
def stand_in(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    pair: int | None = None,
) -> Iterator[StandIn]:
    """Run a command as a container would; it and all its children end with the context. `pair`: in
    a network of its own, on the pair of interfaces of that number."""
    container = secrets.token_hex(32)
    groups = _groups(container)
    script = _JOIN + (_OWN_NETWORK if pair is not None else "") + 'exec "$@"'
    whole = ["sh", "-c", script, "sh", *command]
    if pair is not None:
        whole = ["unshare", "--net", "--mount", "--", *whole]
    process = subprocess.Popen(
        whole,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if pair is not None else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(environment or {}), "GROUPS_TO_JOIN": " ".join(map(str, groups))},
    )
    assert process.stdin is not None
    one = StandIn(container, process)
    try:
        if pair is not None:
            one.address = _cable(process, pair)
            process.stdin.write(b"\n")
        process.stdin.close()
        yield one
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        _end(groups, process)
        if process.stdout is not None:
            process.stdout.close()


def _groups(container: str) -> list[Path]:
    """A group of that name, made in each hierarchy that an engine would use."""
    made = []
    for one in hierarchies():
        if one.controllers <= {"cpu"} or "cpu" in one.controllers:
            group = one.mount / f"dlsched-wire-{os.getpid()}" / container
            group.mkdir(parents=True, exist_ok=True)
            if group not in made:
                made.append(group)
    return made


def _cable(process: subprocess.Popen[bytes], pair: int) -> str:
    """Connect its network with this one; its address there."""
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise SetupError("no network namespace can be made here: root of a whole machine can")
    outside, inside = (str(_NETWORK[4 * pair + at]) for at in (1, 2))
    name = f"wire{pair}"
    for line in (
        f"link add {name} type veth peer name eth0 netns {process.pid}",
        f"address add {outside}/30 dev {name}",
        f"link set {name} up",
    ):
        subprocess.run(["ip", *line.split()], check=True)
    enter_it = ["nsenter", f"--net=/proc/{process.pid}/ns/net", "--", "ip"]
    for line in (f"address add {inside}/30 dev eth0", "link set eth0 up"):
        subprocess.run([*enter_it, *line.split()], check=True)
    return inside


def _end(groups: Sequence[Path], process: subprocess.Popen[bytes]) -> None:
    """Kill all that runs in the groups, and remove them."""
    for group in groups:
        for number in _members(group):
            with suppress(ProcessLookupError):
                os.kill(number, 9)
    process.kill()
    process.wait()
    until_s = time.monotonic() + 10
    for group in groups:
        while _members(group) and time.monotonic() < until_s:
            time.sleep(0.01)
        with suppress(OSError):
            group.rmdir()
        with suppress(OSError):  # others are in it
            group.parent.rmdir()


def _members(group: Path) -> list[int]:
    try:
        return [int(one) for one in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return []


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """That many processes that use all CPU time that they get."""
    began = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(loops)]
    try:
        yield
    finally:
        for one in began:
            one.kill()
            one.wait()


def used_s(thread: Path) -> float:
    """CPU time of a thread or of a process with one, by its folder in /proc."""
    return int((thread / "schedstat").read_text().split()[0]) / 1e9


@contextmanager
def stopped(process: int, seconds: float) -> Iterator[None]:
    """Stop a process after a second, for so long; 0: do not."""

    def stop() -> None:
        time.sleep(1.0)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(process, signal.SIGCONT)

    thread = threading.Thread(target=stop if seconds else lambda: None)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def printed(*command: str) -> str:
    """What a command prints. Raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
