"""`adaptive` on real services beside plain Docker, both kinds of DQoES and proportional control.

    python -m benchmarks run adaptive-real                    25 min

The demo set at 0.7 of capacity, where all fit, and at 1.4, where a clairvoyant chooses. Writes
`benchmarks/results/adaptive-real.json`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from benchmarks.judge import (
    Judged,
    foreign_cores,
    satisfied,
)
from benchmarks.options import options, stage
from benchmarks.publish import results
from benchmarks.publish.results import grouped, verdict
from benchmarks.real.comparison import (
    FLOOR_CORES,
    DemoJob,
    begin,
    run_policy,
    spec_text,
    targets_at,
)
from benchmarks.real.kept import KeptServices
from benchmarks.real.scene import told_if_it_fails
from dlsched.simulation.scoring import PLAIN
from tools.session import Session, session

BEST_SUBSET_RATIO = 0.9
"""How much of what a clairvoyant satisfies is asked for where not all can be."""


@dataclass(frozen=True)
class Asked:
    """What a set asks of the node."""

    capacity_cores: float
    shares: Mapping[str, float]
    """Cores at which each model's target was measured."""
    floor_cores: float
    """What every model gets at least, satisfied or not."""

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


NAME = "adaptive-real"
SEEDS = (1, 2, 3)

ADAPTIVE = ("adaptive?mode=band", "adaptive?mode=slo")
PROPORTIONAL = "benchmarks.peers.proportional:ProportionalPolicy"
POLICIES: Mapping[float, tuple[str, ...]] = {
    0.7: (PLAIN, "dqoes-published?reading=own&floor_ratio=0.5", "dqoes", PROPORTIONAL, *ADAPTIVE),
    1.4: (PLAIN, *ADAPTIVE),
}
"""By demand, as a part of capacity. `dqoes-published` in the reading that does best where all
fit."""

FILL_RATIO = 0.85
"""Of capacity, how much is handed out at once while targets are measured."""


def timing(policy: str) -> tuple[float, float]:
    """From when on a policy is judged, and for how long at least. DQoES moves a tenth at a time,
    and the mended one waits for enough requests between steps; plain Docker has nothing to settle.
    """
    if policy == PLAIN:
        return 10.0, 20.0
    if policy in ADAPTIVE:
        return 15.0, 30.0
    return (15.0, 20.0) if policy == PROPORTIONAL else (40.0, 20.0)


# ---------------------------------------------------------------------- running


def run_seed(seed: int) -> Iterator[dict[str, object]]:
    """One set on fresh containers: its targets at each demand, then the row of each policy."""
    with session() as one:
        jobs, capacity = begin(one, seed)
        for demand, policies in POLICIES.items():
            shares = {job.name: demand * capacity * job.part for job in jobs}
            asked = Asked(capacity, shares, FLOOR_CORES)
            targets, plain = _targets(one, jobs, asked), list[Judged]()
            for policy in policies:
                stage(f"seed {seed}, {demand} of {capacity:.2f} cores, policy {policy}")
                kept = run_policy(one, seed, demand, policy, targets, timing(policy))
                plain = kept.judged() if policy == PLAIN else plain
                row = row_of(kept, demand, asked, plain)
                print(f"   {row}", flush=True)
                yield row


def _targets(one: Session, jobs: Sequence[DemoJob], asked: Asked) -> dict[str, float]:
    """Each model's latency at its share, in groups whose shares fit; then all files say them."""
    for job in jobs:
        one.drop(job.name, spec_text(job, None))
    found: dict[str, float] = {}
    room = FILL_RATIO * asked.capacity_cores
    parts = groups(asked.shares, room, asked.floor_cores)
    for number, names in enumerate(parts, start=1):
        stage(f"targets, {number} of {len(parts)}: latency at the drawn shares")
        held = {
            job: cores if job in names else asked.floor_cores for job, cores in asked.shares.items()
        }
        measured = targets_at(one, held)
        found |= {job: measured[job] for job in names}
    for job in jobs:
        one.drop(job.name, spec_text(job, found[job.name]))
    return {job.name: found[job.name] for job in jobs}


# ---------------------------------------------------------------------- judging


def row_of(
    kept: KeptServices, demand: float, asked: Asked, plain: Sequence[Judged]
) -> dict[str, object]:
    """One policy on one set, for the result file; `plain`: the same models under plain Docker."""
    reports, judged = kept.reports(), kept.judged()
    band, slo = satisfied(judged)
    before = {job.job: job.ratio for job in plain}
    worse = [
        job.ratio is not None and base is not None and not job.slo and job.ratio > base
        for job in judged
        for base in [before.get(job.job)]
    ]
    return {
        "seed": kept.seed,
        "demand": demand,
        "policy": kept.policy,
        "jobs": len(judged),
        "satisfied_band": band,
        "satisfied_slo": slo,
        "best": asked.best,
        "worse_slo": sum(worse),
        "ratios": {job.job: job.ratio and round(job.ratio, 3) for job in judged},
        "too_few_requests": sum(not job.enough for job in judged),
        "updates_per_min": round(kept.updates_per_min(), 1),
        "foreign_cores": round(foreign_cores(reports), 3),
        "alarms": list(dict.fromkeys(alarm for one in reports for alarm in one.alarms)),
    }


Rows = Sequence[Mapping[str, Any]]


def table(rows: Rows) -> list[dict[str, object]]:
    """A line a demand and policy: medians over the seeds, within 10 % / not slower."""
    lines: list[dict[str, object]] = []
    for (demand, policy), mine in grouped(rows, itemgetter("demand", "policy")).items():
        band, slo = ([row[f"satisfied_{key}"] for row in mine] for key in ("band", "slo"))
        lines.append(
            {
                "demand": demand,
                "policy": f"`{policy}`",
                "satisfied (worst set)": " / ".join(
                    f"{statistics.median(counts):g} ({min(counts):g})" for counts in (band, slo)
                ),
                "of the clairvoyant's": f"{of_best(mine, 'band'):.2f} / {of_best(mine, 'slo'):.2f}",
                "slower than the target and than under plain Docker": sum(
                    row["worse_slo"] for row in mine
                ),
                "updates/min": statistics.median(row["updates_per_min"] for row in mine),
                "others on the host, cores": statistics.median(
                    row["foreign_cores"] for row in mine
                ),
                "sets": len(mine),
            }
        )
    return lines


def of_best(rows: Rows, key: str) -> float:
    """Satisfied, over what a clairvoyant satisfies: the median over the seeds."""
    return statistics.median(row[f"satisfied_{key}"] / row["best"] for row in rows)


def verdicts(rows: Rows) -> list[str]:
    """What was asked of each mode of `adaptive` in its own reading, and what came of it."""
    lines = []
    for (demand, policy), mine in grouped(rows, itemgetter("demand", "policy")).items():
        if policy not in ADAPTIVE:
            continue
        key = policy.rpartition("=")[2]
        asked = 1.0 if all(row["best"] == row["jobs"] for row in mine) else BEST_SUBSET_RATIO
        part = of_best(mine, key)
        counts = ", ".join(f"{row[f'satisfied_{key}']} of {row['best']}" for row in mine)
        lines.append(
            f"{policy} at {demand} of capacity, of what a clairvoyant satisfies: {counts}; "
            f"median {part:.2f}, asked for {asked:g}: {verdict(part >= asked)}"
        )
    return lines


def main(arguments: list[str] | None = None) -> int:
    options(__doc__, arguments)

    def run() -> None:
        host = results.engine_facts()
        rows = [row for seed in SEEDS for row in run_seed(seed)]
        title = f"Real services, {len(SEEDS)} sets of 8: within 10 % of the target / not slower"
        results.finish(NAME, host, SEEDS, rows, {title: table(rows)}, verdicts(rows))

    return told_if_it_fails(NAME, run)
