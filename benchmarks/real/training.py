"""The real training comparison: every policy on the same jobs, judged from what was recorded.

    python -m benchmarks run training              what is not kept yet is run, then all is judged
    python -m benchmarks run training --calibrate  each model alone: what fixed the targets

Writes `benchmarks/results/training-real.json` and a picture a schedule. A run already kept in
`.build/bench/training` for the same job set is not run again (unless `--fresh`), so an interrupted
comparison goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import signal
import statistics
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from benchmarks.judge.trainings import Measured, by_job, foreign_cores, judged, rows
from benchmarks.publish import results
from benchmarks.real import training_run, training_set
from benchmarks.real.training_run import Kept, digest_of, folder_of
from benchmarks.real.training_set import Model, Schedule, TrainingJob
from dlsched.simulation.scoring import PLAIN, WORSE_RATIO, Row
from tools.session import session

NAME = "training-real"

PUBLISHED = {"flowcon": ("jct", -0.4206), "tradl": ("tier1", -0.482)}
"""What the papers quote: of one job, the best; FlowCon its completion, TRADL its time to target."""

GOALS = {"tier1": "tier 1", "tier2": "tier 2", "jct": "completion"}

FOREIGN_MOST_CORES = 0.2
"""A run in which others on the host used more in the mean is void, whatever came of it."""

TRIES = 3


# ---------------------------------------------------------------------- judging what is kept


def measured(kept: Kept) -> Measured:
    """The run, judged."""
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
            one = training_run.load(folder_of(schedule.name, policy, seed))
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
            line[f"{words} mean s"] = _mean(mine, f"{goal}_mean_s")
            line[f"{words} mean of plain"] = _mean(mine, f"{goal}_mean_s", "of_plain")
            line[f"{words} of optimum"] = _mean(mine, f"{goal}_mean_s", "of_optimum")
            line[f"{words} median s"] = _mean(mine, f"{goal}_median_s")
            line[f"{words} p95 s"] = _mean(mine, f"{goal}_p95_s")
            if policy != PLAIN:
                ratios = by_job(runs, policy, _attribute(goal)).values()
                line[f"{words} best job of plain"] = min(ratios, default=None)
                line[f"{words} worst job of plain"] = max(ratios, default=None)
                line[f"{words} jobs worse"] = _worse(ratios)
        line["makespan s"] = _mean(mine, "makespan_s")
        line["makespan of plain"] = _mean(mine, "makespan_s", "of_plain")
        line["makespan of optimum"] = _mean(mine, "makespan_s", "of_optimum")
        line["CPU of plain"] = _mean(mine, "work_core_s", "of_plain")
        line["not reached"] = sum(_not_reached(runs, policy, goal) for goal in GOALS)
        line["updates"] = _mean(mine, "updates")
        line["steps to settle"] = _mean(mine, "settling_steps")
        line["daemon, % of a core"] = 100 * (_mean(mine, "daemon_core_ratio") or 0.0)
        line["others on the host, cores"] = _mean(mine, "foreign_cores")
        line["runs"] = sum(one.run.policy == policy for one in runs)
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
        missed = {who: _not_reached(runs, who, goal) for who in dict.fromkeys((policy, PLAIN))}
        lines.append(
            f"{schedule}, {policy}, time to {GOALS[goal]} beside plain Docker: "
            f"best job {best} {ratios[best] - 1:+.1%} (published {published:+.2%}), "
            f"mean {mean - 1:+.1%}, worst job {worst} {ratios[worst] - 1:+.1%}, "
            f"{_worse(ratios.values())} of {len(ratios)} jobs worse; "
            f"makespan {makespan:.3f} of plain, CPU time "
            f"{_mean(mine, 'work_core_s', 'of_plain') or math.nan:.3f} of it"
            + "".join(
                f"; {count} not reached under {who}, counted with the time to the job's end"
                for who, count in missed.items()
                if count
            )
        )
    return lines


def _worse(ratios: Collection[float]) -> int:
    """How many got worse, of the very ratios that best and worst are taken from."""
    return sum(ratio > WORSE_RATIO for ratio in ratios)


def _not_reached(runs: Sequence[Measured], policy: str, goal: str) -> int:
    """How often, over all seeds, a job did not get there: such a time counts, but is too short."""
    jobs = [job for one in runs if one.run.policy == policy for job in one.run.jobs]
    return sum(getattr(job, f"{_attribute(goal)}_s") is None for job in jobs)


def _attribute(goal: str) -> str:
    """How a run's results call what metrics call that."""
    return "completion" if goal == "jct" else goal


def _mean(rows: Sequence[Row], metric: str, of: str = "value") -> float | None:
    values = [getattr(row, of) for row in rows if row.metric == metric]
    return None if not values or None in values else statistics.fmean(values)


# ---------------------------------------------------------------------- running and showing


def run_missing(
    console: Console,
    policies: Mapping[str, str],
    seeds: Sequence[int],
    *,
    fresh: bool,
    schedules: Sequence[Schedule] | None = None,
) -> None:
    """Every run that is not kept yet, of these schedules (None: all); a seed whole before the next
    begins."""
    with session() as one:
        host = results.host_facts(one.engine.version()["Version"])
    wanted = [
        (seed, schedule, policy)
        for seed in seeds
        for schedule in schedules or training_set.SCHEDULES
        for policy in policies
        if fresh or not kept_runs(schedule, {policy: policies[policy]}, [seed])
    ]
    for number, (seed, schedule, policy) in enumerate(wanted, start=1):
        console.print(
            f"[bold]==[/] {number} of {len(wanted)}: {schedule.name}, seed {seed}, {policy}",
            highlight=False,
        )
        whole = _undisturbed(console, schedule, policy, policies[policy], seed, host)
        numbers = whole.run.metrics()
        shown = ("tier1_mean_s", "tier2_mean_s", "jct_mean_s", "makespan_s", "updates")
        told = ", ".join(f"{name} {numbers[name]:.1f}" for name in shown if name in numbers)
        console.print(f"   {told}", highlight=False, soft_wrap=True)


def _undisturbed(
    console: Console,
    schedule: Schedule,
    policy: str,
    spelled: str,
    seed: int,
    host: Mapping[str, object],
) -> Measured:
    """A run with the host to itself; RuntimeError when others do not leave it alone."""
    for _ in range(TRIES):
        kept = training_run.run(schedule, policy, spelled, seed, host)
        one = measured(kept)
        others_cores = one.extra["foreign_cores"]
        if not others_cores > FOREIGN_MOST_CORES:
            return one
        training_run.void(kept)
        console.print(f"   void: others used {others_cores:.2f} cores", highlight=False)
    raise RuntimeError(
        f"others use more than {FOREIGN_MOST_CORES} cores of this host: it would judge them, too"
    )


def judge_kept(console: Console, policies: Mapping[str, str], seeds: Sequence[int]) -> list[str]:
    """Judge what is kept; writes the result file and the pictures, returns the headlines."""
    from benchmarks.publish import training_plot

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
        training_plot.draw(schedule, runs, results.FOLDER / f"training-{schedule.name}.png")
    if not found:
        console.print("no kept run with plain Docker beside it: nothing to judge")
        return lines
    results.save(
        NAME,
        host,
        sorted({row.seed for row in found}),
        [asdict(row) for row in found],
        title="Trainings on real containers: times from arrival, ratios to plain Docker",
        table=table,
        headlines=lines,
        policies=policies,
        set=[_as_json(schedule) for schedule in training_set.SCHEDULES],
    )
    for schedule in training_set.SCHEDULES:
        mine = [row for row in table if row["schedule"] == schedule.name]
        if mine:
            console.print(_shown(schedule.name, mine))
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return lines


def _as_json(schedule: Schedule) -> dict[str, object]:
    return {
        "name": schedule.name,
        "jobs": [
            {**asdict(job), "command": [*training_set.command(job.model, 0)[:-1], "SEED"]}
            for job in schedule.jobs
        ],
    }


def _shown(title: str, table: Sequence[Mapping[str, object]]) -> Table:
    """A line a policy and goal, narrow enough for a terminal."""
    shown = Table(title=title, title_justify="left")
    times = ("mean s", "mean of plain", "of optimum", "median s", "p95 s")
    columns = (*times, "best job of plain", "worst job of plain", "jobs worse")
    for column in ("policy", "goal", *columns):
        shown.add_column(column, justify="left" if column in ("policy", "goal") else "right")
    for row in table:
        for words in GOALS.values():
            cells = (_cell(row.get(f"{words} {column}")) for column in columns)
            shown.add_row(str(row["policy"]), words, *cells)
        shown.add_row(
            str(row["policy"]),
            "makespan",
            _cell(row.get("makespan s")),
            _cell(row.get("makespan of plain")),
            end_section=True,
        )
    return shown


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "-" if value is None else str(value)


# ---------------------------------------------------------------------- calibration


def calibrate(console: Console, models: Sequence[str]) -> None:
    """Each model alone under plain Docker: how long it takes, and what a tier could be."""
    table: list[dict[str, object]] = []
    with session() as one:
        host = results.host_facts(one.engine.version()["Version"])
    for name in models:
        model = training_set.MODELS[name]
        alone = Schedule(f"alone-{name}", (TrainingJob(name, model, 0.0),), 600.0)
        runs = [
            measured(training_run.run(alone, PLAIN, PLAIN, seed, host))
            for seed in training_set.CALIBRATION_SEEDS
        ]
        line = calibrated(model, runs)
        table.append(line)
        console.print(line, highlight=False)
    results.save(
        "training-calibration",
        host,
        training_set.CALIBRATION_SEEDS,
        table,
        title="Each model alone on the node, under plain Docker: what the targets were fixed by",
        table=table,
    )


def calibrated(model: Model, runs: Sequence[Measured]) -> dict[str, object]:
    """What the worst seed holds from a third, and from three quarters, of its steps on."""
    lower = model.finish < model.deliver
    worst = max if lower else min
    held: dict[float, list[float]] = {1 / 3: [], 3 / 4: []}
    for one in runs:
        values = [value for _, value in one.courses[model.name].points]
        for part, found in held.items():
            at = math.floor(part * len(values))
            found.append(worst(values[at : at + training_set.EVALUATIONS]))
    deliver, finish = (worst(found) for found in held.values())
    jobs = [one.run.jobs[0] for one in runs]
    works = [one.courses[model.name].attained[-1][1] for one in runs]
    return {
        "model": model.name,
        "alone s": statistics.fmean(job.completion_s or math.nan for job in jobs),
        "CPU, core-s": statistics.fmean(works),
        "evaluations": min(len(one.courses[model.name].points) for one in runs),
        "held from 1/3 on": deliver,
        "held from 3/4 on": finish,
        "deliver": safe(deliver, lower=lower),
        "finish": safe(finish, lower=lower),
    }


def safe(held: float, *, lower: bool) -> float:
    """A target that other seeds reach too: rounded to the easier side, and one step easier still.

    A step is 0.01 of a rate (450 held-out images are not finer), and 1 of a loss.
    """
    if lower:
        return float(math.ceil(held) + 1)
    return round(math.floor(held * 100) / 100 - 0.01, 2)


def main(arguments: list[str] | None = None) -> int:
    """Run and judge, or calibrate; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=2, help="seeds 1, 2, ... (default 2)")
    parser.add_argument("--policies", default=",".join(training_set.POLICIES), help="as rows say")
    parser.add_argument("--fresh", action="store_true", help="also run what is kept already")
    parser.add_argument("--judge-only", action="store_true", help="run nothing, judge what is kept")
    parser.add_argument("--calibrate", action="store_true", help="each model alone, nothing else")
    parser.add_argument("--models", default=",".join(training_set.MODELS), help="to calibrate")
    chosen = parser.parse_args(arguments)
    names = chosen.policies.split(",")
    for name in names:
        if name not in training_set.POLICIES:
            parser.error(f"no policy {name!r}; there are {', '.join(training_set.POLICIES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=False)
    try:
        if chosen.calibrate:
            calibrate(console, chosen.models.split(","))
            return 0
        # Plain Docker always runs: everything is held against it.
        policies = {name: training_set.POLICIES[name] for name in dict.fromkeys((PLAIN, *names))}
        seeds = range(1, chosen.repetitions + 1)
        if not chosen.judge_only:
            run_missing(console, policies, seeds, fresh=chosen.fresh)
        judge_kept(console, policies, seeds)
    except KeyboardInterrupt:
        console.print("interrupted; this run's containers are removed, whole runs are kept")
        return 130
    except RuntimeError as error:
        console.print(f"training: {error}", markup=False)
        return 1
    return 0
