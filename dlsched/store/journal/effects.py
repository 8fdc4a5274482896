"""The effects of a job's changes, from the journal alone, as they are asked for: frames have every
request. So nothing more is stored, and older journals tell them too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlsched.estimate.effect import (
    AFTER_UNTIL_S,
    BEFORE_S,
    CycleLatency,
    Effect,
    effect,
    not_judged,
)
from dlsched.model.actions import CARRIED_OUT
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.rows import Change

EFFECTS_MAX = 10
"""Number of changes whose effect is given, the last ones. Each may take a group of frames to
decode, which is 0.04 s of CPU time for 10 jobs and 0.4 s for 200."""
NEW_EFFECTS_JOBS = 100
"""New effects worked out for one history, times the number of jobs: 0.4 s of CPU time."""
_KNOWN_MAX = 4096
"""Effects kept, 100 bytes each."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A change whose effect is to be read from these cycles."""

    cycle: int
    at_s: float
    first: int
    last: int
    earlier_s: float | None
    """The job's change before, if it is in these cycles."""
    next_s: float | None
    others: int


class Effects:
    """For any thread. Known effects are kept: a page asks for the same ones again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[str, float | None, int], Effect] = {}
        self._lock = threading.Lock()
        """However many ask, one decodes: it is the interpreter of the daemon's loop."""

    def last(self, job: str, quantile: float | None, limit: int) -> dict[int, Effect]:
        """By cycle, those of the job's last changes of limits or weight. `quantile`: that of its
        latency target; None: the mean."""
        found: dict[int, Effect] = {}
        questions: list[_Question] = []
        with self._lock, JournalReader(self._path) as reader:
            if len(self._known) > _KNOWN_MAX:
                self._known.clear()
            last_s = reader.last_now_s()
            for change in reader.last_changes(job, min(limit, EFFECTS_MAX)):
                if not _has_effect(change):
                    continue
                if (known := self._known.get((job, quantile, change.cycle))) is not None:
                    found[change.cycle] = known
                    continue
                question = _question(reader, change)
                if (unknown := not_judged(change.now_s, question.next_s, last_s)) is not None:
                    found[change.cycle] = unknown
                else:
                    questions.append(question)
            return found | self._answer(reader, job, quantile, questions)

    def some(
        self,
        changes: Sequence[Change],
        quantiles: Mapping[str, float | None],
        stopped: Callable[[], bool],
    ) -> dict[tuple[str, int], Effect]:
        """By job and cycle, those that are known of these changes, oldest first, and a few more of
        the newest, the fewer the more jobs there are. `quantiles`: those of the jobs' targets."""
        found: dict[tuple[str, int], Effect] = {}
        more = min(EFFECTS_MAX, max(1, NEW_EFFECTS_JOBS // max(1, len(quantiles))))
        with self._lock, JournalReader(self._path) as reader:
            if len(self._known) > _KNOWN_MAX:
                self._known.clear()
            last_s = reader.last_now_s()
            for change in reversed(changes):
                if change.job not in quantiles or not _has_effect(change) or stopped():
                    continue
                quantile = quantiles[change.job]
                effect_ = self._known.get((change.job, quantile, change.cycle))
                if effect_ is None and more:
                    question = _question(reader, change)
                    effect_ = not_judged(change.now_s, question.next_s, last_s)
                    if effect_ is None:
                        more -= 1
                        effect_ = self._answer(reader, change.job, quantile, [question])[
                            change.cycle
                        ]
                if effect_ is not None:
                    found[change.job, change.cycle] = effect_
        return found

    def _answer(
        self,
        reader: JournalReader,
        job: str,
        quantile: float | None,
        questions: list[_Question],
    ) -> dict[int, Effect]:
        found: dict[int, Effect] = {}
        for one, measured in _read(reader, job, questions):
            found[one.cycle] = self._known[job, quantile, one.cycle] = effect(
                measured, quantile, one.at_s, earlier_s=one.earlier_s, others=one.others
            )
        return found


def _has_effect(change: Change) -> bool:
    return change.kind == "resize" and change.status in CARRIED_OUT


def _question(reader: JournalReader, change: Change) -> _Question:
    at_s = change.now_s
    first, last = reader.cycles_about(change.cycle, at_s - BEFORE_S, at_s + AFTER_UNTIL_S)
    around = reader.carried_out(first, last)
    own = [(cycle, now_s) for cycle, now_s, job, _ in around if job == change.job]
    return _Question(
        cycle=change.cycle,
        at_s=at_s,
        first=first,
        last=last,
        earlier_s=max((now_s for cycle, now_s in own if cycle < change.cycle), default=None),
        next_s=next((now_s for cycle, now_s in own if cycle > change.cycle), None),
        others=len({job for _, _, job, _ in around} - {change.job}),
    )


def _read(
    reader: JournalReader, job: str, questions: list[_Question]
) -> Iterator[tuple[_Question, list[CycleLatency]]]:
    """Each question with what was measured in its cycles. No group of frames is decoded twice."""
    questions = sorted(questions, key=lambda one: one.first)
    while questions:
        together = [questions.pop(0)]
        last = together[0].last
        while questions and (reader.whole_before(questions[0].first) or 0) <= last:
            together.append(questions.pop(0))
            last = max(last, together[-1].last)
        measured = list(reader.latencies(job, together[0].first, last))
        yield from ((one, measured) for one in together)
