"""Starts several private engines on one machine, nodes of one swarm, and runs commands with them.

Each has a host name, a network namespace, a data-root and a control group of its own; the group's
limit is the node's size. No engine, network or swarm of the machine's own is touched.

    python -m tools.engines run --nodes 3 [--managers 3] [--cores 2,1,1] [--image NAME] -- COMMAND
    python -m tools.engines clear

COMMAND's environment has DLSCHED_NODES, the number of nodes, and for each number i from 1 on
DLSCHED_NODEi_{NAME,ID,HOST,ADDRESS,NAMESPACE,CGROUP,ROOT}; DOCKER_HOST is the first node's.
`nsenter --net=$DLSCHED_NODE1_NAMESPACE COMMAND` runs a command at that node's address.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker.errors import DockerException
from requests.exceptions import RequestException

from tools.engine import end_with_signal, run_command
from tools.engine_probe import connect
from tools.engine_remains import cgroup_mounts
from tools.environment import BUILD
from tools.images import ensure_all
from tools.node_network import Namespaces, NodeNetwork, node_network
from tools.private_engine import PrivateEngine, clear_crashed, private_engine, uninterrupted
from tools.steps import SetupError, say, step
from tools.waiting import until

ENGINES = BUILD / "engines"
"""Not the single engine's folder: what a swarm leaves in a data-root is for a namespace."""
SWARM_PORT = 2377
PERIOD_US = 100_000
TRANSFER_TIMEOUT_S = 300


@dataclass(frozen=True)
class EngineNode:
    """One engine of the swarm."""

    number: int
    """From 1 on; the first one is a manager."""
    engine: PrivateEngine
    address: str
    namespaces: Namespaces
    node_id: str
    is_manager: bool

    @property
    def name(self) -> str:
        """The host's."""
        return self.namespaces.name

    @property
    def host(self) -> str:
        return self.engine.host

    def limit(self, cores: float) -> None:
        """Let all its containers together use no more than that."""
        limit_group(self.engine.cgroup_parent.lstrip("/"), cores)


@dataclass(frozen=True)
class EngineNodes:
    """The engines of one swarm."""

    nodes: tuple[EngineNode, ...]
    network: NodeNetwork

    def cut(self, node: EngineNode) -> None:
        """Pull a node's cable: it reaches no other node."""
        self.network.cut(node.number)

    def mend(self, node: EngineNode) -> None:
        self.network.mend(node.number)

    def give_images(self, names: Sequence[str]) -> list[str]:
        """Make example images (tools.images) on the first engine and copy them to the others;
        returns their tags. Raises SetupError."""
        first = self.nodes[0]
        tags = ensure_all(first.host, names)
        for node in self.nodes[1:]:
            copy_images(first.host, node.host, tags)
        return tags

    def environment(self) -> dict[str, str]:
        """What a command needs to know of them."""
        variables = {"DOCKER_HOST": self.nodes[0].host, "DLSCHED_NODES": str(len(self.nodes))}
        for node in self.nodes:
            variables |= {
                f"DLSCHED_NODE{node.number}_{key}": str(value)
                for key, value in {
                    "NAME": node.name,
                    "ID": node.node_id,
                    "HOST": node.host,
                    "ADDRESS": node.address,
                    "NAMESPACE": node.namespaces.network,
                    "CGROUP": node.engine.cgroup_parent,
                    "ROOT": node.engine.data_root,
                }.items()
            }
        return variables


@contextmanager
def swarm(nodes: int, managers: int, engines: Path = ENGINES) -> Iterator[EngineNodes]:
    """That many private engines in one swarm, after clearing what dead callers have left under
    `engines`. Raises SetupError (NoEngine where no private engine can be started)."""
    if not 1 <= managers <= nodes <= 100:
        raise SetupError(f"{managers} managers of {nodes} nodes: 1 <= managers <= nodes <= 100")
    clear_crashed(engines)
    held = ExitStack()
    try:
        network = held.enter_context(node_network([f"node{i}" for i in range(1, nodes + 1)]))
        started = []
        for node in network.nodes:
            started.append(held.enter_context(private_engine(engines, node.enter)))
            held.callback(started[-1].kill)
        with step(f"a swarm of {nodes} engines, {managers} of them managers"):
            ids = _form(started, managers)
        yield EngineNodes(
            tuple(
                EngineNode(
                    i + 1, engine, network.address(i + 1), network.nodes[i], ids[i], i < managers
                )
                for i, engine in enumerate(started)
            ),
            network,
        )
    finally:
        # Killed first: their swarm is thrown away, and leaving it in order takes seconds.
        with uninterrupted():
            held.close()


def _form(started: Sequence[PrivateEngine], managers: int) -> list[str]:
    """Make the engines one swarm, and wait for it; returns the nodes' ids. Raises SetupError."""
    first = NodeNetwork.address(1)
    ids: list[str] = []
    try:
        with closing(connect(started[0].host, 60)) as client:
            client.init_swarm(advertise_addr=first)
            tokens = client.inspect_swarm()["JoinTokens"]
            for number, engine in enumerate(started, start=1):
                with closing(connect(engine.host, 60)) as joining:
                    if number > 1:
                        joining.join_swarm(
                            [f"{first}:{SWARM_PORT}"],
                            tokens["Manager" if number <= managers else "Worker"],
                            advertise_addr=NodeNetwork.address(number),
                        )
                    ids.append(str(joining.info()["Swarm"]["NodeID"]))

            def all_ready() -> bool:
                states = [node["Status"]["State"] for node in client.nodes()]
                return states == ["ready"] * len(started)

            until(all_ready, "all nodes of the swarm are ready")
    except (AssertionError, DockerException, RequestException) as error:
        raise SetupError(f"no swarm: {error}") from error
    return ids


def limit_group(name: str, cores: float) -> None:
    """Limit all processes of a control group together. Raises SetupError."""
    quota_us = round(cores * PERIOD_US)
    for mount in cgroup_mounts():
        one, two = mount / "cpu.cfs_quota_us", mount / "cgroup.subtree_control"
        group = mount / name
        try:
            if one.exists():
                group.mkdir(exist_ok=True)
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US), encoding="ascii")
                (group / "cpu.cfs_quota_us").write_text(str(quota_us), encoding="ascii")
                return
            if two.exists() and "cpu" in (mount / "cgroup.controllers").read_text("ascii").split():
                two.write_text("+cpu", encoding="ascii")
                group.mkdir(exist_ok=True)
                (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}", encoding="ascii")
                return
        except OSError as error:
            raise SetupError(f"{group}: {cores} cores: {error.strerror}") from error
    raise SetupError("no control group with CPU limits here")


def copy_images(source: str, target: str, tags: Sequence[str]) -> None:
    """Copy the images that the engine at `target` does not have. Raises SetupError."""
    try:
        with (
            closing(connect(source, TRANSFER_TIMEOUT_S)) as saving,
            closing(connect(target, TRANSFER_TIMEOUT_S)) as loading,
        ):
            there = {image["Id"] for image in loading.images()}
            for tag in tags:
                if saving.inspect_image(tag)["Id"] not in there:  # type: ignore[no-untyped-call]
                    with step(f"copying the image {tag}"):
                        list(loading.load_image(saving.get_image(tag)))  # type: ignore[no-untyped-call]
    except (DockerException, RequestException) as error:
        raise SetupError(f"images: {source} to {target}: {error}") from error


def run(options: argparse.Namespace) -> int:
    """Run the command with the engines; returns its exit code. Raises SetupError."""
    with swarm(options.nodes, options.managers or options.nodes, options.engines) as engines:
        for node, cores in zip(engines.nodes, options.cores, strict=False):
            node.limit(cores)
        if options.image:
            engines.give_images(options.image)
        return run_command(options.command, {**os.environ, **engines.environment()})


def _cores(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with several engines, or clear what crashed runs have left."""
    parser = argparse.ArgumentParser(prog="python -m tools.engines", description=main.__doc__)
    parser.add_argument("--engines", type=Path, default=ENGINES, help="where they keep their data")
    actions = parser.add_subparsers(dest="action", required=True)
    runner = actions.add_parser("run", help="run COMMAND with the engines")
    runner.add_argument("--nodes", type=int, default=3)
    runner.add_argument("--managers", type=int, help="the first ones of them (default: all)")
    runner.add_argument("--cores", type=_cores, default=[], help="of each node, by comma")
    runner.add_argument("--image", action="append", help="an example image for all engines")
    runner.add_argument("command", nargs="+", metavar="COMMAND")
    actions.add_parser("clear", help="clear what crashed runs have left")
    options = parser.parse_args(arguments)
    options.engines = options.engines.resolve()
    signal.signal(signal.SIGTERM, end_with_signal)
    signal.signal(signal.SIGHUP, end_with_signal)
    try:
        if options.action == "run":
            return run(options)
        living = clear_crashed(options.engines)
        if living:
            say(f"error: {living} private engines are in use by running commands")
        return min(living, 1)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except SetupError as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
