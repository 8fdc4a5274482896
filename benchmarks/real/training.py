"""The real training comparison: every policy on the same jobs, judged from what was recorded.

    python -m benchmarks run training              what is not kept yet is run, then all is judged

Writes `benchmarks/results/training-real.json`. A run already kept in `.build/bench/training` for
the same job set is not run again, so an interrupted comparison goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import places
from benchmarks.judge import Measured, by_job, foreign_cores, judged, rows
from benchmarks.options import options, stage
from benchmarks.publish import results
from benchmarks.real import training_set
from benchmarks.real.kept import RUN, KeptRun
from benchmarks.real.scene import told_if_it_fails
from benchmarks.real.training_set import Schedule
from dlsched.model.state import JobState
from dlsched.simulation.scoring import PLAIN, WORSE_RATIO, Row
from tools.session import Session, session, wait_for

# ---------------------------------------------------------------------- one run, kept

KEPT = places.KEPT / "training"

_POLL_S = 1.0
_OVER = {JobState.FINISHED, JobState.STOPPED}


@dataclass(frozen=True)
class Kept(KeptRun):
    """What is known of a run beside its journal."""

    scenario: str
    policy: str
    """As rows call it."""
    spelled: str
    """As settings spell it, with its parameters."""
    seed: int
    digest: str
    """Of all that was asked for: a run of another set is not taken for this one."""
    capacity_cores: float
    arrivals: Mapping[str, float]
    """When each file was dropped, on the agent's clock."""
    daemon_core_ratio: float
    """CPU of the daemon over the run, in cores."""
    host: Mapping[str, object]


def folder_of(scenario: str, policy: str, seed: int) -> Path:
    return KEPT / scenario / f"{policy}-{seed}"


def digest_of(schedule: Schedule, spelled: str, seed: int) -> str:
    """What a run is asked for, as one word."""
    parts = [spelled, *(f"{job.arrives_s:g} {schedule.text(job, seed)}" for job in schedule.jobs)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def load(folder: Path) -> Kept | None:
    """The run kept there; None without one."""
    file = folder / RUN
    return Kept(folder, **json.loads(file.read_text())) if file.exists() else None


def void(kept: Kept) -> None:
    """It does not count: its journal is kept, but not judged."""
    (kept.folder / RUN).unlink()


def run(
    schedule: Schedule,
    policy: str,
    spelled: str,
    seed: int,
    host: Mapping[str, object],
) -> Kept:
    """Drop the files at their times, wait until all have ended, keep the journal.

    Raises RuntimeError when a job fails, or the deadline passes.
    """
    with session() as one:
        one.start(spelled)
        one.weigh()
        agent = one.process
        agent_s, began_s = sum(agent.cpu_times()[:4]), time.monotonic()
        arrivals = _arrive(one, schedule, seed)
        names = {job.name for job in schedule.jobs}
        wait_for(
            lambda: names <= _over(one),
            max(1.0, schedule.deadline_s - (time.monotonic() - began_s)),
            f"{schedule.name} under {policy} to end",
        )
        agent_s = sum(agent.cpu_times()[:4]) - agent_s
        ratio = agent_s / (time.monotonic() - began_s)
        capacity = float(one.client.jobs()["node"]["capacity_cores"])
        one.stop()
        folder = folder_of(schedule.name, policy, seed)
        one.keep(folder)
    kept = Kept(
        folder=folder,
        scenario=schedule.name,
        policy=policy,
        spelled=spelled,
        seed=seed,
        digest=digest_of(schedule, spelled, seed),
        capacity_cores=capacity,
        arrivals=arrivals,
        daemon_core_ratio=ratio,
        host=dict(host),
    )
    kept.write()
    return kept


def _arrive(one: Session, schedule: Schedule, seed: int) -> dict[str, float]:
    """Drop each file when it is due; returns the times on the agent's clock."""
    began_s = boot_s()
    arrivals: dict[str, float] = {}
    for job in sorted(schedule.jobs, key=lambda job: job.arrives_s):
        while (left_s := began_s + job.arrives_s - boot_s()) > 0:
            _over(one, min(left_s, _POLL_S))
        arrivals[job.name] = boot_s()
        one.drop(job.name, schedule.text(job, seed))
    return arrivals


def _over(one: Session, pause_s: float = _POLL_S) -> set[str]:
    """The jobs that have ended, after a pause, since looking costs CPU. Raises RuntimeError where
    one failed."""
    time.sleep(pause_s)
    rows = one.client.jobs()["jobs"]
    for row in rows:
        if row["state"] == JobState.FAILED:
            raise RuntimeError(f"{row['name']} failed: {row['reason'] or ''}")
    return {row["name"] for row in rows if row["state"] in _OVER}


def boot_s() -> float:
    """The clock that the agent's cycles carry."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


NAME = "training-real"

PUBLISHED = {"flowcon": ("jct", -0.4206), "tradl": ("tier1", -0.482)}
"""What the papers quote: of one job, the best; FlowCon its completion, TRADL its time to target."""

GOALS = {"tier1": "tier 1", "tier2": "tier 2", "jct": "completion"}

FOREIGN_MOST_CORES = 0.2
"""A run in which others on the host used more in the mean is void, whatever came of it."""


# ---------------------------------------------------------------------- judging what is kept


def measured(kept: Kept) -> Measured:
    reports = kept.reports()
    return judged(
        kept.policy,
        kept.seed,
        reports,
        kept.arrivals,
        training_set.EVALUATIONS,
        {
            "daemon_core_ratio": kept.daemon_core_ratio,
            "foreign_cores": foreign_cores(reports),
        },
    )


def kept_runs(schedule: Schedule, policies: Mapping[str, str], seeds: Sequence[int]) -> list[Kept]:
    """The runs of this very job set that are kept, whole."""
    found = []
    for seed in seeds:
        for policy, spelled in policies.items():
            one = load(folder_of(schedule.name, policy, seed))
            if one is not None and one.digest == digest_of(schedule, spelled, seed):
                found.append(one)
    return found


def table_rows(found: Sequence[Row], runs: Sequence[Measured]) -> list[dict[str, object]]:
    """One row a policy: means over the seeds; best and worst job with the mean beside them."""
    table: list[dict[str, object]] = []
    for policy in dict.fromkeys(one.run.policy for one in runs):
        mine = [row for row in found if row.policy == policy]
        line: dict[str, object] = {"policy": policy}
        for goal, words in GOALS.items():
            mean = f"{goal}_mean_s"
            line |= {
                f"{words} mean s": _mean(mine, mean),
                f"{words} mean of plain": _mean(mine, mean, "of_plain"),
                f"{words} of optimum": _mean(mine, mean, "of_optimum"),
            }
            if policy != PLAIN:
                ratios = by_job(runs, policy, _attribute(goal)).values()
                line |= {
                    f"{words} best job of plain": min(ratios, default=None),
                    f"{words} worst job of plain": max(ratios, default=None),
                    f"{words} jobs worse": _worse(ratios),
                }
        line |= {
            "makespan s": _mean(mine, "makespan_s"),
            "makespan of plain": _mean(mine, "makespan_s", "of_plain"),
            "makespan of optimum": _mean(mine, "makespan_s", "of_optimum"),
            "CPU of plain": _mean(mine, "work_core_s", "of_plain"),
            "updates": _mean(mine, "updates"),
            "others on the host, cores": _mean(mine, "foreign_cores"),
            "runs": sum(one.run.policy == policy for one in runs),
        }
        table.append(results.known(line))
    return table


def headlines(schedule: str, found: Sequence[Row], runs: Sequence[Measured]) -> list[str]:
    """The papers' figures beside ours: never the best job without the mean and the worst."""
    lines = []
    for policy in dict.fromkeys(one.run.policy for one in runs):
        family = policy.partition("-")[0]
        if family not in PUBLISHED:
            continue
        goal, published = PUBLISHED[family]
        ratios = by_job(runs, policy, _attribute(goal))
        mine = [row for row in found if row.policy == policy]
        makespan = _mean(mine, "makespan_s", "of_plain")
        mean = _mean(mine, f"{goal}_mean_s", "of_plain")
        if not ratios or makespan is None or mean is None:
            continue
        best, worst = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        lines.append(
            f"{schedule}, {policy}, time to {GOALS[goal]} beside plain Docker: "
            f"best job {best} {ratios[best] - 1:+.1%} (published {published:+.2%}), "
            f"mean {mean - 1:+.1%}, worst job {worst} {ratios[worst] - 1:+.1%}, "
            f"{_worse(ratios.values())} of {len(ratios)} jobs worse; "
            f"makespan {makespan:.3f} of plain, CPU time "
            f"{_mean(mine, 'work_core_s', 'of_plain') or math.nan:.3f} of it"
        )
    return lines


def _worse(ratios: Collection[float]) -> int:
    """How many got worse, of the very ratios that best and worst are taken from."""
    return sum(ratio > WORSE_RATIO for ratio in ratios)


def _attribute(goal: str) -> str:
    """How a run's results call what metrics call that."""
    return "completion" if goal == "jct" else goal


def _mean(rows: Sequence[Row], metric: str, of: str = "value") -> float | None:
    values = [getattr(row, of) for row in rows if row.metric == metric]
    return None if not values or None in values else statistics.fmean(values)


# ---------------------------------------------------------------------- running


def run_missing(policies: Mapping[str, str], seeds: Sequence[int]) -> None:
    """Every run that is not kept yet; a seed whole before the next begins."""
    wanted = [
        (seed, schedule, policy)
        for seed in seeds
        for schedule in training_set.SCHEDULES
        for policy in policies
        if not kept_runs(schedule, {policy: policies[policy]}, [seed])
    ]
    host = results.engine_facts() if wanted else {}
    for number, (seed, schedule, policy) in enumerate(wanted, start=1):
        told = f"{number} of {len(wanted)}: {schedule.name}, seed {seed}, {policy}"
        stage(told)
        numbers = undisturbed(schedule, policy, policies[policy], seed, host).run.metrics()
        shown = ("tier1_mean_s", "tier2_mean_s", "jct_mean_s", "makespan_s", "updates")
        print("  ", *(f"{name} {numbers[name]:.1f}" for name in shown if name in numbers))


def undisturbed(
    schedule: Schedule, policy: str, spelled: str, seed: int, host: Mapping[str, object]
) -> Measured:
    """A run with the host to itself; one that others disturbed is void. Raises RuntimeError."""
    kept = run(schedule, policy, spelled, seed, host)
    one = measured(kept)
    others_cores = one.extra["foreign_cores"]
    if others_cores > FOREIGN_MOST_CORES:
        void(kept)
        raise RuntimeError(f"others used {others_cores:.2f} cores: the run would judge them, too")
    return one


def judge_kept(policies: Mapping[str, str], seeds: Sequence[int]) -> list[str]:
    """Judge what is kept; writes the result file, returns the headlines."""
    found: list[Row] = []
    table: list[dict[str, object]] = []
    lines: list[str] = []
    host: Mapping[str, object] = {}
    for schedule in training_set.SCHEDULES:
        kept = kept_runs(schedule, policies, seeds)
        # A seed counts where plain Docker ran it, too.
        based = {one.seed for one in kept if one.policy == PLAIN}
        kept = [one for one in kept if one.seed in based]
        if not kept:
            continue
        host = kept[0].host
        runs = [measured(one) for one in kept]
        own = rows(schedule.name, kept[0].capacity_cores, runs)
        found += own
        table += [{"schedule": schedule.name, **row} for row in table_rows(own, runs)]
        lines += headlines(schedule.name, own, runs)
    if not found:
        raise RuntimeError("no kept run with plain Docker beside it: nothing to judge")
    title = "Trainings on real containers: times from arrival, ratios to plain Docker"
    judged_seeds = sorted({row.seed for row in found})
    results.finish(NAME, host, judged_seeds, found, {title: table}, lines, policies=policies)
    return lines


def main(arguments: list[str] | None = None) -> int:
    chosen = options(
        __doc__,
        arguments,
        repetitions=(2, "seeds 1, 2, ... (default 2)"),
    )
    seeds = range(1, chosen.repetitions + 1)

    def run() -> None:
        run_missing(training_set.POLICIES, seeds)
        judge_kept(training_set.POLICIES, seeds)

    return told_if_it_fails("training", run)
