"""Whether a container's memory will reach its limit, from readings of what it holds.

A forecast rests on growth that was measured, and says so; there is no chance in it. A load that
grows for a quarter of an hour and then stops (a cache, a data loader, a warm-up) looks like a leak
while it grows. So growth counts only when it held in nearly all parts of a window, and only when
the limit is near in comparison with that window. `benchmarks run memory` has the evidence."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from dlsched.model.state import Filling
from dlsched.model.units import render_bytes, render_seconds

SLOT_S = 60.0
"""Readings are kept as the lowest and the highest of each minute: the lowest is what a collector of
garbage leaves, the highest is what reaches the limit."""
PARTS = 6
WINDOWS = (30, 60, 120, 240)
"""Minutes. Growth shows from the fifth part on: in 25 minutes at the earliest, when caches and
warm-ups are over. The longer windows are for slow leaks that grow in steps or beside garbage."""
NEAR_RATIO = 0.95
NEAR_WINDOW = 6
"""Minutes. From `NEAR_RATIO` of the limit on there is no time for a longer window."""
AHEAD_RATIO = 0.3
"""The limit must be nearer than this part of the window. Of 700 drawn harmless loads 14 raised an
alarm at 1/3 and some 10 at 0.28; 98 % and 97 % of the leaks were warned of in time (seeds 201 to
300). At 1/2 there were five times as many false alarms."""
LEAST_RATIO = 0.005
"""Growth in a window or a minute below this part of the limit is noise."""
GROWS_RATIO = 0.5
"""A part of the window grows if it has this part of the mean growth."""
FALLS_RATIO = 0.25
"""It falls back if it loses this part of it."""
LEAST_GROWING = 4
"""Of the window's five steps from part to part."""
STILL = 3
STILL_RATIO = 0.5
"""In the last `STILL` minutes it must have grown at this part of the window's rate: a load that has
just stopped is no leak."""
ENDS_AFTER = 5
"""Minutes without growth after which an alarm ends, at least: two parts of its window."""
LOWER_RATIO = 0.9
"""An alarm ends when use falls below this part of what it was."""

FAST_S = 10.0
"""What a container grows in this time is a step, or a leak that no minute shows."""
RECENT_S = 60.0
"""Readings are kept one by one for this long."""
SETTLED_RATIO = 0.01
"""Less growth in `FAST_S`, as a part of what is held, ends a step: allocators wander by 1 %."""
STEPS_LAST_RATIO = 3.0
"""No further step is expected after this many times the time between the last two. A judgement:
most programs load their parts in steps, and then stay."""
LASTING_MIN = 10
"""Minutes over which the highest use is kept: an evaluation or a checkpoint comes back sooner than
this in most trainings. A judgement."""

_Slot = tuple[int, int]


class MemoryTrend:
    """Readings of one start of a container, and whether its memory fills up now."""

    def __init__(self) -> None:
        self.filling: Filling | None = None
        """None: it does not, or too little is known."""
        self._slots: deque[_Slot | None] = deque(maxlen=max(WINDOWS))
        """Lowest and highest reading of each minute, oldest first; None: none was read."""
        self._minute: int | None = None
        self._now: _Slot | None = None
        """Those of the present minute."""
        self._raised: _Raised | None = None

    def add(self, now_s: float, held_bytes: int | None, limit_bytes: int | None) -> None:
        """Take in a reading: memory that the kernel cannot take back, and the limit."""
        minute = int(now_s // SLOT_S)
        if minute != self._minute:
            if self._minute is not None:
                self._slots.append(self._now)
                missed = min(max(minute - self._minute - 1, 0), max(WINDOWS))
                self._slots.extend([None] * missed)
                self._judge(now_s, limit_bytes)
            self._minute, self._now = minute, None
        if held_bytes is not None:
            low, high = self._now or (held_bytes, held_bytes)
            self._now = min(low, held_bytes), max(high, held_bytes)

    def _judge(self, now_s: float, limit_bytes: int | None) -> None:
        last, found = self._slots[-1], None
        if not limit_bytes:
            self.filling = self._raised = None
            return
        if last is not None:
            slots, near = list(self._slots), last[1] >= NEAR_RATIO * limit_bytes
            windows = (NEAR_WINDOW, *WINDOWS) if near else WINDOWS
            growths = (_growth(slots, minutes, limit_bytes) for minutes in windows)
            found = next((one for one in growths if one is not None), None)
        if last is not None and found is not None:
            grew_bytes, over_s, full_in_s = found.grew_bytes, found.over_s, found.full_in_s
            self.filling = Filling(grew_bytes, over_s, limit_bytes, full_in_s, now_s)
            self._raised = _Raised(last, found, limit_bytes, now_s)
        elif self._raised is not None and self._raised.ends(last, limit_bytes, now_s):
            self.filling = self._raised = None


class _Growth(NamedTuple):
    """Growth in a window that reaches the limit soon."""

    minutes: int
    """The window."""
    grew_bytes: int
    over_s: float
    """The part of it that was observed."""
    full_in_s: float
    step_bytes: float
    """What counts as growth from now on."""


class _Raised:
    """What an alarm rests on, and when it ends."""

    def __init__(self, at: _Slot, growth: _Growth, limit_bytes: int, now_s: float) -> None:
        self._lowest_bytes, self._lower_line_bytes = at[0], LOWER_RATIO * at[1]
        self._limit_bytes, self._step_bytes = limit_bytes, growth.step_bytes
        self._ends_after_s = max(ENDS_AFTER, 2 * growth.minutes // PARTS) * SLOT_S
        self._grew_s = now_s

    def ends(self, slot: _Slot | None, limit_bytes: int, now_s: float) -> bool:
        """Whether growth has stopped, use fell, or another limit applies."""
        if slot is not None and slot[0] >= self._lowest_bytes + self._step_bytes:
            self._lowest_bytes, self._grew_s = slot[0], now_s
        fell = slot is not None and slot[1] < self._lower_line_bytes
        stopped = now_s - self._grew_s > self._ends_after_s
        return stopped or fell or limit_bytes != self._limit_bytes


def _growth(slots: Sequence[_Slot | None], minutes: int, limit_bytes: int) -> _Growth | None:
    """Growth in that window; None: it is not constant, or the limit is not near enough."""
    size = minutes // PARTS
    parts = [
        [one for one in slots[-size * back : len(slots) - size * (back - 1)] if one is not None]
        for back in range(min(PARTS, len(slots) // size), 0, -1)
    ]
    while parts and not parts[0]:
        parts.pop(0)
    if len(parts) <= LEAST_GROWING or not all(parts):
        return None
    floors = [min(low for low, _ in part) for part in parts]
    steps = [after - before for before, after in pairwise(floors)]
    mean = (floors[-1] - floors[0]) / len(steps)
    step_bytes = FALLS_RATIO * mean
    last, top = parts[-1][-1], max(high for _, high in parts[-1])
    grew_bytes = last[0] - floors[0]
    if grew_bytes < LEAST_RATIO * limit_bytes or mean <= 0:
        return None
    growing = sum(step >= GROWS_RATIO * mean for step in steps)
    recent = min(one[0] for one in slots[-STILL - 1 :] if one is not None)
    still = last[0] - recent >= STILL_RATIO * mean * min(STILL, size) / size
    if growing < LEAST_GROWING or min(steps) < -step_bytes or not still:
        return None
    earlier = max((one[1] for one in slots[: -size * PARTS] if one is not None), default=0)
    if top <= earlier < NEAR_RATIO * limit_bytes:
        return None  # it was there before, and went back by itself
    # The last two parts: leaks that accelerate are warned of in time, and what levels off is not.
    rate = sum(steps[-2:]) / 2 / (size * SLOT_S)
    full_in_s = max(limit_bytes - top, 0) / rate if rate > 0 else math.inf
    if full_in_s >= AHEAD_RATIO * minutes * SLOT_S:
        return None
    return _Growth(minutes, grew_bytes, len(parts) * size * SLOT_S, full_in_s, step_bytes)


def filling_text(filling: Filling) -> str:
    """What was measured, and what follows if it goes on."""
    minutes_s = max(round(filling.full_in_s / SLOT_S), 1) * SLOT_S
    return (
        f"memory in use grew by {render_bytes(filling.grew_bytes)} in the last "
        f"{render_seconds(filling.over_s)}; the limit of {render_bytes(filling.limit_bytes)} is "
        f"reached in about {render_seconds(minutes_s)} if the growth goes on"
    )


class MemoryDemand:
    """What one start of a container has held in the last minutes, reading by reading."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque()
        self._minutes: deque[tuple[int, int]] = deque(maxlen=LASTING_MIN + 1)
        """Each minute with the highest reading in it."""
        self._level: int | None = None
        """What was held when it last did not grow; None: it has grown since its start."""
        self._highest = 0
        self._steps: deque[tuple[float, int]] = deque(maxlen=2)
        """Growth from one level to the next, of those that led above all before, and when it was
        over."""

    def add(self, now_s: float, held_bytes: int) -> None:
        """Take in a reading of what the kernel cannot take back."""
        while self._recent and self._recent[0][0] < now_s - RECENT_S:
            self._recent.popleft()
        self._recent.append((now_s, held_bytes))
        minute = int(now_s // SLOT_S)
        if self._minutes and self._minutes[-1][0] == minute:
            held_bytes = max(held_bytes, self._minutes.pop()[1])
        self._minutes.append((minute, held_bytes))
        self._settle(now_s, self._recent[-1][1])

    @property
    def empty(self) -> bool:
        """Whether nothing was read of this start."""
        return not self._recent

    def grown(self, now_s: float, within_s: float = FAST_S) -> tuple[int, float]:
        """Bytes by which it has grown since its lowest reading within that time, and the seconds
        since then."""
        if not self._recent:
            return 0, within_s
        lowest_s, lowest = self._recent[-1]
        for at_s, held in reversed(self._recent):
            if at_s < now_s - within_s:
                break
            if held < lowest:
                lowest_s, lowest = at_s, held
        return self._recent[-1][1] - lowest, now_s - lowest_s

    def known_bytes(self, now_s: float) -> int:
        """The highest reading of the last `LASTING_MIN` minutes, but for the last `FAST_S`."""
        before = now_s - FAST_S
        whole = (high for minute, high in self._minutes if (minute + 1) * SLOT_S <= before)
        return max([0, *whole, *(held for at_s, held in self._recent if at_s < before)])

    @property
    def recent_bytes(self) -> int | None:
        """The highest reading of the last `RECENT_S`; None: it is not known for as long."""
        if not self._recent or self._recent[-1][0] - self._recent[0][0] < RECENT_S - FAST_S:
            return None
        return max(held for _, held in self._recent)

    def step_bytes(self, now_s: float) -> int:
        """The next step, where it has grown in two at least and may grow in another; 0: it has not,
        or the next one has been due for long."""
        if len(self._steps) < 2:
            return 0
        (first_s, first), (last_s, last) = self._steps
        lasts_s = max(STEPS_LAST_RATIO * (last_s - first_s), LASTING_MIN * SLOT_S)
        return min(first, last) if now_s - last_s <= lasts_s else 0

    def lasting_bytes(self, now_s: float) -> int | None:
        """The highest reading of the last `LASTING_MIN` minutes; None: it is not known for as
        long."""
        earliest = int(now_s // SLOT_S) - LASTING_MIN
        within = [highest for minute, highest in self._minutes if minute >= earliest]
        if not within or self._minutes[0][0] > earliest:
            return None
        return max(within)

    def _settle(self, now_s: float, held_bytes: int) -> None:
        grown, _ = self.grown(now_s)
        began_s = self._recent[0][0]
        if grown > SETTLED_RATIO * held_bytes or now_s - began_s < FAST_S:
            return
        if self._level is not None and held_bytes > self._highest:
            step = held_bytes - self._level
            if step > SETTLED_RATIO * held_bytes:
                self._steps.append((now_s, step))
        self._level, self._highest = held_bytes, max(self._highest, held_bytes)
