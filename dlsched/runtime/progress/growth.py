"""What counters add from page to page, and whether one process counted them.

Behind a server with several worker processes each answer may come from another one, with counts of
its own: they go back and forth, and a whole history would be taken for new requests. A restart goes
back once, and grows again from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlsched.runtime.progress.cumulative import Cumulative
from dlsched.runtime.progress.page_lines import Labels

IN_TURN = (
    "several processes answer in turn, each with counts of its own: use one worker, the metrics "
    "client's multi-process mode, or the access log (preset gunicorn)"
)
TURNS = 3
"""Back, forth and back again: a restart goes back once, a busy one also jumps forth once."""
TURN_PAGES = 60
"""Turns further apart have nothing to do with each other; so long nothing is believed, too."""
JUMP = 0.5
"""Part of the way back that one page must regain to be a jump, not growth."""
SERIES_MAX = 4096
"""Series that are remembered; a page has half as many at most."""
STARTS_MAX = 64
"""Workers of one container that are remembered."""
CLOCK_S = 2.0
"""A process that started so shortly before the last page may be a restart after it."""


@dataclass(slots=True)
class _Fall:
    """A count that went back."""

    high: float
    low: float
    page: int


@dataclass(slots=True)
class PageGrowth:
    """Compares each page with the one before."""

    before: Mapping[Labels, Cumulative] | None
    """None: the first page is a baseline."""
    _page: int = 0
    _page_at_s: float | None = None
    _process_s: float | None = None
    _processes_s: set[float] = field(default_factory=set)
    _falls: dict[Labels, _Fall] = field(default_factory=dict)
    _turns: list[int] = field(default_factory=list)
    """The pages of the last turns."""

    def take(
        self, now: Mapping[Labels, Cumulative], process_s: float | None, at_s: float
    ) -> dict[Labels, tuple[Cumulative, Cumulative]] | None:
        """Each series now and what to compare it with; those that only start a new comparison are
        left out. None: several processes answer in turn.

        `process_s` is when the process that answered started, where the page says it, and `at_s`
        the time of the page: both wall time.
        """
        self._page += 1
        restarted = self._other_process(process_s)
        before = self.before
        # A process may lack series that another one has: what left the page is remembered.
        keeps = before is not None and not restarted and len(before) < SERIES_MAX
        self.before = {**before, **now} if keeps and before is not None else now
        self._page_at_s = at_s
        if before is None:
            return {}
        if restarted:
            before = {}
        compared = {}
        for labels, one in now.items():
            older = before.get(labels, Cumulative())
            if not self._turned(labels, one, older):
                compared[labels] = (one, older)
        recent = [page for page in self._turns if self._page - page < TURN_PAGES]
        self._turns = recent[-TURNS:]
        return None if len(self._turns) >= TURNS else compared

    def _other_process(self, process_s: float | None) -> bool:
        """Whether the process that answered began after the last page."""
        known, last = self._processes_s, self._process_s
        if process_s is None or process_s == last:
            return False
        self._process_s = process_s
        began_since = self._page_at_s is not None and process_s > self._page_at_s - CLOCK_S
        if last is not None and (process_s in known or not began_since):
            self._turns = [self._page] * TURNS
        if len(known) < STARTS_MAX:
            known.add(process_s)
        return last is not None and process_s > last and began_since

    def _turned(self, labels: Labels, now: Cumulative, older: Cumulative) -> bool:
        """Whether the series went back, or jumped forth to where it had been."""
        fall = self._falls.get(labels)
        if now.is_behind(older):
            self._falls[labels] = _Fall(older.requests, now.requests, self._page)
            self._turns.append(self._page)
            return True
        if fall is None:
            return False
        if self._page - fall.page >= TURN_PAGES:
            del self._falls[labels]
            return False
        added = now.requests - older.requests
        if now.requests >= fall.high and added > JUMP * (fall.high - fall.low):
            del self._falls[labels]
            self._turns.append(self._page)
            return True
        return False
