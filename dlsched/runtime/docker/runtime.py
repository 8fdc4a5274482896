"""The Runtime of one Docker Engine: observes and acts on this instance's containers, no others.

Owns the composition: listing, watches, starts, stops, resizes. It must not decide anything, and
must not let the loop wait for the engine longer than `call_wait_s` a cycle, whatever hangs.
Everything here runs in the loop's thread, but for `logs` and what is begun in the background.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlsched.clock import Clock
from dlsched.errors import DlschedError, EngineUnavailable
from dlsched.model import (
    Action,
    ContainerFact,
    Limits,
    Observation,
    Outcome,
    Remove,
    Resize,
    Start,
)
from dlsched.runtime import host
from dlsched.runtime.allotment import change_allotment, job_dir
from dlsched.runtime.base import Wake
from dlsched.runtime.cgroup import CgroupReader
from dlsched.runtime.docker.background import Patience, begin
from dlsched.runtime.docker.containers import resource_update
from dlsched.runtime.docker.doctor import Finding, examine
from dlsched.runtime.docker.engine import Engine, EngineRefused
from dlsched.runtime.docker.events import Events
from dlsched.runtime.docker.group import ParentGroup
from dlsched.runtime.docker.labels import DEFAULT_INSTANCE
from dlsched.runtime.docker.listing import Listing, Listings
from dlsched.runtime.docker.own import own_containers
from dlsched.runtime.docker.pulls import Images
from dlsched.runtime.docker.restarts import Restarts
from dlsched.runtime.docker.starts import Starts
from dlsched.runtime.docker.stops import Stops
from dlsched.runtime.docker.watch import Watch
from dlsched.runtime.limits import (
    DEFAULT_SHARES,
    DEFAULT_WEIGHT,
    GRAIN_CORES,
    SYSTEMD_GRAIN_CORES,
    shares_for_default_weight,
)

_log = logging.getLogger(__name__)

CALLS_AT_ONCE = 4
"""Starts and removals at the engine together: each forks, and more of them only queue there."""

UNHURRIED_S = 120.0
"""For starts and removals, which nobody waits for: on a saturated host a start takes a minute."""


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """The operator's settings for the engine."""

    instance: str = DEFAULT_INSTANCE
    state_dir: Path = Path("/var/lib/dlsched")
    host: str = "unix:///var/run/docker.sock"
    timeout_s: float = 10.0
    """A call that takes longer has failed."""
    config_file: Path | None = None
    """Docker's own config.json with the registries' credentials; None: where Docker has it."""
    group_weight: float | None = None
    """Weight of all jobs together, in multiples of one container's; None: left alone."""
    call_wait_s: float = 0.5
    """The loop waits for the engine at most so long in a cycle."""
    cgroup_under: str = ""
    """Group above the instance's own (cgroupfs alone)."""
    dry_run: bool = False
    """Observing changes nothing: restart policies are not set back."""


class DockerRuntime:
    """Facts and actions of one instance on one engine; implements Runtime and LogSource."""

    def __init__(self, options: DockerOptions, clock: Clock, wake: Wake) -> None:
        """Begins to listen to the engine; neither waits for it nor fails where there is none."""
        self._options = options
        self._clock = clock
        self._wake = wake
        self._engine = Engine(options.host, options.timeout_s)
        self._unhurried = Engine(options.host, max(options.timeout_s, UNHURRIED_S))
        self._patience = Patience(options.call_wait_s)
        self._group = ParentGroup(options.instance, options.cgroup_under, options.group_weight)
        self._listings = Listings(
            self._engine, options.instance, own_containers(), self._patience, clock.now_s
        )
        gate = threading.Semaphore(CALLS_AT_ONCE)
        self._starts = Starts(
            self._unhurried,
            Images(self._unhurried, options.config_file),
            self._group,
            options.instance,
            options.state_dir,
            gate,
            self._cgroup_driver,
            self._start_ended,
            clock.now_s,
        )
        self._stops = Stops(self._unhurried, gate, self._listings.want)
        self._events = Events(self._engine, options.instance, self._listings.want, wake)
        self._watches: dict[str, Watch] = {}
        self._restarts = Restarts(self._engine, self._listings.want)
        self._updates: dict[str, Future[Any]] = {}
        self._containers: Mapping[str, str] = {}
        """Container ids by job, replaced whole: the only thing that other threads read."""
        self._folded: Listing | None = None
        self._driver: str | None = None
        self._weight_trouble: str | None = None
        self._events.start()
        begin(self._cgroup_driver, "cgroup-driver")  # the grain of ceilings hangs on it

    # ------------------------------------------------------------------------------- Runtime

    def observe(self, now_s: float) -> Observation:
        """All facts at `now_s`; waits at most `call_wait_s`, and only where something happened."""
        self._listings.refresh()
        listing = self._listings.last
        if listing is not None and listing is not self._folded:
            self._fold(listing, now_s)
        if listing is not None:
            self._stops.advance(listing, now_s)
            self._set_restarts_back(now_s)
        trouble = self._listings.trouble
        return Observation(
            now_s=now_s,
            engine_ok=trouble is None,
            engine_trouble=trouble,
            containers=tuple(self._fact(watch, now_s) for watch in self._watches.values()),
            begun=self._starts.begun(listing),
            listing_age_s=0.0 if listing is None else max(0.0, now_s - listing.at_s),
            host_busy_core_s=host.busy_core_s(),
            node=host.node(SYSTEMD_GRAIN_CORES if self._driver == "systemd" else GRAIN_CORES),
        )

    def apply(self, action: Action, now_s: float) -> Outcome:
        """Begin a start or a removal, or carry out a resize; never raises for the engine."""
        if isinstance(action, Start):
            return self._starts.begin(action)
        watch = self._watches.get(action.container_id)
        if self._updating(action.container_id):
            return Outcome(action, "failed", "operation under way: updating")
        if isinstance(action, Remove):
            return self._stops.begin(action, None if watch is None else watch.described, now_s)
        if watch is None:
            return Outcome(action, "failed", "there is no such container")
        if (operation := self._stops.operation(action.container_id, now_s)) is not None:
            return Outcome(action, "failed", f"operation under way: {operation}")
        return self._resize(action)

    # --------------------------------------------------------------------- beside the Runtime

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        """The job's output, oldest first; raises EngineUnavailable, or KeyError: no container."""
        container = self._containers[job]
        try:
            yield from self._engine.logs(container, tail, follow)
        except EngineRefused as error:
            raise KeyError(job) from error

    def release(self, ceilings: Mapping[str, float | None]) -> tuple[str, ...]:
        """Give own running containers their ceilings and default shares; returns what failed.

        Jobs that `ceilings` does not name lose their limit. Waits for the engine, at most
        `timeout_s` in all.
        """
        calls = {
            watch.described.job: begin(
                lambda watch=watch: self._give_back(  # type: ignore[misc]
                    watch, ceilings.get(watch.described.job)
                ),
                "release",
            )
            for watch in self._watches.values()
            if watch.described.alive
        }
        until_s = self._clock.now_s() + self._options.timeout_s
        failures = []
        for job, call in calls.items():
            try:
                call.result(max(0.0, until_s - self._clock.now_s()))
            except TimeoutError:
                failures.append(f"{job}: keeps its limit: the engine does not answer")
            except DlschedError as error:
                failures.append(f"{job}: keeps its limit: {error}")
        return tuple(failures)

    def tell_deliverable(self, job: str, deliverable: bool) -> None:
        """Say in the job's allotment whether it can be delivered; raises OSError, ValueError."""
        change_allotment(job_dir(self._options.state_dir, job), deliverable=deliverable)

    def check_engine(self) -> None:
        """Raise EngineUnavailable when the engine does not answer now."""
        self._engine.info()

    def probe(self) -> tuple[Finding, ...]:
        """What `dlsched doctor` has to say of this engine; waits for it."""
        return examine(self._engine, self._options.state_dir)

    def close(self) -> None:
        """Stop listening and let go of everything; containers run on."""
        self._events.close()
        for watch in self._watches.values():
            watch.close()
        if self._folded is not None and not self._watches:
            self._group.remove()
        self._watches.clear()
        self._engine.close()
        self._unhurried.close()

    # -------------------------------------------------------------------------------- inside

    def _fold(self, listing: Listing, now_s: float) -> None:
        first = self._folded is None
        for container, described in listing.containers.items():
            watch = self._watches.get(container)
            if watch is None:
                self._watches[container] = Watch(described, now_s, from_end=first)
            else:
                watch.take(described, now_s)
        for container in self._watches.keys() - listing.containers.keys():
            self._watches.pop(container).close()
        self._folded = listing
        self._containers = {w.described.job: c for c, w in self._watches.items()}
        self._weigh_group()

    def _set_restarts_back(self, now_s: float) -> None:
        if self._options.dry_run or self._listings.trouble is not None:
            return
        idle = (
            watch.described
            for container, watch in self._watches.items()
            if self._stops.operation(container, now_s) is None and not self._updating(container)
        )
        self._updates.update(self._restarts.set_back(idle, now_s))

    def _fact(self, watch: Watch, now_s: float) -> ContainerFact:
        container = watch.described.container_id
        operation = self._stops.operation(container, now_s)
        if operation is None and self._updating(container):
            operation = "updating"
        fact, vanished = watch.fact(now_s, operation)
        if vanished:
            self._listings.want(container)
        return fact

    def _resize(self, action: Resize) -> Outcome:
        container, job, limits = action.container_id, action.job, action.limits
        if self._patience.lost:
            return Outcome(action, "failed", "the Docker Engine is not answering")
        body = resource_update(limits, action.cpu_shares)

        def update() -> float:
            began_s = self._clock.now_s()
            self._engine.update(container, body)
            inside = job_dir(self._options.state_dir, job)
            change_allotment(inside, cpu_cores=limits.cpu_cores)
            return self._clock.now_s() - began_s

        began_s = self._clock.now_s()
        call = begin(update, f"update-{job}")
        if not self._patience.wait(call):
            self._updates[container] = call
            # A listing shows whether it is this call that is slow, or the whole engine.
            self._listings.want(container)
            waited_s = self._clock.now_s() - began_s
            return Outcome(action, "begun", "the engine is slow", engine_s=waited_s)
        try:
            return Outcome(action, "done", engine_s=call.result())
        except EngineRefused as error:
            # The container may have ended a moment ago; if it has not, asking again will tell.
            self._listings.want(container)
            return Outcome(action, "failed", error.reason)
        except (EngineUnavailable, OSError, ValueError) as error:
            return Outcome(action, "failed", str(error))

    def _updating(self, container: str) -> bool:
        call = self._updates.get(container)
        if call is not None and call.done():
            del self._updates[container]
            return False
        return call is not None

    def _give_back(self, watch: Watch, ceiling_cores: float | None) -> None:
        self._unlimit(watch, ceiling_cores)
        # A job that fits its threads to its allotment would keep them few while nobody is here.
        # That it cannot be told (a full disk) is no failure: its limit is given back.
        with suppress(OSError, ValueError):
            inside = job_dir(self._options.state_dir, watch.described.job)
            change_allotment(inside, cpu_cores=ceiling_cores)

    def _unlimit(self, watch: Watch, ceiling_cores: float | None) -> None:
        container, reader = watch.described.container_id, watch.reader
        limits = Limits(ceiling_cores)
        if reader is None or not reader.v2:
            self._engine.update(container, resource_update(limits, DEFAULT_SHARES))
            return
        for shares in shares_for_default_weight():
            self._engine.update(container, resource_update(limits, shares))
            if reader.read().weight == DEFAULT_WEIGHT:
                return

    def _weigh_group(self) -> None:
        if self._options.group_weight is None:
            return
        readers = (watch.reader for watch in self._watches.values())
        reader = next((r for r in readers if r is not None and r.cpu_folder is not None), None)
        if reader is not None:
            begin(lambda: self._weigh(reader), "weight")

    def _weigh(self, reader: CgroupReader) -> None:
        if reader.cpu_folder is not None:
            trouble = self._group.weigh(reader.cpu_folder, v2=reader.v2)
            if trouble is not None and trouble != self._weight_trouble:
                _log.warning("%s", trouble)
            self._weight_trouble = trouble

    def _cgroup_driver(self) -> str:
        if self._driver is None:
            self._driver = str(self._engine.info().get("CgroupDriver", "cgroupfs"))
        return self._driver

    def _start_ended(self, container: str | None, word: str) -> None:
        self._listings.want(container)
        self._wake(word)
