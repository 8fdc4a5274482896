"""Many shards with a queue each: with and without a federation, and beside one flat queue.

Nodes are fluid and lengths of jobs have heavy tails; placement, the rule of the federation, its
summaries and the table of hand-overs are the real core. `stretch` is
the most that a job can use as a multiple of what it asks for: with 1 a job runs at one speed and
all that counts is the queue; above 1 jobs that share a crowded node are slow without any queue.
`without holding`: shards give each job a node when it arrives, if one has room. Constants of the
rule were chosen on seed 1, which is in no saved row.

    python -m benchmarks run cluster-scale              writes benchmarks/results/cluster-scale.json
    python -m benchmarks run cluster-scale --small      2 x 20 nodes, printed only
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.console import Console

from benchmarks.publish import results
from benchmarks.publish.results import verdict
from dlsched.cluster.core.federation import RULE, QueuedJob, decide
from dlsched.cluster.core.shards import (
    SUMMARY_BYTES_MAX,
    Ask,
    NodeRoom,
    parse_summary,
    summarize,
)
from dlsched.simulation.cluster.federation import (
    SIZES,
    FederationRun,
    FederationWorld,
    WorldOptions,
    draw_world,
    flat,
    simulate_federation,
)

NAME = "cluster-scale"
SEEDS = (101, 102)
FLAT, NONE, FEDERATED, PROMPT = "flat", "no federation", "federation", "without holding"
SLOWER_RATIO = 1.1
MEAN_FIGURE, ROUND_FIGURE_MS, RUN_FIGURE_S = 1.05, 50.0, 600.0

LARGE = WorldOptions(shards=20, nodes=500, jobs=100_000, stretch=1.5)
BESIDE_FLAT = WorldOptions(shards=4, nodes=500, jobs=20_000)
STRETCHES = (1.0, 1.5, 2.0)
_ROUNDS = 20


@dataclass(frozen=True)
class Part:
    """One world with those that are compared in it, the one without a federation first."""

    options: WorldOptions
    seed: int
    contenders: tuple[str, ...]


def parts(seeds: Sequence[int]) -> Iterator[Part]:
    """The large world under the first seed; those beside a flat queue under all."""
    yield Part(LARGE, seeds[0], (NONE, FEDERATED))
    for seed in seeds:
        for stretch in STRETCHES:
            options = replace(BESIDE_FLAT, stretch=stretch)
            yield Part(options, seed, (NONE, FLAT, PROMPT, FEDERATED))


def rows(part: Part) -> Iterator[dict[str, object]]:
    """A row a contender."""
    world = draw_world(part.seed, part.options)
    base: Mapping[str, float] = {}
    flat_s: float | None = None
    for contender in part.contenders:
        began_s = time.process_time()
        run = _run(world, contender)
        cpu_s = time.process_time() - began_s
        base = base or run.completions_s
        mean_s = statistics.fmean(run.completions_s.values())
        if contender == FLAT:
            flat_s = mean_s
        yield {
            "nodes": part.options.shards * part.options.nodes,
            "shards": 1 if contender == FLAT else part.options.shards,
            "jobs": part.options.jobs,
            "stretch": part.options.stretch,
            "seed": part.seed,
            "contender": contender,
            "mean_s": mean_s,
            "mean_of_flat": mean_s / flat_s if flat_s else None,
            "mean_of_none": mean_s / statistics.fmean(base.values()),
            **_rest(run, base),
            "cpu_s": cpu_s,
            "busiest_round_ms": _ms(busiest_round_s(part.options.shards, part.seed)),
        }


def busiest_round_s(shards: int, seed: int) -> float:
    """CPU time of a round in which all shards are full and have long queues."""
    draw = random.Random(seed)
    texts: dict[str, str] = {}
    queues: dict[str, list[QueuedJob]] = {}
    for index in range(shards):
        name = f"shard-{index:02}"
        rooms = [
            NodeRoom(
                0.0,
                cores=8.0,
                demand_cores=12.0,
                ends=sorted((draw.random() * 20_000.0, 4.0) for _ in range(2)),
            )
            for _ in range(500)
        ]
        queue: list[QueuedJob] = []
        for count in range(RULE.considered_max):
            cores = draw.choice(SIZES)
            ahead = sum(job.ask.cores for job in queue)
            queue.append(QueuedJob(f"{name}-{count}", Ask(cores), ahead, cores * 1.5, 10_000.0))
        waiting = [(job.name, job.ask) for job in queue]
        texts[name] = summarize(name, Ask(8.0), rooms, waiting, 1000.0).to_json()
        queues[name] = queue
    times = []
    for number in range(_ROUNDS):
        began_s = time.thread_time()
        summaries = {name: parse_summary(text) for name, text in texts.items()}
        decide(number, 0.0, summaries, queues)
        times.append(time.thread_time() - began_s)
    return statistics.median(times)


def headlines(found: Sequence[Mapping[str, object]]) -> list[str]:
    """A sentence a figure."""
    own = [row for row in found if row["contender"] == FEDERATED]
    beside = [row for row in own if row["mean_of_flat"] is not None]
    large = [row for row in own if row["nodes"] == LARGE.shards * LARGE.nodes]
    lines = []
    for row in large:
        busiest = _number(row["busiest_round_ms"])
        lines.append(
            f"A round in which each of {row['shards']} shards offers {RULE.considered_max} queued "
            f"jobs, summaries parsed too: {busiest:.1f} ms of CPU time, median of {_ROUNDS} "
            f"(asked: at most {ROUND_FIGURE_MS:.0f} ms): {verdict(busiest <= ROUND_FIGURE_MS)}"
        )
    if beside:
        worst = max(_number(row["mean_of_flat"]) for row in beside)
        lines.append(
            f"Mean completion of the federation beside one flat queue over {beside[0]['nodes']} "
            f"nodes, worst of {len(beside)} worlds: {worst:.3f} (asked: at most {MEAN_FIGURE}): "
            f"{verdict(worst <= MEAN_FIGURE)}"
        )
    for row in large:
        slowest, median = _number(row["round_max_ms"]), _number(row["round_median_ms"])
        cpu_s = _number(row["cpu_s"])
        lines.append(
            f"{row['jobs']} jobs on {row['nodes']} nodes in {row['shards']} shards, simulated: "
            f"{cpu_s:.0f} CPU seconds (asked: at most {RUN_FIGURE_S:.0f}): "
            f"{verdict(cpu_s <= RUN_FIGURE_S)}"
        )
        lines.append(
            f"A round of the federation over {row['shards']} shards, summaries parsed too: "
            f"median {median:.1f} ms, slowest {slowest:.1f} ms of CPU time "
            f"(asked: at most {ROUND_FIGURE_MS:.0f} ms): {verdict(slowest <= ROUND_FIGURE_MS)}"
        )
    largest = max((int(_number(row["summary_bytes"])) for row in own), default=0)
    lines.append(
        f"The largest summary: {largest} bytes (asked: at most {SUMMARY_BYTES_MAX}): "
        f"{verdict(0 < largest <= SUMMARY_BYTES_MAX)}"
    )
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run and print; write the result file anew after each part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="two small shards, printed only")
    chosen = parser.parse_args(arguments)
    show = Console(soft_wrap=True, highlight=False)
    small = WorldOptions(shards=2, nodes=20, jobs=400, stretch=1.5)
    every = [Part(small, 1, (NONE, FLAT, PROMPT, FEDERATED))] if chosen.small else parts(SEEDS)
    found: list[dict[str, object]] = []
    for part in every:
        for row in rows(part):
            found.append(row)
            show.print(line(row), markup=False)
        if not chosen.small:
            seeds = sorted({int(_number(row["seed"])) for row in found})
            told = headlines(found)
            results.save(NAME, results.host_facts("none"), seeds, found, headlines=told)
    show.print("\n".join(headlines(found)), markup=False)
    return 0


def line(row: Mapping[str, object]) -> str:
    """A row in words."""
    beside = row["mean_of_flat"]
    of_flat = "" if beside is None else f"{_number(beside):.4f} of flat, "
    return (
        f"{row['nodes']} nodes, stretch {row['stretch']}, seed {row['seed']}, {row['contender']}: "
        f"mean {_number(row['mean_s']):.0f} s ({of_flat}{_number(row['mean_of_none']):.4f} of none)"
        f"  median {_number(row['median_s']):.0f} s  p95 {_number(row['p95_s']):.0f} s  makespan "
        f"{_number(row['makespan_s']):.0f} s  moved {row['moved']}  held {row['held']}  returned "
        f"{row['returned']}  slower {row['slower']}, worst {_number(row['worst_ratio']):.2f} "
        f"({row['worst']})  round {row['round_median_ms']} / {row['round_max_ms']} ms  summary "
        f"{row['summary_ms']} ms, {row['summary_bytes']} bytes  {_number(row['cpu_s']):.0f} CPU s"
    )


def _run(world: FederationWorld, contender: str) -> FederationRun:
    if contender == FLAT:
        return simulate_federation(flat(world), federated=False)
    rule = replace(RULE, holding=contender != PROMPT)
    return simulate_federation(world, contender != NONE, rule)


def _rest(run: FederationRun, base: Mapping[str, float]) -> dict[str, object]:
    times = sorted(run.completions_s.values())
    ratios = {job: run.completions_s[job] / base[job] for job in base}
    worst = max(ratios, key=lambda job: ratios[job])
    return {
        "median_s": statistics.median(times),
        "p95_s": times[int(0.95 * len(times))],
        "makespan_s": run.makespan_s,
        "moved": run.moved,
        "hand_overs": run.hand_overs,
        "returned": run.returned,
        "held": run.held,
        "slower": sum(ratio > SLOWER_RATIO for ratio in ratios.values()),
        "worst_ratio": ratios[worst],
        "worst": worst,
        "round_median_ms": _ms(statistics.median(run.rounds_s)) if run.rounds_s else None,
        "round_max_ms": _ms(max(run.rounds_s)) if run.rounds_s else None,
        "summary_ms": _ms(statistics.fmean(run.summaries_s)) if run.summaries_s else None,
        "summary_bytes": run.largest_bytes,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000.0, 2)


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
