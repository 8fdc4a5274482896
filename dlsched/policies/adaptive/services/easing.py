"""Which service needs to precede others, and which one more CPU makes slower.

A service needs no priority before it comes near its target. From then on it has priority: for good,
unless its requests then cost more CPU time, and take no less time.

Requests that hold a common lock, or spin for one, cost more CPU time the more of them run at once:
ahead of all others such a service answers less than under plain Docker, and its queue asks for
still more. A service that stays late, although it uses most of the node or since its requests cost
more CPU time than they did, gets less weight on trial. Where its requests then cost clearly less,
and as many are answered, it keeps that weight; else it gets back what it had.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlsched.estimate.tuning import (
    AGAIN_S,
    CLEARLY,
    FEW_REQUESTS,
    MARGIN,
    MOSTLY,
    SAMPLE_WEIGHT,
    SETTLED_S,
)

_TRIAL_S = 5.0
"""A trial is short: one that waits for CPU gets later meanwhile."""
_MOST_STEPS = 4
"""The first step takes what it weighs more than under plain Docker, each further one half."""
_DEARER_RATIO = 1.5
"""CPU time of a request over the least that was measured from which it may be one in the other's
way; fewer are noise of a few requests."""
_GROWTH = 1.005
"""Factor of that least cost a sample: it doubles in about two minutes. A least that stays would be
that of the lightest requests ever measured."""
_LATER_RATIO = 2.0
"""After a trial that did not help, the next one waits so many times longer."""


@dataclass(frozen=True, slots=True)
class Recent:
    """The latest requests of a service, of which older ones fade."""

    requests: float = 0.0
    core_s: float = 0.0
    elapsed_s: float = 0.0

    def after(self, requests: int, core_s: float, elapsed_s: float) -> Recent:
        kept = 1.0 - SAMPLE_WEIGHT
        return Recent(
            kept * self.requests + requests,
            kept * self.core_s + core_s,
            kept * self.elapsed_s + elapsed_s,
        )

    @property
    def cost_core_s(self) -> float:
        """CPU time of a request."""
        return self.core_s / self.requests

    def cheaper_than(self, before: Recent) -> bool:
        """Whether a request costs clearly less CPU time than before, and as many are answered."""
        rate, had = self.requests / self.elapsed_s, before.requests / before.elapsed_s
        return CLEARLY * self.cost_core_s <= before.cost_core_s and MARGIN * rate >= had


@dataclass(frozen=True, slots=True)
class Ease:
    """Whether a service has priority, and how far its weight is taken back."""

    pressed: bool = False
    """Whether it has priority, since it came near its target."""
    pressed_ratio: float = 0.0
    """Latency over target when the trial of priority began."""
    again_s: float = 0.0
    """Time of the next trial of priority, since the last one made its requests dearer."""
    steps: int = 0
    since_s: float = 0.0
    """When it became late, or dearer without priority, or when the trial began."""
    recent: Recent = Recent()
    before: Recent | None = None
    """What the trial is measured by; None: there is none. Without steps it is one of priority."""
    wait_s: float = SETTLED_S
    """How long it has to be late before the next trial."""
    least_core_s: float | None = None
    """The least CPU time of a request, as a mean over enough of them."""
    was_core_s: float | None = None
    """What one cost before the first step; None: no step was taken."""

    @property
    def shares(self) -> float | None:
        """The equal shares that it weighs; None: its weight is not taken back."""
        return 2.0 ** (1 - self.steps) if self.steps else None

    @property
    def is_dearer(self) -> bool:
        """Whether its requests cost so much more than they did that they may be in each other's
        way."""
        if self.least_core_s is None or self.recent.requests < FEW_REQUESTS:
            return False
        return self.recent.cost_core_s > _DEARER_RATIO * self.least_core_s


NOT_EASED = Ease()


def eased(
    ease: Ease,
    now_s: float,
    used_ratio: float,
    even_ratio: float,
    latency_ratio: float,
    *,
    near: bool,
) -> Ease:
    """The state after this cycle. It uses `used_ratio` of the node; at less than an equal share,
    `even_ratio`, its weight does not matter. `latency_ratio`: its latency over its target. `near`:
    that is surely close to 1, or above."""
    enough = ease.recent.requests >= FEW_REQUESTS
    if enough:
        cost_core_s = ease.recent.cost_core_s
        least_core_s = min(cost_core_s, _GROWTH * (ease.least_core_s or cost_core_s))
        ease = replace(ease, least_core_s=least_core_s)
    wants, lasts_s = used_ratio > even_ratio, now_s - ease.since_s
    if not ease.pressed:
        if near and not ease.is_dearer and now_s >= ease.again_s:
            before = ease.recent if enough else None
            return replace(
                ease,
                pressed=True,
                pressed_ratio=latency_ratio,
                steps=0,
                since_s=now_s,
                before=before,
                recent=Recent(),
            )
        if not (wants and ease.is_dearer):
            return replace(ease, since_s=now_s)
        return replace(ease, steps=1) if lasts_s >= _TRIAL_S else ease
    if not enough:
        return ease
    if ease.before is not None and not ease.steps:
        if lasts_s < _TRIAL_S:
            return ease
        dearer = ease.is_dearer or cost_core_s > CLEARLY * ease.before.cost_core_s
        ease = replace(ease, before=None, since_s=now_s)
        if not (wants and dearer) or latency_ratio < ease.pressed_ratio:
            return ease
        return replace(ease, pressed=False, steps=1, again_s=now_s + AGAIN_S)
    if not ease.steps:
        wants = wants and (ease.is_dearer or used_ratio > MOSTLY)
    if ease.before is not None:
        if lasts_s < _TRIAL_S:
            return ease
        if ease.recent.cheaper_than(ease.before):
            return replace(ease, before=None, since_s=now_s, wait_s=0.0)
        wait_s = max(AGAIN_S, _LATER_RATIO * ease.wait_s)
        return replace(ease, steps=ease.steps - 1, before=None, since_s=now_s, wait_s=wait_s)
    if latency_ratio <= 1.0:
        return replace(ease, since_s=now_s)
    if ease.steps and ease.was_core_s is not None and CLEARLY * cost_core_s > ease.was_core_s:
        # The load had changed during the trial: less weight did not make a request cheaper.
        wait_s = max(AGAIN_S, _LATER_RATIO * ease.wait_s)
        return replace(ease, steps=0, since_s=now_s, wait_s=wait_s, was_core_s=None)
    if wants and lasts_s >= ease.wait_s and ease.steps < _MOST_STEPS:
        return replace(
            ease,
            steps=ease.steps + 1,
            since_s=now_s,
            before=ease.recent,
            recent=Recent(),
            was_core_s=ease.was_core_s if ease.steps else cost_core_s,
        )
    if ease.steps and not wants and lasts_s >= AGAIN_S:
        # It is late for the CPU that it gave up.
        return replace(ease, steps=ease.steps - 1, since_s=now_s, wait_s=SETTLED_S)
    return ease
