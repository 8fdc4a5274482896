"""kill -9 at every step of a move between real hosts: is the job lost, or run twice?

Two engines of one swarm, a daemon on each, a controller, one training that is moved there and back.
In each run one process is killed at one step of the move: the controller, a daemon or an engine.
It is started again, and then exactly one host must run the job, from the last checkpoint that it
finished or later, and nothing else may be left of it.

    python -m benchmarks run cluster-torture    writes benchmarks/results/cluster-torture.json
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Console

from benchmarks.places import ROOT
from benchmarks.publish import results
from benchmarks.robustness.cluster_faults import CUTS, STATES, cut, kill_leader, rotate
from benchmarks.robustness.cluster_steps import Fault, faults
from benchmarks.robustness.cluster_table import Outcome, headlines, lost, table
from benchmarks.robustness.cluster_world import BASE, World, is_dead
from dlsched.cluster.core.records import RecordState
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
_show = Console(soft_wrap=True, highlight=False)


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
                    wrong = world.since(before)
                except Exception as error:  # noqa: BLE001 - it is reported
                    outcome, wrong = None, [str(error) or repr(error), *world.since(before)]
                outcome = outcome or lost(name)
                outcome.wrong += wrong
                outcome.listings = world.listings.whole - before[0]
                keep(outcome)
                _show.print(f"{name}: {outcome.result()}", markup=False)
                if wrong:
                    KEPT.mkdir(parents=True, exist_ok=True)
                    file = KEPT / f"lost-{instance}.log"
                    file.write_text(f"{name}\n{wrong}\n{world.logs(200_000)}")
                    break


def kills(share: str, until_s: float, keep: Keep, over: Collection[str]) -> None:
    """The part with two hosts. `share`: 1/2 is the first half."""
    number, of = (int(part) for part in share.split("/"))
    mine = faults()[number - 1 :: of]
    with hosts(2, 1) as engines:
        acts = [partial(kill, fault=one) for one in mine]
        play(engines, acts, [f"kill: {one}" for one in mine], until_s, keep, over)


def managers(share: str, until_s: float, keep: Keep, over: Collection[str]) -> None:
    """The part with three managers."""
    number, of = (int(part) for part in share.split("/"))
    with hosts(3, 3) as engines:
        names = [str(one) for one in CUTS]
        acts: list[Act] = [partial(cut, one=one) for one in CUTS]
        names += [f"managers: {state}: the leader's engine killed" for state in STATES * 2]
        acts += [partial(kill_leader, state=state) for state in STATES * 2]
        # So that a run that is cut short has some of each.
        order = sorted(range(len(acts)), key=lambda at: (at * 7 % len(acts), at))[number - 1 :: of]
        play(engines, [acts[at] for at in order], [names[at] for at in order], until_s, keep, over)


def rotation(share: str, until_s: float, keep: Keep, over: Collection[str]) -> None:
    """The part in which certificates are replaced."""
    number, of = (int(part) for part in share.split("/"))
    states = ((RecordState.LEAVING, RecordState.MOVING) * 4)[number - 1 :: of]
    with hosts(2, 1) as engines:
        acts = [partial(rotate, state=state) for state in states]
        play(engines, acts, [f"rotation: {state}" for state in states], until_s, keep, over)


PARTS = {"kills": kills, "managers": managers, "rotation": rotation}


def main(arguments: list[str] | None = None) -> int:
    """Run the parts, print, and write the result file; 1: something was lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--share", default="1/1", help="of a part: 1/2 is every second fault")
    parser.add_argument("--minutes", type=float, default=180.0, help="no fault begins after these")
    parser.add_argument("--resume", action="store_true", help="add to what was kept")
    parser.add_argument("--save", action="store_true", help="write what all parts have kept")
    chosen = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_with_signal)
    KEPT.mkdir(parents=True, exist_ok=True)
    for part in chosen.part or PARTS:
        file = KEPT / f"{part}-{chosen.share.replace('/', '-of-')}.json"
        outcomes: list[Outcome] = []
        if chosen.resume and file.exists():
            outcomes += _OUTCOMES.validate_json(file.read_bytes())

        def keep(outcome: Outcome, file: Path = file, all_of: list[Outcome] = outcomes) -> None:
            all_of.append(outcome)
            file.write_bytes(_OUTCOMES.dump_json(all_of))

        until_s = time.monotonic() + 60.0 * chosen.minutes
        over = {one.name for one in outcomes if one.reached and not one.wrong}
        PARTS[part](chosen.share, until_s, keep, over)
    found = [
        one
        for file in sorted(KEPT.glob("*.json"))
        for one in _OUTCOMES.validate_json(file.read_bytes())
    ]
    told = headlines(found)
    _show.print(results.markdown(table(found)), markup=False)
    _show.print("\n".join(told), markup=False)
    if chosen.save:
        facts = results.host_facts("two and three private engines of one swarm")
        rows = [asdict(one) for one in found]
        results.save(NAME, facts, [], rows, title=TITLE, table=table(found), headlines=told)
    return 1 if any(one.wrong for one in found) else 0
