"""A training under a given number of cores: steps, evaluations, exact times of its tiers."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence

from dlsched.estimate.learning import TOTAL_STEPS
from dlsched.model.facts import Report, Sample
from dlsched.model.spec import AccuracyTarget, Target, Tier
from dlsched.simulation.node.workloads import TrainingLoad, spinning_pace

LINE_INTERVAL_S = 1.0
"""Minimum time between two lines of a reporter; a later value replaces an unwritten one."""

_DONE_STEPS = 1e-9


class Training:
    """Runs from step 0 (or its last checkpoint) to its last step."""

    changes_by_itself = False

    def __init__(self, load: TrainingLoad, target: Target | None, chance: random.Random) -> None:
        self.load = load
        self.usage_core_s = 0.0
        self.cores = 0.0
        self.throttled = False
        self.spins = False
        """As that of a played service."""
        self._pace = 1.0
        self.tier_times_s: dict[Tier, float] = {}
        self.completed_s: float | None = None
        self._chance = chance
        self._steps = 0.0
        self._carried = 0
        """The step of the checkpoint that it came with."""
        self._evaluated = 0
        self._lines: list[Report] = []
        self._threads = load.threads
        self._metric = target.metric if isinstance(target, AccuracyTarget) else "loss"
        self._tiers = tier_steps(load, target)

    def compute_on(self, threads: float) -> None:
        """Use that many threads from now on."""
        self._threads = threads

    def wants_cores(self, quota_cores: float) -> float:
        return min(self._threads, quota_cores)

    def grant(self, cores: float, quota_cores: float) -> None:
        self.cores = cores
        self.throttled = quota_cores < self._threads and cores > 0.99 * quota_cores
        part = min(cores / self._threads, 1.0) if self._threads else 1.0
        self.spins = self.load.spin_ratio < 1.0 and 0.0 < part < 1.0 - _DONE_STEPS
        self._pace = spinning_pace(self.load.spin_ratio, part) if self.spins else 1.0

    def ends_in_s(self) -> float:
        """Seconds to its last step, at the present rate."""
        left = self.load.steps - self._steps
        if self.cores <= 0:
            return math.inf
        return left * self.load.work_core_s / (self.cores * self._pace)

    def advance(self, now_s: float, elapsed_s: float) -> None:
        """Let time pass at the present rate; `now_s` is the beginning."""
        used = self.cores * elapsed_s
        if used <= 0:
            return
        self.usage_core_s += used
        before = self._steps
        done = used * self._pace / self.load.work_core_s
        self._steps = after = min(before + done, float(self.load.steps))
        for tier, step in self._tiers.items():
            if step <= after and tier not in self.tier_times_s:
                self.tier_times_s[tier] = now_s + self._takes_s(max(0.0, step - before))
        while (step := self._evaluated + self.load.evaluate_every) <= after + _DONE_STEPS:
            self._evaluated = step
            self._report(step, now_s + min(elapsed_s, self._takes_s(step - before)))

    def finish(self, now_s: float) -> None:
        """End at exactly this time, without a rest from rounding."""
        self._steps = float(self.load.steps)
        self.completed_s = now_s
        for tier in self._tiers:
            self.tier_times_s.setdefault(tier, now_s)
        if self._evaluated + self.load.evaluate_every <= self.load.steps:
            self._evaluated += self.load.evaluate_every
            self._report(self._evaluated, now_s)

    def crash(self) -> None:
        """Go back to the last checkpoint."""
        every = self.load.checkpoint_every
        kept = 0 if every is None else int(self._steps) // every * every
        self._go_back(max(kept, self._carried))

    @property
    def step(self) -> int:
        """Its last complete step."""
        return int(self._steps)

    def carried(self, step: int, load: TrainingLoad) -> Training:
        """The same training on another node, from a checkpoint of that step on."""
        there = copy.deepcopy(self)
        there.load = load
        there._carried = step
        there._go_back(step)
        return there

    def _go_back(self, kept: int) -> None:
        self._steps = float(kept)
        self._evaluated = kept // self.load.evaluate_every * self.load.evaluate_every
        self._lines.clear()

    def lines(self, _now_s: float) -> Sequence[Report]:
        """The lines of its reporter since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def _takes_s(self, steps: float) -> float:
        return steps * self.load.work_core_s / (self.cores * self._pace)

    def _report(self, step: int, at_s: float) -> None:
        value = self._measured(self.load.curve.value(step))
        metrics = ((self._metric, value), (TOTAL_STEPS, float(self.load.steps)))
        line = Report(at_s, sample=Sample(at_s, step, metrics))
        if self._lines and at_s - self._lines[-1].received_s < LINE_INTERVAL_S:
            self._lines[-1] = line
        else:
            self._lines.append(line)

    def _measured(self, value: float) -> float:
        if self.load.noise:
            value = self._chance.gauss(value, self.load.noise)
        if self.load.validation_set is not None:
            count, rate = self.load.validation_set, min(1.0, max(0.0, value))
            right = self._chance.gauss(count * rate, math.sqrt(count * rate * (1.0 - rate)))
            value = min(count, max(0, round(right))) / count
        return value


def tier_steps(load: TrainingLoad, target: Target | None) -> dict[Tier, int]:
    """The steps at which the true curve reaches its tiers, without those that it never reaches."""
    if not isinstance(target, AccuracyTarget):
        return {}
    found = {tier: load.curve.first_step(target.value_of(tier), load.steps) for tier in Tier}
    return {tier: step for tier, step in found.items() if step is not None}
