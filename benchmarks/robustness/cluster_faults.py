"""What can befall three managers while a job moves: a link or a host cut off, the leading manager's
engine killed; and certificates that are replaced."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.robustness.cluster_table import Outcome
from benchmarks.robustness.cluster_world import World, is_dead
from dlsched.cluster.core.records import RecordState
from dlsched.cluster.store import StoreError
from dlsched.model.errors import DlschedError
from tests.torture.points import Point
from tools.hosts import Host
from tools.waiting import wait_for

AWAY_S = 25.0
"""How long what was cut or killed stays so: longer than Swarm takes to see it."""
REACHED_WITHIN_S = 60.0
LEADS_WITHIN_S = 60.0
POLL_S = 0.02
UNDONE = (RecordState.UNDOING, RecordState.RETURNING)
"""Of a move whose target cannot start the job."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A link between two nodes, or one node's cable, is cut while the job's record is in a state.
    Nodes count from the leader, which is 0."""

    state: RecordState
    nodes: tuple[int, ...]

    def __str__(self) -> str:
        names = ["the leader", "the second manager", "the third manager"]
        what = " and ".join(names[node] for node in self.nodes)
        return f"managers: {self.state}: {what} cut off" + (
            " from each other" if len(self.nodes) > 1 else ""
        )


CUTS = tuple(
    Cut(state, nodes)
    for state in (RecordState.LEAVING, RecordState.MOVING)
    for nodes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2))
) + tuple(Cut(state, (0,)) for state in UNDONE)
STATES = (
    RecordState.PLACED,
    RecordState.LEAVING,
    RecordState.MOVING,
    RecordState.UNDOING,
    RecordState.RETURNING,
)


def cut(world: World, one: Cut) -> Outcome:
    """Cut it, mend it, and see what came of it. Raises AssertionError."""
    leader, source, target = _begin(world, one.state)
    order = [leader, *(host for host in world.hosts if host is not leader)]
    numbers = [order[node].node.number for node in one.nodes]
    network = world.engines.network
    is_link = len(numbers) == 2
    world.move(target)
    reached = _is(world, one.state)
    wrong: list[str] = []
    if reached:
        (network.cut_link if is_link else network.cut)(*numbers)
        began_s = time.monotonic()
        try:
            if one.nodes == (0,):
                wrong += _writes(world, leader)
            time.sleep(max(0.0, began_s + AWAY_S - time.monotonic()))
        finally:
            (network.mend_link if is_link else network.mend)(*numbers)
    return _end(world, str(one), source, reached, wrong)


def kill_leader(world: World, state: RecordState) -> Outcome:
    """Kill the leading manager's engine right after it has written that state."""
    leader, source, target = _begin(world, state)
    pid = world.dockerd(leader)
    with world.order(leader, "cluster", Point(f"record {state}", "", 1), "after", pid):
        world.move(target)
        end_s = time.monotonic() + REACHED_WITHIN_S
        while not (reached := is_dead(pid)) and time.monotonic() < end_s:
            time.sleep(POLL_S)
    if reached:
        time.sleep(AWAY_S)
        leader.node.engine.restart()
    name = f"managers: {state}: the leader's engine killed"
    return _end(world, name, source, reached, [])


def _begin(world: World, state: RecordState) -> tuple[Host, Host, Host]:
    """Leader, source and target of the next move; the target is the leader in turn."""
    wait_for(lambda: len(world.leading()) == 1, LEADS_WITHIN_S, "one controller to act")
    source = world.on()
    others = [host for host in world.hosts if host is not source]
    world.turns += 1
    target = others[world.turns % 2]
    world.fails_on = target if state in UNDONE else None
    return world.leader(), source, target


def _is(world: World, state: RecordState) -> bool:
    """Wait until the record is in that state."""
    end_s = time.monotonic() + REACHED_WITHIN_S
    while time.monotonic() < end_s:
        record = world.record()
        if record is not None and record.state is state:
            return True
        time.sleep(POLL_S)
    return False


def _writes(world: World, leader: Host) -> list[str]:
    """Whether the store takes a write from the leader that is cut off."""
    store = world.store(leader)
    try:
        ((job, stored),) = store.records().items()
        store.put(replace(stored.record, why="of a leader that is cut off"), stored.version)
    except (StoreError, DlschedError):
        return []
    return [f"{job}: a write of the leader that is cut off was taken"]


def _end(world: World, name: str, source: Host, reached: bool, wrong: list[str]) -> Outcome:
    world.fails_on = None
    settled_s = world.settled()
    wait_for(lambda: len(world.leading()) == 1, LEADS_WITHIN_S, "one controller to act")
    record = world.record()
    if record is not None and "cut off" in record.why:
        wrong.append("a write of the leader that was cut off was taken")
    part, line, what = name.split(": ")
    return Outcome(
        part, line, what, what, reached=reached, wrong=wrong,
        runs_on="source" if world.on() is source else "target", settled_s=round(settled_s, 1),
    )  # fmt: skip


def rotate(world: World, state: RecordState) -> Outcome:
    """Replace the swarm's authority while the job moves, and move it once more after that."""
    source = world.on()
    target = next(host for host in world.hosts if host is not source)
    before = {host.node.name: _shown(host) for host in world.hosts}
    pids = [host.pid("run") for host in world.hosts] + [world.hosts[0].pid("cluster")]
    world.move(target)
    reached = _is(world, state)
    docker = ["docker", "-H", world.hosts[0].node.host]
    subprocess.run([*docker, "swarm", "ca", "--rotate", "--quiet"], check=True, timeout=120,
                   capture_output=True)  # fmt: skip
    settled_s = world.settled()
    wrong = []
    for host in world.hosts:
        wait_for(
            lambda host=host: _shown(host) != before[host.node.name],
            30.0,
            f"{host.node.name} to show its new certificate",
        )
        if _shown(host) != _on_disk(host):
            wrong.append(f"{host.node.name} shows another certificate than the one on disk")
    on = world.on()
    world.move(next(host for host in world.hosts if host is not on))
    world.settled()
    if world.on() is on:
        wrong.append("no move after the rotation")
    now = [host.pid("run") for host in world.hosts] + [world.hosts[0].pid("cluster")]
    if now != pids or any(map(is_dead, pids)):
        wrong.append("a process ended")
    return Outcome(
        "rotation", str(state), "the swarm's authority replaced", "certificates", reached=reached,
        runs_on="source" if on is source else "target", settled_s=round(settled_s, 1), wrong=wrong,
    )  # fmt: skip


_ASK = "import ssl, sys; print(ssl.get_server_certificate((sys.argv[1], 7373), timeout=5))"


def _shown(host: Host) -> str:
    """The certificate that a daemon shows to others."""
    inside = ["nsenter", f"--net={host.node.namespaces.network}"]
    command = [*inside, sys.executable, "-c", _ASK, host.node.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip()


def _on_disk(host: Host) -> str:
    file = Path(host.node.engine.data_root) / "swarm/certificates/swarm-node.crt"
    first, end, _ = file.read_text().partition("-----END CERTIFICATE-----")
    return (first + end).strip()
