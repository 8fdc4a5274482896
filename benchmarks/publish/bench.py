"""`make bench`: policies compared on real services and trainings, and simulated; what they cost.

Prints each table, writes each part's result as JSON to benchmarks/results, and all tables as
Markdown to `TABLES.md` there, which README quotes. Seeds are 1, 2, 3, ...; none is chosen.
`--only training,sim-vs-real` runs some of the parts, in that order.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
from collections.abc import Callable, Sequence

from rich.console import Console

from benchmarks.cost import loop, loop_containers, loop_updates, reaction, simulator
from benchmarks.gpu import move, pacing, placement
from benchmarks.kernel import bystander, idle_class, tail
from benchmarks.publish import plot, results
from benchmarks.real import (
    adaptive_real,
    adaptive_schedules,
    mixed_real,
    open_loop_real,
    training,
    training_set,
)
from benchmarks.real.comparison import Comparison, Plan, compare
from benchmarks.real.demo import Screen, by_model, summary
from benchmarks.real.session import session
from benchmarks.simulated import (
    ablation,
    adaptive_inference,
    adaptive_training,
    cfs_periods,
    mixed,
    no_harm,
    open_changes,
    open_loop,
    sim_vs_real,
    simulated,
    verdict_curves,
    verdicts,
)

PUBLISHED = tuple(
    f"dqoes-published?reading={reading}&floor_ratio={floor}"
    for reading in ("own", "pool")
    for floor in (0.5, 0.05)
)
"""The published rule leaves two questions open; each answer is measured."""

MENDS = {
    "all mends": "dqoes",
    "published step (gain 0.1)": "dqoes?gain=0.1",
    "published floor N/(2n)": "dqoes?floor_ratio=0.5",
    "acts on any sample": "dqoes?min_requests=1&min_window_s=0.0&noise_sigmas=0.0",
    "decides every 10 s": "dqoes?interval_s=10.0",
    "never rests (no back-off)": "dqoes?backoff=1",
}
"""The mended rule, then with one mend at a time turned back."""

TABLES = results.FOLDER / "TABLES.md"


def satisfied(console: Console, plans: Sequence[Plan]) -> list[Comparison]:
    """The comparison for each plan, each on fresh containers."""
    comparisons = []
    for plan in plans:
        with session() as one, Screen(console) as screen:
            comparisons.append(compare(one, plan, screen))
        console.print(by_model(comparisons[-1]))
        console.print(summary(comparisons[-1]))
    return comparisons


def rows_of(comparisons: Sequence[Comparison]) -> list[dict[str, object]]:
    """One row a seed and policy."""
    return [
        {"seed": comparison.plan.seed, "demand": comparison.plan.demand_ratio, **run.row()}
        for comparison in comparisons
        for run in comparison.runs
    ]


def medians(comparisons: Sequence[Comparison]) -> list[dict[str, object]]:
    """One row a policy: medians over the seeds, worst beside them, and who got worse."""
    rows: list[dict[str, object]] = []
    for index, policy in enumerate(comparisons[0].plan.policies):
        runs = [comparison.runs[index] for comparison in comparisons]
        each = [run.row() for run in runs]
        settles = [row["settle_s"] for row in each]
        rows.append(
            {
                "policy": policy,
                "within 10 %": _median(row["satisfied_band"] for row in each),
                "worst seed": min(row["satisfied_band"] for row in each),
                "not slower": _median(row["satisfied_slo"] for row in each),
                "slower than under plain Docker": sum(
                    _slower_than_plain(comparison, index) for comparison in comparisons
                ),
                "settled after s": None if None in settles else _median(settles),
                "updates/min": _median(row["updates_per_min"] for row in each),
                "daemon, % of a core": 100 * statistics.median(r.loop_core_ratio for r in runs),
                "daemon, MiB": statistics.median(r.rss_bytes for r in runs) / 2**20,
                "engine, % of a core": 100 * statistics.median(r.engine_core_ratio for r in runs),
            }
        )
    return rows


def _slower_than_plain(comparison: Comparison, index: int) -> int:
    """How many models missed the target by more than under plain Docker, and are not satisfied."""
    plain = {job.job: job for job in comparison.runs[0].judged}
    return sum(
        job.ratio is not None
        and not job.band
        and abs(job.ratio - 1) > abs((plain[job.job].ratio or 0.0) - 1)
        for job in comparison.runs[index].judged
    )


def _median(values: object) -> float:
    return float(statistics.median(values))  # type: ignore[call-overload]


def part_satisfied(console: Console, chosen: argparse.Namespace) -> None:
    """Every policy on every seed's set."""
    seeds = range(1, chosen.seeds + 1)
    policies = ("none", *PUBLISHED, "dqoes")
    plans = [
        Plan(seed=s, policies=policies, demand_ratio=chosen.demand, settle_s=chosen.settle)
        for s in seeds
    ]
    comparisons = satisfied(console, plans)
    last = comparisons[-1].runs[-1]
    cost = {
        "containers": len(comparisons[-1].set),
        "core_ratio": round(last.loop_core_ratio, 4),
        "rss_mib": round(last.rss_bytes / 2**20, 1),
        "engine_core_ratio": round(last.engine_core_ratio, 4),
        **{f"{name}_ms": round(1000 * spent_s, 2) for name, spent_s in last.phase_s.items()},
    }
    results.save(
        "satisfied",
        host_facts(),
        seeds,
        rows_of(comparisons),
        title=f"Satisfied of 8, median of {len(seeds)} seeds",
        table=medians(comparisons),
        loop=cost,
    )
    plot.draw(comparisons[0], results.FOLDER / "satisfied.png")


def part_mends(console: Console, chosen: argparse.Namespace) -> None:
    """The mended rule with one mend at a time turned back."""
    plan = Plan(
        seed=1,
        policies=tuple(MENDS.values()),
        demand_ratio=chosen.demand,
        settle_s=chosen.settle,
    )
    rows = rows_of(satisfied(console, [plan]))
    rows = [{"variant": name, **row} for name, row in zip(MENDS, rows, strict=True)]
    shown = ("variant", "satisfied_band", "satisfied_slo", "settle_s", "updates_per_min")
    results.save(
        "mends",
        host_facts(),
        [1],
        rows,
        title="`dqoes` with one mend at a time turned back, of 8, seed 1, judged from second "
        f"{chosen.settle:.0f} on",
        table=[{key: row[key] for key in shown} for row in rows],
    )


def part_loop(console: Console, chosen: argparse.Namespace) -> None:
    """What the loop costs: simulated with many jobs, with real containers, and its updates."""
    cycles = []
    for row in loop.run("adaptive"):
        console.print(row, highlight=False)
        cycles.append(row)
    rows: list[dict[str, object]] = []
    updates: list[dict[str, object]] = []
    for kind, spec in (("idle", reaction.idle_spec), ("reporting", loop_containers.reporting_spec)):
        console.print(f"== {chosen.idle} {kind} containers")
        with session() as one:
            cost = loop_containers.measure(one, chosen.idle, 60, "adaptive", spec)
            rows.append({"kind": kind, **cost})
            updates = updates or loop_updates.measure(one)
    working = results.load("satisfied")
    if working is not None:
        rows.insert(0, {"kind": "working", **working["loop"]})
    loop.save(host_facts(), cycles, rows, updates)


def part_reaction(console: Console, chosen: argparse.Namespace) -> None:
    """How soon the daemon reacts."""
    console.print(f"== {chosen.rounds} rounds of drop and kill")
    with session() as one:
        rows = reaction.measure(one, chosen.rounds)
    results.save("reaction", host_facts(), [], rows, title="Reaction", table=rows)


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


def part_simulated(console: Console, _: argparse.Namespace) -> None:
    """Every policy on generated traces."""
    seeds = simulated.SEEDS
    rows = simulated.run(console, simulated.COUNTS, seeds, len(os.sched_getaffinity(0)))
    simulated.save(rows, seeds)


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


def part_ablation(console: Console, _: argparse.Namespace) -> None:
    """`adaptive` with one part at a time left out."""
    seeds = range(1, ablation.SEEDS + 1)
    ablation.save(*ablation.run(console, seeds, len(os.sched_getaffinity(0))))


def part_mixed(console: Console, _: argparse.Namespace) -> None:
    """Services and trainings on one node, simulated and real."""
    rows = mixed.run(console, mixed.COUNTS, mixed.SEEDS, len(os.sched_getaffinity(0)))
    mixed.save(rows, mixed_real.run(console))


def part_sim_vs_real(console: Console, _: argparse.Namespace) -> None:
    """The kept journals of `training` and `satisfied`, simulated."""
    sim_vs_real.run(console)


def part_simulator(console: Console, _: argparse.Namespace) -> None:
    """What the simulator costs."""
    rows = []
    for row in simulator.rows():
        console.print(row, highlight=False)
        rows.append(row)
    title = "What simulating costs, on one core"
    results.save("simulator", host_facts(), [], rows, title=title, table=rows)


def part_gpu_placement(console: Console, _: argparse.Namespace) -> None:
    """Which GPUs jobs get: what choosing costs, and what it is worth."""
    placement.run(console, host_facts())


def part_gpu_move(console: Console, _: argparse.Namespace) -> None:
    """What a move to another GPU loses, and how long it takes."""
    move.run(console, host_facts(), move.MOVES, move.FAILURES)


def part_tail(console: Console, chosen: argparse.Namespace) -> None:
    """Short requests under a quota, with and without CFS burst."""
    seed = 1
    bursts = ", ".join(f"{burst:g}" for burst in tail.BURSTS)
    console.print(
        f"== tail, seed {seed}: bursts of {bursts}, forward and backward", highlight=False
    )
    with session() as one:
        rows = tail.measure(one, seed, chosen.tail)
    console.print(results.markdown(rows), highlight=False, soft_wrap=True)
    title = "Tail of short requests under a quota, with and without CFS burst"
    results.save("tail", host_facts(), [seed], rows, title=title, table=tail.table(rows))


def part_idle_class(console: Console, chosen: argparse.Namespace) -> None:
    """What the idle class is worth to a training that comes first."""
    console.print(f"== idle class, seed {idle_class.SEED}: forward and backward", highlight=False)
    with session() as one:
        rows = idle_class.measure(one, chosen.idle_class)
    console.print(results.markdown(rows), highlight=False, soft_wrap=True)
    title = "A training that comes first, by how the other one is kept behind"
    shown = idle_class.table(rows)
    results.save(idle_class.NAME, host_facts(), [idle_class.SEED], rows, title=title, table=shown)


def part_bystander(console: Console, chosen: argparse.Namespace) -> None:
    """What the rest of the host waits beside trainings, by the group's weight."""
    seed = 1
    console.print(f"== bystander, seed {seed}: weights forward and backward", highlight=False)
    with session() as one:
        rows = bystander.measure(one, seed, chosen.bystander)
    console.print(results.markdown(rows), highlight=False, soft_wrap=True)
    title = "What the rest of the host waits while trainings keep every core busy"
    results.save("bystander", host_facts(), [seed], rows, title=title, table=bystander.table(rows))


PARTS = {
    "satisfied": part_satisfied,
    "mends": part_mends,
    "loop": part_loop,
    "reaction": part_reaction,
    "tail": part_tail,
    "bystander": part_bystander,
    idle_class.NAME: part_idle_class,
    "training": part_training,
    adaptive_real.NAME: part_adaptive_real,
    adaptive_schedules.NAME: part_adaptive_schedules,
    "simulated": part_simulated,
    adaptive_inference.NAME: part_adaptive_inference,
    adaptive_training.NAME: part_adaptive_training,
    open_loop.NAME: whole(open_loop.main),
    open_changes.NAME: whole(open_changes.main),
    open_loop_real.NAME: whole(open_loop_real.main),
    no_harm.NAME: whole(no_harm.main),
    cfs_periods.NAME: whole(cfs_periods.main),
    verdicts.NAME: part_verdicts,
    mixed.NAME: part_mixed,
    ablation.NAME: part_ablation,
    "sim-vs-real": part_sim_vs_real,
    "simulator": part_simulator,
    "gpu-placement": part_gpu_placement,
    "gpu-move": part_gpu_move,
}

SAVED_AS = {"training": training.NAME, "simulated": simulated.NAME, "sim-vs-real": sim_vs_real.NAME}
"""The result files that are not called as their part."""


def host_facts() -> dict[str, object]:
    """The host's facts, the engine's version among them."""
    with session() as one:
        return results.host_facts(one.engine.version()["Version"])


def main(arguments: list[str] | None = None) -> int:
    """The parts asked for, then all tables from what was saved; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, such as loop,reaction")
    parser.add_argument("--seeds", type=int, default=3, help="how many (1, 2, ...)")
    parser.add_argument("--demand", type=float, default=0.7, help="of capacity (default 0.7)")
    parser.add_argument("--settle", type=float, default=60.0, help="seconds before judging")
    parser.add_argument("--idle", type=int, default=100, help="containers in the loop's cost")
    parser.add_argument("--repetitions", type=int, default=2, help="of the training schedules")
    parser.add_argument("--tail", type=float, default=90.0, help="seconds of each phase of tail")
    parser.add_argument("--bystander", type=float, default=20.0, help="seconds of each weight")
    parser.add_argument("--idle-class", type=float, default=12.0, help="seconds of each phase")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of the reaction times")
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
