"""`adaptive` on real services beside plain Docker, both kinds of DQoES and proportional control.

    python -m benchmarks run adaptive-real                    all of it: 25 min
    python -m benchmarks run adaptive-real --judge-only       run nothing, judge what is kept

The demo set at 0.7 of capacity, where all fit, and at 1.4, where a clairvoyant chooses. Every run
is kept in `.build/bench/adaptive-real/DEMAND/SEED/POLICY`, and a run of the same takes its place;
whatever is kept is judged. Writes `benchmarks/results/adaptive-real.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

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
from benchmarks.options import options, told_if_it_fails
from benchmarks.places import KEPT
from benchmarks.publish import results
from benchmarks.real.comparison import (
    FLOOR_CORES,
    DemoJob,
    Plan,
    Watcher,
    begin,
    run_policy,
    spec_text,
    targets_at,
)
from benchmarks.real.kept import KeptServices, load_services
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


def planned_s(seeds: int, chosen: Mapping[float, Sequence[str]]) -> float:
    """How long it takes if no window has to grow."""
    each_s = START_S
    for demand, policies in chosen.items():
        each_s += CALIBRATE_S * (2 if demand > FILL_RATIO else 1)
        each_s += sum(timing(one).settle_s + timing(one).judge_s + CHANGE_S for one in policies)
    return each_s * seeds


# ---------------------------------------------------------------------- running


def run_seed(seed: int, host: Mapping[str, object]) -> None:
    """One set on fresh containers: its targets at each demand, then each policy."""
    watcher = Watcher()
    with session() as one:
        jobs, capacity = begin(one, Plan(seed=seed), watcher)
        for demand, policies in POLICIES.items():
            shares = {job.name: demand * capacity * job.part for job in jobs}
            asked = Asked(capacity, shares, FLOOR_CORES)
            targets = _targets(one, watcher, jobs, asked)
            for policy in policies:
                watcher.stage(f"seed {seed}, {demand} of {capacity:.2f} cores, policy {policy}")
                plan = Plan(
                    seed=seed,
                    demand_ratio=demand,
                    settle_s=timing(policy).settle_s,
                    judge_s=timing(policy).judge_s,
                    keep_in=FOLDER / f"{demand:g}",
                )
                kept = run_policy(one, plan, watcher, policy, targets).kept
                told = json.dumps({**asdict(asked), "host": dict(host)}, indent=1)
                (kept.folder / SET_FILE).write_text(f"{told}\n")
                print(f"   {judged(kept, demand, asked).row(())}", flush=True)


def _targets(
    one: Session, watcher: Watcher, jobs: Sequence[DemoJob], asked: Asked
) -> dict[str, float]:
    """Each model's latency at its share, in groups whose shares fit; then all files say them."""
    for job in jobs:
        one.drop(job.name, spec_text(job, None))
    found: dict[str, float] = {}
    room = FILL_RATIO * asked.capacity_cores
    parts = groups(asked.shares, room, asked.floor_cores)
    for number, names in enumerate(parts, start=1):
        watcher.stage(f"targets, {number} of {len(parts)}: latency at the drawn shares")
        held = {
            job: cores if job in names else asked.floor_cores for job, cores in asked.shares.items()
        }
        measured = targets_at(one, watcher, held, CALIBRATE_S)
        found |= {job: measured[job] for job in names}
    for job in jobs:
        one.drop(job.name, spec_text(job, found[job.name]))
    return {job.name: found[job.name] for job in jobs}


# ---------------------------------------------------------------------- judging


def judged(kept: KeptServices, demand: float, asked: Asked) -> Outcome:
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
        found = []
        for kept in load_services(FOLDER / f"{demand:g}"):
            told = json.loads((kept.folder / SET_FILE).read_text())
            host = told.pop("host")
            found.append(judged(kept, demand, Asked(**told)))
        plain = {one.seed: one.judged for one in found if one.policy == PLAIN}
        found.sort(key=lambda one: (one.seed, places.get(one.policy, len(places))))
        rows += [one.row(plain.get(one.seed, ())) for one in found]
    return rows, host


def judge_kept() -> None:
    """Judge what is kept; writes the result file."""
    rows, host = kept_rows()
    if not rows:
        raise RuntimeError("nothing is kept: nothing to judge")
    lines, told = verdicts(rows), table(rows)
    seeds = sorted({int(str(row["seed"])) for row in rows})
    title = f"Real services, {len(seeds)} sets of 8: within 10 % of the target / not slower"
    results.save(NAME, host, seeds, rows, title=title, table=told, headlines=lines)
    results.show({title: told}, lines)


def run() -> None:
    """Run all of it, say beforehand how long it takes, judge what is then kept."""
    print(f"{NAME}: about {planned_s(len(SEEDS), POLICIES) / 60:.0f} minutes", flush=True)
    host = results.engine_facts()
    for seed in SEEDS:
        run_seed(seed, host)
    judge_kept()


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, judge_only=(False, "run nothing, judge what is kept"))
    return told_if_it_fails(NAME, judge_kept if chosen.judge_only else run)
