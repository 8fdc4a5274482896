"""Changes containers' CPU limits, weight, burst and memory limit, and gives the originals back;
nothing else does.

Before the first change of a container its original limits are on the disk; what could not be
restored is never changed. A container whose GPUs an engine update could take is changed by its
control group's files. Calls block on the engine: they belong in a background thread.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial

from dlsched.model.errors import DlschedError
from dlsched.model.spec import Limits
from dlsched.model.units import render_bytes
from dlsched.runtime.allotment import change_allotment, job_dir
from dlsched.runtime.cgroup.cpu_units import (
    DEFAULT_SHARES,
    DEFAULT_WEIGHT,
    PERIOD_US,
    UNLIMITED_US,
    bounded_shares,
    search_shares,
    weight_of,
)
from dlsched.runtime.cgroup.exclusive import ExclusiveClaims
from dlsched.runtime.cgroup.group_limits import GroupLimits, LimitFiles
from dlsched.runtime.clock import SystemClock
from dlsched.runtime.docker.engine import Body, Engine, EngineFacts, EngineRefused
from dlsched.runtime.docker.gpus.canary import Canary, GpuContainer, Unproven, Unsafe
from dlsched.runtime.docker.gpus.injection import GpuOptions, Injector, paced
from dlsched.runtime.docker.instance import DockerOptions, Instance
from dlsched.runtime.docker.limits.actual import (
    ContainerLimits,
    as_listed,
    in_step,
    leave_idle_class,
    memory_unrestored,
    memory_update,
    read_limits,
    refusal,
    too_low,
    unchangeable,
    unrestored,
    with_given,
    with_original,
)
from dlsched.runtime.docker.limits.dialect import (
    ceiling_update,
    describe,
    for_kernel,
    in_kernel,
    is_applied,
    original_update,
    quota_after,
    with_owners_limit,
)
from dlsched.runtime.docker.limits.group import give_weight_back
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.outcomes import (
    ELSEWHERE,
    GivenBack,
    NotGivenBack,
    Own,
    Untouchable,
    one_line,
)
from dlsched.runtime.originals import EngineLimits, MemoryOriginal, Original, Originals
from dlsched.store.adoptions import Adoptions


class PastEngine:
    """Writes limits to control group files for containers whose GPUs an engine update could take.
    Each cycle writes again what a restart or a rewrite of the group has undone. Thread-safe, one
    thread for each container."""

    def __init__(self, canary: Canary, newer_runc: Callable[[], bool]) -> None:
        """`canary` checks GPUs that may have been taken; `newer_runc` returns which conversion of
        shares to weights the engine uses, on cgroup v2."""
        self._canary = canary
        self._newer_runc = newer_runc
        self._written: dict[str, tuple[int, int, int]] = {}
        """Process, quota and period."""

    def has(self, files: LimitFiles | None, limits: GroupLimits, update: Body) -> bool:
        """Whether the kernel, which has `limits`, has the update's limits already."""
        weight = None if files is None else self._weight(files, update)
        return weight in (None, limits.shares, limits.weight) and in_kernel(update, limits)

    def write(self, held: GpuContainer, files: LimitFiles | None, update: Body, why: str) -> None:
        """Write the update's limits to the kernel, for that reason. Raises Untouchable."""
        unwritable = "limits not changed: the container's control group cannot be written"
        if files is None or not files.writable:
            raise Untouchable(f"{unwritable}, and {why}")
        self._check_gpus(held, files.read())
        ceiling = (quota_after(update), int(update.get("CpuPeriod", PERIOD_US)))
        try:
            files.write_ceiling(*ceiling)
            if (weight := self._weight(files, update)) is not None:
                files.write_weight(weight)
        except OSError as error:
            raise Untouchable(f"{unwritable}: {error.strerror}, and {why}") from error
        self._written[held.container] = (held.pid, *ceiling)

    def write_memory(
        self, held: GpuContainer | None, files: LimitFiles | None, limits: EngineLimits, why: str
    ) -> None:
        """Write the memory limits to the kernel, for that reason. Raises Untouchable."""
        unwritable = "memory limit not changed: the container's control group cannot be written"
        if held is None or files is None:
            raise Untouchable(f"{unwritable}, and {why}")
        try:
            files.write_memory(limits.memory_bytes, limits.memory_swap_bytes)
        except OSError as error:
            raise Untouchable(f"{unwritable}: {error.strerror}, and {why}") from error

    def forget(self, container: str) -> None:
        """Forget a container that is gone."""
        self._written.pop(container, None)

    def _check_gpus(self, held: GpuContainer, now: GroupLimits) -> None:
        written = self._written.get(held.container)
        if written is None:
            self._canary.check(held)  # unknown what happened before this agent's first write
        elif written[0] == held.pid and written[1:] != (now.quota_us, now.period_us):
            # The whole group was rewritten, as systemd does, including the list of devices.
            self._canary.check(held)

    def _weight(self, files: LimitFiles, update: Body) -> int | None:
        """The kernel's weight for the shares in that update; None: it has none."""
        if (shares := update.get("CpuShares")) is None:
            return None
        if not files.v2:
            return bounded_shares(int(shares))
        return weight_of(int(shares), newer=self._newer_runc())


class LimitWriter:
    """Writes the limits of one engine's containers. Thread-safe."""

    def __init__(
        self,
        instance: Instance,
        injector: Injector = Injector(GpuOptions(), tuple),  # noqa: B008 - it is frozen
        canary: Canary | None = None,
    ) -> None:
        """`injector` provides the host's GPUs, and `canary` whether updates are safe for them
        (None: unknown)."""
        self._instance = instance
        self._engine, self._originals = instance.engine, instance.originals
        self._facts, self._proc = instance.facts, instance.proc
        self._injector = injector
        self.canary = Canary() if canary is None else canary
        self._past = PastEngine(self.canary, lambda: self._facts.has_newer_runc)
        self.claims = ExclusiveClaims(None if instance.originals.read_only else instance.proc)
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._files: dict[str, LimitFiles] = {}
        """Cache by container, since finding the files reads all mounts."""
        self.burst_problem: str | None = None
        """Why the burst cannot be set here; None: it can, or was never tried."""
        self.idle_problem: str | None = None
        """The same for the idle class."""

    def refusal(self, container: str) -> str | None:
        """Why another program's container must not be touched; None: it may be. Raises
        EngineUnavailable or EngineRefused."""
        with self._locks[container]:
            if self.claims.is_elsewhere(container):
                return ELSEWHERE
            if self._originals.holds(container):
                return None  # already changed, so checked before that
            return refusal(self._read(container), self._originals)

    def remember(self, container: str, own: Own) -> Original:
        """Record durably what an own container goes back to. Raises Untouchable."""
        kept = self._originals.of(container)
        memory = None if kept is None or kept.given_back else kept.memory
        wanted = Original(
            container, own.job, adopted=False, ceiling_cores=own.ceiling_cores, memory=memory
        )
        if kept is None or replace(kept, wall_time="", engine="") != wanted:
            self._keep(replace(wanted, wall_time=self._instance.clock.wall_time()))
        return wanted

    def set(
        self,
        container: str,
        limits: Limits,
        shares: int | None,
        *,
        burst_cores: float | None = None,
        idle: bool = False,
        own: Own | None = None,
        described: Inspected | None = None,
    ) -> None:
        """Set a container's limits; `own` None: another program's. `described`, from the last
        listing, saves an inspection.

        `burst_cores` None: the original burst, as far as the quota allows. `idle`: an own container
        goes to the kernel's idle class. If burst or idle class cannot be set, the rest still is.

        Raises Untouchable, EngineRefused, EngineUnavailable, `canary.Waits`; OSError and ValueError
        for a job's allotment.
        """
        with self._locks[container]:
            if own is None and not self.claims.take(container):  # before its limits are read
                raise Untouchable(f"limits not changed: {ELSEWHERE}")
            listed = None
            if described is not None:
                listed = as_listed(described, self._proc, self._files.get(container))
            found = listed or self._read(container)
            if found.files is not None:
                self._files[container] = found.files
            original = self._before(found, own)
            body = self._ceiling(found, limits.cpu_cores)
            if shares is not None:
                body["CpuShares"] = shares
            quota = quota_after(body)
            burst = original.kernel.burst_us or 0
            if burst_cores is not None:
                burst = round(burst_cores * PERIOD_US)
            if quota != UNLIMITED_US:
                burst = min(burst, quota)
            if found.limits.idle or not self._has(found, body):
                self._change(found, body)
            self._give_burst(found, burst)
            if idle and own is not None:
                self._make_idle(found)
            if own is not None:
                # A job that is idle now must not size its threads for that.
                self.update_allotment(
                    own, replace(limits, cpu_cores=own.ceiling_cores) if idle else limits
                )

    def set_memory(self, container: str, limit_bytes: int, own: Own | None = None) -> None:
        """Set a container's memory limit, its swap limit in step; `own` as for `set`. Raises
        Untouchable, EngineRefused, EngineUnavailable, `canary.Waits`, OSError."""
        with self._locks[container]:
            if own is None and not self.claims.take(container):
                raise Untouchable(f"memory limit not changed: {ELSEWHERE}")
            found, kept = self._read(container), self._originals.of(container)
            before = None if kept is None or kept.given_back else kept.memory
            why = unchangeable(found, before) or too_low(found, limit_bytes, self._proc)
            if why is not None:
                raise Untouchable(f"memory limit not changed: {why}")
            memory = with_original(before, found)
            if limit_bytes < memory.memory_bytes:  # decided before the owner's `docker update`
                raise Untouchable(
                    "memory limit not changed: the container's owner has set "
                    f"{render_bytes(memory.memory_bytes)}, more than {render_bytes(limit_bytes)}"
                )
            original = self._before(found, own)
            self._keep(replace(original, memory=with_given(memory, found, limit_bytes)))
            self._change_memory(found, in_step(memory, limit_bytes))

    def update_allotment(self, own: Own, limits: Limits) -> None:
        """Write a job's limits to its allotment. Raises OSError, ValueError."""
        paces = paced(limits.gpu_share, own.mps_threads_percent)
        folder = job_dir(self._instance.state_dir, own.job)
        change_allotment(folder, cpu_cores=limits.cpu_cores, gpu_share=paces)

    def lift(self, container: str, limits: Limits | None) -> None:
        """Set limits of an own container that is about to end (None: keep them), outside the idle
        class, and tell its job. Raises as `set`, but not for the allotment."""
        with self._locks[container]:
            found = self._read(container)
            if limits is None:
                leave_idle_class(found)
                return
            if found.held is not None and not found.by_file:
                # Its GPUs are not risked while it saves itself: it does not serve as a canary.
                why = "the engine is not asked to set limits, as the container will end soon"
                found = replace(found, barred=why)
            self._change(found, self._ceiling(found, limits.cpu_cores))
            kept = self._originals.of(container)
            if kept is not None and not kept.adopted:
                with suppress(OSError, ValueError):
                    folder = job_dir(self._instance.state_dir, kept.job)
                    change_allotment(folder, cpu_cores=limits.cpu_cores)

    def give_back(self, original: Original) -> GivenBack:
        """Restore a container's original limits, and verify them in the kernel. Never raises."""
        with self._locks[original.container_id]:
            original = self._originals.of(original.container_id) or original
            now, failure = "", None
            try:
                now = self._give_back(original)
            except EngineRefused as error:
                if error.status != 404:
                    failure = error.reason
                elif (failure := self._forget_unless_elsewhere(original.container_id)) is None:
                    now = "gone"
            except (DlschedError, OSError, ValueError) as error:
                failure = one_line(error)
            if failure is not None:
                with suppress(DlschedError, OSError):
                    found = self._read(original.container_id)
                    now = describe(found.engine, found.limits)
            return GivenBack(original.job, original.container_id, original.adopted, now, failure)

    def give_up(self, container: str) -> GivenBack | None:
        """The result for a container whose record cannot be read; None: it is gone."""
        broken = self._originals.broken(container)
        why = f"the record of the container's original limits cannot be read: {broken}"
        now = ""
        try:
            if self.forget_if_gone(container):
                return None
            found = self._read(container)
            now = describe(found.engine, found.limits)
        except DlschedError as error:
            why = f"{why}; {error}"
        return GivenBack(container[:12], container, adopted=True, now=now, failure=why)

    def forget_if_gone(self, container: str) -> bool:
        """Drop the record of a container unknown to the engine; returns whether it was dropped.
        Raises EngineUnavailable or EngineRefused; NotGivenBack where another engine has it."""
        try:
            self._engine.inspect(container)
        except EngineRefused as error:
            if error.status != 404:
                raise
            if (why := self._forget_unless_elsewhere(container)) is not None:
                raise NotGivenBack(why) from error
            return True
        return False

    def _read(self, container: str) -> ContainerLimits:
        return read_limits(container, self._engine, self._injector, self.canary, self._proc)

    def _before(self, found: ContainerLimits, own: Own | None) -> Original:
        """The record of its original limits, on the disk."""
        kept = self._originals.of(found.container)
        if own is not None:
            return self.remember(found.container, own)
        if kept is None or kept.given_back:
            if (why := refusal(found, self._originals)) is not None:
                raise Untouchable(f"limits not changed: {why}")
            kept = Original(
                found.container,
                found.name,
                adopted=True,
                told=found.engine,
                files=dict(found.limits.files),
                wall_time=self._instance.clock.wall_time(),
            )
            self._keep(kept)
        elif (changed := with_owners_limit(kept, found.engine)) != kept:
            self._keep(changed)
            return changed
        return kept

    def _keep(self, original: Original) -> None:
        try:
            self._originals.secure(replace(original, engine=self._facts.identity()))
        except OSError as error:
            why = error.strerror or error
            raise Untouchable(
                f"limits not changed: the container's original limits cannot be recorded: {why}"
            ) from error

    def _forget_unless_elsewhere(self, container: str) -> str | None:
        """Drop all that is known of a container unknown to the engine; returns why not, where its
        record must be kept, since it may belong to another engine."""
        kept = self._originals.of(container)
        if kept is not None and kept.engine not in ("", self._facts.identity(fresh=True)):
            # A DOCKER_HOST in a shell suffices.
            return (
                "this engine does not know the container: another engine has it (see engine.host "
                "and DOCKER_HOST); if that engine is gone for good, remove "
                f"{self._originals.path(container)}"
            )
        with suppress(OSError):
            self._originals.lift(container)
            self._originals.broken(container).unlink(missing_ok=True)
        self._locks.pop(container, None)
        self._files.pop(container, None)
        self._past.forget(container)
        self.claims.release(container)
        self.canary.forget(container)
        return None

    def _ceiling(self, found: ContainerLimits, cores: float | None) -> Body:
        engine = found.engine
        return ceiling_update(engine, cores, self._facts.cores if engine.dialect == "nano" else 0)

    def _has(self, found: ContainerLimits, body: Body) -> bool:
        if not found.by_file:
            return is_applied(body, found.engine, found.limits)
        return self._past.has(found.files, found.limits, body)

    def _change(self, found: ContainerLimits, body: Body, *, wait: bool = False) -> None:
        """Apply the update by the engine, or by file where that is barred.

        First leaves the idle class and lowers the burst, as the kernel requires. `wait` while
        another container's update is tried as a canary.
        """
        quota = quota_after(body)
        leave_idle_class(found)
        if (
            quota != UNLIMITED_US
            and (found.limits.burst_us or 0) > quota
            and found.files is not None
        ):
            with suppress(OSError):  # then the engine refuses, and says so
                found.files.write_burst(quota)
        held, files = found.held, found.files
        past = None if held is None else partial(self._past.write, held, files, body)
        self._ask(found, body, past, wait=wait)

    def _change_memory(
        self, found: ContainerLimits, limits: EngineLimits, *, wait: bool = False
    ) -> None:
        """Apply the memory limits as `_change` does the others."""
        past = partial(self._past.write_memory, found.held, found.files, limits)
        self._ask(found, memory_update(limits), past, wait=wait)

    def _ask(
        self, found: ContainerLimits, body: Body, past: Callable[[str], None] | None, *, wait: bool
    ) -> None:
        """Have the engine apply the update; where it must not be asked, for the reason that `past`
        gets, that writes it."""
        if found.held is None or past is None:
            self._engine.update(found.container, body)
            if found.access is not None and (held := self._read(found.container).held) is not None:
                self.canary.check(held)  # started meanwhile
            return
        if found.barred is not None:
            past(found.barred)
            return
        try:
            update = partial(self._engine.update, found.container, body)
            self.canary.update(found.held, update, wait=wait)
        except (Unproven, Unsafe) as error:
            past(str(error))

    def _give_burst(self, found: ContainerLimits, burst: int) -> None:
        """Write the burst past the engine, which does not support it, after the quota."""
        if found.files is None or found.files.burst_us() in (None, burst):
            return
        try:
            found.files.write_burst(burst)
            self.burst_problem = None
        except OSError as error:
            self.burst_problem = f"burst: {error.strerror}: {found.files.burst_file}"

    def _make_idle(self, found: ContainerLimits) -> None:
        """Write the idle class past the engine: last, since no weight can be set in it."""
        if found.files is None or found.limits.idle is None:
            return
        try:
            found.files.write_idle(True)
            self.idle_problem = None
        except OSError as error:
            if found.files.hold(found.pid):  # else it has ended
                self.idle_problem = f"idle class: {error.strerror}: cpu.idle"

    def _give_back(self, original: Original) -> str:
        """Returns what it has now. Raises NotGivenBack, or what engine and files raise."""
        container = original.container_id
        if original.adopted and not self.claims.take(container):
            # It restores that instance's limits first, or these would be taken for foreign ones.
            raise NotGivenBack(f"{ELSEWHERE}: first let that instance give the limits back")
        found = self._read(container)
        original = for_kernel(with_owners_limit(original, found.engine), found.limits)
        try:
            self._change_back(original, found)
        except EngineRefused:
            again = self._read(container)
            if again.pid == found.pid:
                raise
            self._change_back(original, again)  # it ended or was started meanwhile
        stays = None if original.memory is None else self._memory_back(container, original.memory)
        now = self._read(container)
        wrong = unrestored(original, self._body_back(original, now), now)
        if stays is not None:
            wrong.append(stays)
        elif original.memory is not None:
            wrong += memory_unrestored(original.memory, now)
        if wrong:
            raise NotGivenBack("; ".join(wrong))
        if not original.adopted:
            # Otherwise a job that sizes its threads by its allotment would keep too few of them.
            # Before the record: once that says given back, this is not repeated.
            with suppress(OSError, ValueError):
                folder = job_dir(self._instance.state_dir, original.job)
                change_allotment(folder, cpu_cores=original.ceiling_cores, gpu_share=None)
        with suppress(OSError):  # then the next agent gives it back once more
            self._originals.secure(replace(original, given_back=True))
        self.claims.release(container)
        return describe(now.engine, now.limits)

    def _change_back(self, original: Original, found: ContainerLimits) -> None:
        body, files = self._body_back(original, found), found.files
        shares = original.told.shares if original.adopted else 0
        weight = original.kernel.weight if original.adopted else None
        if files is not None and files.v2 and (weight is not None or not shares):

            def give(shares: int) -> int | None:
                self._change(found, {**body, "CpuShares": shares}, wait=True)
                return files.read().weight

            search_shares(shares, DEFAULT_WEIGHT if weight is None else weight, give)
        else:
            default = DEFAULT_SHARES if files is not None else self._facts.default_shares()
            self._change(found, {**body, "CpuShares": shares or default}, wait=True)
        self._give_burst(found, original.kernel.burst_us or 0)

    def _memory_back(self, container: str, before: MemoryOriginal) -> str | None:
        """Restore the original memory limit; returns why that cannot be yet."""
        found = self._read(container)
        if not memory_unrestored(before, found):
            return None
        if (why := too_low(found, before.memory_bytes, self._proc)) is not None:
            return why
        try:
            self._change_memory(found, before.limits, wait=True)
        except EngineRefused as error:
            return f"the engine refuses the original memory limit: {error.reason}"
        return None

    def _body_back(self, original: Original, found: ContainerLimits) -> Body:
        """The engine update that restores the original, without the shares."""
        if original.adopted:
            return original_update(original.told)
        return self._ceiling(found, original.ceiling_cores)


def release_all(options: DockerOptions) -> tuple[GivenBack, ...]:
    """Give every container its original limits back, one after the other, as recorded, where no
    agent runs: the caller holds the lock on the state directory. Raises EngineUnavailable or
    OSError."""
    with closing(Engine(options.host, options.timeout_s)) as engine, ExitStack() as ending:
        engine.info()
        originals = Originals(options.state_dir)
        adoptions = Adoptions(options.state_dir, read_only=True)
        facts, clock = EngineFacts(engine), SystemClock()
        writer = LimitWriter(
            Instance(options, engine, engine, facts, clock, originals, adoptions),
            Injector(options.gpus, tuple),
            Canary(state_dir=options.state_dir),
        )
        ending.callback(writer.claims.close)
        backs = [writer.give_back(original) for original in originals.changed()]
        lost = [writer.give_up(container) for container in originals.all_lost()]
        give_weight_back(engine, options)
        return (*backs, *(back for back in lost if back is not None))
