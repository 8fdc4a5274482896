"""Chooses containers whose threads may lack CPU, and has them sampled off the thread that asks.

A container whose group is throttled, or that computes on a full host, is sampled every few seconds.
All others cost nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

from dlsched.estimate.tuning import FULL_RATIO, LITTLE
from dlsched.model.errors import unexpected
from dlsched.runtime.threads.reader import Group, Samples

_log = logging.getLogger(__name__)

EVERY_S, SELDOM_S = 10.0, 40.0
"""Time between two samples of a container. It doubles where a sample finds nothing that spins."""
COMPARED_S = 2.5
"""Time between two readings of a group's counts that are compared."""
CONTAINERS_MAX, ROUND_S = 3, 5.0
"""Containers in one sample, and the time between two samples. Of more, those come first that spun,
but for one place, and then those that wait longest. Measured on two busy cores, a container costs 3
to 6 ms: so all of them, however many, cost at most 0.3 % of a core."""
USED_CORES = 0.02
"""A container that uses less has no threads worth a sample. On a host with twenty busy processes
one with threads that spin gets no more than 0.07."""
LOST_S = 60.0
"""A sample that takes longer hangs in the memory or the files of a process. Each of its containers
is sampled alone then, and where that hangs, this start of it no more."""
HANGS_MAX = 3
"""Samples that hang at a time: with so many none begins. Each has a thread, and up to 24 files."""


@dataclass(slots=True)
class _Known:
    """What is known of a container."""

    group: Group
    at_s: float
    due_s: float
    """When it may be sampled."""
    every_s: float = EVERY_S
    lacks: bool = False
    """Whether its group's counts call for a sample."""
    spun: bool = False
    """Whether threads spun in its last sample: another must follow soon to confirm it."""


class _Pending(NamedTuple):
    future: Future[Samples]
    since_s: float
    groups: Sequence[Group]


class ThreadSampler:
    """Knows which containers to sample, and begins and collects samples."""

    def __init__(
        self,
        begin: Callable[[Callable[[], Samples], str], Future[Samples]],
        read: Callable[[Sequence[Group]], Samples],
    ) -> None:
        """`begin` runs a call in a thread with that name, and `read` is it: `ThreadReader.read`."""
        self._begin, self._read = begin, read
        self._known: dict[str, _Known] = {}
        self._pending: _Pending | None = None
        self._host: tuple[float, float] | None = None
        self._full = False
        self._next_s = float("-inf")
        """When the next sample may begin."""
        self._hung: list[Future[Samples]] = []
        self._alone: frozenset[object] = frozenset()
        """Starts of containers that were in a sample that hung."""
        self._hang: frozenset[object] = frozenset()
        """Starts of containers that are sampled no more."""

    def sample(
        self, now_s: float, busy_core_s: float | None, cores: float, groups: Iterable[Group]
    ) -> Samples:
        """Take up a sample that has ended, else begin one where it is due; returns what is new.
        `busy_core_s`: CPU time of the whole host since boot. Waits for nothing."""
        self._compare(now_s, busy_core_s, cores, {one.container: one for one in groups})
        if self._pending is not None:
            return self._collect(self._pending, now_s)
        self._hung = [one for one in self._hung if not one.done()]
        if now_s < self._next_s or len(self._hung) >= HANGS_MAX:
            return {}
        if due := self._due(now_s):
            for one in due:
                one.due_s = now_s + one.every_s
            self._next_s = now_s + ROUND_S
            taken = [one.group for one in due]
            self._pending = _Pending(
                self._begin(lambda: self._read(taken), "threads"), now_s, taken
            )
        return {}

    def _due(self, now_s: float) -> list[_Known]:
        """What the next sample is of."""
        lack = [one for one in self._known.values() if one.lacks and one.due_s <= now_s]
        lack.sort(key=lambda one: one.due_s)
        if lack and lack[0].group.start in self._alone:
            return lack[:1]
        lack = [one for one in lack if one.group.start not in self._alone]
        others = [one for one in lack if not one.spun]
        spun = [one for one in lack if one.spun][: CONTAINERS_MAX - bool(others)]
        return [*spun, *others][:CONTAINERS_MAX]

    def _compare(
        self, now_s: float, busy_core_s: float | None, cores: float, groups: Mapping[str, Group]
    ) -> None:
        before_s, before_core_s = self._host or (float("-inf"), 0.0)
        if busy_core_s is not None and (elapsed_s := now_s - before_s) >= COMPARED_S:
            busy = (busy_core_s - before_core_s) / elapsed_s
            self._full = self._host is not None and busy >= FULL_RATIO * cores
            self._host = now_s, busy_core_s
        for name in self._known.keys() - groups.keys():
            del self._known[name]
        if self._alone or self._hang:
            there = {one.start for one in groups.values()}
            self._alone, self._hang = self._alone & there, self._hang & there
        for name, group in groups.items():
            known = self._known.get(name)
            if known is None or known.group.start != group.start:
                if group.start not in self._hang:
                    self._known[name] = _Known(group, now_s, now_s)
            elif (elapsed_s := now_s - known.at_s) >= COMPARED_S:
                known.lacks = self._lacks(known.group, group, elapsed_s)
                known.group, known.at_s = group, now_s

    def _lacks(self, before: Group, after: Group, elapsed_s: float) -> bool:
        used_cores = (after.usage_core_s - before.usage_core_s) / elapsed_s
        periods = max(after.periods - before.periods, 1)
        throttled = (after.throttled_periods - before.throttled_periods) / periods
        return used_cores >= USED_CORES and (self._full or throttled > LITTLE)

    def _collect(self, pending: _Pending, now_s: float) -> Samples:
        starts = {one.container: one.start for one in pending.groups}
        if not pending.future.done():
            if now_s - pending.since_s > LOST_S:
                self._pending = None
                self._hung.append(pending.future)
                if len(starts) > 1:
                    self._alone |= {*starts.values()}
                    return {}
                self._hang |= {*starts.values()}
                self._alone -= self._hang
                for name in starts.keys() & self._known.keys():
                    del self._known[name]
            return {}
        self._pending = None
        if (error := pending.future.exception()) is not None:
            _log.debug("threads of containers cannot be sampled: %s", unexpected(error))
            return {}
        found = {}
        for name, fact in pending.future.result().items():
            known = self._known.get(name)
            if known is not None and known.group.start == starts[name]:
                found[name] = fact
                self._alone -= {known.group.start}
                known.spun = bool(fact.spun_ratio)
                known.every_s = EVERY_S if known.spun else min(2 * known.every_s, SELDOM_S)
        return found
