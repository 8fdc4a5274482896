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
    for _, index in sorted([(one[1] / one[0], index) for index, one in enumerate(claims)]):
        mine, wanted = claims[index]
        part = left * mine / weight if weight > 0.0 and left > 0.0 else 0.0
        given[index] = part = wanted if wanted < part else part
        left -= part
        weight -= mine
    return given


DEFAULT_SHARES = 1024
_SAME_MOMENT_S = 1e-9


@dataclass(slots=True, eq=False)
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
    passed_s: float = 0.0
    """Time to which it was advanced."""


class World:
    """Processes on a node at one moment of simulated time.

    A played service changes only at its own events, and when its cores change: it is advanced then
    alone, and asked then alone what it wants. All other processes go from event to event.
    """

    def __init__(
        self, cores: float, host: Iterable[HostLoad] = (), full_speed: float = 1.0
    ) -> None:
        self.now_s = 0.0
        self.busy_core_s = 0.0
        """CPU time of everything on the node so far."""
        self._cores = cores
        self._full_speed = full_speed
        self._running: dict[str, Process] = {}
        self._unplayed: list[Process] = []
        """Those that are not played."""
        self._wanting: dict[str, Process] = {}
        """Played services that want cores or have some."""
        self._touched: dict[str, Process] = {}
        """Played services that may want other cores than before."""
        self._events: list[tuple[float, str, Process]] = []
        """Of played services; one whose time is not its process's any more is void."""
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0
        self._host: dict[int, HostLoad] = {}
        self._used_cores = 0.0
        self._fits = False
        """Whether everyone has the cores that it wants."""
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
        process.passed_s = self.now_s
        if isinstance(process.load, PlayedService):
            process.load.touch = lambda: self._touch(process)
            process.load.begin(self.now_s)
        self._running[process.name] = process
        # The order of arrival must not affect even the last digit of a sum.
        self._running = dict(sorted(self._running.items()))
        self.changed()

    def end(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            self._catch_up(process)
            process.ends_at_s = math.inf
            self._wanting.pop(name, None)
            self._touched.pop(name, None)
            self.changed()

    def changed(self) -> None:
        """Limits have changed: divide the cores again."""
        self._stale, self._fits = True, False
        self._unplayed = []
        for process in self._running.values():
            if isinstance(process.load, PlayedService):
                self._touch(process)
            else:
                self._unplayed.append(process)

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
                break
            if self._stale:
                self._share()
            coming_s = self._agenda[0][0] if self._agenda else math.inf
            self._pass(min(until_s, coming_s, self._ends_at_s))
        for process in self._running.values():
            self._catch_up(process)

    def _pass(self, to_s: float) -> None:
        self.busy_core_s += self._used_cores * (to_s - self.now_s)
        self.now_s = to_s
        for process in self._unplayed:
            self._catch_up(process)
            if process.load.changes_by_itself:
                self._stale = True

    def _catch_up(self, process: Process) -> None:
        """Let the time pass for it that has passed since its cores were last changed."""
        elapsed_s = self.now_s - process.passed_s
        if elapsed_s > 0.0:
            load = process.load
            load.advance(process.passed_s, elapsed_s)
            process.ran_s += elapsed_s
            if load.throttled:
                process.throttled_s += elapsed_s
            process.passed_s = self.now_s

    def _touch(self, process: Process) -> None:
        """The cores that a played service wants may change now."""
        self._catch_up(process)
        self._touched[process.name] = process
        self._stale = True

    def _happen(self) -> None:
        """Handle everything due now."""
        if self._ends_at_s <= self.now_s:
            for process in self._due():
                if isinstance(process.load, PlayedService):
                    self._touch(process)
                    process.load.happen(self.now_s)
                    continue
                process.load.finish(self.now_s)
                self.end(process.name)
                process.on_end()
            self._ends_at_s = math.inf
        while self._agenda and self._agenda[0][0] <= self.now_s:
            heapq.heappop(self._agenda)[2]()

    def _due(self) -> list[Process]:
        """The processes with an event now, sorted by name."""
        by_s = self.now_s + _SAME_MOMENT_S
        due = {one.name: one for one in self._unplayed if one.ends_at_s <= by_s}
        while self._events and self._events[0][0] <= by_s:
            at_s, name, process = heapq.heappop(self._events)
            if process.ends_at_s == at_s:
                due[name] = process
        return [process for _, process in sorted(due.items())]

    def _share(self) -> None:
        touched = [*self._unplayed, *self._touched.values()]
        for process in touched:
            process.wants_cores = process.load.wants_cores(process.quota_cores)
        self._wanting.update(self._touched)
        claimants = [*self._unplayed, *self._wanting.values()]
        wants = [one.wants_cores for one in claimants]
        wants += [one.cores for one in self._host.values()]
        wanted = math.fsum(wants)
        fitted, self._fits = self._fits, wanted < self._cores * (1.0 - _SAME_MOMENT_S)
        if self._fits:
            self._used_cores = wanted
            # Where all fitted before, the others have what they want already.
            for process in touched if fitted else claimants:
                self._grant(process, process.wants_cores, 1.0)
        else:
            claimants.sort(key=lambda one: one.name)
            for process, cores in zip(claimants, self._divided(claimants), strict=True):
                self._grant(process, cores, self._full_speed)
        self._touched.clear()
        ends_at_s = min((one.ends_at_s for one in self._unplayed), default=math.inf)
        while self._events and self._events[0][2].ends_at_s != self._events[0][0]:
            heapq.heappop(self._events)
        self._ends_at_s = min(ends_at_s, self._events[0][0]) if self._events else ends_at_s
        self._stale = False

    def _divided(self, claimants: Sequence[Process]) -> list[float]:
        """The cores of each on a node that has fewer than all want."""
        ahead = [(float(one.cpu_shares), one.wants_cores) for one in claimants if not one.idle]
        hosts: list[Claim] = [(float(one.cpu_shares), one.cores) for one in self._host.values()]
        given = divide(self._cores, hosts + ahead)
        left = max(self._cores - math.fsum(given), 0.0)
        behind = [(1.0, one.wants_cores) for one in claimants if one.idle]
        last = divide(left, behind) if behind else []
        self._used_cores = math.fsum(given + last)
        if not behind:
            return given[len(hosts) :]
        first_of, last_of = iter(given[len(hosts) :]), iter(last)
        return [next(last_of if one.idle else first_of) for one in claimants]

    def _grant(self, process: Process, cores: float, speed: float) -> None:
        load = process.load
        if not isinstance(load, PlayedService):
            load.grant(cores, process.quota_cores)
            process.ends_at_s = self.now_s + load.ends_in_s()
            return
        if process.name not in self._touched and load.cores == cores and load.speed == speed:
            return
        self._catch_up(process)
        load.speed = speed
        load.grant(cores, process.quota_cores)
        if not process.wants_cores:
            self._wanting.pop(process.name, None)
        process.ends_at_s = self.now_s + load.ends_in_s()
        heapq.heappush(self._events, (process.ends_at_s, process.name, process))

    def _host_begins(self, key: int, load: HostLoad) -> None:
        self._host[key] = load
        self.changed()

    def _host_ends(self, key: int) -> None:
        del self._host[key]
        self.changed()
