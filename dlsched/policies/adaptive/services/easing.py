"""Takes weight back from a service that more CPU makes slower.

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

    def cheaper_than(self, before: Recent) -> bool:
        """Whether a request costs clearly less CPU time than before, and as many are answered."""
        cost, was = self.core_s / self.requests, before.core_s / before.requests
        rate, had = self.requests / self.elapsed_s, before.requests / before.elapsed_s
        return CLEARLY * cost <= was and MARGIN * rate >= had


@dataclass(frozen=True, slots=True)
class Ease:
    """How far a service's weight is taken back."""

    steps: int = 0
    since_s: float = 0.0
    """When it became late, or when the trial began."""
    recent: Recent = Recent()
    before: Recent | None = None
    """What the trial is measured by; None: there is none."""
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


NOT_EASED = Ease()


def eased(ease: Ease, now_s: float, used_ratio: float, even_ratio: float, *, late: bool) -> Ease:
    """The state after this cycle. `late`: the target is missed. It uses `used_ratio` of the node;
    at less than an equal share, `even_ratio`, its weight does not matter."""
    if ease.recent.requests < FEW_REQUESTS:
        return ease
    cost_core_s = ease.recent.core_s / ease.recent.requests
    least_core_s = min(cost_core_s, ease.least_core_s or cost_core_s)
    ease = replace(ease, least_core_s=least_core_s)
    wants = used_ratio > even_ratio
    if not ease.steps:
        dearer = cost_core_s > _DEARER_RATIO * least_core_s
        wants = wants and (dearer or used_ratio > MOSTLY)
    lasts_s = now_s - ease.since_s
    if ease.before is not None:
        if lasts_s < _TRIAL_S:
            return ease
        if ease.recent.cheaper_than(ease.before):
            return replace(ease, before=None, since_s=now_s, wait_s=0.0)
        wait_s = max(AGAIN_S, _LATER_RATIO * ease.wait_s)
        return replace(ease, steps=ease.steps - 1, before=None, since_s=now_s, wait_s=wait_s)
    if not late:
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
