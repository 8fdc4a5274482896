"""The Runtime of one Docker Engine: observes and acts on this instance's containers, no others.

Owns the composition: listing, watches, starts, stops, resizes. It must not decide anything, and
must not let the loop wait for the engine longer than `call_wait_s` a cycle, whatever hangs.
Everything here runs in the loop's thread, but for `logs` and what is begun in the background.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from dlsched.control.ports import Clock, Wake
from dlsched.model.actions import Action, Outcome, Remove, Resize, Start
from dlsched.model.facts import ContainerFact, GpuFact, NodeFact, Observation
from dlsched.runtime import host
from dlsched.runtime.allotment import change_allotment, job_dir
from dlsched.runtime.cgroup.limits import DEFAULT_SHARES, GRAIN_CORES, SYSTEMD_GRAIN_CORES
from dlsched.runtime.cgroup.read import PROC, CgroupReader
from dlsched.runtime.docker.background import Patience, begin
from dlsched.runtime.docker.create.creation import Creation
from dlsched.runtime.docker.create.pulls import Images
from dlsched.runtime.docker.create.restarts import Restarts
from dlsched.runtime.docker.create.starts import Starts
from dlsched.runtime.docker.doctor.engine import EngineUnworkable, unworkable
from dlsched.runtime.docker.end.stops import Stops
from dlsched.runtime.docker.engine import Engine, EngineRefused
from dlsched.runtime.docker.events import Events
from dlsched.runtime.docker.gpus.canary import REMEDY, Canary
from dlsched.runtime.docker.gpus.enforcement import with_gpus
from dlsched.runtime.docker.gpus.injection import Injector
from dlsched.runtime.docker.identity.labels import Inspected
from dlsched.runtime.docker.identity.own import own_containers
from dlsched.runtime.docker.limits.allotments import Allotments
from dlsched.runtime.docker.limits.group import ParentGroup
from dlsched.runtime.docker.limits.outcome import GivenBack
from dlsched.runtime.docker.limits.resizes import Resizes
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.docker.listing import Listing, Listings
from dlsched.runtime.docker.moves.moves import Moves
from dlsched.runtime.docker.moves.relocation import Relocation
from dlsched.runtime.docker.options import DockerOptions
from dlsched.runtime.docker.watch import Watch
from dlsched.runtime.gpu import Inventory, remedy
from dlsched.runtime.originals import Originals

_log = logging.getLogger(__name__)

CALLS_AT_ONCE = 4
"""Starts and removals at the engine together: each forks, and more of them only queue there."""

RELEASE_S = 10.0
"""The loop waits for no longer while everything is given back: a watchdog listens to it."""

WIND_UP_LOOK_S = 0.05
"""The loop looks so often whether every move has come to an end, when the agent ends."""

_NOT_THERE = "there is no such container"

UNHURRIED_S = 120.0
"""For starts and removals, which nobody waits for: on a saturated host a start takes a minute."""


class DockerRuntime:
    """Facts and actions of one instance on one engine; implements Runtime and LogSource."""

    def __init__(
        self,
        options: DockerOptions,
        clock: Clock,
        wake: Wake,
        inventory: Inventory | None = None,
        engine: Engine | None = None,
        proc: Path = PROC,
    ) -> None:
        """Begins to listen to the engine; neither waits for it nor fails where there is none.

        `inventory`: of the host's GPUs; None: the one of the devices that the options name.
        `engine` takes the place of the one that they name, and `proc` the host's processes'.

        Raises OSError when the state directory cannot be used.
        """
        self._options = options
        self._clock = clock
        self._wake = wake
        self._proc = proc
        self._engine = engine or Engine(options.host, options.timeout_s)
        self._unhurried = engine or Engine(options.host, max(options.timeout_s, UNHURRIED_S))
        self._patience = Patience(options.call_wait_s)
        self._group = ParentGroup(options.instance, options.cgroup_under)
        self._originals = Originals(options.state_dir)
        self._listings = Listings(
            self._engine,
            options.instance,
            own_containers(),
            self._patience,
            clock.now_s,
            self._came_with,
        )
        self._inventory = inventory or Inventory(options.gpus.device_folder)
        self._gpus: tuple[GpuFact, ...] = ()
        """As last looked at."""
        self._gpu_trouble: str | None = None
        gate = threading.Semaphore(CALLS_AT_ONCE)
        injector = Injector(options.gpus, lambda: self._gpus)
        self._canary = Canary(state_dir=options.state_dir)
        hands = LimitWriter(
            self._engine,
            self._originals,
            options.state_dir,
            clock.wall_time,
            proc,
            injector,
            self._canary,
        )
        self._resizes = Resizes(
            hands,
            self._originals,
            self._patience,
            threading.Semaphore(CALLS_AT_ONCE),
            self._listings.want,
            clock.now_s,
        )
        creation = Creation(
            self._unhurried,
            self._group,
            hands,
            options.instance,
            options.state_dir,
            self._cgroup_driver,
            injector,
            options.confine,
        )
        self._starts = Starts(
            Images(self._unhurried, options.config_file),
            creation,
            gate,
            self._start_ended,
            clock.now_s,
        )
        self._moves = Moves(
            Relocation(self._unhurried, creation, options.instance, options.state_dir),
            options.instance,
            gate,
            self._start_ended,
            wake,
            clock.now_s,
            self._gpu_names,
        )
        self._stops = Stops(self._unhurried, gate, self._listings.want, hands.lift)
        self._events = Events(self._engine, options.instance, self._listings.want, wake)
        self._watches: dict[str, Watch] = {}
        self._restarts = Restarts(self._engine, self._listings.want)
        self._allotments = Allotments(options.state_dir)
        self._untold: str | None = None
        self._containers: Mapping[str, str] = {}
        """Container ids by job, replaced whole: the only thing that other threads read."""
        self._folded: Listing | None = None
        self._driver: str | None = None
        self._weight_trouble: str | None = None
        self._events.start()
        begin(self._cgroup_driver, "cgroup-driver")  # the grain of ceilings hangs on it

    def observe(self, now_s: float) -> Observation:
        """All facts at `now_s`; waits at most `call_wait_s`, and only where something happened."""
        node = self._node(now_s)
        self._listings.refresh()
        listing = self._listings.last
        if listing is not None and listing is not self._folded:
            self._fold(listing, now_s)
            if not self._options.dry_run:
                starting = {begun.job for begun in self._starts.begun(listing)}
                self._allotments.sweep(listing.named | starting)
        if listing is not None:
            self._stops.advance(listing, now_s)
            if not self._options.dry_run:
                self._moves.find(listing, now_s)
            if not self._options.dry_run and self._listings.trouble is None:
                self._set_restarts_back(now_s)
                self._resizes.sweep(listing)
        trouble = self._listings.trouble
        idle = self._stops.idle and self._moves.idle and self._resizes.idle
        facts = tuple([self._fact(watch, now_s, idle=idle) for watch in self._watches.values()])
        if listing is not None and not self._options.dry_run:
            self._moves.advance(listing, facts, now_s)
        if not self._options.dry_run:
            self._untold = self._allotments.follow(facts)
        return Observation(
            now_s=now_s,
            engine_ok=trouble is None,
            engine_trouble=trouble,
            containers=facts,
            begun=self._starts.begun(listing),
            listing_age_s=0.0 if listing is None else max(0.0, now_s - listing.at_s),
            left_alone=() if listing is None else listing.left_alone,
            host_busy_core_s=host.busy_core_s(),
            node=node,
        )

    def apply(self, action: Action, now_s: float) -> Outcome:
        """Begin a start, a move or a removal, or carry out a resize; never raises for that."""
        if isinstance(action, Start):
            return self._starts.begin(action)
        if isinstance(action, Resize):
            return self.apply_all([action], now_s)[0]
        watch = self._watches.get(action.container_id)
        if self._resizes.updating(action.container_id):
            return Outcome(action, "failed", "operation under way: updating")
        if isinstance(action, Remove):
            if watch is not None and watch.described.adopted is not None:
                return Outcome(action, "failed", "adopted: it is not ours to end", retryable=False)
            return self._remove(action, None if watch is None else watch.described, now_s)
        if watch is None:
            return Outcome(action, "failed", _NOT_THERE)
        if (operation := self._stops.operation(action.container_id, now_s)) is not None:
            return Outcome(action, "failed", f"operation under way: {operation}")
        return self._moves.begin(action, watch.described, now_s)

    def apply_all(self, actions: Sequence[Resize], now_s: float) -> tuple[Outcome, ...]:
        """Carry out changes of as many jobs, several at a time; never raises for that."""
        refusals = {
            action.job: why
            for action in actions
            if (why := self._why_not_now(action, now_s)) is not None
        }
        changes = []
        for action in actions:
            if action.job not in refusals:
                watch = self._watches[action.container_id]
                watch.doubt()
                changes.append((action, watch.described))
        outcomes = {outcome.action.job: outcome for outcome in self._resizes.begin_all(changes)}
        for action, _ in changes:
            if outcomes[action.job].status == "done" and not action.only_tells:
                self._watches[action.container_id].gave(action.cpu_shares)
        return tuple(
            outcomes.get(action.job) or Outcome(action, "failed", refusals[action.job])
            for action in actions
        )

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        """The job's output, oldest first; raises EngineUnavailable, or KeyError: no container."""
        container = self._containers[job]
        try:
            yield from self._engine.logs(container, tail, follow)
        except EngineRefused as error:
            raise KeyError(job) from error

    def release(self, ceilings: Mapping[str, float | None]) -> tuple[GivenBack, ...]:
        """Give every changed container what it had: own ones their ceiling, others their own.

        `ceilings` are those of the specs, where they are known; others go to the ceiling of their
        last change. Waits for the engine, at most `RELEASE_S` in all.
        """
        until_s = self._clock.now_s() + min(self._options.timeout_s, RELEASE_S)
        self._wind_up(until_s)
        for watch in self._watches.values():
            watch.doubt()
        return self._resizes.release(ceilings, self._own(), until_s)

    def expect(self, ceilings: Mapping[str, float | None], managed: Set[str]) -> None:
        """Take note of what jobs go back to, and of the containers that are any job's.

        One that was adopted and is nobody's any more is given back. Waits for nothing.
        """
        self._resizes.managed = managed
        if not self._resizes.held:
            self._resizes.keep_true(ceilings, self._own())

    def hold(self, held: bool) -> None:
        """Change nothing on its own account while that is so: everything was given back."""
        self._resizes.held = held

    def troubles(self) -> tuple[str, ...]:
        """What is wrong with limits, with bringing them back, and with GPUs, a line each."""
        untold = () if self._untold is None else (self._untold,)
        gpus = () if self._gpu_trouble is None else (f"gpu: {self._gpu_trouble}",)
        lost = tuple(_in_trouble(gpu) for gpu in self._gpus if gpu.trouble)
        moves = self._moves.failures(self._clock.now_s())
        told = (watch.described for watch in self._watches.values() if watch.described.gpu_access)
        taken = ((one.job, self._canary.lost(one.container_id, one.pid)) for one in told)
        harmed = tuple(f"gpu: {job}: {why}: {REMEDY}" for job, why in taken if why is not None)
        return (*self._resizes.problems, *moves, *untold, *gpus, *lost, *harmed)

    def tell_deliverable(self, job: str, deliverable: bool) -> None:
        """Say in the job's allotment whether it can be delivered; raises OSError, ValueError.

        An adopted job has none.
        """
        watch = self._watches.get(self._containers.get(job, ""))
        if watch is not None and watch.described.adopted is not None:
            return
        change_allotment(job_dir(self._options.state_dir, job), deliverable=deliverable)

    def check_engine(self) -> None:
        """Raise EngineUnavailable when the engine does not answer now, EngineUnworkable when it
        answers and cannot do what dlsched needs."""
        if (why := unworkable(self._engine.version(), self._engine.info())) is not None:
            raise EngineUnworkable(f"{self._engine.host}: {why} (see `dlsched doctor`)")

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
        self._inventory.close()

    def _node(self, now_s: float) -> NodeFact | None:
        polled = self._inventory.poll(now_s)
        self._gpus, self._gpu_trouble = polled.devices, polled.problem
        node = host.node(SYSTEMD_GRAIN_CORES if self._driver == "systemd" else GRAIN_CORES)
        return node and replace(node, gpus=polled.devices, gpu_trouble=polled.problem)

    def _fold(self, listing: Listing, now_s: float) -> None:
        first = self._folded is None
        for container, described in listing.containers.items():
            watch = self._watches.get(container)
            if watch is None:
                self._watches[container] = Watch(
                    described, now_s, self._engine.follow, self._proc, from_end=first
                )
                if described.adopted is not None:
                    self._resizes.examine(described)
            else:
                watch.take(described, now_s)
        for container in self._watches.keys() - listing.containers.keys():
            self._watches.pop(container).close()
        self._folded = listing
        self._containers = {w.described.job: c for c, w in self._watches.items()}
        self._weigh_group()

    def _set_restarts_back(self, now_s: float) -> None:
        if self._resizes.held:
            return
        idle = (
            watch.described
            for container, watch in self._watches.items()
            if watch.described.restart_strays
            and self._stops.operation(container, now_s) is None
            and self._moves.operation(watch.described.job, now_s) is None
            and not self._resizes.updating(container)
        )
        self._resizes.take(self._restarts.set_back(idle, now_s))

    def _fact(self, watch: Watch, now_s: float, *, idle: bool) -> ContainerFact:
        """`idle`: nothing is being done to any container."""
        described = watch.described
        operation = None if idle else self._operation(described, now_s)
        fact, vanished = watch.fact(
            now_s, operation, bursts=self._resizes.can_burst, idles=self._resizes.can_idle
        )
        if vanished:
            self._listings.want(described.container_id)
        if described.gpu_access is not None:
            state_dir = self._options.state_dir
            fact = with_gpus(fact, described, self._gpus, self._canary, state_dir)
        if not idle and fact.adopted is None and (kept := self._kept_gpus(fact)):
            fact = replace(fact, gpus_kept=kept)
        return fact

    def _operation(self, described: Inspected, now_s: float) -> str | None:
        operation = self._stops.operation(described.container_id, now_s)
        if operation is None and described.adopted is None:
            operation = self._moves.operation(described.job, now_s)
        return self._resizes.operation(described) if operation is None else operation

    def _kept_gpus(self, fact: ContainerFact) -> tuple[str, ...]:
        return self._moves.kept(fact.job, fact.gpus)

    def _why_not_now(self, action: Resize, now_s: float) -> str | None:
        """Why a container's limits cannot be changed now; None: they can."""
        container = action.container_id
        if self._resizes.updating(container):
            return "operation under way: updating"
        if container not in self._watches:
            return _NOT_THERE
        operation = self._stops.operation(container, now_s)
        if operation is None:
            operation = self._moves.operation(action.job, now_s)
        return None if operation is None else f"operation under way: {operation}"

    def _gpu_names(self, uuids: tuple[str, ...]) -> str:
        indices = {gpu.uuid: gpu.index for gpu in self._gpus if gpu.part_of is None}
        names = (f"GPU {indices[uuid]}" if uuid in indices else uuid for uuid in uuids)
        return " and ".join(names)

    def _wind_up(self, until_s: float) -> None:
        """No job is left between two containers: it goes back, or has gone on in the new one."""
        self._moves.winding_up = True
        while self._moves.unsettled and self._clock.now_s() < until_s:
            self.observe(self._clock.now_s())
            self._clock.sleep_until(self._clock.now_s() + WIND_UP_LOOK_S)
        self._moves.winding_up = False

    def _remove(self, action: Remove, described: Inspected | None, now_s: float) -> Outcome:
        """A move ends with it, and neither of its containers is left over."""
        others = self._moves.forsake(action, self._listings.last, now_s)
        if isinstance(others, Outcome):
            return others
        for other in others:
            also = replace(action, container_id=other.container_id, lift=None)
            self._stops.begin(also, other, now_s)
        return self._stops.begin(action, described, now_s)

    def _own(self) -> dict[str, str]:
        """The ids of containers that the agent made, by job."""
        watches = self._watches.items()
        return {one.described.job: key for key, one in watches if one.described.adopted is None}

    def _came_with(self, described: Inspected) -> float | None:
        """The ceiling that a container had before any change of ours, in cores."""
        original = self._originals.of(described.container_id)
        if original is None or original.given_back:
            return described.limit_cores
        return original.cpu_cores

    def _weigh_group(self) -> None:
        most = self._options.group_weight
        if most is None:
            return
        own = [watch for watch in self._watches.values() if watch.described.adopted is None]
        readers = (watch.reader for watch in own)
        reader = next((r for r in readers if r is not None and r.cpu_folder is not None), None)
        if reader is None:
            return
        weight = most
        if len(own) < len(self._watches):
            # Adopted containers lie beside the group: it weighs no more than what is in it.
            shares = sum(watch.shares or 0 for watch in own)
            weight = min(most, shares / DEFAULT_SHARES)
        begin(lambda: self._weigh(reader, weight), "weight")

    def _weigh(self, reader: CgroupReader, weight: float) -> None:
        if reader.cpu_folder is not None:
            trouble = self._group.weigh(reader.cpu_folder, weight, v2=reader.v2)
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


def _in_trouble(gpu: GpuFact) -> str:
    what = remedy(gpu)
    cure = f" ({what})" if what else ""
    return f"gpu: GPU {gpu.index} ({gpu.uuid[:12]}): {gpu.trouble}{cure}"
