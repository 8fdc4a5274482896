"""What each single move of the cluster's `adaptive` was good for: the same run without that move.

python -m benchmarks run cluster-each-move      writes benchmarks/results/cluster-each-move.json
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.publish import results
from benchmarks.simulated.cluster import ENDS
from benchmarks.simulated.cluster_worlds import WORLDS, world
from dlsched.cluster.core.records import RecordState
from dlsched.cluster.round_report import RoundReport
from dlsched.simulation.cluster.run import ClusterOptions, simulate_cluster
from dlsched.simulation.cluster.scoring import completions_s

NAME = "cluster-each-move"
FIRST_SEED, SEEDS = 101, 10
WORSE_RATIO = 1.01
"""A move was bad when the sum of completions with it is more than this factor of that without."""
ASKED = 0.20
"""Of all moves may be bad."""


@dataclass(frozen=True, slots=True)
class MoveScore:
    scenario: str
    seed: int
    job: str
    own_ratio: float
    """The job's own completion, to that in the run in which it stays."""
    sum_ratio: float
    """The sum of all completions, likewise."""


def scores(name: str, seed: int) -> Iterator[MoveScore]:
    """Every job that moved in this world under this seed."""
    trace, moved = world(name, seed), dict[str, None]()

    def see(report: RoundReport) -> None:
        moved.update((one.job, None) for one in report.written if one.state is RecordState.MOVING)

    options = ClusterOptions(policy=ENDS, publish=see)
    times = completions_s(simulate_cluster(trace, "adaptive", seed, options))
    for job in moved:
        options = ClusterOptions(policy=ENDS, stay=frozenset({job}))
        without = completions_s(simulate_cluster(trace, "adaptive", seed, options))
        sums = math.fsum(times.values()) / math.fsum(without.values())
        yield MoveScore(trace.name, seed, job, times[job] / without[job], sums)


def headlines(found: Sequence[MoveScore]) -> list[str]:
    """One sentence a world."""
    told = []
    for scenario in dict.fromkeys(one.scenario for one in found):
        own = [one for one in found if one.scenario == scenario]
        worse = sum(one.sum_ratio > WORSE_RATIO for one in own)
        better = sum(one.sum_ratio < 1.0 / WORSE_RATIO for one in own)
        ratio = worse / len(own)
        told.append(
            f"{scenario}: of {len(own)} moves {worse} made the sum of completions more than 1 % "
            f"worse ({ratio:.0%}, asked {ASKED:.0%}), {better} better; "
            f"the mean of a move {statistics.fmean(one.sum_ratio for one in own):.4f}, "
            f"for the job itself {statistics.fmean(one.own_ratio for one in own):.3f}: "
            f"{'reached' if ratio <= ASKED else 'not reached'}"
        )
    return told


def main(arguments: list[str] | None = None) -> int:
    """Run and print; write the result file when everything was run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    chosen = parser.parse_args(arguments)
    seeds = range(FIRST_SEED, FIRST_SEED + chosen.seeds)
    found = [
        one for name in chosen.worlds.split(",") for seed in seeds for one in scores(name, seed)
    ]
    told = headlines(found)
    print("\n".join(told))
    if chosen.worlds == ",".join(WORLDS) and chosen.seeds >= SEEDS:
        results.save(
            NAME, results.host_facts("none"), seeds, list(map(asdict, found)), headlines=told
        )
    return 0
