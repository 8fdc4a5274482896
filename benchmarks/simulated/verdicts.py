"""What `adaptive` says of trainings' tiers, held against what became of them.

Owns the learning curves and the targets that are drawn for it, and the counting. Each draw is one
training alone on a node, so that what is said is of its curve, not of its neighbours. Half of the
draws have a `finish` that the curve reaches, half one that it never does, from just above its best
to far above. A seed draws curve, target and noise alike.

    python -m benchmarks run verdicts             writes benchmarks/results/verdicts.json
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product

from benchmarks.publish.results import verdict
from benchmarks.simulated.playing import in_processes, judge_seeds, play
from dlsched.model.cycle import CycleReport
from dlsched.model.facts import NodeFact
from dlsched.model.forecast import ForecastKind
from dlsched.model.spec import AccuracyTarget, ContainerSpec, JobSpec
from dlsched.simulation.node.learning_curves import Measured
from dlsched.simulation.node.workloads import SimulatedJob, Trace, TrainingLoad

STEPS, RUN_S = 3000, 600.0
"""Of each training, and how long they take alone."""
_POINTS = 300
"""A curve is drawn through so many."""
_XS = tuple(place / _POINTS for place in range(_POINTS + 1))

Way = list[float]
"""How good the metric is at evenly spaced points of the run: 0 where it begins, about 1 at its
best."""


def _power(chance: random.Random) -> Way:
    scale, power = chance.uniform(0.03, 0.5), chance.uniform(0.4, 2.0)
    return [1.0 - (1.0 + x / scale) ** -power for x in _XS]


def _exponential(chance: random.Random) -> Way:
    scale = chance.uniform(0.05, 0.4)
    return [1.0 - math.exp(-x / scale) for x in _XS]


def _plateau(chance: random.Random) -> Way:
    """An exponential that stands still for a while."""
    scale = chance.uniform(0.08, 0.3)
    at, width = chance.uniform(0.1, 0.5), chance.uniform(0.1, 0.5)
    return [1.0 - math.exp(-(x - min(max(0.0, x - at), width)) / scale) for x in _XS]


def _drop(chance: random.Random) -> Way:
    """It levels off, until the learning rate is divided once."""
    at, before = chance.uniform(0.3, 0.95), chance.uniform(0.3, 0.9)
    slow, fast = chance.uniform(0.05, 0.2), chance.uniform(0.01, 0.1)
    return [
        before * (1.0 - math.exp(-x / slow))
        + (0.0 if x < at else (1.0 - before) * (1.0 - math.exp(-(x - at) / fast)))
        for x in _XS
    ]


def _late(chance: random.Random) -> Way:
    """Next to nothing for long, then all at once: a logistic curve."""
    at, width = chance.uniform(0.2, 0.95), chance.uniform(0.01, 0.1)
    return [1.0 / (1.0 + math.exp(min(-(x - at) / width, 500.0))) for x in _XS]


def _flat(chance: random.Random) -> Way:
    """It learns a little at once, and never more."""
    level, scale = chance.uniform(0.02, 0.3), chance.uniform(0.005, 0.05)
    return [level * (1.0 - math.exp(-x / scale)) for x in _XS]


def _staircase(chance: random.Random) -> Way:
    """Two to four drops of the learning rate, each with a rise of its own."""
    drops = sorted(chance.uniform(0.1, 0.97) for _ in range(chance.randrange(2, 5)))
    rises = [(0.0, chance.uniform(0.3, 1.0)), *((at, chance.uniform(0.05, 0.6)) for at in drops)]
    scale, whole = chance.uniform(0.01, 0.08), math.fsum(rise for _, rise in rises)
    return [
        math.fsum(r * (1.0 - math.exp(-(x - at) / scale)) for at, r in rises if x >= at) / whole
        for x in _XS
    ]


def _decay(chance: random.Random) -> Way:
    """Slow at a constant rate, then lifted while the rate falls to zero over the last part."""
    begins, lift = 1.0 - chance.uniform(0.05, 0.4), chance.uniform(0.1, 0.7)
    scale, power = chance.uniform(0.02, 0.2), chance.uniform(0.3, 1.0)
    return [
        (1.0 - lift) * (1.0 - (1.0 + x / scale) ** -power)
        + lift * (max(0.0, x - begins) / (1.0 - begins)) ** chance_power
        for chance_power in [chance.uniform(0.5, 2.0)]
        for x in _XS
    ]


def _sudden(chance: random.Random) -> Way:
    """Two levels: it stays at the first, learnt early, and jumps to the second (Gompertz)."""
    first, at = chance.uniform(0.0, 0.5), chance.uniform(0.3, 0.98)
    soon, width = chance.uniform(0.01, 0.1), chance.uniform(0.005, 0.08)
    return [
        first * (1.0 - math.exp(-x / soon))
        + (1.0 - first) * math.exp(-math.exp(min(-(x - at) / width, 500.0)))
        for x in _XS
    ]


def _double_descent(chance: random.Random) -> Way:
    """It gets better, then worse, then better than ever."""
    at, width, depth = chance.uniform(0.2, 0.7), chance.uniform(0.05, 0.2), chance.uniform(0.1, 0.5)
    scale = chance.uniform(0.05, 0.3)
    return [1.0 - math.exp(-x / scale) - depth * math.exp(-(((x - at) / width) ** 2)) for x in _XS]


def _overfit(chance: random.Random) -> Way:
    """It gets better and then worse, to the end."""
    scale, at = chance.uniform(0.05, 0.2), chance.uniform(0.2, 0.7)
    loss = chance.uniform(0.1, 0.8)
    return [1.0 - math.exp(-x / scale) - loss * max(0.0, x - at) for x in _XS]


def _spikes(chance: random.Random) -> Way:
    """A power law that is thrown back again and again, and wanders."""
    way, thrown, wander = [], 0.0, 0.0
    for one in _power(chance):
        thrown = chance.uniform(0.1, 0.6) if chance.random() < 0.02 else 0.8 * thrown
        wander = 0.9 * wander + chance.gauss(0.0, 0.01)
        way.append(one * (1.0 - thrown) + wander)
    return way


FAMILIES: Mapping[str, Callable[[random.Random], Way]] = {
    "power": _power,
    "exponential": _exponential,
    "plateau": _plateau,
    "drop": _drop,
    "late": _late,
    "flat": _flat,
    "staircase": _staircase,
    "decay": _decay,
    "sudden": _sudden,
    "double descent": _double_descent,
    "overfit": _overfit,
    "spikes": _spikes,
}
"""By name. The last six were not looked at while the policy was worked on."""


def drawn(family: str, seed: int) -> SimulatedJob:
    """One training of that family."""
    chance = random.Random(f"verdicts/{family}/{seed}")
    way = FAMILIES[family](chance)
    loss = chance.random() < 0.3
    if loss:
        start, end = chance.uniform(1.0, 8.0), chance.uniform(0.02, 0.9)
    else:
        start, end = chance.uniform(0.02, 0.4), chance.uniform(0.6, 0.97)
    best_so_far = list(accumulate(way, max))
    best, reachable = best_so_far[-1], chance.random() < 0.5
    # Where it is reached is drawn by what is gained on the way, not by the time that it takes.
    finish = (
        best * chance.uniform(0.5, 0.999) if reachable else best + 0.01 * 50.0 ** chance.random()
    )
    deliver = min(best, finish) * chance.uniform(0.3, 0.95)
    if not reachable and chance.random() < 0.3:
        deliver = best + chance.uniform(0.2, 0.9) * (finish - best)

    def value(part: float) -> float:
        return round(start + (end - start) * part, 6)

    curve = Measured(
        tuple((STEPS * place // _POINTS, value(part)) for place, part in enumerate(way)),
        rises=not loss,
    )
    small = 0.005 * abs(end - start)
    load = TrainingLoad(
        steps=STEPS,
        work_core_s=RUN_S / STEPS,
        evaluate_every=STEPS // chance.choice((20, 40, 60, 100)),
        curve=curve,
        noise=chance.choice((0.0, small, 3.0 * small)),
    )
    metric, tiers = "loss" if loss else "accuracy", (value(deliver), value(finish))
    target = AccuracyTarget(metric, *tiers)
    spec = JobSpec(
        name=family.replace(" ", "-"),
        container=ContainerSpec(image="simulated"),
        target=target,
        container_digest=family,
        digest=family,
    )
    return SimulatedJob(spec, load)


NAME = "verdicts"

POLICIES = {"told": "adaptive", "untold": "adaptive?heeds_total_steps=false"}
"""Whether the training's word on how many steps it takes in all counts."""

JUDGED = range(2001, 2041)

LEAST = {"impossible": 0.99, "unlikely": 0.5, "expected": 0.5}
"""How often each word has to hold: nearly always, or more often than not."""
INTERVAL_HELD = 0.8
NEVER_TOLD = 0.8
"""Part of the tiers that are never reached of which that is told at last."""

LAST_TENTH = 0.9
"""From there on it must be known of a tier that it is never reached."""

SAID = {kind.value: kind.value for kind in ForecastKind}
SAID |= {"unlikely": "not expected", "unknown": "cannot be told"}
"""In words; what cannot be told holds where the tier was not reached."""

_COUNTED = ("said", "held", "intervals", "inside")
_CYCLE_S = 5.0


@dataclass(frozen=True)
class Word:
    """What was said of one tier after one evaluation."""

    late: bool
    """Whether it was said in the last tenth of the run."""
    tier: str
    kind: ForecastKind
    now_s: float
    interval_s: tuple[float, float] | None


@dataclass
class Said:
    """What was said of one training's tiers, after each evaluation, and when each was met."""

    words: list[Word] = field(default_factory=list)
    met_s: dict[str, float | None] = field(default_factory=dict)
    _step: int = -1

    def add(self, report: CycleReport) -> None:
        for job in report.snapshot.jobs:
            both = {"deliver": job.tiers.delivered, "finish": job.tiers.finished}
            self.met_s = {tier: None if one is None else one.at_s for tier, one in both.items()}
            step = job.progress.samples[-1].step if job.progress.samples else None
            if step is None or step == self._step:
                continue
            self._step = step
            for one in report.outlooks.get(job.name, ()):
                if one.tier in both:
                    low_s, high_s = one.earliest_s, one.latest_s
                    span_s = None if low_s is None or high_s is None else (low_s, high_s)
                    late, now_s = step > LAST_TENTH * STEPS, report.snapshot.now_s
                    self.words.append(Word(late, one.tier, one.kind, now_s, span_s))


@dataclass(frozen=True)
class Row:
    """What was said of one family's tiers, how often it was said, and how often it held."""

    family: str
    steps: str
    """Whether the training's word on its steps counted."""
    late: bool
    kind: str
    said: int
    held: int
    intervals: int
    """How many of them told an interval of a tier that was reached, and how many held it."""
    inside: int


Counts = Counter[tuple[str, str, bool, str, str]]
"""By family, steps, late, kind, and what is counted."""


def judged(family: str, steps: str, seed: int) -> Counts:
    """One training: what was said of it, and how often it held."""
    job = drawn(family, seed)
    trace = Trace(NodeFact(1.0, 64 << 30), (job,), 2.0 * RUN_S, cycle_s=_CYCLE_S, name=NAME)
    said, policy = Said(), POLICIES[steps]
    run = play(trace, policy, seed, publish=said.add)
    truly = {"deliver": run.jobs[0].tier1_s, "finish": run.jobs[0].tier2_s}
    counts: Counts = Counter()
    for word in said.words:
        true_s = truly[word.tier]
        told = {"said": 1, "held": int(_held(word, true_s, said.met_s[word.tier]))}
        # Where it is there already, it is only to be confirmed.
        if word.interval_s is not None and true_s is not None and true_s >= word.now_s:
            inside = word.interval_s[0] <= true_s <= word.interval_s[1]
            told |= {"intervals": 1, "inside": int(inside)}
        key = (family, steps, word.late, word.kind.value)
        counts.update({(*key, what): one for what, one in told.items()})
    return counts


def _held(word: Word, true_s: float | None, met_s: float | None) -> bool:
    if word.kind is ForecastKind.MET:
        return true_s is not None
    # It is of what is to come: noise may be reported to be there, the curve may come too late for
    # that, and where it was there too shortly to be reported it is past.
    reached = met_s is not None or (true_s is not None and true_s >= word.now_s)
    return reached is (word.kind is ForecastKind.EXPECTED)


def rows_of(counts: Counts) -> list[Row]:
    keys = dict.fromkeys(key[:-1] for key in counts)
    return [Row(*key, *(counts[*key, what] for what in _COUNTED)) for key in keys]


def figures(rows: Sequence[Row]) -> list[str]:
    """What was to be reached, and whether it was, in one sentence each."""
    told = []
    for steps in POLICIES:
        own = [row for row in rows if row.steps == steps]
        for kind, least in LEAST.items():
            some = [row for row in own if row.kind == kind]
            words = f'steps {steps}: "{SAID[kind]}" of a tier held'
            told += _figure(words, _sum(some, "held"), _sum(some, "said"), least)
        inside, intervals = _sum(own, "inside"), _sum(own, "intervals")
        told += _figure(f"steps {steps}: 80 % intervals held", inside, intervals, INTERVAL_HELD)
        late = [row for row in own if row.late]
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
    def counted(seeds: Sequence[int]) -> list[Row]:
        counts: Counts = Counter()
        for one in in_processes(judged, product(FAMILIES, POLICIES, seeds)):
            counts.update(one)
        return rows_of(counts)

    return judge_seeds(NAME, __doc__, arguments, JUDGED, counted, lambda _: {}, figures)
