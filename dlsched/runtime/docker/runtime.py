"""The runtime of one Docker Engine: observes and changes this instance's containers, no others.

Puts together listing, watches, starts, stops, moves and resizes. It must not decide anything, and
must not make the loop wait for the engine longer than `call_wait_s` a cycle, even when it hangs.
Everything runs in the loop's thread, but for `logs` and what is begun in the background.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path

from dlsched.control.ports import Clock, Wake
from dlsched.model.actions import Action, Memory, Outcome, Remove, Resize, Start
from dlsched.model.alarms import Alarm
from dlsched.model.facts import ContainerFact, NodeFact, Observation, Operation
from dlsched.runtime import host
from dlsched.runtime.allotment import Allotments, change_allotment, job_dir
from dlsched.runtime.cgroup.enclosing import Surroundings
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.cpu_users import CpuUsers
from dlsched.runtime.docker.background import Patience, begin
from dlsched.runtime.docker.carrying import Arrivals
from dlsched.runtime.docker.create.creation import Creation
from dlsched.runtime.docker.create.images import Images
from dlsched.runtime.docker.doctor.engine import require
from dlsched.runtime.docker.engine import Engine, EngineFacts, EngineRefused
from dlsched.runtime.docker.engine_calls import EngineCalls
from dlsched.runtime.docker.executor import Executor
from dlsched.runtime.docker.gpus.canary import Canary
from dlsched.runtime.docker.gpus.enforcement import gpu_alarms, with_gpus
from dlsched.runtime.docker.gpus.injection import Injector
from dlsched.runtime.docker.identity.commands import AdoptionCommands
from dlsched.runtime.docker.instance import UNHURRIED_S, DockerOptions, Instance, own_containers
from dlsched.runtime.docker.limits.changing import Changes
from dlsched.runtime.docker.limits.group import ParentGroup
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.docker.listing import Events, Listings
from dlsched.runtime.docker.moves import Moves
from dlsched.runtime.docker.progress_readers import Outside
from dlsched.runtime.docker.watch import Watch, Watches
from dlsched.runtime.gpu import Inventory, UserNames
from dlsched.runtime.host import NodeReader, booted_at
from dlsched.runtime.machine.calls import SetLimits
from dlsched.runtime.machine.container import Machine, Unwanted
from dlsched.runtime.machine.inspected import Inspected, Listing
from dlsched.runtime.machine.outcomes import GivenBack
from dlsched.runtime.originals import Originals
from dlsched.runtime.threads.reader import ThreadReader
from dlsched.runtime.threads.sampler import ThreadSampler
from dlsched.runtime.wire.tap import Tap
from dlsched.store.adoptions import Adoptions

_log = logging.getLogger(__name__)

RELEASE_S = 10.0
"""The longest wait of the loop while everything is given back; it has to feed a watchdog."""

WIND_UP_POLL_S = 0.05
"""At the agent's end, the time between two checks whether every move is over."""

DRY_RUN = "dry run"
_NOT_THERE = "there is no such container"


class DockerRuntime:
    """Facts and actions of one instance on one engine; implements Runtime."""

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
        self._clock = clock
        hurried = engine or Engine(options.host, options.timeout_s)
        instance = self._instance = Instance(
            options,
            hurried,
            engine or Engine(options.host, max(options.timeout_s, UNHURRIED_S)),
            EngineFacts(hurried),
            clock,
            Originals(options.state_dir, read_only=options.read_only),
            Adoptions(options.state_dir, read_only=options.read_only),
            own_containers(),
            proc,
        )
        self._patience = Patience(options.call_wait_s, now_s=clock.now_s)
        self._group = ParentGroup(options.instance, options.cgroup_under, options.group_weight)
        self._cpu_users = CpuUsers(clock.now_s, begin, instance.left_out, proc)
        self._threads = ThreadSampler(begin, ThreadReader(clock.now_s, time.sleep, proc).read)
        self._listings = Listings(instance, self._patience, booted_at())
        self.use_presets = self._listings.use
        self.refresh = self._listings.refresh
        """List the engine's containers; waits at most `call_wait_s`, where something happened."""
        self._node = NodeReader(
            inventory
            or Inventory(
                options.gpus.device_folder,
                # The user names that an agent in a container knows are those of its image.
                users=None if instance.left_out else UserNames(),
            ),
            Surroundings(proc),
        )
        injector = Injector(options.gpus, lambda: self._node.gpus)
        self._canary = Canary(state_dir=options.state_dir)
        writer = self._writer = LimitWriter(instance, injector, self._canary)
        self._arrivals = Arrivals(instance)
        self.images = Images(instance.unhurried, options.config_file, clock.now_s)
        creation = Creation(
            instance,
            self._group,
            writer,
            injector,
            self._arrivals,
            lambda: self._node.jobs_cores,
        )
        self._calls = EngineCalls(instance, writer, creation, self.images, self._arrivals)
        self._executor = Executor(self._calls, self._listings.want, wake, clock.now_s)
        self._machine = Machine(self._executor.do)
        self.hold(None)
        self._changes = Changes(
            instance, self._machine, self._executor, writer, self._listings, self._patience
        )
        self._events = Events(instance, self._listings.want, wake, self._listings.engine_lost)
        self.adopting = AdoptionCommands(instance, self._listings, writer)
        self._watches = Watches(
            Outside(
                instance.engine.follow,
                instance.engine.inspect,
                proc,
                instance.engine.logs,
                Tap(proc=proc) if options.wire else None,
            )
        )
        self.read_from = self._watches.read_from
        self.examine = self._watches.examine
        self.moves = Moves(
            instance,
            self._machine,
            self._calls,
            self._arrivals,
            self._listings,
            self._watches,
            self._node.gpu_names,
        )
        """Also of jobs that leave for another node, or come from there."""
        self._allotments = Allotments(options.state_dir, read_only=options.read_only)
        self._untold: tuple[Alarm, ...] = ()
        self._facts: tuple[ContainerFact, ...] = ()
        self._managed: Set[str] | None = None
        """The containers that belong to a job; None: not known yet."""
        self._changed: set[str] = set()
        """Containers whose limits were changed since."""
        self._swept: Listing | None = None
        """The last listing that nothing was left over of."""
        self._events.start()
        begin(self._instance.facts.cgroup_driver, "cgroup-driver")  # the ceilings' grain

    def resume(self, now_s: float) -> None:
        """List containers, and note the moves that an earlier agent began."""
        self.refresh()
        # In a dry run a move that an earlier agent began would never go on.
        if self._listings.last is not None and not self._reads_only:
            self.moves.find(self._listings.last, now_s)

    def observe(self, now_s: float) -> Observation:
        """All facts at `now_s` about the containers listed; reads only."""
        self._machine.take(self._executor.ended())
        driver = self._instance.facts.driver
        alive = (one.described for one in self._watches.all() if one.described.alive)
        groups = ((one.job, one.container_id, one.pid) for one in alive)
        node = self._node.read(now_s, driver, self._group.name(driver or ""), groups)
        listing, problem = self._listings.last, self._listings.problem
        if listing is not None and listing is not self._watches.listing:
            for described in self._watches.show(listing, now_s):
                self._changes.examine(described)
        if self._reads_only and listing is not None:
            self._changes.examine_again(listing)
        idle = not (self._machine.busy or self.moves.moving)
        watches = self._watches.all()
        self._facts = tuple([self._fact(watch, now_s, idle=idle) for watch in watches])
        self._changed.clear()
        jobs = frozenset(one.described.container_id for one in watches)
        self._cpu_users.sample(now_s, jobs)
        busy_core_s = host.busy_core_s()
        self._sample_threads(now_s, busy_core_s, node)
        names = self._container_names()
        return Observation(
            now_s=now_s,
            engine_ok=problem is None,
            engine_problem=problem,
            containers=self._facts,
            begun=self._machine.begun(listing),
            left_alone=() if listing is None else listing.left_alone,
            host_busy_core_s=busy_core_s,
            node=node and replace(node, host_cpu=self._cpu_users.named(names, jobs)),
            gpus_away=self.moves.gpus_away(),
            container_names=names,
        )

    def _sample_threads(
        self, now_s: float, busy_core_s: float | None, node: NodeFact | None
    ) -> None:
        """Have the threads of containers sampled; the next facts have what is found."""
        cores = host.threads() if node is None else node.cores
        groups = [one for watch in self._watches.all() if (one := watch.counted()) is not None]
        for container, fact in self._threads.sample(now_s, busy_core_s, cores, groups).items():
            watch = self._watches.get(container)
            if watch is not None:
                watch.threads = fact

    def _container_names(self) -> Mapping[str, str]:
        """The engine's names of all containers on GPUs, and of those that use CPU, by ID."""
        shown = set(self._cpu_users.containers)
        for gpu in self._node.gpus:
            holding = (process.container_id for process in gpu.processes)
            shown.update(one for one in holding if one is not None)
        described = [watch.described for watch in self._watches.all()]
        ours = {one.container_id: one.name for one in described}
        self._listings.want_names(frozenset(shown - ours.keys()))
        listing = self._listings.last
        others = {} if listing is None else listing.others
        return {key: name for key, name in {**others, **ours}.items() if key in shown}

    def advance(self, now_s: float) -> None:
        """Take the next step of every stop and move, and repair what an earlier agent left undone.

        Works on what `observe` saw last; waits for nothing.
        """
        listing = self._watches.listing
        if listing is None or self._reads_only:
            return
        is_new = listing is not self._swept
        if is_new:
            self._swept = listing
            starting = {begun.job for begun in self._machine.begun(listing)}
            self._allotments.sweep(listing.named | starting)
        self._group.follow(self._watches.all(), again=is_new)
        self._machine.take(self._executor.ended())
        self._changes.settle(listing, self.moves.moving, self._managed)
        self.moves.advance(listing, self._facts, now_s)
        # A change of this cycle has notified its job already, and the facts are from before it.
        same = [fact for fact in self._facts if fact.container_id not in self._changed]
        self._untold = self._allotments.follow(same)

    def apply(self, action: Action, now_s: float) -> Outcome:
        """Begin a start, a move or a removal, or carry out a resize; never raises for that."""
        if self._reads_only:
            return Outcome(action, "withheld", DRY_RUN)
        if isinstance(action, Start):
            bar = self.moves.bars_start(action.job)
            return Outcome(action, "withheld", bar) if bar else self._machine.start(action, now_s)
        if isinstance(action, Resize | Memory):
            return self.apply_all([action], now_s)[0]
        watch = self._watches.get(action.container_id)
        one = self._machine.of(action.container_id)
        kind = Unwanted if isinstance(action, Remove) else SetLimits
        if (operation := one.bars(now_s, kind)) is not None:
            return Outcome(action, "failed", f"operation under way: {operation}")
        if isinstance(action, Remove):
            if watch is not None and watch.described.adopted is not None:
                return Outcome(
                    action,
                    "failed",
                    "the container is adopted, so dlsched may not end it",
                    retryable=False,
                )
            self._changed.add(action.container_id)
            return self._remove(action, None if watch is None else watch.described, now_s)
        if watch is None:
            return Outcome(action, "failed", _NOT_THERE)
        return self.moves.begin(action, watch.described, now_s)

    def apply_all(self, actions: Sequence[Resize | Memory], now_s: float) -> tuple[Outcome, ...]:
        """Change the limits of several jobs, several at a time; never raises for that."""
        if self._reads_only:
            return tuple(Outcome(action, "withheld", DRY_RUN) for action in actions)
        outcomes: dict[str, Outcome] = {}
        changes: list[tuple[Resize | Memory, Watch]] = []
        for action in actions:
            watch = self._watches.get(action.container_id)
            moving = self.moves.operation(action.job, now_s)
            if watch is None or moving is not None:
                why = _NOT_THERE if watch is None else f"operation under way: {moving}"
                outcomes[action.job] = Outcome(action, "failed", why)
                continue
            watch.doubt()
            changes.append((action, watch))
        made = self._changes.make([(action, watch.described) for action, watch in changes])
        for (action, watch), outcome in zip(changes, made, strict=True):
            outcomes[action.job] = outcome
            if isinstance(action, Memory):
                continue
            if outcome.ok:
                self._changed.add(action.container_id)
            if outcome.status == "done" and not (action.only_notifies or action.gives_back):
                watch.gave(action.cpu_shares)
        return tuple(outcomes[action.job] for action in actions)

    def logs(self, job: str, tail: int, follow: bool) -> Iterator[bytes]:
        """The job's output, oldest first; raises EngineUnavailable, or KeyError: no container."""
        container = self._watches.ids[job]
        try:
            return self._instance.engine.logs(container, tail, follow)
        except EngineRefused as error:
            raise KeyError(job) from error

    def release(self, ceilings: Mapping[str, float | None]) -> tuple[GivenBack, ...]:
        """Give every changed container what it had: own ones their ceiling, others their own.

        `ceilings` are those of the specs, where they are known; others go to the ceiling of their
        last change. Waits for the engine, at most `RELEASE_S` in all. After a dry run there is
        nothing to give back.
        """
        if self._reads_only:
            return ()
        now_s = self._clock.now_s()
        until_s = now_s + min(self._instance.options.timeout_s, RELEASE_S)
        self._wind_up((now_s + until_s) / 2)  # a move may hang, and limits need time, too
        for watch in self._watches.all():
            watch.doubt()
        weighs = self._group.follow(self._watches.all(), given_back=True)
        backs = self._changes.release(ceilings, self._watches.own(), until_s)
        if weighs is not None:
            wait([weighs], max(0.0, until_s - self._clock.now_s()))
        return backs

    def expect(self, ceilings: Mapping[str, float | None], managed: Set[str]) -> None:
        """Note what jobs go back to, and which containers belong to a job; waits for nothing.

        An adopted container that belongs to none any more is given back.
        """
        self._managed = managed
        if self.held is None:
            self._changes.keep_true(ceilings, self._watches.own())

    @property
    def held(self) -> str | None:
        """Why nothing may be changed: everything was given back, or it is a dry run; None: changes
        are made."""
        return self._machine.held

    def hold(self, why: str | None) -> None:
        """Change nothing from now on, since everything was given back; None: make changes again. A
        dry run never makes any."""
        self._machine.held = DRY_RUN if self._reads_only else why

    @property
    def _reads_only(self) -> bool:
        return self._instance.options.read_only

    def alarms(self) -> tuple[Alarm, ...]:
        """What is wrong with limits, with giving them back, with moves, and with GPUs."""
        watched = [watch.described for watch in self._watches.all()]
        return (
            *self._changes.alarms,
            *self._instance.adoptions.alarms,
            *self._arrivals.alarms,
            *self.moves.alarms(self._clock.now_s()),
            *self._untold,
            *gpu_alarms(self._node.gpus, self._node.gpu_problem, watched, self._canary),
        )

    def report_deliverable(self, job: str, deliverable: bool) -> None:
        """Write to the allotment of an own job whether it can be delivered; not in a dry run.

        Raises OSError, ValueError.
        """
        if self._reads_only:
            return
        described = self._watches.of_job(job)
        if described is None or described.adopted is None:
            change_allotment(job_dir(self._instance.state_dir, job), deliverable=deliverable)

    def check_engine(self) -> None:
        """Raises EngineUnavailable, or EngineUnworkable when it cannot do what dlsched needs."""
        require(self._instance.engine)

    def close(self) -> None:
        """Release all resources; containers run on, and an empty parent group is removed."""
        self._events.close()
        if not (self._watches.listing is None or self._watches.all() or self._reads_only):
            self._group.remove()
        self._watches.close()
        self._instance.engine.close()
        self._instance.unhurried.close()
        self._node.close()
        self._writer.claims.close()

    def _fact(self, watch: Watch, now_s: float, *, idle: bool) -> ContainerFact:
        """`idle`: nothing is being done to any container."""
        described = watch.described
        operation = None if idle else self._operation(described, now_s)
        altered = self._instance.originals.holds(described.container_id)
        bursts, idles = self._writer.burst_problem is None, self._writer.idle_problem is None
        fact, vanished = watch.fact(now_s, operation, bursts=bursts, idles=idles, altered=altered)
        if vanished:
            self._listings.want(described.container_id)
        if described.gpu_access is not None:
            fact = with_gpus(
                fact, described, self._node.gpus, self._canary, self._instance.options.state_dir
            )
        original = self._instance.originals.of(described.container_id)
        if original is not None and original.memory is not None and altered:
            before_bytes = original.memory.before(described.limits).memory_bytes
            fact = replace(fact, memory=replace(fact.memory, before_bytes=before_bytes))
        if not idle and fact.adopted is None and (kept := self.moves.kept(fact.job, fact.gpus)):
            fact = replace(fact, gpus_kept=kept)
        return fact

    def _operation(self, described: Inspected, now_s: float) -> Operation | None:
        """What is being done to it, or why nothing is; None: it may be changed."""
        one = self._machine.of(described.container_id)
        if one.stop is None and described.adopted is None:
            moving = self.moves.operation(described.job, now_s)
            if moving is not None:
                return moving
        return one.operation(described, now_s)

    def _wind_up(self, until_s: float) -> None:
        """Leave no job between two containers: it goes back, or goes on in the new one. Never
        raises."""
        self.moves.winding_up = True
        try:
            while self.moves.unsettled and (now_s := self._clock.now_s()) < until_s:
                self.resume(now_s)
                self.observe(now_s)
                self.advance(now_s)
                self._clock.sleep_until(self._clock.now_s() + WIND_UP_POLL_S)
        except Exception:  # noqa: BLE001  limits have to be given back whatever fails here
            _log.exception("the daemon ends, and moves of jobs under way could not be completed")
        finally:
            self.moves.winding_up = False

    def _remove(self, action: Remove, described: Inspected | None, now_s: float) -> Outcome:
        """Remove a job's container, and with it the other one of a move under way."""
        others = self.moves.forsake(action, self._listings.last, now_s)
        if isinstance(others, Outcome):
            return others
        for other in others:
            also = replace(action, container_id=other.container_id, lift=None)
            self._machine.post(other.container_id, Unwanted(also, other), now_s)
        if described is None:
            return Outcome(action, "done", _NOT_THERE)
        before = self._machine.of(action.container_id).bars(now_s)
        self._machine.post(action.container_id, Unwanted(action, described), now_s)
        return Outcome(action, "begun", "" if before is None else str(before))
