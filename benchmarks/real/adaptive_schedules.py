"""`adaptive` on the real training schedules, beside plain Docker, a clairvoyant and an oracle.

    python -m benchmarks run adaptive-schedules     what is not kept yet is run, then all is judged

What a clairvoyant gains is reckoned from a trace a schedule in `benchmarks/traces`, recorded from
plain Docker and committed before `adaptive` first ran on it: the mean time to tier 1 that the
simulator finds there under plain Docker, and the least that one could have who knew all work
beforehand (`dlsched.simulation.bounds`), containers' starts included in both. The real gain is
that over plain Docker under the same seed; constants are as they are, seeds 1, 2, 3.

The clairvoyant computes on two cores twice as fast as on one. Real threads do not: they wait for
each other. Two things tell what of the difference is `adaptive`'s: its gain on that trace in the
simulator, where threads are as the clairvoyant's, and the gain of an oracle that runs on the same
containers by the same means, and knows the work of each job from plain Docker's run of that seed
(`benchmarks.peers.oracle`).
Writes `benchmarks/results/adaptive-schedules.json`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.judge.trainings import Measured, judged, rows, works
from benchmarks.options import options, told_if_it_fails
from benchmarks.peers import oracle
from benchmarks.places import TRACES
from benchmarks.publish import results
from benchmarks.real import training, training_set
from benchmarks.real.training import Kept
from benchmarks.real.training_set import Schedule
from benchmarks.simulated.sim_vs_real import simulated_reports
from dlsched.model.spec import Tier
from dlsched.simulation import bounds
from dlsched.simulation.node.workloads import Trace, TrainingLoad
from dlsched.simulation.scoring import PLAIN, Row
from dlsched.simulation.trace.reading import parse_trace

NAME = "adaptive-schedules"

SEEDS = (1, 2, 3)
ADAPTIVE, ORACLE = "adaptive", "oracle"
POLICIES = {PLAIN: PLAIN, ADAPTIVE: ADAPTIVE}

GAIN_RATIO = 0.7
"""How much of the clairvoyant's gain is asked for."""
WORSE_RATIO = 1.05
"""No job may take longer than so many times what the clairvoyant leaves it, or plain Docker."""


@dataclass(frozen=True)
class Clairvoyant:
    """Times to tier 1 by job, on the committed trace."""

    plain_s: Mapping[str, float]
    """Under plain Docker, simulated."""
    best_s: Mapping[str, float]
    """In the order whose mean is least."""
    adaptive_s: Mapping[str, float]
    """Under `adaptive`, simulated."""

    @property
    def gain(self) -> float:
        """Of the mean time, as a ratio of plain Docker's."""
        return gain(self.best_s, self.plain_s)

    def allowed(self, job: str) -> float:
        """The most that job may take, as a ratio of plain Docker's time."""
        return WORSE_RATIO * max(1.0, self.best_s[job] / self.plain_s[job])


def gain(times_s: Mapping[str, float], plain_s: Mapping[str, float]) -> float:
    """How much less the mean of these times is, as a ratio of plain Docker's."""
    return 1.0 - statistics.fmean(times_s.values()) / statistics.fmean(plain_s.values())


def load_trace(schedule: str) -> Trace:
    """The committed trace of that schedule."""
    file = TRACES / f"{schedule}.yaml"
    return parse_trace(file.read_text(), str(file))


def foreseen(trace: Trace) -> Clairvoyant:
    """What a clairvoyant leaves each job of that trace."""
    plain, adaptive = (_simulated(trace, policy) for policy in (PLAIN, ADAPTIVE))
    cores = trace.node.cores
    threads = {
        job.name: job.load.threads for job in trace.jobs if isinstance(job.load, TrainingLoad)
    }
    known = {
        name: replace(work, threads=threads[name]) for name, work in works([plain], cores).items()
    }
    wanted = bounds.goals(list(known.values()), Tier.DELIVER)
    names = list(known)
    times = bounds.times_s(list(wanted.values()), bounds.one_node(cores))
    return Clairvoyant(
        plain.run.times("tier1"),
        {names[index]: time_s for index, time_s in zip(wanted, times, strict=True)},
        adaptive.run.times("tier1"),
    )


def _simulated(trace: Trace, policy: str) -> Measured:
    arrivals = {job.name: job.arrives_s for job in trace.jobs}
    reports = simulated_reports(trace, policy, policy, seed=1)
    return judged(policy, 1, reports, arrivals, training_set.EVALUATIONS, {})


@dataclass(frozen=True)
class Verdict:
    """One schedule: what was gained, over what could be, and by whom."""

    schedule: str
    gains: tuple[float, ...]
    """Of the mean time to tier 1 over plain Docker, by seed."""
    best: Clairvoyant
    of_plain: Mapping[str, float]
    """Each job's time to tier 1 over plain Docker's, median over the seeds."""
    oracle_gains: tuple[float, ...] = ()
    """As `gains`, of who knows all work, on the same containers."""

    @property
    def part(self) -> float:
        """The median gain over the clairvoyant's."""
        return statistics.median(self.gains) / self.best.gain

    @property
    def worse(self) -> tuple[str, ...]:
        """Jobs that are worse by more than may be."""
        return tuple(job for job, r in self.of_plain.items() if r > self.best.allowed(job))

    def lines(self) -> list[str]:
        """In words: the gain, the job that fared worst, and what others gain."""
        job, ratio = max(self.of_plain.items(), key=lambda pair: pair[1])
        reached = results.verdict(self.part >= GAIN_RATIO)
        gained, ideal = statistics.median(self.gains), gain(self.best.adaptive_s, self.best.plain_s)
        lines = [
            (
                f"mean time to tier 1 {gained:.1%} less than under plain Docker (by seed: "
                f"{', '.join(f'{one:.1%}' for one in self.gains)}), the clairvoyant's "
                f"{self.best.gain:.1%} on the trace: {self.part:.2f} of it, asked "
                f"for {GAIN_RATIO:g}: {reached}"
            ),
            (
                f"worst job {job} at {ratio:.2f} of plain Docker's time, the clairvoyant leaves it "
                f"{self.best.best_s[job] / self.best.plain_s[job]:.2f}; jobs worse by more than "
                f"{WORSE_RATIO - 1:.0%} than that or plain Docker: "
                f"{', '.join(self.worse) or 'none'}"
            ),
            (
                "on the trace, in the simulator, where two threads are twice as fast as one, "
                f"{ideal:.1%}: {ideal / self.best.gain:.2f} of the clairvoyant's gain"
            ),
        ]
        if self.oracle_gains:
            most = statistics.median(self.oracle_gains)
            lines.append(
                f"an oracle that knows all work gains {most:.1%} on the same containers (by seed: "
                f"{', '.join(f'{one:.1%}' for one in self.oracle_gains)}), "
                f"{most / self.best.gain:.2f} of the clairvoyant's gain; adaptive "
                + (f"{gained / most:.2f} of it" if most > 0 else "none to share")
            )
        return [f"{self.schedule}: {line}" for line in lines]


def verdict(schedule: str, best: Clairvoyant, runs: Sequence[Measured]) -> Verdict:
    """Each run of `adaptive` beside plain Docker under its seed."""
    by_seed: dict[int, dict[str, Mapping[str, float]]] = {}
    for one in runs:
        by_seed.setdefault(one.run.seed, {})[one.run.policy] = one.run.times("tier1")
    pairs = [
        (both[ADAPTIVE], both[PLAIN])
        for _, both in sorted(by_seed.items())
        if ADAPTIVE in both and PLAIN in both
    ]
    known = [(both[ORACLE], both[PLAIN]) for _, both in sorted(by_seed.items()) if ORACLE in both]
    return Verdict(
        schedule,
        tuple(gain(mine, plain) for mine, plain in pairs),
        best,
        {
            job: statistics.median(mine[job] / plain[job] for mine, plain in pairs)
            for job in best.best_s
        },
        tuple(gain(best_s, plain) for best_s, plain in known),
    )


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


def _told(schedule: str, row: Mapping[str, Any]) -> dict[str, object]:
    """One policy's figures in little room; single jobs are beside plain Docker."""
    cells: dict[str, object] = {"schedule": schedule, "policy": f"`{row['policy']}`"}
    for words in training.GOALS.values():
        told = f"{row[f'{words} mean s']:.1f}"
        if row["policy"] != PLAIN:
            of_plain, best, worst = (
                row[f"{words} {which} of plain"] for which in ("mean", "best job", "worst job")
            )
            worse = row[f"{words} jobs worse"]
            told += f", {of_plain:.2f} ({best:.2f}, {worst:.2f}; {worse:.2g})"
        cells[f"{words}: mean s, of plain (best, worst job; jobs worse)"] = told
    cells["makespan s, of plain"] = f"{row['makespan s']:.1f}, {row['makespan of plain']:.2f}"
    rest = ("CPU of plain", "updates", "others on the host, cores", "runs")
    return cells | {name: row[name] for name in rest}


def judge_kept() -> None:
    """Judge what is kept; writes the result file."""
    found: list[Row] = []
    table: list[dict[str, object]] = []
    lines: list[str] = []
    host: Mapping[str, object] = {}
    for schedule in training_set.SCHEDULES:
        kept = _kept(schedule)
        runs = [training.measured(one) for one in kept]
        told = verdict(schedule.name, foreseen(load_trace(schedule.name)), runs)
        host = kept[-1].host
        own = rows(schedule.name, kept[0].capacity_cores, runs)
        found += own
        table += [_told(schedule.name, row) for row in training.table_rows(own, runs)]
        lines += told.lines()
    title = "`adaptive` on real trainings: times from arrival"
    results.finish(NAME, host, sorted({row.seed for row in found}), found, {title: table}, lines)


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
