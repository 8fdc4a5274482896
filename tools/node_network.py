"""Network and UTS namespaces for several engines on one machine, with a switch between them.

They have no name and no place on disk: each lives by a process that ends with its caller, and takes
its interfaces along. The machine's own network is not touched.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools import debian
from tools.private_engine import SBIN
from tools.steps import SetupError

PREFIX = "10.123.77"
HOLD_SCRIPT = 'echo "$1" >/proc/sys/kernel/hostname && echo ready && exec cat'
ENDS_WITHIN_S = 60.0


@dataclass(frozen=True)
class Namespaces:
    """The namespaces of one node, or of the switch."""

    name: str
    """The host's name inside."""
    pid: int
    """Of the process that holds them."""

    @property
    def network(self) -> Path:
        return Path(f"/proc/{self.pid}/ns/net")

    @property
    def enter(self) -> list[str]:
        """The command that runs another one inside."""
        return ["nsenter", f"--net={self.network}", f"--uts=/proc/{self.pid}/ns/uts", "--"]


@dataclass
class NodeNetwork:
    """Nodes on one switch."""

    switch: Namespaces
    nodes: list[Namespaces] = field(default_factory=list)

    @staticmethod
    def address(number: int) -> str:
        """Of the node of that number; the first is 1."""
        return f"{PREFIX}.{number}"

    def cut(self, number: int) -> None:
        """Pull a node's cable."""
        _ip(self.switch, [f"link set port{number} down"])

    def mend(self, number: int) -> None:
        """Plug it in again."""
        _ip(self.switch, [f"link set port{number} up"])

    def cut_link(self, one: int, other: int) -> None:
        """Nothing gets from one node to the other, in either direction."""
        self._link("add", one, other)

    def mend_link(self, one: int, other: int) -> None:
        self._link("del", one, other)

    def _link(self, verb: str, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            route = f"route {verb} blackhole {self.address(there)}/32"
            _ip(self.nodes[here - 1], [route])


@contextmanager
def node_network(names: Sequence[str]) -> Iterator[NodeNetwork]:
    """A namespace for each of these hosts, all on one switch. Raises SetupError."""
    if shutil.which("ip", path=SBIN) is None:
        debian.install(["iproute2"], "engines in network namespaces")
    with ExitStack() as held:
        network = NodeNetwork(held.enter_context(_namespaces("switch")))
        _ip(network.switch, ["link add switch type bridge", "link set switch up"])
        for number, name in enumerate(names, start=1):
            node = held.enter_context(_namespaces(name))
            port = f"port{number}"
            cable = f"link add {port} type veth peer name eth0 netns {node.pid}"
            _ip(network.switch, [cable, f"link set {port} master switch up"])
            address = f"address add {network.address(number)}/24 dev eth0"
            _ip(node, ["link set lo up", address, "link set eth0 up"])
            network.nodes.append(node)
        yield network


@contextmanager
def _namespaces(name: str) -> Iterator[Namespaces]:
    """New namespaces, held by a process that ends when this one does."""
    command = ["unshare", "--net", "--uts", "--", "sh", "-c", HOLD_SCRIPT, "sh", name]
    holder = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            raise SetupError("no network namespace can be made here: root of a whole machine can")
        yield Namespaces(name, holder.pid)
    finally:
        holder.communicate(timeout=ENDS_WITHIN_S)


def _ip(inside: Namespaces, lines: Sequence[str]) -> None:
    """Run lines of `ip -batch` there. Raises SetupError."""
    ip = shutil.which("ip", path=SBIN) or "ip"
    done = subprocess.run(
        [*inside.enter, ip, "-batch", "-"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SetupError(f"{inside.name}: {done.stderr.strip().splitlines()[0]}")
