"""Moves between two real hosts, some of them broken on purpose: is the job lost, or run twice?

Two engines of one swarm, a daemon on each, a controller, one training with checkpoints that is
moved there and back. During most moves a daemon or the controller is killed (SIGKILL) or a host's
network is cut, at a drawn moment, and comes back. All engines are listed four times a second; the
training itself reports its starts and its checkpoints.

    python -m benchmarks run cluster-moves      writes benchmarks/results/cluster-moves.json
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.publish.results import verdict
from benchmarks.robustness.cluster_torture import hosts
from benchmarks.robustness.cluster_world import World
from tools.hosts import Host

NAME = "cluster-moves"
LATEST_S = 8.0
"""Longest drawn wait before a fault: a move takes about six seconds."""
AWAY_S = 3.0
"""How long what was killed or cut stays so."""
FAULTS = ("none", "controller", "source daemon", "target daemon", "source cut", "target cut")
MOVES, SEED = 60, 1
ASKED_S = 8.0


@dataclass(frozen=True)
class Move:
    """One move, and what was broken meanwhile."""

    fault: str
    settled_s: float
    """From its request, or from the end of the fault, until nothing was left of it."""
    wrong: tuple[str, ...]


def move(world: World, fault: str, wait_s: float) -> Move:
    """Move the job to the other host. Raises AssertionError where it does not settle."""
    source = world.on()
    (target,) = (host for host in world.hosts if host is not source)
    before = world.seen()
    world.move(target)
    if fault != "none":
        time.sleep(wait_s)
        strike(world, fault, source if fault.startswith("source") else target)
    settled_s = world.settled()
    return Move(fault, round(settled_s, 1), tuple(world.since(before)))


def strike(world: World, fault: str, host: Host) -> None:
    """Kill a process or cut a network, and bring it back after a while."""
    if fault.endswith("cut"):
        world.engines.cut(host.node)
        time.sleep(AWAY_S)
        world.engines.mend(host.node)
        return
    host, words = (
        (world.hosts[0], ("cluster", "run")) if fault == "controller" else (host, ("run",))
    )
    host.kill(words[0])
    time.sleep(AWAY_S)
    host.start(*words)


def headlines(moves: Sequence[Move], listings: int) -> list[str]:
    faults = sum(one.fault != "none" for one in moves)
    wrong = [line for one in moves for line in one.wrong]
    quiet_s = statistics.median(one.settled_s for one in moves if one.fault == "none")
    return [
        f"{len(moves)} moves, {faults} of them with a fault meanwhile",
        (
            f"starts below a checkpoint, or on both hosts, in {listings} listings of all engines: "
            f"{len(wrong)} (asked 0): {verdict(not wrong)}"
        ),
        (
            f"median time of a move without a fault: {quiet_s:.1f} s (asked {ASKED_S:g} s): "
            f"{verdict(quiet_s <= ASKED_S)}"
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, moves=(MOVES, "how many; fewer: not saved"))
    draw = random.Random(SEED)
    moves: list[Move] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        hosts(2, 1) as engines,
        closing(World(engines, Path(folder), f"moves-{SEED}")) as world,
    ):
        try:
            world.begin()
            for number in range(chosen.moves):
                fault = FAULTS[number % len(FAULTS)]
                moves.append(move(world, fault, draw.uniform(0.0, LATEST_S)))
                print(moves[-1], flush=True)
        except AssertionError:
            print(world.logs())
            raise
        told = headlines(moves, world.listings.whole)
    rows, whole = [asdict(one) for one in moves], chosen.moves == MOVES
    engine = "two private engines of one swarm"
    results.finish(NAME, engine, [SEED], rows, {}, told, whole=whole)
    return 1 if any(one.wrong for one in moves) else 0
