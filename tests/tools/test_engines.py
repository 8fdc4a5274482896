"""Several engines as one swarm: each its own, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.tools.live import (
    ROOT,
    TINY,
    WITHIN_S,
    assert_nothing_left,
    load_sleep_image,
    needs_dockerd,
    rules_and_interfaces,
    run_folder_of,
    start_sleep,
)
from tests.waiting import until
from tools.engine_probe import connect
from tools.engine_remains import cgroup_mounts, command_line
from tools.engine_slot import Slot
from tools.engines import EngineNode, copy_images, swarm
from tools.private_engine import clear_crashed
from tools.steps import SetupError

SWARM_PORT = 2377


@pytest.mark.parametrize(("nodes", "managers"), [(2, 3), (2, 0), (0, 0), (101, 1)])
def test_impossible_numbers_are_refused(tmp_path: Path, nodes: int, managers: int) -> None:
    wanted = pytest.raises(SetupError, match="1 <= managers <= nodes <= 100")
    with wanted, swarm(nodes, managers, tmp_path):
        pass


def reaches(one: EngineNode, other: EngineNode) -> bool:
    """Whether a connection from one node to another comes about."""
    look = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
    words = [sys.executable, "-c", look, other.address, str(SWARM_PORT)]
    done = subprocess.run([*one.namespaces.enter, *words], capture_output=True, check=False)
    return done.returncode == 0


def limits_of(node: EngineNode) -> list[str]:
    """What the node's control group is limited to."""
    files = ("cpu.cfs_quota_us", "cpu.max")
    paths = [Path(f"{mount}{node.engine.cgroup_parent}") for mount in cgroup_mounts()]
    found = [path / name for path in paths for name in files if (path / name).exists()]
    return [path.read_text(encoding="ascii").split()[0] for path in found]


@pytest.mark.slow
@pytest.mark.usefixtures("host_network_alone")
@needs_dockerd
@pytest.mark.engine
def test_each_node_is_its_own_and_the_host_stays_as_it_was(engines: Path) -> None:
    before = rules_and_interfaces()
    with swarm(2, 1, engines) as nodes:
        one, two = nodes.nodes
        assert rules_and_interfaces() == before
        with closing(connect(one.host)) as client:
            found = {node["ID"]: node for node in client.nodes()}
            assert {name: node["Status"]["Addr"] for name, node in found.items()} == {
                one.node_id: one.address,
                two.node_id: two.address,
            }
            assert found[two.node_id]["Description"]["Hostname"] == two.name == "node2"
            assert [node["Spec"]["Role"] for node in found.values() if "ManagerStatus" in node] == [
                "manager"
            ]
        two.limit(0.5)
        assert limits_of(two) == ["50000"]
        assert limits_of(one) != ["50000"]
        load_sleep_image(one.host)
        copy_images(one.host, two.host, [TINY])
        _, pid = start_sleep(two.host)
        assert f"{two.engine.cgroup_parent}/" in Path(f"/proc/{pid}/cgroup").read_text("ascii")
        until(lambda: reaches(two, one), "the cable is in")
        nodes.cut(two)
        assert not reaches(two, one)
        nodes.mend(two)
        until(lambda: reaches(two, one), "the cable is in again")
        nodes.network.cut_link(one.number, two.number)
        assert not reaches(two, one)
        nodes.network.mend_link(one.number, two.number)
        until(lambda: reaches(two, one), "the link is whole again")
        run_folders = [run_folder_of(Slot(engines / name)) for name in "01"]
    for name, run_folder in zip("01", run_folders, strict=True):
        assert_nothing_left(Slot(engines / name), run_folder, pid)
    assert [command_line(node.namespaces.pid) for node in (one, two)] == [[], []]
    assert rules_and_interfaces() == before


@pytest.fixture
def swarm_caller(engines: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that runs a long command with two engines, and that command's environment."""
    told = tmp_path / "told"
    command = [sys.executable, "-m", "tools.engines", "--engines", str(engines), "run"]
    work = f"env >{told}.new; mv {told}.new {told}; exec sleep 1000"
    process = subprocess.Popen(
        [*command, "--nodes", "2", "--managers", "1", "--cores", "1,0.5", "--", "sh", "-c", work],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(told.exists, "the command runs")
        yield process, told.read_text(encoding="utf-8")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_in_order(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    assert process.wait(timeout=WITHIN_S) == 128 + signal.SIGTERM


def crash(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.usefixtures("host_network_alone")
@needs_dockerd
@pytest.mark.engine
@pytest.mark.parametrize("end", [end_in_order, crash])
def test_nothing_is_left_of_a_command_that_was_ended(
    engines: Path,
    swarm_caller: tuple[subprocess.Popen[bytes], str],
    end: Callable[[subprocess.Popen[bytes]], None],
) -> None:
    process, text = swarm_caller
    environment = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert environment["DLSCHED_NODES"] == "2"
    assert environment["DOCKER_HOST"] == environment["DLSCHED_NODE1_HOST"]
    assert environment["DLSCHED_NODE2_ADDRESS"] == "10.123.77.2"
    holders = [int(environment[f"DLSCHED_NODE{i}_NAMESPACE"].split("/")[2]) for i in (1, 2)]
    slots = [Slot(engines / name) for name in "01"]
    run_folders = [run_folder_of(slot) for slot in slots]
    load_sleep_image(environment["DLSCHED_NODE2_HOST"])
    _, pid = start_sleep(environment["DLSCHED_NODE2_HOST"])
    end(process)
    until(lambda: not any(map(command_line, holders)), "the namespaces' holders end")
    if end is crash:
        assert clear_crashed(engines) == 0
    for slot, run_folder in zip(slots, run_folders, strict=True):
        assert_nothing_left(slot, run_folder, pid)
