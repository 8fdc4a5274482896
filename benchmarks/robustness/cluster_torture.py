"""kill -9 at every step of a move between real hosts: is the job lost, or run twice?

Two engines of one swarm, a daemon on each, a controller, one training that is moved there and back.
In each run one process is killed at one step of the move: the controller, a daemon or an engine.
It is started again, and then exactly one host must run the job, from the last checkpoint that it
finished or later, and nothing else may be left of it.

    python -m benchmarks run cluster-torture    writes benchmarks/results/cluster-torture.json
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from benchmarks.options import options
from benchmarks.places import ROOT
from benchmarks.publish import results
from benchmarks.robustness.cluster_faults import CUTS, STATES, cut, kill_leader, rotate
from benchmarks.robustness.cluster_table import Outcome, headlines, lost, table
from benchmarks.robustness.cluster_world import BASE, World, is_dead
from dlsched.cluster.core.records import RecordState
from tests.torture.points import Phase as At
from tests.torture.points import Point
from tools.base_image import ensure_base
from tools.engine import end_with_signal
from tools.engine_probe import answers
from tools.engines import EngineNodes, copy_images, swarm
from tools.hosts import Host

NAME = "cluster-torture"
TITLE = "kill -9 at each step of a move between two hosts"
KEPT = ROOT / ".build" / "cluster-torture"
"""The outcomes of parts, and the logs of runs in which something was lost."""
REACHED_WITHIN_S = 40.0
AWAY_S = 1.0
"""How long what was killed stays so."""
POLL_S = 0.02

Keep = Callable[[Outcome], None]
Act = Callable[[World], Outcome]
_OUTCOMES = TypeAdapter(list[Outcome])

Victim = Literal["controller", "source daemon", "target daemon", "source engine", "target engine"]
VICTIMS: tuple[Victim, ...] = (
    "controller", "source daemon", "target daemon", "source engine", "target engine",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One step: which process takes it, and what it does."""

    line: str
    who: Literal["controller", "source daemon", "target daemon"]
    action: str
    ordinal: int = 1
    at: tuple[At, ...] = ("before", "after")
    undone: bool = False
    """Whether the job's start on the target fails, so that it returns."""

    @property
    def point(self) -> Point:
        return Point(self.action, "", self.ordinal, self.at == _ORDER)


_ORDER: tuple[At, ...] = ("before", "inside", "after")
"""Inside: the order is sent, its answer not read."""
_HALF: tuple[At, ...] = ("before",)

STEPS = (
    Step("M0", "controller", "order prepare", at=_ORDER),
    Step("M0", "target daemon", "file prepared"),
    Step("M1", "controller", "record leaving"),
    Step("M1", "controller", "order leave", at=_ORDER),
    Step("M1", "source daemon", "file saving"),
    Step("M1", "source daemon", "move: ask"),
    Step("M1", "source daemon", "move: set_aside"),
    Step("M1", "source daemon", "move: end"),
    Step("M1", "source daemon", "packed block", 2, at=_HALF),
    Step("M1", "source daemon", "move: pack", at=("after",)),
    Step("M1", "source daemon", "file away"),
    Step("M2", "controller", "record moving"),
    Step("M2", "controller", "order arrive", at=_ORDER),
    Step("M2", "target daemon", "file arriving"),
    Step("M2", "target daemon", "fetched block", 10, at=_HALF),
    Step("M2", "target daemon", "file running"),
    Step("M2", "target daemon", "engine: create"),
    Step("M2", "target daemon", "unpacked block", 2, at=_HALF),
    Step("M2", "target daemon", "volume filled", at=("after",)),
    Step("M2", "target daemon", "engine: start"),
    Step("M3", "controller", "record placed"),
    Step("M3", "target daemon", "file running, confirmed"),
    Step("M3", "controller", "order clear", at=_ORDER),
    Step("M3", "source daemon", "file fenced"),
    Step("M3", "source daemon", "move: remove"),
    Step("U1", "controller", "record undoing", undone=True),
    Step("U1", "controller", "order clear", at=_ORDER, undone=True),
    Step("U1", "target daemon", "file fenced", undone=True),
    Step("U1", "controller", "record returning", undone=True),
    Step("U1", "controller", "order give_back", at=_ORDER, undone=True),
    Step("U1", "source daemon", "file running", undone=True),
    Step("U1", "source daemon", "move: bring_back", undone=True),
    Step("U2", "controller", "record placed", undone=True),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One process killed at one step."""

    step: Step
    at: At
    victim: Victim

    def __str__(self) -> str:
        undone = ", undone" if self.step.undone else ""
        return f"{self.step.line}{undone}: {self.at} {self.step.action}: {self.victim}"


def faults() -> list[Fault]:
    """All of them: every step with one victim, then with the next, so that a run that is cut short
    has all steps, and all victims about equally often."""
    places = [(step, at) for step in STEPS for at in step.at]
    return [
        Fault(step, at, VICTIMS[(number + turn) % len(VICTIMS)])
        for turn in range(len(VICTIMS))
        for number, (step, at) in enumerate(places)
    ]


def kill(world: World, fault: Fault) -> Outcome:
    """One move in which a process is killed at one step, and is started again. Raises
    AssertionError with what is wrong after it."""
    source = world.on()
    target = next(host for host in world.hosts if host is not source)
    processes: dict[str, tuple[Host, str]] = {
        "controller": (world.hosts[0], "cluster"),
        "source daemon": (source, "run"),
        "target daemon": (target, "run"),
    }
    engine = {"source engine": source, "target engine": target}.get(fault.victim)
    host, word = processes.get(fault.victim, (source, "run"))
    pid = host.pid(word) if engine is None else world.dockerd(engine)
    world.fails_on = target if fault.step.undone else None
    who, whose = processes[fault.step.who]
    with world.order(who, whose, fault.step.point, fault.at, pid):
        world.move(target)
        reached = _reached(world, pid, target)
    world.fails_on = None
    if reached:
        time.sleep(AWAY_S)
        if engine is None:
            host.kill(word)
            words = ("run",) if word == "run" else ("cluster", "run")
            host.start(*words)
        else:
            engine.node.engine.restart()
    settled_s = world.settled()
    on = world.on()
    return Outcome(
        "kill", fault.step.line, f"{fault.at} {fault.step.action}", fault.victim,
        undone=fault.step.undone, reached=reached,
        runs_on="source" if on is source else "target", settled_s=round(settled_s, 1),
    )  # fmt: skip


def _reached(world: World, pid: int, target: Host) -> bool:
    """Wait for the process's end, or the move's."""
    until_s, looks = time.monotonic() + REACHED_WITHIN_S, 0
    while time.monotonic() < until_s:
        if is_dead(pid):
            return True
        looks += 1
        record = world.record() if looks % 50 == 0 else None
        if record is not None and record.on == target.node.node_id and not world.wrong():
            return is_dead(pid)
        time.sleep(POLL_S)
    return False


@contextmanager
def hosts(count: int, managers: int) -> Iterator[EngineNodes]:
    """Engines that have the image of the training."""
    with swarm(count, managers) as engines:
        first, *others = engines.nodes
        ensure_base(first.host)
        for other in others:
            copy_images(first.host, other.host, [BASE])
        yield engines


def play(
    engines: EngineNodes,
    chosen: Sequence[Act],
    names: Sequence[str],
    until_s: float,
    keep: Keep,
    over: Collection[str],
) -> None:
    """One after another until that time, but those that are over; after one that lost something
    the next has a new world."""
    left = [one for one in zip(chosen, names, strict=True) if one[1] not in over]
    number = 0
    while left and time.monotonic() < until_s:
        number += 1
        for node in engines.nodes:
            if not answers(node.host):
                node.engine.restart()
        with ExitStack() as held:
            folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
            instance = f"torture-{os.getpid()}-{number}"
            world = held.enter_context(closing(World(engines, folder, instance)))
            world.begin()
            while left and time.monotonic() < until_s:
                one, name = left.pop(0)
                before = world.seen()
                try:
                    outcome = one(world)
                except Exception as error:  # noqa: BLE001 - it is reported
                    outcome = lost(name)
                    outcome.wrong.append(str(error) or repr(error))
                outcome.wrong += world.since(before)
                outcome.listings = world.listings.whole - before[0]
                keep(outcome)
                print(f"{name}: {outcome.result()}", flush=True)
                if outcome.wrong:
                    log = f"{name}\n{outcome.wrong}\n{world.logs(200_000)}"
                    (KEPT / f"lost-{instance}.log").write_text(log)
                    break


def kills() -> tuple[list[Act], list[str]]:
    """What is done to two hosts, with the names."""
    return [partial(kill, fault=one) for one in faults()], [f"kill: {one}" for one in faults()]


def managers() -> tuple[list[Act], list[str]]:
    """What is done to three managers."""
    acts: list[Act] = [partial(cut, one=one) for one in CUTS]
    acts += [partial(kill_leader, state=state) for state in STATES * 2]
    names = [f"managers: {state}: the leader's engine killed" for state in STATES * 2]
    names = [*map(str, CUTS), *names]
    # So that a run that is cut short has some of each.
    order = sorted(range(len(acts)), key=lambda at: (at * 7 % len(acts), at))
    return [acts[at] for at in order], [names[at] for at in order]


def rotation() -> tuple[list[Act], list[str]]:
    """Certificates that are replaced."""
    states = (RecordState.LEAVING, RecordState.MOVING) * 4
    return [partial(rotate, state=one) for one in states], [f"rotation: {one}" for one in states]


PARTS = {"kills": (kills, 2, 1), "managers": (managers, 3, 3), "rotation": (rotation, 2, 1)}
"""What is done, on how many hosts, and how many of them are managers."""


def main(arguments: list[str] | None = None) -> int:
    """Play the parts; returns the exit code: 1 if something went wrong in one of them."""
    chosen = options(
        __doc__,
        arguments,
        part=(tuple(PARTS), "which; not all: not saved"),
        minutes=(180.0, "of each part: no fault begins after these"),
        resume=(False, "add to what was kept"),
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_with_signal)
    KEPT.mkdir(parents=True, exist_ok=True)
    found: list[Outcome] = []
    for part in chosen.part:
        file, outcomes = KEPT / f"{part}.json", list[Outcome]()
        if chosen.resume and file.exists():
            outcomes += _OUTCOMES.validate_json(file.read_bytes())

        def keep(one: Outcome, file: Path = file, all_of: list[Outcome] = outcomes) -> None:
            all_of.append(one)
            file.write_bytes(_OUTCOMES.dump_json(all_of))

        over = {one.name for one in outcomes if one.reached and not one.wrong}
        act, count, leading = PARTS[part]
        with hosts(count, leading) as engines:
            play(engines, *act(), time.monotonic() + 60.0 * chosen.minutes, keep, over)
        found += outcomes
    told, rows = headlines(found), [asdict(one) for one in found]
    results.show({TITLE: table(found)}, told)
    if chosen.part == tuple(PARTS):
        facts = results.host_facts("two and three private engines of one swarm")
        results.save(NAME, facts, [], rows, title=TITLE, table=table(found), headlines=told)
    return 1 if any(one.wrong for one in found) else 0
