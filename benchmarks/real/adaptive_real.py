"""`adaptive` on real services beside plain Docker, both kinds of DQoES and proportional control.

    python -m benchmarks run adaptive-real                    all seeds, demands, policies: 25 min
    python -m benchmarks run adaptive-real --seeds 2 --demands 1.4 --policies 'adaptive?mode=slo'
    python -m benchmarks run adaptive-real --judge-only       run nothing, judge what is kept

The demo set at 0.7 of capacity, where all fit, and at 1.4, where a clairvoyant chooses. Every run
is kept in `.build/bench/adaptive-real/DEMAND/SEED/POLICY`, and a run of the same takes its place;
whatever is kept is judged. Writes `benchmarks/results/adaptive-real.json`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from benchmarks.judge.adaptive_real import (
    JUDGED_FROM_S,
    Asked,
    Outcome,
    groups,
    outcome,
    table,
    verdicts,
)
from benchmarks.judge.services import arrived
from benchmarks.judge.trainings import foreign_cores, updates
from benchmarks.places import KEPT
from benchmarks.publish import results
from benchmarks.real.comparison import Plan, begin, run_policy, targets_at
from benchmarks.real.demo import Screen
from benchmarks.real.demo_set import FLOOR_CORES, DemoJob, spec_text
from benchmarks.real.kept_services import KeptServices
from benchmarks.real.kept_services import load_all as load_services
from dlsched.simulation.scoring import PLAIN
from tools.session import Session, session

NAME = "adaptive-real"
FOLDER = KEPT / NAME
SET_FILE = "set.json"

SEEDS = (1, 2, 3)

ADAPTIVE = ("adaptive?mode=band", "adaptive?mode=slo")
PROPORTIONAL = "benchmarks.peers.proportional:ProportionalPolicy"
POLICIES: Mapping[float, tuple[str, ...]] = {
    0.7: (PLAIN, "dqoes-published?reading=own&floor_ratio=0.5", "dqoes", PROPORTIONAL, *ADAPTIVE),
    1.4: (PLAIN, *ADAPTIVE),
}
"""By demand, as a part of capacity. `dqoes-published` in the reading that does best where all
fit."""

CALIBRATE_S = 20.0
FILL_RATIO = 0.85
"""Of capacity, how much is handed out at once while targets are measured."""
START_S, CHANGE_S = 16.0, 4.0
"""About what the start of a set takes, and a change of policy."""


@dataclass(frozen=True)
class Timing:
    """From when on a policy is judged, and for how long at least."""

    settle_s: float
    judge_s: float


def timing(policy: str) -> Timing:
    """DQoES moves a tenth at a time, and the mended one waits for enough requests between steps;
    plain Docker has nothing to settle."""
    if policy == PLAIN:
        return Timing(10.0, 20.0)
    if policy in ADAPTIVE:
        return Timing(JUDGED_FROM_S, 30.0)
    if policy == PROPORTIONAL:
        return Timing(JUDGED_FROM_S, 20.0)
    return Timing(40.0, 20.0)


Chosen = Mapping[float, Sequence[str]]
"""Policies by demand."""


def planned_s(seeds: Sequence[int], chosen: Chosen) -> float:
    """How long it takes if no window has to grow."""
    each_s = START_S
    for demand, policies in chosen.items():
        each_s += CALIBRATE_S * (2 if demand > FILL_RATIO else 1)
        for policy in policies:
            one = timing(policy)
            each_s += one.settle_s + one.judge_s + CHANGE_S
    return each_s * len(seeds)


def with_plain(policies: Sequence[str]) -> tuple[str, ...]:
    """Plain Docker first, since everything is held against it."""
    return tuple(dict.fromkeys((PLAIN, *policies)))


# ---------------------------------------------------------------------- running


def run_seed(console: Console, seed: int, chosen: Chosen, host: Mapping[str, object]) -> None:
    """One set on fresh containers: its targets at each demand, then each policy."""
    with session() as one, Screen(console) as screen:
        plan = Plan(seed=seed)
        jobs, capacity = begin(one, plan, screen)
        for demand, policies in chosen.items():
            shares = {job.name: demand * capacity * job.part for job in jobs}
            asked = Asked(capacity, shares, FLOOR_CORES)
            targets = _targets(one, screen, jobs, asked)
            for policy in policies:
                screen.stage(f"seed {seed}, {demand} of {capacity:.2f} cores, policy {policy}")
                took = timing(policy)
                plan = Plan(
                    seed=seed,
                    demand_ratio=demand,
                    settle_s=took.settle_s,
                    judge_s=took.judge_s,
                    keep_in=FOLDER / f"{demand:g}",
                )
                run = run_policy(one, plan, screen, policy, targets)
                _keep(run.kept, asked, host)
                came = judged(run.kept, demand, asked)
                console.print(f"   {_glance(came)}", highlight=False, soft_wrap=True)
                for alarm in came.alarms:
                    console.print(
                        f"   alarm: {alarm}", markup=False, highlight=False, soft_wrap=True
                    )


def _targets(
    one: Session, screen: Screen, jobs: Sequence[DemoJob], asked: Asked
) -> dict[str, float]:
    """Each model's latency at its share, in groups whose shares fit; then all files say them."""
    for job in jobs:
        one.drop(job.name, spec_text(job, None))
    found: dict[str, float] = {}
    room = FILL_RATIO * asked.capacity_cores
    parts = groups(asked.shares, room, asked.floor_cores)
    for number, names in enumerate(parts, start=1):
        screen.stage(f"targets, {number} of {len(parts)}: latency at the drawn shares")
        held = {
            job: cores if job in names else asked.floor_cores for job, cores in asked.shares.items()
        }
        measured = targets_at(one, screen, held, CALIBRATE_S)
        found |= {job: measured[job] for job in names}
    for job in jobs:
        one.drop(job.name, spec_text(job, found[job.name]))
    return {job.name: found[job.name] for job in jobs}


def _keep(kept: KeptServices, asked: Asked, host: Mapping[str, object]) -> None:
    text = json.dumps({**asdict(asked), "host": dict(host)}, indent=1)
    (kept.folder / SET_FILE).write_text(f"{text}\n")


def _glance(one: Outcome) -> str:
    row = one.row(())
    return (
        f"of {row['best']} that can be, within 10 %: {row['satisfied_band']}, not slower: "
        f"{row['satisfied_slo']}; {row['ratios']}"
    )


# ---------------------------------------------------------------------- judging


def judged(kept: KeptServices, demand: float, asked: Asked) -> Outcome:
    """The run, from its journal."""
    reports = kept.reports()
    return outcome(
        kept.seed,
        demand,
        kept.policy,
        asked,
        kept.targets,
        arrived(reports),
        kept.judged_from_s,
        updates(reports),
        foreign_cores(reports),
        dict.fromkeys(alarm for report in reports for alarm in report.alarms),
    )


def kept_rows() -> tuple[list[dict[str, object]], Mapping[str, object]]:
    """All that is kept, judged, and the host of the last."""
    rows: list[dict[str, object]] = []
    host: Mapping[str, object] = {}
    places = {policy: place for place, policy in enumerate(POLICIES[0.7])}
    for demand in sorted(float(folder.name) for folder in FOLDER.glob("*")):
        found = [_loaded(one, demand) for one in load_services(FOLDER / f"{demand:g}")]
        plain = {one.seed: one.judged for one, _ in found if one.policy == PLAIN}
        for one, told in sorted(
            found, key=lambda pair: (pair[0].seed, places.get(pair[0].policy, len(places)))
        ):
            rows.append(one.row(plain.get(one.seed, ())))
            host = told
    return rows, host


def _loaded(kept: KeptServices, demand: float) -> tuple[Outcome, Mapping[str, object]]:
    told: dict[str, Any] = json.loads((kept.folder / SET_FILE).read_text())
    host = told.pop("host")
    return judged(kept, demand, Asked(**told)), host


def judge_kept(console: Console) -> None:
    """Judge what is kept; writes the result file."""
    rows, host = kept_rows()
    if not rows:
        console.print("nothing is kept: nothing to judge")
        return
    lines = verdicts(rows)
    seeds = sorted({int(str(row["seed"])) for row in rows})
    results.save(
        NAME,
        host,
        seeds,
        rows,
        title=f"Real services, {len(seeds)} sets of 8: within 10 % of the target / not slower",
        table=table(rows),
        headlines=lines,
    )
    console.print(results.markdown(table(rows)), markup=False, highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def run(console: Console, seeds: Sequence[int], chosen: Chosen) -> None:
    """Run all of it, say beforehand how long it takes, judge what is then kept."""
    left_s = planned_s(seeds, chosen)
    console.print(f"{NAME}: about {left_s / 60:.0f} minutes", highlight=False)
    with session() as one:
        host = results.host_facts(one.engine.version()["Version"])
    for seed in seeds:
        run_seed(console, seed, chosen, host)
    judge_kept(console)


def _chosen(demands: str, policies: str | None) -> Iterator[tuple[float, tuple[str, ...]]]:
    for demand in map(float, demands.split(",")):
        wanted = POLICIES.get(demand, POLICIES[1.4]) if policies is None else policies.split(",")
        yield demand, with_plain(wanted)


def main(arguments: list[str] | None = None) -> int:
    """Run and judge; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", default="1,2,3", help="such as 1,3 (default 1,2,3)")
    parser.add_argument("--demands", default="0.7,1.4", help="of capacity (default 0.7,1.4)")
    parser.add_argument("--policies", help="as settings spell them (default: by demand)")
    parser.add_argument("--judge-only", action="store_true", help="run nothing, judge what is kept")
    parser.add_argument("--fresh", action="store_true", help="forget all that is kept, first")
    told = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=False)
    if told.fresh:
        shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        if told.judge_only:
            judge_kept(console)
        else:
            seeds = [int(seed) for seed in told.seeds.split(",")]
            run(console, seeds, dict(_chosen(told.demands, told.policies)))
    except KeyboardInterrupt:
        console.print("interrupted; this run's containers are removed, whole runs are kept")
        return 130
    except RuntimeError as error:
        console.print(f"{NAME}: {error}", markup=False)
        return 1
    return 0
