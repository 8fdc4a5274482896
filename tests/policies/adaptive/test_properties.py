"""What holds for the policy `adaptive` on any node, whatever jobs do and say."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlsched.control.guards import refuse_nonsense
from dlsched.model.decision import Decision
from dlsched.model.facts import LatencySketch, Sample, Usage
from dlsched.model.forecast import Forecast, ForecastKind
from dlsched.model.spec import (
    AccuracyTarget,
    Bounds,
    ContainerSpec,
    JobSpec,
    LatencyTarget,
    Limits,
    Target,
)
from dlsched.model.state import (
    JobState,
    JobView,
    NodeView,
    Progress,
    Reached,
    Snapshot,
    Tiers,
)
from dlsched.policies.adaptive.parameters import MODES, AdaptiveParameters
from dlsched.policies.adaptive.policy import AdaptiveMemory, AdaptivePolicy, divided
from dlsched.store.policy_memory import load_memory, memory_size_check, memory_text
from tests.properties import examples

NAMES = ("a", "b", "c", "d", "e", "f")
METRICS = ("accuracy", "loss", "total_steps")
CAPACITIES = (0.05, 1.0, 2.0, 16.0, 512.0)
STATES = (*[JobState.RUNNING] * 12, *JobState)


class Wild:
    """Draws nodes that nobody has thought of: whoever writes counts and samples may lie.

    A seed draws them, not hypothesis by itself: they are too large for it to be quick.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def of(self, *ranges: object) -> Any:
        """From one of these: a pair is a range, evenly or on the logarithm; else a value."""
        one = self.chance.choice(ranges)
        if not isinstance(one, tuple):
            return one
        low, high = one
        if isinstance(low, int) and isinstance(high, int):
            return self.chance.randint(low, high)
        if low > 0 and self.chance.random() < 0.5:
            return math.exp(self.chance.uniform(math.log(low), math.log(high)))
        return self.chance.uniform(low, high)

    def cores(self) -> float | None:
        return self.of(None, 0.0, (0.0, 1.0), (0.0, 1.0), (1e-9, 1000.0), 1e9)

    def ratio(self) -> float | None:
        return self.of(None, 0.0, 1.0, (0.0, 1.0))

    def ago(self, now_s: float) -> float | None:
        return self.of(None, now_s, now_s - self.of((1e-3, 300.0)))

    def sketch(self) -> LatencySketch:
        """Counts and sums need not fit each other."""
        if self.chance.random() < 0.3:
            return LatencySketch()
        indices = sorted(self.chance.sample(range(-5, 2500), self.chance.randint(0, 4)))
        buckets = tuple((index, self.of((1, 5), (1, 10**6), 10**15)) for index in indices)
        count = sum(count for _, count in buckets)
        if self.chance.random() < 0.3:
            count = self.of(0, 1, (0, 200), 10**9, 10**15)
        return LatencySketch(count, count * self.of(0.0, (1e-6, 1.0), (1e-9, 1e7)), buckets)

    def target(self) -> Target | None:
        kind = self.of("latency", "latency", "accuracy", "accuracy", None)
        if kind == "latency":
            quantile = self.of(None, None, 0.5, 0.95, 0.999, 1e-9, 1.0)
            return LatencyTarget(self.of((1e-6, 3600.0), (0.001, 1.0)), quantile)
        if kind == "accuracy":
            tiers = [self.of((0.0, 1.0), (-1e15, 1e15), 0.5, 0.0) for _ in range(2)]
            return AccuracyTarget(self.of(*METRICS[:2]), *tiers, self.of(None, (1.0, 1e6)))
        return None

    def spec(self, name: str) -> JobSpec:
        floor = self.of(0.01, (0.001, 0.3))
        return JobSpec(
            name,
            ContainerSpec(image="model"),
            bounds=Bounds(floor, self.of(None, floor + self.of((0.0, 64.0)))),
            weight=self.of(1.0, (0.01, 1000.0)),
            target=self.target(),
        )

    def samples(self, now_s: float) -> tuple[Sample, ...]:
        """In the order of receipt; steps may repeat, go back, jump or be missing."""
        ages = sorted((self.of((1e-3, 300.0)) for _ in range(self.of(0, (0, 12)))), reverse=True)
        orderly, found = self.chance.random() < 0.5, []
        for index, age_s in enumerate(ages):
            step = index * 10 if orderly else self.of(None, (0, 50), 10**15, 10**18)
            metrics = tuple(
                (metric, self.of((0.0, 1.0), -1.0, 0.0, 1e15, -1e300, 1e300, 5e-324))
                for metric in METRICS
                if self.chance.random() < 0.6
            )
            found.append(Sample(now_s - age_s, step, metrics))
        return tuple(found)

    def view(self, spec: JobSpec, now_s: float) -> JobView:
        reached = Reached(now_s - 1.0, 0.9, 5)
        return JobView(
            spec=spec,
            state=self.of(*STATES),
            blind=self.of(None, None, "silent for 60 s"),
            container_id=self.of("one", "one", "two"),
            desired=Limits(self.cores()),
            actual=Limits(self.cores()),
            usage=Usage(self.cores(), self.cores(), None, self.ratio(), self.ratio()),
            progress=Progress(
                fresh=self.sketch(),
                window=self.sketch(),
                recent=self.sketch(),
                in_flight=self.of(0, 1, (0, 200), 10**15),
                oldest_s=self.of(0.0, (1e-3, 1e7)),
                samples=self.samples(now_s),
                as_of_s=self.ago(now_s),
                every_s=self.of(1.0, (1.0, 30.0), (1.0, 1e6)),
            ),
            attained_core_s=self.of(0.0, (1e-6, 1e9)),
            started_at_s=self.ago(now_s),
            changed_at_s=self.ago(now_s),
            starts=self.of(0, 1, 1, 2),
            tiers=self.of(Tiers(), Tiers(), Tiers(reached), Tiers(reached, reached)),
        )

    def history(self) -> list[Snapshot]:
        """One node over some cycles: jobs come and go, and change their targets while they run."""
        capacity = self.of(*CAPACITIES)
        weighs = capacity != 1.0 or self.of(True, False)  # or a GPU, of which there is one
        known = {name: self.spec(name) for name in NAMES}
        now_s, seen = self.of(0.0, 100.0, 1e7), []
        for cycle in range(self.of((2, 8))):
            if self.chance.random() < 0.3:
                name = self.of(*NAMES)
                known[name] = self.spec(name)
            there = [name for name in NAMES if self.chance.random() < 0.7]
            node = NodeView(
                self.of(capacity, capacity, capacity, 0.05),
                capacity,
                1 << 30,
                foreign_cores=self.of(None, 0.0, (0.0, 2 * capacity)),
                weighs=weighs,
            )
            jobs = tuple(self.view(known[name], now_s) for name in there)
            seen.append(
                Snapshot(cycle, now_s, node, jobs, wakes=self.chance.choice(((), ("a: arrived",))))
            )
            now_s += self.of(0.0, 0.01, 1.0, 1.0, 2.0, 3600.0)
        return seen


rules = st.sampled_from(MODES).map(lambda mode: AdaptiveParameters(mode=mode))
_TIERS = {LatencyTarget: ("latency",), AccuracyTarget: ("deliver", "finish", "end")}


@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32), rule=rules)
@example(seed=166697, rule=AdaptiveParameters(mode="slo"))  # several greedy services
def test_any_history_gives_sound_decisions(seed: int, rule: AdaptiveParameters) -> None:
    policy = AdaptivePolicy(rule)
    memory: AdaptiveMemory | None = None
    for seen in Wild(seed).history():
        _uses_fit(seen, memory or AdaptiveMemory(), rule)
        decision = policy.decide(seen, memory)
        _is_sound(decision, seen)
        shuffled = list(seen.jobs)
        random.Random(seed).shuffle(shuffled)
        _is_same(AdaptivePolicy(rule).decide(replace(seen, jobs=tuple(shuffled)), memory), decision)
        loaded, trouble = load_memory(json.loads(memory_text(memory)), AdaptiveMemory)
        assert (loaded, trouble) == (memory, None)
        _is_same(AdaptivePolicy(rule).decide(seen, loaded), decision)
        memory = decision.memory
        memory_size_check(memory, len(seen.jobs))


def _is_sound(decision: Decision, seen: Snapshot) -> None:
    """For running jobs alone, and nothing that is refused; every answer is whole."""
    running = {job.name: job for job in seen.running}
    refuse_nonsense(decision, set(running))
    assert decision.limits.keys() == decision.why.keys() == running.keys()
    assert all(words.strip() for words in decision.why.values())
    if not seen.node.weighs:
        ceilings = [limits.cpu_cores for limits in decision.limits.values()]
        floors = math.fsum(job.spec.bounds.floor_cores for job in seen.running)
        most = max(seen.node.capacity_cores, floors)
        assert math.fsum(math.inf if one is None else one for one in ceilings) <= most + 1e-6
    for name, outlooks in decision.outlooks.items():
        tiers = _TIERS[type(running[name].spec.target)]
        assert [one.tier for one in outlooks] == [tier for tier in tiers if _told(outlooks, tier)]
        for one in outlooks:
            _is_whole(one, name)


def _told(outlooks: tuple[Forecast, ...], tier: str) -> bool:
    return any(one.tier == tier for one in outlooks)


def _is_whole(outlook: Forecast, name: str) -> None:
    assert outlook.why
    times = (outlook.earliest_s, outlook.at_s, outlook.latest_s)
    known = [one for one in times if one is not None]
    assert all(one <= other * (1 + 1e-12) for one, other in pairwise(known))
    for number in (*known, outlook.needs_cores, outlook.best):
        assert number is None or math.isfinite(number)
    if outlook.kind is ForecastKind.CROWDED:  # by others on the host, where nobody is named
        assert all(other != name and given > 0 for other, given in outlook.lacks)
    if outlook.kind is ForecastKind.IMPOSSIBLE:
        assert outlook.best is not None or "deadline" in outlook.why


def _uses_fit(seen: Snapshot, before: AdaptiveMemory, rule: AdaptiveParameters) -> None:
    """What jobs are expected to use together is there, as far as floors allow."""
    parts = divided(seen, before, rule)
    uses = {**parts.services.uses, **parts.trainings.uses, **parts.rest.uses}
    assert uses.keys() == {job.name for job in seen.running}
    assert all(0 <= used < math.inf for used in uses.values())
    floors = math.fsum(job.spec.bounds.floor_cores for job in seen.running)
    assert math.fsum(uses.values()) <= max(seen.node.capacity_cores, floors) + 1e-6


def _is_same(one: Decision, other: Decision) -> None:
    assert one.limits == other.limits
    assert one.weights == other.weights
    assert one.why == other.why
    assert one.outlooks == other.outlooks
    assert one.memory == other.memory
    assert one.next_s == other.next_s
