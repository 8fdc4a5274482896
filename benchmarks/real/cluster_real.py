"""Twenty small trainings on three real hosts, one of half size: spread, SpeCon, adaptive.

Three engines of one swarm on this machine, each with its daemon; a quota on the group of an
engine's containers, and the daemon's `capacity`, are its size. Job files are dropped into a
manager's `cluster.d` at drawn times. All times are the engines' own; contenders are those of
`benchmarks run cluster-simulated`: plain Docker on the nodes beside `spread` and `specon`, and
`adaptive` with weight on the end of a training alone.

    python -m benchmarks run cluster-real                writes benchmarks/results/cluster-real.json
"""

from __future__ import annotations

import signal
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.publish.results import verdict
from benchmarks.real.cluster_trainings import (
    SIZES_CORES,
    ClusterTraining,
    Moved,
    arrive,
    draw,
    seeing,
)
from benchmarks.simulated.cluster import ENDS, PLAIN
from dlsched.simulation.cluster.scoring import Contender, Timed, scored
from tools.engine import end_with_signal
from tools.engines import EngineNodes, swarm
from tools.hosts import cluster
from tools.steps import SetupError
from tools.waiting import wait_for

NAME = "cluster-real"
SEEDS, TRAININGS = 3, 20
CONTENDERS = (PLAIN, Contender("specon", "none"), Contender("adaptive", ENDS))
ENDED_WITHIN_S = 2400.0
ASKED_MEAN, ASKED_PAUSE_S = 0.8, 8.0
GIVEN_UP = " is given up: "
"""In the controller's log, of a move that failed."""


@dataclass(frozen=True)
class Played:
    """What a run was, as its engines saw it."""

    timed: Timed
    moves: tuple[Moved, ...]
    twice: int


def play(
    engines: EngineNodes,
    folder: Path,
    seed: int,
    contender: Contender,
    trainings: Sequence[ClusterTraining],
) -> Played:
    """One contender under one seed. AssertionError where a training fails, or all take too long."""
    number = CONTENDERS.index(contender)
    instance = f"real-{seed}-{number}"
    policies = contender.policy, contender.cluster
    with cluster(engines, SIZES_CORES, folder / instance, instance, *policies) as hosts:
        with seeing(hosts) as seen:
            arrived = arrive(hosts[0], trainings)
            names = [one.name for one in trainings]
            wait_for(lambda: seen.all_ended(names), ENDED_WITHIN_S, "all trainings to end")
        log = (hosts[0].folder / "cluster.log").read_text()
    ends, moved = seen.finished(), seen.moves()
    times = {job: ends[job] - at_s for job, at_s in arrived.items()}
    makespan_s = max(ends.values()) - min(arrived.values())
    timed = Timed(times, makespan_s, len(moved), log.count(GIVEN_UP))
    return Played(timed, tuple(moved), len(seen.twice))


def row(seed: int, contender: Contender, played: Played, first: Played) -> dict[str, object]:
    """One run in numbers, beside the first contender's."""
    score = scored(NAME, contender.name, seed, played.timed, first.timed)
    pauses_s = [one.pause_s for one in played.moves]
    return {
        **asdict(score),
        "median_pause_s": statistics.median(pauses_s) if pauses_s else None,
        "longest_pause_s": max(pauses_s, default=None),
        "lost_steps": sum(one.lost_steps for one in played.moves),
        "twice": played.twice,
    }


def headlines(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """One sentence a figure that was asked for."""
    ours = [one for one in rows if one["contender"] == CONTENDERS[-1].name]
    mean = statistics.fmean(one["mean_ratio"] for one in ours)
    pauses_s = [one["median_pause_s"] for one in ours if one["median_pause_s"]]
    lost, twice = (sum(one[name] for one in rows) for name in ("lost_steps", "twice"))
    told = [
        (
            f"mean completion under adaptive, of spread with plain Docker, {len(ours)} seeds: "
            f"{mean:.2f} (asked {ASKED_MEAN}): {verdict(mean <= ASKED_MEAN)}"
        ),
        (
            f"steps lost by moves: {lost}, jobs that ran twice: {twice} (asked none): "
            f"{verdict(not lost and not twice)}"
        ),
    ]
    if pauses_s:
        pause_s = statistics.median(pauses_s)
        told.append(
            f"median pause of a move under adaptive: {pause_s:.1f} s (asked {ASKED_PAUSE_S:g} s): "
            f"{verdict(pause_s <= ASKED_PAUSE_S)}"
        )
    return told


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, seeds=(SEEDS, "how many (1, 2, ...); fewer: not saved"))
    seeds = range(1, chosen.seeds + 1)
    signal.signal(signal.SIGTERM, end_with_signal)
    found = []
    try:
        with tempfile.TemporaryDirectory() as folder, swarm(len(SIZES_CORES), 1) as engines:
            engines.give_images(["training"])
            for seed in seeds:
                trainings, first = draw(seed, TRAININGS), None
                for contender in CONTENDERS:
                    played = play(engines, Path(folder), seed, contender, trainings)
                    first = first or played
                    found.append(row(seed, contender, played, first))
                    print(found[-1], flush=True)
    except SetupError as error:
        print(f"cluster-real: {error}")
        return 1
    engine, whole = "three private engines of one swarm", chosen.seeds >= SEEDS
    results.finish(NAME, engine, seeds, found, {}, headlines(found), whole=whole)
    return 0
