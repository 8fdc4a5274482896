"""What is counted of one listening port between two reports. Pure, and without any import of the
daemon: the child that reads packets uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil, log
from typing import Any

from dlsched.report.buckets import GROWTH, LAST_BUCKET, UNIT_S

CALLERS_MAX = 64
"""Callers of one port that are counted each between two reports; further ones count as `other`."""
OTHER = "other"

Ages = tuple[int | None, int | None, int | None]
"""How long one open request waits, in nanoseconds: for its whole answer, for its first byte, for
its next byte. None: it does not, or it is not known."""

_LOG_GROWTH = log(GROWTH)
_NS_S = 1e-9
UNIT_NS = round(UNIT_S / _NS_S)
_NS_UNIT = _NS_S / UNIT_S


class Sketch:
    """Counts latencies in the logarithmic buckets of `dlsched.report.buckets`."""

    __slots__ = ("buckets", "count", "sum_s")

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self.buckets: dict[int, int] = {}

    def add(self, ns: int, index: int | None = None) -> int:
        """Count one latency in nanoseconds; one below zero, of a clock that stepped, is zero.
        `index`: its bucket, where that is known. Returns it."""
        if index is None:
            index = ceil(log(ns * _NS_UNIT) / _LOG_GROWTH) if ns > UNIT_NS else 0
            index = min(index, LAST_BUCKET)
        buckets = self.buckets
        if index in buckets:
            buckets[index] += 1
        else:
            buckets[index] = 1
        self.count += 1
        if ns > 0:
            self.sum_s += ns * _NS_S
        return index

    def plain(self) -> dict[str, Any]:
        """As in a line of the sidecar protocol."""
        return {"count": self.count, "sum": self.sum_s, "buckets": self.buckets}


class PortCounts:
    """Requests, answers and connections of one port since the last report."""

    __slots__ = (
        "arrivals", "callers", "connections", "failed", "first", "gaps", "lost", "skips",
        "unmeasured", "whole",
    )  # fmt: skip

    def __init__(self) -> None:
        self.skips: re.Pattern[bytes] | None = None
        """Paths of requests that do not count."""
        self.begin()

    def begin(self) -> None:
        """Count from zero."""
        self.whole = Sketch()
        """From the last byte of the request to the last one of the answer."""
        self.first = Sketch()
        """To the first byte of the answer's body."""
        self.gaps = Sketch()
        """Between two packets of one answer's body."""
        self.arrivals = 0
        self.failed = 0
        self.lost = 0
        """Requests of which a packet was missed, or that are not measured for another reason."""
        self.connections: dict[str, int] = {}
        """Connections that were measured, by protocol."""
        self.unmeasured: dict[str, int] = {}
        """Connections that were not, by reason."""
        self.callers: dict[str, int] = {}
        """Requests by caller."""

    @property
    def has_news(self) -> bool:
        """Whether anything was counted."""
        return bool(
            self.arrivals or self.whole.count or self.failed or self.lost or self.gaps.count
            or self.first.count or self.connections or self.unmeasured
        )  # fmt: skip

    def called_by(self, caller: str) -> None:
        """Count one request of that caller."""
        callers = self.callers
        if caller in callers:
            callers[caller] += 1
        else:
            if len(callers) >= CALLERS_MAX:
                caller = OTHER
            callers[caller] = callers.get(caller, 0) + 1

    def take(self, ages: Iterable[Ages]) -> dict[str, Any]:
        """What was counted since the last report, as it is reported; the counting begins again.
        `ages`: of the requests that are open now."""
        waiting = tuple(zip(*ages, strict=True)) or ((), (), ())
        plain: dict[str, Any] = {
            name: {**sketch.plain(), "errors": self.failed, **_open(ages_ns)}
            for name, sketch, ages_ns in zip(
                ("whole", "first", "gaps"),
                (self.whole, self.first, self.gaps),
                waiting,
                strict=True,
            )
        }
        plain |= {
            "arrivals": self.arrivals,
            "lost": self.lost,
            "connections": self.connections,
            "unmeasured": self.unmeasured,
            "callers": self.callers,
        }
        self.begin()
        return plain


def _open(ages_ns: Iterable[int | None]) -> dict[str, Any]:
    """How many requests wait, and how long the oldest one does."""
    known = [age for age in ages_ns if age is not None and age > 0]
    oldest = {"oldest_s": max(known) * _NS_S} if known else {}
    return {"in_flight": len(known), **oldest}
