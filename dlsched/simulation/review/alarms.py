"""The alarms of a range, from the texts that the journal keeps."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.api.review_schema import AlarmReview
from dlsched.model.cycle import CycleReport

ALARMS_MAX = 200
"""Different texts that are kept."""


@dataclass(slots=True)
class _Raised:
    since: str
    lasted_s: float = 0.0
    last_cycle: int = 0


class AlarmsReview:
    """Cycles, in their order."""

    def __init__(self) -> None:
        self._found: dict[str, _Raised] = {}
        self._cycles = 0
        self._last_s = 0.0
        self.left_out = 0

    def take(self, report: CycleReport) -> None:
        now_s = report.snapshot.now_s
        length_s = max(0.0, now_s - self._last_s) if self._cycles else 0.0
        self._last_s = max(now_s, self._last_s)
        self._cycles += 1
        for text in dict.fromkeys(report.alarms):
            found = self._found.get(text)
            if found is None:
                if len(self._found) >= ALARMS_MAX:
                    self.left_out += 1
                    continue
                found = self._found[text] = _Raised(report.wall_time)
            elif found.last_cycle == self._cycles - 1:
                found.lasted_s += length_s
            found.last_cycle = self._cycles

    def result(self) -> tuple[AlarmReview, ...]:
        """The longest first."""
        found = [
            AlarmReview(text, one.since, one.lasted_s, one.last_cycle == self._cycles)
            for text, one in self._found.items()
        ]
        return tuple(sorted(found, key=lambda one: (-one.raised, -one.lasted_s, one.text)))
