"""The running node: processes that share its cores, other load, and an event queue. It goes from
event to event, so that a training ends and a tier is reached at the exact moment."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlsched.model.facts import Report
from dlsched.simulation.node.played import PlayedService
from dlsched.simulation.node.service import Service
from dlsched.simulation.node.training import Training
from dlsched.simulation.node.workloads import HostLoad

Computation = Service | PlayedService | Training


class StartUp:
    """Work on one thread, charged to `load`, which is idle meanwhile."""

    changes_by_itself = False

    def __init__(self, work_core_s: float, load: Computation) -> None:
        self.load = load
        self.throttled = False
        self._left_core_s = work_core_s
        self._cores = 0.0

    @property
    def usage_core_s(self) -> float:
        """CPU time of its job so far."""
        return self.load.usage_core_s

    def wants_cores(self, quota_cores: float) -> float:
        """One thread, or the quota."""
        return min(1.0, quota_cores)

    def grant(self, cores: float, quota_cores: float) -> None:
        self._cores = cores
        self.throttled = quota_cores < 1.0 and cores > 0.99 * quota_cores

    def ends_in_s(self) -> float:
        return self._left_core_s / self._cores if self._cores > 0 else math.inf

    def advance(self, _now_s: float, elapsed_s: float) -> None:
        """Let time pass at the present rate."""
        used = min(self._cores * elapsed_s, self._left_core_s)
        self.load.usage_core_s += used
        self._left_core_s -= used

    def finish(self, _now_s: float) -> None:
        """End at exactly this time, without a rest from rounding."""
        self.load.usage_core_s += self._left_core_s
        self._left_core_s = 0.0

    def crash(self) -> None:
        """Does nothing: the next start begins again."""

    def lines(self, _now_s: float) -> Sequence[Report]:
        """None: there is no reporter yet."""
        return ()


Claim = tuple[float, float]
"""Weight, and maximum of cores (a quota included)."""


def divide(cores: float, claims: Sequence[Claim]) -> list[float]:
    """The cores of each claim: by weight, up to its maximum; nothing stays idle that is wanted."""
    given = [0.0] * len(claims)
    left, weight = cores, sum(claim[0] for claim in claims)
    # Claims that are satisfied first leave the rest to the others.
    for index in sorted(range(len(claims)), key=lambda one: claims[one][1] / claims[one][0]):
        mine, wanted = claims[index]
        given[index] = min(wanted, max(0.0, left) * mine / weight if weight > 0.0 else 0.0)
        left -= given[index]
        weight -= mine
    return given


DEFAULT_SHARES = 1024
_SAME_MOMENT_S = 1e-9


@dataclass(slots=True)
class Process:
    name: str
    load: Computation | StartUp
    on_end: Callable[[], None]
    quota_cores: float = math.inf
    cpu_shares: int = DEFAULT_SHARES
    idle: bool = False
    """In the kernel's idle class: it shares equally what the others leave."""
    ran_s: float = 0.0
    throttled_s: float = 0.0
    ends_at_s: float = math.inf
    wants_cores: float = 0.0


class World:
    """Processes on a node at one moment of simulated time."""

    def __init__(
        self, cores: float, host: Iterable[HostLoad] = (), full_speed: float = 1.0
    ) -> None:
        self.now_s = 0.0
        self.busy_core_s = 0.0
        """CPU time of everything on the node so far."""
        self._cores = cores
        self._full_speed = full_speed
        self._running: dict[str, Process] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0
        self._host: dict[int, HostLoad] = {}
        self._used_cores = 0.0
        self._ends_at_s = math.inf
        self._stale = True
        self._news = False
        for key, load in enumerate(host):
            self.at(load.at_s, lambda key=key, load=load: self._host_begins(key, load))  # type: ignore[misc]
            self.at(load.at_s + load.for_s, lambda key=key: self._host_ends(key))  # type: ignore[misc]

    def at(self, when_s: float, act: Callable[[], None]) -> None:
        """Schedule an event; events of the same time happen in the order of scheduling."""
        self._planned += 1
        heapq.heappush(self._agenda, (when_s, self._planned, act))

    def begin(self, process: Process) -> None:
        if isinstance(process.load, PlayedService):
            process.load.begin(self.now_s)
        self._running[process.name] = process
        # The order of arrival must not affect even the last digit of a sum.
        self._running = dict(sorted(self._running.items()))
        self.changed()

    def end(self, name: str) -> None:
        if self._running.pop(name, None) is not None:
            self.changed()

    def changed(self) -> None:
        """Limits have changed: divide the cores again."""
        self._stale = True
        for process in self._running.values():
            if isinstance(process.load, PlayedService):
                process.load.moved = True

    def announce(self) -> None:
        """Mark the present event as one that wakes an agent."""
        self._news = True

    @property
    def used_cores(self) -> float:
        if self._stale:
            self._share()
        return self._used_cores

    def advance(self, until_s: float, *, until_news: bool = False) -> None:
        """Let time pass exactly to `until_s`, or only to the first event that wakes an agent."""
        self._news = False
        while True:
            self._happen()
            if self.now_s >= until_s or (until_news and self._news):
                return
            if self._stale:
                self._share()
            coming_s = self._agenda[0][0] if self._agenda else math.inf
            self._pass(min(until_s, coming_s, self._ends_at_s))

    def _pass(self, to_s: float) -> None:
        now_s, elapsed_s = self.now_s, to_s - self.now_s
        self.busy_core_s += self._used_cores * elapsed_s
        for process in self._running.values():
            load = process.load
            load.advance(now_s, elapsed_s)
            process.ran_s += elapsed_s
            if load.throttled:
                process.throttled_s += elapsed_s
            if load.changes_by_itself:
                self._stale = True
        self.now_s = to_s

    def _happen(self) -> None:
        """Handle everything due now."""
        if self._ends_at_s <= self.now_s:
            for process in list(self._running.values()):
                if process.ends_at_s <= self.now_s + _SAME_MOMENT_S:
                    if isinstance(process.load, PlayedService):
                        process.load.happen(self.now_s)
                        process.load.moved = self._stale = True
                        continue
                    process.load.finish(self.now_s)
                    self.end(process.name)
                    process.on_end()
            self._ends_at_s = math.inf
        while self._agenda and self._agenda[0][0] <= self.now_s:
            heapq.heappop(self._agenda)[2]()

    def _share(self) -> None:
        ahead, behind = [], []
        claims: list[Claim] = [(float(one.cpu_shares), one.cores) for one in self._host.values()]
        idle_claims: list[Claim] = []
        for process in self._running.values():
            load = process.load
            # A played service changes only at its own events.
            if not isinstance(load, PlayedService) or load.moved:
                process.wants_cores = load.wants_cores(process.quota_cores)
            elif not process.wants_cores:
                continue
            if process.idle:
                behind.append(process)
                idle_claims.append((1.0, process.wants_cores))
            else:
                ahead.append(process)
                claims.append((float(process.cpu_shares), process.wants_cores))
        given = divide(self._cores, claims)
        if behind:
            given += divide(max(self._cores - math.fsum(given), 0.0), idle_claims)
        self._used_cores = math.fsum(given)
        full = self._used_cores >= self._cores * (1.0 - _SAME_MOMENT_S)
        speed = self._full_speed if full else 1.0
        for process, cores in zip((*ahead, *behind), given[len(self._host) :], strict=True):
            load = process.load
            if isinstance(load, PlayedService) and load.speed != speed:
                load.speed, load.moved = speed, True
            if not isinstance(load, PlayedService) or load.moved or load.cores != cores:
                load.grant(cores, process.quota_cores)
                process.ends_at_s = self.now_s + load.ends_in_s()
                if isinstance(load, PlayedService):
                    load.moved = False
        self._ends_at_s = min((one.ends_at_s for one in self._running.values()), default=math.inf)
        self._stale = False

    def _host_begins(self, key: int, load: HostLoad) -> None:
        self._host[key] = load
        self.changed()

    def _host_ends(self, key: int) -> None:
        del self._host[key]
        self.changed()
