"""`adaptive` on the real training schedules, beside plain Docker and an oracle.

    python -m benchmarks run adaptive-schedules     what is not kept yet is run, then all is judged

Gains are of the mean time to tier 1 over plain Docker under the same seed; constants are as they
are, seeds 1, 2, 3. The oracle runs on the same containers by the same means, and knows the work of
each job from plain Docker's run of that seed (`benchmarks.peers.oracle`).
Writes `benchmarks/results/adaptive-schedules.json`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.judge.trainings import Measured, works
from benchmarks.options import options, told_if_it_fails
from benchmarks.peers import oracle
from benchmarks.real import training, training_set
from benchmarks.real.training import Kept
from benchmarks.real.training_set import Schedule
from dlsched.model.spec import Tier
from dlsched.simulation.scoring import PLAIN, WORSE_RATIO

NAME = "adaptive-schedules"

SEEDS = (1, 2, 3)
ADAPTIVE, ORACLE = "adaptive", "oracle"
POLICIES = {PLAIN: PLAIN, ADAPTIVE: ADAPTIVE}


def gain(times_s: Mapping[str, float], plain_s: Mapping[str, float]) -> float:
    """How much less the mean of these times is, as a ratio of plain Docker's."""
    return 1.0 - statistics.fmean(times_s.values()) / statistics.fmean(plain_s.values())


def headlines(schedule: str, runs: Sequence[Measured]) -> list[str]:
    """What `adaptive` and the oracle gain over plain Docker, and the job that fared worst."""
    times = {(one.run.policy, one.run.seed): one.run.times("tier1") for one in runs}
    seeds = sorted({seed for _, seed in times if (PLAIN, seed) in times})
    lines = []
    for policy in (ADAPTIVE, ORACLE):
        pairs = [
            (times[policy, seed], times[PLAIN, seed]) for seed in seeds if (policy, seed) in times
        ]
        if not pairs:
            continue
        gains = [gain(mine, plain) for mine, plain in pairs]
        of_plain = {
            job: statistics.median(mine[job] / plain[job] for mine, plain in pairs)
            for job in pairs[0][0]
        }
        worst = max(of_plain, key=of_plain.__getitem__)
        worse = sum(ratio > WORSE_RATIO for ratio in of_plain.values())
        lines.append(
            f"{schedule}: under {policy} the mean time to tier 1 is {statistics.median(gains):.1%} "
            f"less than under plain Docker (by seed: {', '.join(f'{one:.1%}' for one in gains)}); "
            f"worst job {worst} at {of_plain[worst]:.2f} of plain Docker's time, {worse} of "
            f"{len(of_plain)} jobs worse"
        )
    return lines


def _oracle(plain: Kept) -> str:
    """The policy that knows what each job of that run under plain Docker computed to tier 1."""
    known = works([training.measured(plain)], plain.capacity_cores)
    to_tier_1 = {name: work.tier_core_s[Tier.DELIVER] for name, work in known.items()}
    return oracle.spelled({name: core_s for name, core_s in to_tier_1.items() if core_s})


def _kept(schedule: Schedule) -> list[Kept]:
    """All runs that are kept, of the oracle those that know the runs kept beside them."""
    kept = training.kept_runs(schedule, POLICIES, SEEDS)
    oracles = [
        training.kept_runs(schedule, {ORACLE: _oracle(base)}, [base.seed])
        for base in kept
        if base.policy == PLAIN
    ]
    return kept + [one for many in oracles for one in many]


def judge_kept() -> None:
    """Judge what is kept; writes the result file."""
    title = "`adaptive` on real trainings: times from arrival"
    training.judge(NAME, title, _kept, lambda one, _, runs: headlines(one.name, runs))


def run() -> None:
    """Run what is not kept yet, then judge."""
    for seed in SEEDS:
        training.run_missing(POLICIES, [seed])
        for schedule in training_set.SCHEDULES:
            (plain,) = training.kept_runs(schedule, {PLAIN: PLAIN}, [seed])
            training.run_missing({ORACLE: _oracle(plain)}, [seed], [schedule])
    judge_kept()


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)
    return told_if_it_fails(NAME, run)
