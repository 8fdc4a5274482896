"""`make bench`: policies compared on real services and trainings, and simulated; what they cost.

Prints each table, writes each part's result as JSON to benchmarks/results, and all tables as
Markdown to `TABLES.md` there, which README quotes. Seeds are 1, 2, 3, ...; none is chosen.
`--only training,sim-vs-real` runs some of the parts, in that order.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable

from rich.console import Console

from benchmarks.cost import loop, loop_containers, loop_updates
from benchmarks.gpu import move, pacing, placement
from benchmarks.publish import results
from benchmarks.real import (
    adaptive_real,
    adaptive_schedules,
    mixed_real,
    open_loop_real,
    training,
    training_set,
)
from benchmarks.simulated import (
    adaptive_inference,
    adaptive_training,
    mixed,
    no_harm,
    open_changes,
    open_loop,
    sim_vs_real,
    verdict_curves,
    verdicts,
)
from tools.session import session

TABLES = results.FOLDER / "TABLES.md"


def part_loop(console: Console, chosen: argparse.Namespace) -> None:
    """What the loop costs: simulated with many jobs, with real containers, and its updates."""
    cycles = []
    for row in loop.run("adaptive"):
        console.print(row, highlight=False)
        cycles.append(row)
    rows: list[dict[str, object]] = []
    updates: list[dict[str, object]] = []
    specs = {"idle": loop_containers.idle_spec, "reporting": loop_containers.reporting_spec}
    for kind, spec in specs.items():
        console.print(f"== {chosen.idle} {kind} containers")
        with session() as one:
            cost = loop_containers.measure(one, chosen.idle, 60, "adaptive", spec)
            rows.append({"kind": kind, **cost})
            updates = updates or loop_updates.measure(one)
    loop.save(host_facts(), cycles, rows, updates)


def part_training(console: Console, chosen: argparse.Namespace) -> None:
    """Every policy on the training schedules; runs that are kept are not run again."""
    seeds = range(1, chosen.repetitions + 1)
    training.run_missing(console, training_set.POLICIES, seeds, fresh=False)
    training.judge_kept(console, training_set.POLICIES, seeds)


def part_adaptive_real(console: Console, _: argparse.Namespace) -> None:
    """`adaptive` on real services, feasible and not."""
    adaptive_real.run(console, adaptive_real.SEEDS, adaptive_real.POLICIES)


def part_adaptive_schedules(console: Console, _: argparse.Namespace) -> None:
    """`adaptive` on the training schedules; runs that are kept are not run again."""
    adaptive_schedules.run(console, adaptive_schedules.SEEDS, fresh=False)


def part_adaptive_training(console: Console, _: argparse.Namespace) -> None:
    """`adaptive`, its peers and the clairvoyant on generated trainings."""
    seeds = range(1, adaptive_training.SEEDS + 1)
    found = adaptive_training.run(
        console,
        adaptive_training.SCENARIOS,
        adaptive_training.COUNTS,
        seeds,
        adaptive_training.POLICIES,
    )
    adaptive_training.save(found, seeds)


def whole(main: Callable[[list[str]], int]) -> Callable[[Console, argparse.Namespace], None]:
    """A bench that prints and saves all of itself when it is run without options."""
    return lambda *_: None if main([]) == 0 else sys.exit(1)


def part_verdicts(console: Console, _: argparse.Namespace) -> None:
    """What `adaptive` says of trainings' tiers, held against the truth."""
    rows = verdicts.run(verdict_curves.FAMILIES, verdicts.JUDGED, len(os.sched_getaffinity(0)))
    console.print(*verdicts.figures(rows), sep="\n", markup=False, soft_wrap=True)
    verdicts.save(rows)


def part_adaptive_inference(console: Console, _: argparse.Namespace) -> None:
    """`adaptive`, its peers and the clairvoyant on generated services."""
    found = adaptive_inference.run(
        console,
        adaptive_inference.SCENARIOS,
        adaptive_inference.COUNTS,
        range(1, adaptive_inference.SEEDS + 1),
        adaptive_inference.POLICIES,
        len(os.sched_getaffinity(0)),
    )
    adaptive_inference.save(found)


def part_mixed(console: Console, _: argparse.Namespace) -> None:
    """Services and trainings on one node, simulated and real."""
    rows = mixed.run(console, mixed.COUNTS, mixed.SEEDS, len(os.sched_getaffinity(0)))
    mixed.save(rows, mixed_real.run(console))


def part_sim_vs_real(console: Console, _: argparse.Namespace) -> None:
    """The kept journals of `training` and `adaptive-real`, simulated."""
    sim_vs_real.run(console)


def part_gpu_placement(console: Console, _: argparse.Namespace) -> None:
    """Which GPUs jobs get: what choosing costs, and what it is worth."""
    placement.run(console, host_facts())


def part_gpu_move(console: Console, _: argparse.Namespace) -> None:
    """What a move to another GPU loses, and how long it takes."""
    move.run(console, host_facts(), move.MOVES, move.FAILURES)


PARTS = {
    "loop": part_loop,
    "training": part_training,
    adaptive_real.NAME: part_adaptive_real,
    adaptive_schedules.NAME: part_adaptive_schedules,
    adaptive_inference.NAME: part_adaptive_inference,
    adaptive_training.NAME: part_adaptive_training,
    open_loop.NAME: whole(open_loop.main),
    open_changes.NAME: whole(open_changes.main),
    open_loop_real.NAME: whole(open_loop_real.main),
    no_harm.NAME: whole(no_harm.main),
    verdicts.NAME: part_verdicts,
    mixed.NAME: part_mixed,
    "sim-vs-real": part_sim_vs_real,
    "gpu-placement": part_gpu_placement,
    "gpu-move": part_gpu_move,
}

SAVED_AS = {"training": training.NAME, "sim-vs-real": sim_vs_real.NAME}
"""The result files that are not called as their part."""


def host_facts() -> dict[str, object]:
    """The host's facts, the engine's version among them."""
    with session() as one:
        return results.host_facts(one.engine.version()["Version"])


def main(arguments: list[str] | None = None) -> int:
    """The parts asked for, then all tables from what was saved; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, such as loop,mixed")
    parser.add_argument("--idle", type=int, default=100, help="containers in the loop's cost")
    parser.add_argument("--repetitions", type=int, default=2, help="of the training schedules")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=False)
    for name in chosen.only.split(","):
        if name not in PARTS:
            parser.error(f"no part {name!r}; there are {', '.join(PARTS)}")
        PARTS[name](console, chosen)
    names = [*(SAVED_AS.get(part, part) for part in PARTS), pacing.NAME]
    TABLES.write_text("\n\n".join(results.tables(names)) + "\n")
    console.print(TABLES.read_text(), markup=False, soft_wrap=True)
    return 0
