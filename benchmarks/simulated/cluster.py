"""Fifty trainings on four nodes: policies of the cluster beside Swarm's spread with plain Docker.

Worlds are those of `cluster_worlds`. Ratios are to `spread+none` under the same seed; the rows
"moves alone" compare a policy with itself without moves, so placement and nodes are the same.
The row "a second later" shows how much of a difference means nothing: two runs without moves,
one of them with one of 50 arrivals a second later. The row "clairvoyant" knows all work in advance.
`ENDS` is `adaptive` on the nodes with weight on the end of a training alone, as completions are
what counts here; with its own weights it delivers first tiers sooner, and trainings end later.

    python -m benchmarks run cluster-simulated   writes benchmarks/results/cluster-simulated.json
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.publish.results import verdict
from dlsched.simulation.cluster.clairvoyant import ClairvoyantScore, clairvoyant_scores
from dlsched.simulation.cluster.run import ClusterOptions, ClusterRun, simulate_cluster
from dlsched.simulation.cluster.scoring import ClusterScore, Contender, compare_clusters, score
from dlsched.simulation.node.workloads import Trace
from tests.simulation.cluster.worlds import WORLDS, world

NAME = "cluster-simulated"
SEEDS, FIRST_SEED = 12, 101

ENDS = "adaptive?deliver_weight=0.01&finish_weight=0.01"
PLACEBO = "random?seed=0"
PLAIN = Contender("spread", "none")
STAYS = Contender("adaptive", ENDS, moves=False)
CONTENDERS = (
    PLAIN,
    Contender("specon", "none"),
    Contender("adaptive", "none"),
    Contender("spread", "adaptive"),
    Contender("spread", ENDS),
    Contender("specon", ENDS),
    Contender("least-work", ENDS),
    STAYS,
    Contender("adaptive", ENDS),
    Contender("adaptive", "adaptive", moves=False),
    Contender("adaptive", "adaptive"),
    Contender("adaptive?bold=true", ENDS),
    Contender(PLACEBO, ENDS),
)

LATER = "a second later"

STILL = {"specon": "spread", "adaptive?bold=true": "adaptive", PLACEBO: "adaptive"}
"""The policy that places jobs as this one does; where it is the same, without its moves."""


def rows(name: str, seed: int) -> Iterator[ClusterScore]:
    """Every contender in that world; those that move also beside themselves without moves."""
    trace = world(name, seed)
    scores, runs = compare_clusters(trace, CONTENDERS, (seed,))
    yield from scores
    by_contender = dict(zip(CONTENDERS, runs, strict=True))
    for one, run in by_contender.items():
        cluster = STILL.get(one.cluster, one.cluster)
        moves = cluster == "spread"  # it has none
        still = by_contender.get(Contender(cluster, one.policy, moves=moves))
        if one.moves and still is not None and still is not run:
            yield score(trace.name, f"moves alone: {one.name}", run, still)
    yield control(trace, seed, by_contender[STAYS])


def control(trace: Trace, seed: int, still: ClusterRun) -> ClusterScore:
    """The run without moves again, with one arrival a second later."""
    middle = len(trace.jobs) // 2
    jobs = list(trace.jobs)
    jobs[middle] = replace(jobs[middle], arrives_s=jobs[middle].arrives_s + 1.0)
    options = ClusterOptions(policy=STAYS.policy, moves=False)
    later = simulate_cluster(replace(trace, jobs=tuple(jobs)), STAYS.cluster, seed, options)
    return score(trace.name, f"{LATER}: {STAYS.name}", later, still)


def best_of(scores: Sequence[ClusterScore]) -> list[ClairvoyantScore]:
    """The clairvoyant in the worlds of these scores, beside plain Docker."""
    return [
        best
        for one in scores
        if one.contender == PLAIN.name
        for best in clairvoyant_scores(world(one.scenario.split("-", 2)[2], one.seed), [one])
    ]


ASKED = {
    "cluster-50-equal": (0.84, 0.90, 0.995, 1),
    "cluster-50-two-half": (0.69, 0.85, 0.99, 7),
    "cluster-50-loses": (0.60, 0.55, 0.96, 4),
    "cluster-50-heavy": (0.89, 0.94, 0.98, 2),
}
"""Asked of `adaptive` with `ENDS`: mean and makespan beside plain Docker, mean beside no moves, and
how many of 50 jobs may be more than 10 % slower than without."""
SPECON = Contender("specon", "none").name
PUBLISHED = "mean -14.8 %, makespan -24.7 %, on three nodes with jobs of its authors"


def headlines(found: Sequence[ClusterScore], best: Sequence[ClairvoyantScore]) -> list[str]:
    """One sentence a figure that was asked for."""
    told = []
    by_cell = results.grouped(found, lambda one: (one.scenario, one.contender))
    own_name = Contender("adaptive", ENDS).name
    for scenario, (mean, makespan, alone, slower) in ASKED.items():
        own, moves = by_cell[scenario, own_name], by_cell[scenario, f"moves alone: {own_name}"]
        placebo = by_cell[scenario, f"moves alone: {Contender(PLACEBO, ENDS).name}"]
        later = by_cell[scenario, f"{LATER}: {STAYS.name}"]
        means, ends = _mean(own, "mean_ratio"), _mean(own, "makespan_ratio")
        known = [one for one in best if one.scenario == scenario]
        alone_means, worst = _mean(moves, "mean_ratio"), max(one.mean_ratio for one in moves)
        over = sum(one.mean_ratio > 1.01 for one in moves)
        count = _mean(moves, "slower")
        random_means = _mean(placebo, "mean_ratio")
        published = by_cell[scenario, SPECON]
        theirs = [100 * (_mean(published, part) - 1) for part in ("mean_ratio", "makespan_ratio")]
        lines = (
            (
                f"mean {means:.3f} and makespan {ends:.3f} of spread with plain Docker "
                f"(asked {mean} and {makespan}): {verdict(means <= mean and ends <= makespan)}"
            ),
            (
                "of the way from plain Docker to a clairvoyant, mean "
                f"{_part(means, known, 'mean_ratio')} (to {_mean(known, 'mean_ratio'):.3f}, "
                "a strong schedule, not a proven bound), makespan "
                f"{_part(ends, known, 'makespan_ratio')} "
                f"(to {_mean(known, 'makespan_ratio'):.3f}, which no schedule beats)"
            ),
            (
                f"moves alone, mean {alone_means:.3f} (asked {alone}), worst seed {worst:.3f}, "
                f"{over} of {len(moves)} above 1.01 (asked none above 1.03 and 1 in 20): "
                f"{verdict(alone_means <= alone and worst <= 1.03 and 20 * over <= len(moves))}"
            ),
            (
                f"jobs more than 10 % slower for the moves: {count:.1f} of 50 "
                f"(asked {slower}): {verdict(count <= slower)}"
            ),
            (
                "without moves, one arrival of 50 a second later: "
                f"{_mean(later, 'slower'):.1f} jobs more than 10 % slower, worst seed "
                f"{max(one.mean_ratio for one in later):.3f}"
            ),
            f"random moves, mean {random_means:.3f} (asked above 1): {verdict(random_means > 1.0)}",
            (
                f"specon with plain Docker, mean {theirs[0]:+.1f} %, makespan {theirs[1]:+.1f} % "
                f"(its paper: {PUBLISHED})"
            ),
        )
        told += [f"{scenario}: {line}" for line in lines]
    return told


def _mean(own: Sequence[ClusterScore] | Sequence[ClairvoyantScore], part: str) -> float:
    return statistics.fmean(getattr(one, part) for one in own)


def _part(ratio: float, best: Sequence[ClairvoyantScore], part: str) -> str:
    return f"{(1.0 - ratio) / (1.0 - _mean(best, part)):.0%}"


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, seeds=(SEEDS, "how many (101, ...); fewer: not saved"))
    seeds = range(FIRST_SEED, FIRST_SEED + chosen.seeds)
    found: list[ClusterScore] = []
    for name, seed in product(WORLDS, seeds):
        found += rows(name, seed)
        print(f"{name}, seed {seed}: played", flush=True)
    best = best_of(found)
    told = headlines(found, best)
    if chosen.seeds >= SEEDS:
        facts, saved = results.host_facts("none"), [asdict(one) for one in (*found, *best)]
        results.save(NAME, facts, seeds, saved, headlines=told)
    print("\n".join(told))
    return 0
