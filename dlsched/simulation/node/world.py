"""The node as it runs: processes that share its cores, others' load, and a list of coming events.

Owns the passing of simulated time. It goes from event to event, so a training ends and a tier is
reached at the exact moment. It must not know containers, policies or cycles.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dlsched.simulation.node.cores import divide
from dlsched.simulation.node.played import PlayedService
from dlsched.simulation.node.starting import Computation, StartUp
from dlsched.simulation.node.workloads import HostLoad

DEFAULT_SHARES = 1024
_SAME_MOMENT_S = 1e-9


@dataclass(slots=True)
class Process:
    """What runs in one container, under its limits."""

    name: str
    load: Computation | StartUp
    on_end: Callable[[], None]
    quota_cores: float = math.inf
    cpu_shares: int = DEFAULT_SHARES
    ran_s: float = 0.0
    throttled_s: float = 0.0
    ends_at_s: float = math.inf


class World:
    """Processes on a node of so many cores, at one moment of simulated time."""

    def __init__(self, cores: float, host: Iterable[HostLoad] = ()) -> None:
        self.now_s = 0.0
        self.busy_core_s = 0.0
        """CPU time of everything on the node so far."""
        self._cores = cores
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
        """Let something happen at that time; of one time, in the order that it was planned."""
        self._planned += 1
        heapq.heappush(self._agenda, (when_s, self._planned, act))

    def begin(self, process: Process) -> None:
        """A process starts."""
        if isinstance(process.load, PlayedService):
            process.load.begin(self.now_s)
        self._running[process.name] = process
        # The order of arrival must not show, not even in the last digit of a sum.
        self._running = dict(sorted(self._running.items()))
        self.changed()

    def end(self, name: str) -> None:
        """A process is gone; nothing happens when it is not there."""
        if self._running.pop(name, None) is not None:
            self.changed()

    def changed(self) -> None:
        """Limits or wants are others than before: divide the cores anew."""
        self._stale = True

    def tell(self) -> None:
        """What happens now is news that would wake an agent."""
        self._news = True

    @property
    def used_cores(self) -> float:
        """What all of them use now."""
        if self._stale:
            self._share()
        return self._used_cores

    def advance(self, until_s: float, *, until_news: bool = False) -> None:
        """Let time pass exactly to `until_s`, or only to the first news on the way."""
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
        """All that is due now."""
        if self._ends_at_s <= self.now_s:
            for process in list(self._running.values()):
                if process.ends_at_s <= self.now_s + _SAME_MOMENT_S:
                    if isinstance(process.load, PlayedService):
                        process.load.happen(self.now_s)
                        self.changed()
                        continue
                    process.load.finish(self.now_s)
                    self.end(process.name)
                    process.on_end()
            self._ends_at_s = math.inf
        while self._agenda and self._agenda[0][0] <= self.now_s:
            heapq.heappop(self._agenda)[2]()

    def _share(self) -> None:
        running = list(self._running.values())
        claims = [(float(one.cpu_shares), one.load.wants_cores(one.quota_cores)) for one in running]
        claims += [(float(host.cpu_shares), host.cores) for host in self._host.values()]
        given = divide(self._cores, claims)
        self._used_cores = math.fsum(given)
        self._ends_at_s = math.inf
        for process, cores in zip(running, given, strict=False):
            process.load.grant(cores, process.quota_cores)
            process.ends_at_s = self.now_s + process.load.ends_in_s()
            self._ends_at_s = min(self._ends_at_s, process.ends_at_s)
        self._stale = False

    def _host_begins(self, key: int, load: HostLoad) -> None:
        self._host[key] = load
        self.changed()

    def _host_ends(self, key: int) -> None:
        del self._host[key]
        self.changed()
