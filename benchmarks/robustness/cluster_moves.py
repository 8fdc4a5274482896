"""Moves between two real hosts, some of them broken on purpose: is a job lost, or run twice?

Two engines of one swarm, a daemon on each, a controller. Trainings with checkpoints are moved there
and back by draining one host after the other. During most drains a daemon or the controller is
killed (SIGKILL) or a host's network is cut, as often as jobs move, at drawn moments, and comes
back. All engines are listed four times a second. A training notes each start and each acknowledged
checkpoint in the folder that moves with it.

    python -m benchmarks run cluster-moves      writes benchmarks/results/cluster-moves.json
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.publish.results import verdict
from benchmarks.robustness.cluster_world import LISTED_S, Listings
from dlsched.cluster.swarm.calls import SwarmCalls
from dlsched.cluster.swarm.store import SwarmStore
from dlsched.runtime.docker.engine import Engine
from tools.base_image import BASE, ensure_base
from tools.engines import EngineNodes, copy_images, swarm
from tools.hosts import Host, repeating, training_file
from tools.waiting import wait_for

NAME = "cluster-moves"
JOBS, SIZE_BYTES = 4, 50_000_000
STEPS = 10_000_000
EMPTIED_S = 300.0
"""Longest time until a drained host is empty, with a move that fails in between."""
LATEST_S = 8.0
"""Longest drawn wait before a fault: a move takes about six seconds."""
AWAY_S = 3.0
"""How long what was killed or cut stays so."""
FAULTS = ("controller", "source daemon", "target daemon", "source cut", "target cut")
DRAINS, SEED = 16, 1
"""In the first one half of the jobs move: they begin on both hosts."""
QUIET_EVERY = 5
"""Of so many drains, one is left alone."""
ASKED_MOVES, ASKED_FAULTS, ASKED_PAUSE_S = 60, 40, 8.0


@dataclass(frozen=True)
class Drain:
    """One host emptied."""

    faults: tuple[str, ...]
    """Those that came before it was empty."""
    began_wall_s: float
    emptied_s: float
    moved: int
    """Jobs on the other host at its end."""

    def is_quiet_at(self, wall_s: float) -> bool:
        """Whether it was emptied then, and nothing was broken."""
        return not self.faults and 0.0 <= wall_s - self.began_wall_s <= self.emptied_s


@dataclass
class Found:
    """All of it."""

    watched: Listings
    drains: list[Drain] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    """From an acknowledged checkpoint to the next start, in drains without a fault."""
    moves: int = 0
    """Starts that came from an acknowledged checkpoint."""
    lost: list[str] = field(default_factory=list)
    """Starts below an acknowledged step."""


class Torture:
    """Two hosts, and what is done to them."""

    def __init__(self, engines: EngineNodes, folder: Path, seed: int) -> None:
        self._engines = engines
        self._draw = random.Random(seed)
        instance = f"moves-{seed}"
        self.hosts = [
            Host(node, folder / node.name, instance, float(JOBS)) for node in engines.nodes
        ]
        self._engine = Engine(self.hosts[0].node.host, 20.0)
        self._store = SwarmStore(SwarmCalls(self._engine), instance)

    def begin(self) -> None:
        for host in self.hosts:
            host.start("run")
        self.hosts[0].start("cluster", "run")
        for number in range(JOBS):
            job = f"training-{number}"
            file = self.hosts[0].cluster / f"{job}.yaml"
            file.write_text(training_file(job, BASE, STEPS, SIZE_BYTES))
        hosts = self.hosts
        wait_for(lambda: sum(len(one.running()) for one in hosts) == JOBS, 120.0, "all jobs to run")

    def empty(self, source: Host, target: Host, faults: Sequence[str]) -> Drain:
        """Drain a host, with these faults meanwhile, one after the other."""
        # The next controller knows no rest after moves that failed.
        self._again(self.hosts[0], "cluster", "run")
        self._store.undrain(target.node.node_id)
        began_s, began_wall_s = time.monotonic(), time.time()
        self._store.drain(source.node.node_id)
        struck: list[str] = []
        for fault in faults:
            time.sleep(self._draw.uniform(0.0, LATEST_S))
            if self._emptied(source, target):
                break
            self._break(source, target, fault)
            struck.append(fault)
        if struck:
            self._again(self.hosts[0], "cluster", "run")
        wait_for(
            lambda: self._emptied(source, target), EMPTIED_S, f"{source.node.name} to be empty"
        )
        emptied_s = time.monotonic() - began_s
        return Drain(tuple(struck), began_wall_s, emptied_s, len(target.running()))

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        self._engine.close()

    def judge(self, found: Found) -> None:
        with suppress(AssertionError):  # one may have saved, and not have left
            wait_for(lambda: self._begun() == JOBS, 20.0, "all jobs to begin where they have moved")
        for host in self.hosts:
            for job in host.running():
                acknowledged, saved_s = 0, 0.0
                for word, step, at_s in (line.split() for line in host.notes(job)):
                    if word == "saved":
                        acknowledged, saved_s = int(step), float(at_s)
                        continue
                    if int(step) < acknowledged:
                        found.lost.append(f"{job}: begins at {step}, saved {acknowledged}")
                    if saved_s:
                        found.moves += 1
                        if any(one.is_quiet_at(saved_s) for one in found.drains):
                            found.pauses_s.append(float(at_s) - saved_s)

    def _break(self, source: Host, target: Host, fault: str) -> None:
        host = source if fault.startswith("source") else target
        if fault == "controller":
            self._again(self.hosts[0], "cluster", "run")
        elif fault.endswith("daemon"):
            self._again(host, "run")
        else:
            self._engines.cut(host.node)
            time.sleep(AWAY_S)
            self._engines.mend(host.node)

    def _again(self, host: Host, *words: str) -> None:
        host.kill(words[0])
        time.sleep(AWAY_S)
        host.start(*words)

    def _begun(self) -> int:
        """Jobs that have begun where they are: a checkpoint is saved to leave, and noted first."""
        running = [(host, job) for host in self.hosts for job in host.running()]
        notes = [host.notes(job) for host, job in running]
        return sum(bool(lines) and not lines[-1].startswith("saved ") for lines in notes)

    def _emptied(self, source: Host, target: Host) -> bool:
        return not source.running() and len(target.running()) == JOBS


def faults_of(drain: int) -> list[str]:
    """What is broken during the drain of that number: as many times as jobs move."""
    if drain % QUIET_EVERY == 0:
        return []
    return [FAULTS[(drain * JOBS + number) % len(FAULTS)] for number in range(JOBS)]


def headlines(found: Found) -> list[str]:
    faults = sum(len(one.faults) for one in found.drains)
    reached = found.moves >= ASKED_MOVES and faults >= ASKED_FAULTS
    pause_s = statistics.median(found.pauses_s) if found.pauses_s else 0.0
    watched = found.watched
    return [
        (
            f"{found.moves} moves in {len(found.drains)} drained hosts, {faults} faults meanwhile "
            f"(asked {ASKED_MOVES} moves and {ASKED_FAULTS} broken ones): {verdict(reached)}"
        ),
        (
            f"starts below an acknowledged step: {len(found.lost)} (asked 0): "
            f"{verdict(not found.lost)}"
        ),
        (
            f"listings with a job on both hosts: {watched.twice} of {watched.whole} (asked 0): "
            f"{verdict(not watched.twice)}"
        ),
        (
            f"median pause of the {len(found.pauses_s)} moves without a fault, at "
            f"{SIZE_BYTES / 1e6:.0f} MB: {pause_s:.1f} s (asked {ASKED_PAUSE_S:g} s): "
            f"{verdict(0.0 < pause_s <= ASKED_PAUSE_S)}"
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, drains=(DRAINS, "how many; fewer: not saved"))
    with tempfile.TemporaryDirectory() as folder, swarm(2, 1) as engines:
        one, other = engines.nodes
        ensure_base(one.host)
        copy_images(one.host, other.host, [BASE])
        with closing(Torture(engines, Path(folder), SEED)) as torture:
            try:
                torture.begin()
                found = Found(Listings())
                with repeating(partial(found.watched.take, torture.hosts), LISTED_S):
                    for number in range(chosen.drains):
                        source, target = torture.hosts[:: 1 if number % 2 else -1]
                        found.drains.append(torture.empty(source, target, faults_of(number)))
                        print(found.drains[-1], flush=True)
                torture.judge(found)
            except AssertionError:
                print(*(host.logs() for host in torture.hosts), sep="\n")
                raise
    told, rows = headlines(found), [asdict(one) for one in found.drains]
    print("\n".join(told))
    if chosen.drains == DRAINS:
        facts = results.host_facts("two private engines of one swarm")
        results.save(NAME, facts, [SEED], rows, headlines=told)
    return 0
