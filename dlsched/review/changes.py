"""The changes of a range: by kind and reason, and what was measured before and after each. Frames
are read once, in their order."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dlsched.api.review_schema import Changes, Counted, JudgedChange
from dlsched.estimate.effect import (
    AFTER_UNTIL_S,
    BEFORE_S,
    CycleLatency,
    Effect,
    Verdict,
    effect,
    not_judged,
)
from dlsched.model.actions import CARRIED_OUT
from dlsched.model.cycle import CycleReport
from dlsched.model.spec import LatencyTarget
from dlsched.store.journal.rows import Change

CHANGES_MAX = 200_000
"""Changes read of one range, about 300 bytes each."""
SPARED = "slower, still on target"
"""It gave CPU away that it did not need for its target."""
_REASONS_MAX, _LARGEST_MAX = 8, 10
_OTHER = "other reasons"
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


@dataclass(slots=True)
class _OfJob:
    """One job's changes that were carried out, and the requests that are still needed."""

    at_s: list[float] = field(default_factory=list)
    rows: list[Change] = field(default_factory=list)
    due: deque[int] = field(default_factory=deque)
    """Indices of the changes to judge, in order."""
    measured: deque[CycleLatency] = field(default_factory=deque)


class ChangesReview:
    """The changes of a range, given before its frames are."""

    def __init__(self, changes: Sequence[Change], last_s: float, *, left_out: int = 0) -> None:
        """`last_s`: the end of the record."""
        self._left_out = left_out
        self._last_s = last_s
        self._kinds: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._verdicts: Counter[str] = Counter()
        self._failed = 0
        self._jobs: dict[str, _OfJob] = {}
        self._largest: list[JudgedChange] = []
        self._services: set[str] = set()
        self.by_job: Counter[str] = Counter()
        for change in changes:
            self._add(change)
        self._all_s = [change.now_s for change in changes if change.status in CARRIED_OUT]
        self._all_jobs = [change.job for change in changes if change.status in CARRIED_OUT]

    def _add(self, change: Change) -> None:
        if change.status not in CARRIED_OUT:
            self._failed += 1
            return
        self._kinds[change.kind] += 1
        self.by_job[change.job] += 1
        example = change.guard or change.why or change.kind
        reason = _NUMBER.sub("#", example)
        self._reasons[reason] += 1
        self._examples.setdefault(reason, example)
        own = self._jobs.setdefault(change.job, _OfJob())
        if change.kind == "resize":
            own.due.append(len(own.at_s))
        own.at_s.append(change.now_s)
        own.rows.append(change)

    def take(self, report: CycleReport) -> None:
        now_s = report.snapshot.now_s
        for view in report.snapshot.jobs:
            own, target = self._jobs.get(view.name), view.spec.target
            if own is None or not own.due or not isinstance(target, LatencyTarget):
                continue
            self._services.add(view.name)
            fresh = view.progress.fresh
            if fresh.count and now_s >= own.at_s[own.due[0]] - BEFORE_S:
                own.measured.append(CycleLatency(now_s, fresh))
            while own.due and now_s >= own.at_s[own.due[0]] + AFTER_UNTIL_S:
                self._judge(own, own.due.popleft(), target)

    def _judge(self, own: _OfJob, at: int, target: LatencyTarget) -> None:
        change = own.rows[at]
        since_s = change.now_s - BEFORE_S
        while own.measured and own.measured[0].now_s <= since_s:
            own.measured.popleft()
        found = self._effect(own, at, target)
        verdict: str = found.verdict
        if found.verdict is Verdict.SLOWER and (found.after_s or math.inf) <= target.seconds:
            verdict = SPARED
        self._verdicts[verdict] += 1
        if found.verdict in (Verdict.HELPED, Verdict.SLOWER):
            self._largest.append(_judged(change, verdict, found))

    def _effect(self, own: _OfJob, at: int, target: LatencyTarget) -> Effect:
        change = own.rows[at]
        next_s = own.at_s[at + 1] if at + 1 < len(own.at_s) else None
        unknown = not_judged(change.now_s, next_s, self._last_s)
        if unknown is not None:
            return unknown
        first = bisect_right(self._all_s, change.now_s - BEFORE_S)
        last = bisect_left(self._all_s, change.now_s + AFTER_UNTIL_S)
        others = set(self._all_jobs[first:last]) - {change.job}
        return effect(
            own.measured,
            target.quantile,
            change.now_s,
            earlier_s=own.at_s[at - 1] if at else None,
            others=len(others),
        )

    def result(self) -> Changes:
        verdicts = Counter(self._verdicts)
        for name, own in self._jobs.items():
            if name in self._services and own.due:
                verdicts[Verdict.LATER] += len(own.due)
        order = (Verdict.HELPED, SPARED, *list(Verdict)[1:])
        reasons = [
            (self._examples[reason], count)
            for reason, count in self._reasons.most_common(_REASONS_MAX)
        ]
        rest = self._reasons.total() - sum(count for _, count in reasons)
        if rest:
            reasons.append((_OTHER, rest))
        return Changes(
            count=self._kinds.total(),
            kinds=_counted(self._kinds.most_common()),
            failed=self._failed,
            reasons=_counted(reasons),
            effects=_counted((str(name), verdicts[name]) for name in order if verdicts[name]),
            largest=tuple(
                sorted(self._largest, key=lambda one: -abs(math.log(one.times)))[:_LARGEST_MAX]
            ),
            left_out=self._left_out,
        )


def _counted(pairs: Iterable[tuple[str, int]]) -> tuple[Counted, ...]:
    return tuple(Counted(what, count) for what, count in pairs)


def _judged(change: Change, verdict: str, found: Effect) -> JudgedChange:
    return JudgedChange(
        wall_time=change.wall_time,
        job=change.job,
        before_cores=change.before_cores,
        after_cores=change.after_cores,
        changed=change.changed,
        why=change.guard or change.why,
        verdict=str(verdict),
        effect=str(found),
        times=(found.after_s or 1.0) / (found.before_s or 1.0),
    )
