"""`adaptive` on real services beside plain Docker, both kinds of DQoES and proportional control.

    python -m benchmarks run adaptive-real                    all of it: 25 min
    python -m benchmarks run adaptive-real --judge-only       run nothing, judge what is kept

The demo set at 0.7 of capacity, where all fit, and at 1.4, where a clairvoyant chooses. Every run
is kept in `.build/bench/adaptive-real/DEMAND/SEED/POLICY`, and a run of the same takes its place;
whatever is kept is judged. Writes `benchmarks/results/adaptive-real.json`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter

from benchmarks.judge.services import (
    Judged,
    Series,
    arrived,
    judge,
    not_slower,
    rolling,
    satisfied,
    settle_s,
    within_band,
)
from benchmarks.judge.trainings import foreign_cores, updates
from benchmarks.options import options, told_if_it_fails
from benchmarks.places import KEPT
from benchmarks.publish import results
from benchmarks.publish.results import grouped
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

# ---------------------------------------------------------------------- what it is worth

JUDGED_FROM_S = 15.0
"""By then `adaptive` must have settled."""

BEST_SUBSET_RATIO = 0.9
"""How much of what a clairvoyant satisfies is asked for where not all can be."""

ROLLING_S = 15.0
"""Long enough for a mean over some dozens of requests."""


@dataclass(frozen=True)
class Asked:
    """What a set asks of the node."""

    capacity_cores: float
    shares: Mapping[str, float]
    """Cores at which each model's target was measured."""
    floor_cores: float
    """What every model gets at least, satisfied or not."""

    @property
    def feasible(self) -> bool:
        return self.best == len(self.shares)

    @property
    def best(self) -> int:
        """How many shares fit at once, beside the others' floors."""
        room = self.capacity_cores - self.floor_cores * len(self.shares)
        count = 0
        for cores in sorted(self.shares.values()):
            room -= max(cores - self.floor_cores, 0.0)
            if room < -1e-9:
                break
            count += 1
        return count


@dataclass(frozen=True)
class Outcome:
    """What one policy made of one set."""

    seed: int
    demand_ratio: float
    policy: str
    asked: Asked
    judged: tuple[Judged, ...]
    settled_band_s: float | None
    """From when on, over any `ROLLING_S`, as many are within 10 % as can be; None: never."""
    settled_slo_s: float | None
    """The same for not slower."""
    updates_per_min: float
    foreign_cores: float
    alarms: tuple[str, ...] = ()
    """What the daemon warned of, each once: a policy that failed was plain Docker."""

    def row(self, plain: Sequence[Judged]) -> dict[str, object]:
        """For the result file; `plain`: the same models under plain Docker."""
        band, slo = satisfied(self.judged)
        worse_band, worse_slo = worse(self.judged, plain)
        return {
            "seed": self.seed,
            "demand": self.demand_ratio,
            "policy": self.policy,
            "jobs": len(self.judged),
            "satisfied_band": band,
            "satisfied_slo": slo,
            "best": self.asked.best,
            "settled_band_s": self.settled_band_s,
            "settled_slo_s": self.settled_slo_s,
            "worse_band": worse_band,
            "worse_slo": worse_slo,
            "ratios": {job.job: job.ratio and round(job.ratio, 3) for job in self.judged},
            "requests": sum(job.requests for job in self.judged),
            "too_few_requests": sum(not job.enough for job in self.judged),
            "updates_per_min": round(self.updates_per_min, 1),
            "foreign_cores": round(self.foreign_cores, 3),
            "alarms": list(self.alarms),
        }


def outcome(
    seed: int,
    demand_ratio: float,
    policy: str,
    asked: Asked,
    targets: Mapping[str, float],
    series: Mapping[str, Series],
    judged_from_s: float,
    updates: int,
    foreign_cores: float,
    alarms: Iterable[str] = (),
) -> Outcome:
    """Judge what arrived, job by job, since the policy took over."""
    end_s = max((at_s for one in series.values() for at_s, _ in one), default=0.0)
    settled = {}
    for reading in (within_band, not_slower):
        counts = rolling(targets, series, end_s, ROLLING_S, reading)
        at_s = settle_s(counts, asked.best)
        settled[reading] = None if at_s is None else at_s - ROLLING_S
    return Outcome(
        seed=seed,
        demand_ratio=demand_ratio,
        policy=policy,
        asked=asked,
        judged=tuple(
            judge(job, target_s, series.get(job, ()), judged_from_s)
            for job, target_s in targets.items()
        ),
        settled_band_s=settled[within_band],
        settled_slo_s=settled[not_slower],
        updates_per_min=updates / end_s * 60 if end_s else 0.0,
        foreign_cores=foreign_cores,
        alarms=tuple(alarms),
    )


def worse(judged: Sequence[Judged], plain: Sequence[Judged]) -> tuple[int, int]:
    """How many are not satisfied and further off than under plain Docker, in each reading."""
    before = {job.job: job.ratio for job in plain}
    band = slo = 0
    for job in judged:
        base = before.get(job.job)
        if job.ratio is None or base is None:
            continue
        band += not job.band and abs(job.ratio - 1) > abs(base - 1)
        slo += not job.slo and job.ratio > base
    return band, slo


def table(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """A line a demand and policy: medians over the seeds, within 10 % / not slower."""
    lines: list[dict[str, object]] = []
    for (demand, policy), mine in grouped(rows, itemgetter("demand", "policy")).items():
        told: dict[str, list[str]] = {}
        for key in ("band", "slo"):
            counts = _numbers(mine, f"satisfied_{key}")
            settled = _median_or_never(mine, f"settled_{key}_s")
            cells = {
                "satisfied (worst set)": f"{statistics.median(counts):g} ({min(counts):g})",
                "of the clairvoyant's": f"{statistics.median(of_best(r, key) for r in mine):.2f}",
                "settled after s": "never" if settled is None else f"{settled:g}",
                "worse than plain Docker": f"{sum(_numbers(mine, f'worse_{key}')):g}",
            }
            for column, cell in cells.items():
                told.setdefault(column, []).append(cell)
        lines.append(
            {
                "demand": demand,
                "policy": f"`{policy}`",
                **{column: " / ".join(cells) for column, cells in told.items()},
                "updates/min": _median(mine, "updates_per_min"),
                "others on the host, cores": _median(mine, "foreign_cores"),
                "sets": len(mine),
            }
        )
    return lines


def of_best(row: Mapping[str, object], key: str) -> float:
    """Satisfied, over what a clairvoyant satisfies."""
    (got,), (best,) = _numbers([row], f"satisfied_{key}"), _numbers([row], "best")
    return got / best


def verdicts(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """What was asked of `adaptive`, and what came of it: medians over the seeds."""
    lines = []
    for demand in dict.fromkeys(row["demand"] for row in rows):
        for mode, key, words in (
            ("band", "band", "within 10 %"),
            ("band", "slo", "not slower"),
            ("slo", "slo", "not slower"),
        ):
            policy = f"adaptive?mode={mode}"
            mine = [r for r in rows if (r["demand"], r["policy"]) == (demand, policy)]
            feasible = all(row["best"] == row["jobs"] for row in mine)
            # Above capacity the readings exclude each other: each mode is held by its own.
            if not mine or (mode != key and not feasible):
                continue
            part = statistics.median(of_best(row, key) for row in mine)
            asked = 1.0 if feasible else BEST_SUBSET_RATIO
            counts = ", ".join(f"{row[f'satisfied_{key}']} of {row['best']}" for row in mine)
            lines.append(
                f"{policy} at {demand} of capacity, {words}, of what a clairvoyant satisfies: "
                f"{counts}; median {part:.2f}, asked for {asked:g}: "
                f"{'reached' if part >= asked else 'not reached'}"
            )
    return lines


def groups(shares: Mapping[str, float], room_cores: float, floor_cores: float) -> list[set[str]]:
    """The models in as few groups as first-fit finds, so that each group's shares fit at once.

    The others hold their floors meanwhile: so each is measured at its share and not beside a crowd.
    """
    free = room_cores - floor_cores * len(shares)
    found: list[tuple[float, set[str]]] = []
    for job, cores in sorted(shares.items(), key=lambda pair: (-pair[1], pair[0])):
        wanted = max(cores - floor_cores, 0.0)
        for index, (left, names) in enumerate(found):
            if wanted <= left:
                found[index] = (left - wanted, {*names, job})
                break
        else:
            found.append((free - wanted, {job}))
    return [names for _, names in found]


def _numbers(rows: Iterable[Mapping[str, object]], key: str) -> list[float]:
    return [float(row[key]) for row in rows]  # type: ignore[arg-type]


def _median(rows: Sequence[Mapping[str, object]], key: str) -> float:
    return statistics.median(_numbers(rows, key))


def _median_or_never(rows: Sequence[Mapping[str, object]], key: str) -> float | None:
    """The median of all; None where that is one that never came."""
    found = sorted(float("inf") if row[key] is None else _numbers([row], key)[0] for row in rows)
    middle = statistics.median_high(found)
    return None if middle == float("inf") else middle


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


def timing(policy: str) -> tuple[float, float]:
    """From when on a policy is judged, and for how long at least. DQoES moves a tenth at a time,
    and the mended one waits for enough requests between steps; plain Docker has nothing to settle.
    """
    if policy == PLAIN:
        return 10.0, 20.0
    if policy in ADAPTIVE:
        return JUDGED_FROM_S, 30.0
    return (JUDGED_FROM_S, 20.0) if policy == PROPORTIONAL else (40.0, 20.0)


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
                settle, judged_s = timing(policy)
                plan = Plan(
                    seed=seed,
                    demand_ratio=demand,
                    settle_s=settle,
                    judge_s=judged_s,
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
    seeds = sorted({int(str(row["seed"])) for row in rows})
    title = f"Real services, {len(seeds)} sets of 8: within 10 % of the target / not slower"
    results.finish(NAME, host, seeds, rows, {title: table(rows)}, verdicts(rows))


def run() -> None:
    """Run all of it, judge what is then kept."""
    host = results.engine_facts()
    for seed in SEEDS:
        run_seed(seed, host)
    judge_kept()


def main(arguments: list[str] | None = None) -> int:
    chosen = options(__doc__, arguments, judge_only=(False, "run nothing, judge what is kept"))
    return told_if_it_fails(NAME, judge_kept if chosen.judge_only else run)
