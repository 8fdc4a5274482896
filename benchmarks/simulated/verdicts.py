"""What `adaptive` says of trainings' tiers, held against what became of them.

Owns the learning curves and the targets that are drawn for it, and the counting. Each draw is one
training alone on a node, so that what is said is of its curve, not of its neighbours. Half of the
draws have a `finish` that the curve reaches, half one that it never does, from just above its best
to far above. A seed draws curve, target and noise alike. Families called `shown` were looked at
while the policy was worked on, at other seeds than those that are judged; the others were not.

    python -m benchmarks run verdicts             writes benchmarks/results/verdicts.json
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product

from benchmarks.options import options
from benchmarks.publish import results
from benchmarks.publish.results import verdict
from benchmarks.simulated.playing import in_processes, play
from benchmarks.simulated.verdict_curves import FAMILIES, RUN_S, SHOWN, STEPS, drawn
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import NodeFact
from dlsched.model.forecast import ForecastKind
from dlsched.policies.adaptive.trainings.value import deadline_at_s
from dlsched.simulation.node.workloads import Trace

NAME = "verdicts"

POLICIES = {"told": "adaptive", "untold": "adaptive?heeds_total_steps=false"}
"""Whether the training's word on how many steps it takes in all counts."""

JUDGED = range(2001, 2041)
LOOKED_AT = range(1, 41)
"""Seeds at which the shown families were looked at while the policy was worked on."""

LEAST = {"impossible": 0.99, "unlikely": 0.5, "expected": 0.5}
"""How often each word has to hold: nearly always, or more often than not."""
INTERVAL_HELD = 0.8
NEVER_TOLD = 0.8
"""Part of the tiers that are never reached of which that is told at last."""

PARTS = (0.25, 0.5, 0.75, 0.9, 1.0)
"""What was said counts by the part of the run seen, up to these."""

SAID = {kind.value: kind.value for kind in ForecastKind}
SAID |= {"unlikely": "not expected", "unknown": "cannot be told"}
"""In words; what cannot be told holds where the tier was not reached."""

_COUNTED = ("said", "held", "intervals", "inside")
_CYCLE_S = 5.0


@dataclass(frozen=True)
class Word:
    """What was said of one tier after one evaluation."""

    seen: float
    """Part of the run that was seen by then."""
    tier: str
    kind: ForecastKind
    now_s: float
    interval_s: tuple[float, float] | None
    due_s: float | None
    """Its deadline, on the run's clock, where it is still to come."""


@dataclass
class Said:
    """What was said of one training's tiers, after each evaluation, and when each was met."""

    words: list[Word] = field(default_factory=list)
    met_s: dict[str, float | None] = field(default_factory=dict)
    _step: int = -1

    def add(self, report: CycleReport) -> None:
        """Take in one cycle."""
        for job in report.snapshot.jobs:
            both = {"deliver": job.tiers.delivered, "finish": job.tiers.finished}
            self.met_s = {tier: None if one is None else one.at_s for tier, one in both.items()}
            step = job.progress.samples[-1].step if job.progress.samples else None
            if step is None or step == self._step:
                continue
            self._step = step
            for one in report.outlooks.get(job.name, ()):
                due_s = deadline_at_s(job) if one.tier == "deliver" else None
                passed = due_s is not None and due_s <= report.snapshot.now_s
                if one.tier not in both or (passed and one.kind is not ForecastKind.MET):
                    continue
                low_s, high_s = one.earliest_s, one.latest_s
                self.words.append(
                    Word(
                        step / STEPS,
                        one.tier,
                        one.kind,
                        report.snapshot.now_s,
                        None if low_s is None or high_s is None else (low_s, high_s),
                        due_s if one.kind is not ForecastKind.MET else None,
                    )
                )


@dataclass(frozen=True)
class Row:
    """What was said of one family's tiers, how often it was said, and how often it held."""

    family: str
    steps: str
    """Whether the training's word on its steps counted."""
    of: str
    """A tier, or its deadline."""
    seen: str
    """Part of the run that was seen, or `ever`: then a tier counts once, and what was said of it
    held if it held each time."""
    kind: str
    said: int
    held: int
    intervals: int
    """How many of them told an interval of a tier that was reached, and how many held it."""
    inside: int


def judged(family: str, steps: str, seed: int) -> Counts:
    """One training: what was said of it, and how often it held."""
    job = drawn(family, seed)
    trace = Trace(NodeFact(1.0, 64 << 30), (job,), 2.0 * RUN_S, cycle_s=_CYCLE_S, name=NAME)
    said, policy = Said(), POLICIES[steps]
    run = play(trace, policy, seed, publish=said.add)
    truly = {"deliver": run.jobs[0].tier1_s, "finish": run.jobs[0].tier2_s}
    counts: Counts = Counter()
    ever: dict[tuple[str, str, str], bool] = {}
    for word in said.words:
        true_s, of = truly[word.tier], "tier" if word.due_s is None else "deadline"
        held = _held(word, true_s, said.met_s[word.tier])
        key = (family, steps, of, word.kind.value)
        part = next(most for most in PARTS if word.seen <= most)
        told = {"said": 1, "held": held}
        # Where it is there already, it is only to be confirmed.
        if word.interval_s is not None and true_s is not None and true_s >= word.now_s:
            inside = word.interval_s[0] <= true_s <= word.interval_s[1]
            told |= {"intervals": 1, "inside": inside}
        counts.update({(*key, f"up to {part:g}", what): one for what, one in told.items()})
        once = (word.tier, of, word.kind.value)
        ever[once] = held and ever.get(once, True)
    for (_, of, kind), held in ever.items():
        key = (family, steps, of, kind, "ever")
        counts.update({(*key, "said"): 1, (*key, "held"): held})
    return counts


Counts = Counter[tuple[str, str, str, str, str, str]]
"""By family, steps, of, kind, seen, and what is counted."""


def _held(word: Word, true_s: float | None, met_s: float | None) -> bool:
    if word.kind is ForecastKind.MET:
        return true_s is not None
    # It is of what is to come: noise may be reported to be there, the curve may come too late for
    # that, and where it was there too shortly to be reported it is past.
    ahead_s = true_s if true_s is not None and true_s >= word.now_s else None
    by_s = [one for one in (ahead_s, met_s) if one is not None]
    reached = bool(by_s) and (word.due_s is None or min(by_s) <= word.due_s)
    return reached is (word.kind is ForecastKind.EXPECTED)


def rows_of(counts: Counts) -> list[Row]:
    """A row for whatever was said."""
    keys = dict.fromkeys(key[:-1] for key in counts)
    return [
        Row(
            *(family, steps, of, seen, kind),
            *(counts[family, steps, of, kind, seen, what] for what in _COUNTED),
        )
        for family, steps, of, kind, seen in keys
    ]


def table_of(rows: Iterable[Row]) -> list[dict[str, object]]:
    """A line for what was said at each part of the run, over all families."""
    sums: dict[tuple[str, str, str, str], Counter[str]] = {}
    for row in rows:
        key = (row.steps, row.of, row.kind, row.seen)
        sums.setdefault(key, Counter()).update({what: getattr(row, what) for what in _COUNTED})
    return [
        results.known(
            {
                "steps": steps,
                "of a": of,
                "said": SAID[kind],
                "seen of the run": seen,
                "times": one["said"],
                "held": one["held"] / one["said"],
                "in the 80 % interval": one["inside"] / one["intervals"]
                if one["intervals"]
                else None,
            }
        )
        for (steps, of, kind, seen), one in sorted(sums.items(), key=lambda item: item[0])
    ]


def figures(rows: Sequence[Row]) -> list[str]:
    """What was to be reached, and whether it was, in one sentence each."""
    told = []
    for steps in POLICIES:
        own = [row for row in rows if row.steps == steps]
        for of in ("tier", "deadline"):
            for kind, least in LEAST.items():
                for ever in (False, True):
                    some = [
                        row
                        for row in own
                        if (row.of, row.kind, row.seen == "ever") == (of, kind, ever)
                    ]
                    once = "once a " + of if ever else "after each evaluation"
                    words = f'steps {steps}, {once}: "{SAID[kind]}" of a {of} held'
                    told += _figure(words, _sum(some, "held"), _sum(some, "said"), least)
        looks = [row for row in own if row.seen != "ever"]
        told += _figure(
            f"steps {steps}: 80 % intervals held",
            _sum(looks, "inside"),
            _sum(looks, "intervals"),
            INTERVAL_HELD,
        )
        late = [row for row in looks if row.seen == "up to 1" and row.of == "tier"]
        never = {
            kind: _sum([row for row in late if row.kind == kind], "held")
            for kind in ("unlikely", "impossible", "unknown")
        }
        wrong = [row for row in late if row.kind == "expected"]
        never["expected"] = _sum(wrong, "said") - _sum(wrong, "held")
        told += _figure(
            f'steps {steps}: "not expected" or "impossible" of a tier never reached, last tenth,',
            never["unlikely"] + never["impossible"],
            sum(never.values()),
            NEVER_TOLD,
        )
    return told


def _sum(rows: Iterable[Row], what: str) -> int:
    return sum(getattr(row, what) for row in rows)


def _figure(words: str, count: int, of: int, least: float) -> list[str]:
    if not of:
        return []
    reached = verdict(count >= least * of)
    return [f"{words} {count} of {of} times ({count / of:.3f}), at least {least:g}: {reached}"]


def main(arguments: list[str] | None = None) -> int:
    """Every family at every seed, with the word on steps and without; returns the exit code."""
    options(__doc__, arguments)
    counts: Counts = Counter()
    for one in in_processes(judged, product(FAMILIES, POLICIES, JUDGED)):
        counts.update(one)
    rows = rows_of(counts)
    title = (
        f"What `adaptive` said of {len(POLICIES) * len(FAMILIES) * len(JUDGED)} trainings' tiers"
    )
    table, told = table_of(rows), figures(rows)
    results.save(
        NAME,
        results.host_facts("none"),
        JUDGED,
        [asdict(row) for row in rows],
        title=title,
        table=table,
        headlines=told,
        shown={"families": list(SHOWN), "seeds": list(LOOKED_AT)},
    )
    results.show({title: table}, told)
    return 0
