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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from benchmarks.options import options
from benchmarks.places import ROOT
from benchmarks.publish import results
from benchmarks.publish.results import grouped, verdict
from benchmarks.robustness.cluster_world import BASE, TOGETHER, World, is_dead
from dlsched.cluster.core.records import RecordState
from dlsched.cluster.store import StoreError
from dlsched.model.errors import DlschedError
from tests.torture.points import Phase as At
from tests.torture.points import Point
from tools.base_image import ensure_base
from tools.engine import end_with_signal
from tools.engine_probe import answers
from tools.engines import EngineNodes, copy_images, swarm
from tools.hosts import Host
from tools.waiting import wait_for

# ---------------------------------------------------------------------- outcomes

ASKED_POINTS = 28
"""Of a move, at which each process is killed."""


@dataclass
class Outcome:
    """One fault, and what came of it."""

    part: str
    line: str
    """Of the table of a move: M0 to U2."""
    what: str
    victim: str
    undone: bool = False
    """Whether the job's start on the target was made to fail."""
    reached: bool = False
    """Whether the fault happened."""
    runs_on: str = ""
    """Where the job runs after it."""
    settled_s: float = 0.0
    """From when the last process was started again until nothing was left of the move."""
    listings: int = 0
    """Of all engines, meanwhile."""
    wrong: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        undone = ", undone" if self.undone else ""
        parts = (self.part, f"{self.line}{undone}", self.what, self.victim)
        return ": ".join(dict.fromkeys(parts))

    @property
    def point(self) -> tuple[object, ...]:
        """Of a move, at which it happened."""
        return self.line, self.what, self.undone

    def result(self) -> str:
        if self.wrong:
            return f"LOST: {'; '.join(self.wrong)}"
        if not self.reached:
            return "not reached"
        return f"runs on the {self.runs_on}, after {self.settled_s:.1f} s"


def table(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """One row a part and victim, and one for all."""
    groups = grouped(outcomes, lambda one: f"{one.part}: {one.victim}")
    return [_row(name, mine) for name, mine in [*groups.items(), ("all", list(outcomes))]]


def _row(name: str, outcomes: Sequence[Outcome]) -> dict[str, object]:
    reached = [one for one in outcomes if one.reached]
    times = sorted(one.settled_s for one in reached if not one.wrong)
    lost = sorted({wrong.partition(";")[0] for one in outcomes for wrong in one.wrong})
    return {
        "fault": name,
        "points": len({one.point for one in reached}),
        "faults": len(reached),
        "not reached": len(outcomes) - len(reached),
        "survived": sum(not one.wrong for one in reached),
        "on the target": sum(one.runs_on == "target" for one in reached),
        "median s": times[len(times) // 2] if times else "-",
        "most s": times[-1] if times else "-",
        "lost": "; ".join(lost) or "nothing",
    }


def headlines(outcomes: Sequence[Outcome]) -> list[str]:
    reached = [one for one in outcomes if one.reached]
    wrong = [one for one in reached if one.wrong]
    kills = [one for one in reached if one.part == "kill"]
    points = {one.point for one in kills}
    listings = sum(one.listings for one in outcomes)
    twice = sum(TOGETHER in line for one in outcomes for line in one.wrong)
    least = min(
        (
            len({one.point for one in kills if one.victim == victim})
            for victim in {one.victim for one in kills}
        ),
        default=0,
    )
    others = len(reached) - len(kills)
    return [
        (
            f"{len(kills)} kills at {len(points)} points of a move, of each process at {least} or "
            f"more (asked {ASKED_POINTS}): {verdict(least >= ASKED_POINTS)}"
        ),
        (f"{others} faults of three managers and their links (asked some): {verdict(others > 0)}"),
        (
            f"faults that lost or doubled the job, or left something behind: {len(wrong)} "
            f"(asked none): {verdict(not wrong)}"
        ),
        (
            f"faults in which the job ran twice {TOGETHER}: {twice} (asked none); "
            f"listings of all engines: {listings}: {verdict(not twice)}"
        ),
    ]


# ---------------------------------------------------------------------- managers

CUT_S = 25.0
"""How long what was cut or killed stays so: longer than Swarm takes to see it."""
STATE_WITHIN_S = 60.0
LEADS_WITHIN_S = 60.0
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
        return f"{self.state}: {what} cut off" + (" from each other" if len(self.nodes) > 1 else "")


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
    reached = _comes(lambda: (now := world.record()) is not None and now.state is one.state)
    wrong: list[str] = []
    if reached:
        (network.cut_link if is_link else network.cut)(*numbers)
        began_s = time.monotonic()
        try:
            if one.nodes == (0,):
                wrong += _writes(world, leader)
            time.sleep(max(0.0, began_s + CUT_S - time.monotonic()))
        finally:
            (network.mend_link if is_link else network.mend)(*numbers)
    return _end(world, blank(str(one)), source, reached, wrong)


def kill_leader(world: World, state: RecordState) -> Outcome:
    """Kill the leading manager's engine right after it has written that state."""
    leader, source, target = _begin(world, state)
    pid = world.dockerd(leader)
    with world.order(leader, "cluster", Point(f"record {state}", "", 1), "after", pid):
        world.move(target)
        reached = _comes(lambda: is_dead(pid))
    if reached:
        time.sleep(CUT_S)
        leader.node.engine.restart()
    return _end(world, blank(f"{state}: the leader's engine killed"), source, reached, [])


def _begin(world: World, state: RecordState) -> tuple[Host, Host, Host]:
    """Leader, source and target of the next move; the target is the leader in turn."""
    wait_for(lambda: len(world.leading()) == 1, LEADS_WITHIN_S, "one controller to act")
    source = world.on()
    others = [host for host in world.hosts if host is not source]
    world.turns += 1
    target = others[world.turns % 2]
    world.fails_on = target if state in UNDONE else None
    return world.leader(), source, target


def _comes(condition: Callable[[], bool]) -> bool:
    """Wait for it; whether it came."""
    end_s = time.monotonic() + STATE_WITHIN_S
    while not (come := condition()) and time.monotonic() < end_s:
        time.sleep(POLL_S)
    return come


def _writes(world: World, leader: Host) -> list[str]:
    """Whether the store takes a write from the leader that is cut off."""
    store = world.store(leader)
    try:
        ((job, stored),) = store.records().items()
        store.put(replace(stored.record, why="of a leader that is cut off"), stored.version)
    except (StoreError, DlschedError):
        return []
    return [f"{job}: a write of the leader that is cut off was taken"]


def _end(world: World, one: Outcome, source: Host, reached: bool, wrong: list[str]) -> Outcome:
    world.fails_on = None
    settled_s = world.settled()
    wait_for(lambda: len(world.leading()) == 1, LEADS_WITHIN_S, "one controller to act")
    record = world.record()
    if record is not None and "cut off" in record.why:
        wrong.append("a write of the leader that was cut off was taken")
    runs_on = "source" if world.on() is source else "target"
    return replace(
        one, reached=reached, wrong=wrong, runs_on=runs_on, settled_s=round(settled_s, 1)
    )


# ---------------------------------------------------------------------- kills

NAME = "cluster-torture"
TITLE = "kill -9 at each step of a move between two hosts"
KEPT = ROOT / ".build" / "cluster-torture"
"""The outcomes of parts, and the logs of runs in which something was lost."""
REACHED_WITHIN_S = 40.0
AWAY_S = 1.0
"""How long what was killed stays so."""
POLL_S = 0.02

Act = Callable[[World], Outcome]

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

    def blank(self) -> Outcome:
        what = f"{self.at} {self.step.action}"
        return Outcome("kill", self.step.line, what, self.victim, undone=self.step.undone)


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
    runs_on = "source" if world.on() is source else "target"
    return replace(fault.blank(), reached=reached, runs_on=runs_on, settled_s=round(settled_s, 1))


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


Planned = tuple[Outcome, Act]
"""A fault of which nothing is known yet, and what makes it happen."""


def play(engines: EngineNodes, plan: Sequence[Planned], until_s: float) -> list[Outcome]:
    """One after another until that time; after one that lost something the next has a new world."""
    left, found = list(plan), list[Outcome]()
    while left and time.monotonic() < until_s:
        for node in engines.nodes:
            if not answers(node.host):
                node.engine.restart()
        with ExitStack() as held:
            folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
            instance = f"torture-{os.getpid()}-{len(found)}"
            world = held.enter_context(closing(World(engines, folder, instance)))
            world.begin()
            while left and time.monotonic() < until_s:
                blank, act = left.pop(0)
                before = world.seen()
                try:
                    outcome = act(world)
                except Exception as error:  # noqa: BLE001 - it is reported
                    outcome = replace(blank, reached=True, wrong=[str(error) or repr(error)])
                outcome.wrong += world.since(before)
                outcome.listings = world.listings.whole - before[0]
                found.append(outcome)
                print(f"{blank.name}: {outcome.result()}", flush=True)
                if outcome.wrong:
                    log = f"{blank.name}\n{outcome.wrong}\n{world.logs(200_000)}"
                    (KEPT / f"lost-{instance}.log").write_text(log)
                    break
    return found


def kills() -> list[Planned]:
    """What is done to two hosts."""
    return [(one.blank(), partial(kill, fault=one)) for one in faults()]


def managers() -> list[Planned]:
    """What is done to three managers."""
    plan: list[Planned] = [(blank(str(one)), partial(cut, one=one)) for one in CUTS]
    plan += [
        (blank(f"{state}: the leader's engine killed"), partial(kill_leader, state=state))
        for state in STATES * 2
    ]
    # So that a run that is cut short has some of each.
    order = sorted(range(len(plan)), key=lambda at: (at * 7 % len(plan), at))
    return [plan[at] for at in order]


def blank(name: str) -> Outcome:
    """A fault among managers, by the record's state and what is done."""
    line, what = name.split(": ")
    return Outcome("managers", line, what, what)


PARTS = {"kills": (kills, 2, 1), "managers": (managers, 3, 3)}
"""What is done, on how many hosts, and how many of them are managers."""


def main(arguments: list[str] | None = None) -> int:
    """Play the parts; returns the exit code: 1 if something went wrong in one of them."""
    chosen = options(
        __doc__,
        arguments,
        part=(tuple(PARTS), "which; not all: not saved"),
        minutes=(180.0, "of each part: no fault begins after these"),
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_with_signal)
    KEPT.mkdir(parents=True, exist_ok=True)
    found: list[Outcome] = []
    for part in chosen.part:
        plan, count, leading = PARTS[part]
        with hosts(count, leading) as engines:
            found += play(engines, plan(), time.monotonic() + 60.0 * chosen.minutes)
    engine, tables = "two and three private engines of one swarm", {TITLE: table(found)}
    whole = chosen.part == tuple(PARTS)
    results.finish(NAME, engine, [], found, tables, headlines(found), whole=whole)
    return 1 if any(one.wrong for one in found) else 0
