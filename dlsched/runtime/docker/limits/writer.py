"""The one place that changes a container's CPU limits, weight and burst, and that brings them back.

Owns the dialects, the order of writing, and the promise: before the first change of a container its
original limits are on the disk, and afterwards they can be had again as the kernel had them. What
could not be brought back is not touched. A container that an update through the engine could take
its GPUs from is changed by its control group's own files instead. It must not decide who gets how
much. Calls wait for the engine: they belong in a background thread.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from dlsched.model.errors import DlschedError
from dlsched.model.spec import Limits
from dlsched.runtime.allotment import change_allotment, job_dir
from dlsched.runtime.cgroup.group_limits import LimitFiles
from dlsched.runtime.cgroup.limits import (
    DEFAULT_SHARES,
    DEFAULT_WEIGHT,
    PERIOD_US,
    UNLIMITED_US,
    search_shares,
)
from dlsched.runtime.cgroup.read import PROC
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused, one_line
from dlsched.runtime.docker.engine_facts import EngineFacts
from dlsched.runtime.docker.gpus.canary import Canary, Held, Unproven, Unsafe
from dlsched.runtime.docker.gpus.injection import Injector
from dlsched.runtime.docker.gpus.mps import paced
from dlsched.runtime.docker.gpus.options import GpuOptions
from dlsched.runtime.docker.identity.labels import Inspected
from dlsched.runtime.docker.limits.dialect import (
    ceiling_update,
    files_to_have,
    in_force,
    in_words,
    original_update,
    quota_after,
    unlike,
    wrong_at_next_start,
)
from dlsched.runtime.docker.limits.outcome import (
    GivenBack,
    NotGivenBack,
    Own,
    Untouchable,
    elsewhere,
)
from dlsched.runtime.docker.limits.past_engine import PastEngine, Unwritable
from dlsched.runtime.docker.limits.reading import Seen, as_listed, leave_idle_class, look, refusal
from dlsched.runtime.originals import Original, Originals


class Hands:
    """The limits of one engine's containers. May be used from any thread."""

    def __init__(
        self,
        engine: Engine,
        originals: Originals,
        state_dir: Path,
        wall_time: Callable[[], str],
        proc: Path = PROC,
        injector: Injector = Injector(GpuOptions(), tuple),  # noqa: B008 - it is frozen
        canary: Canary | None = None,
    ) -> None:
        """`state_dir` is where own jobs read what they are allotted; `injector` knows the host's
        GPUs, and `canary` what updates do to them (None: nothing is known yet)."""
        self._engine = engine
        self._originals = originals
        self._state_dir = state_dir
        self._wall_time = wall_time
        self._proc = proc
        self._injector = injector
        self.canary = Canary() if canary is None else canary
        self._facts = EngineFacts(engine)
        self._past = PastEngine(self.canary, self._facts.has_newer_runc)
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._files: dict[str, LimitFiles] = {}
        """By container, as last found: to find them takes a look at all that is mounted."""
        self.burst_trouble: str | None = None
        """Why the burst cannot be set here; None: it can, or nobody wanted it."""
        self.idle_trouble: str | None = None
        """The same for the idle class."""

    def refusal(self, container: str) -> str | None:
        """Why that container of somebody else's must not be touched; None: it may be.

        Raises EngineUnavailable or EngineRefused.
        """
        with self._locks[container]:
            kept = self._originals.of(container)
            if kept is not None and not kept.given_back:
                return None  # changed since, and so looked at before that
            return refusal(self._look(container), self._originals)

    def remember(self, container: str, own: Own) -> Original:
        """Have it written down what an own container goes back to. Raises Untouchable."""
        wanted = Original(container, own.job, adopted=False, ceiling_cores=own.ceiling_cores)
        kept = self._originals.of(container)
        if kept is None or replace(kept, wall_time="", engine="") != wanted:
            self._keep(replace(wanted, wall_time=self._wall_time()))
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
        """Give a container these limits; `own` None: somebody else made it. `described`, as it was
        last listed, saves the engine a question.

        `burst_cores` may be used beyond the quota where that was saved up; None: what it had, as
        far as its quota allows. `idle`: it goes to the kernel's idle class, an own one alone. Where
        one of these cannot be set everything else is.

        Raises Untouchable, EngineRefused, EngineUnavailable, `canary.Waits`; OSError and ValueError
        for a job's allotment.
        """
        with self._locks[container]:
            listed = None
            if described is not None:
                listed = as_listed(described, self._proc, self._files.get(container))
            seen = listed or self._look(container)
            if seen.files is not None:
                self._files[container] = seen.files
            original = self._before(seen, own)
            body = self._ceiling(seen, limits.cpu_cores)
            if shares is not None:
                body["CpuShares"] = shares
            quota = quota_after(body)
            burst = original.seen.burst_us or 0
            if burst_cores is not None:
                burst = round(burst_cores * PERIOD_US)
            if quota != UNLIMITED_US:
                burst = min(burst, quota)
            if seen.limits.idle or not self._has(seen, body):
                self._change(seen, body)
            self._give_burst(seen, burst)
            if idle and own is not None:
                self._make_idle(seen)
            if own is not None:
                # Who is behind the others now is not to fit its threads to that for good.
                self.tell(own, replace(limits, cpu_cores=own.ceiling_cores) if idle else limits)

    def tell(self, own: Own, limits: Limits) -> None:
        """Tell a job its limits, where nothing else of them changes. Raises OSError, ValueError."""
        paces = paced(limits.gpu_share, own.mps_threads_percent)
        self._allot(own.job, cpu_cores=limits.cpu_cores, gpu_share=paces)

    def lift(self, container: str, limits: Limits | None) -> None:
        """Give an own container that is about to end these limits (None: those that it has), and
        have it out of the idle class. Raises as `set`."""
        with self._locks[container]:
            seen = self._look(container)
            if limits is None:
                leave_idle_class(seen)
                return
            if seen.held is not None and not seen.by_file:
                # While it saves itself its GPUs are not put at risk, for a next start that it
                # has not: no canary is made of it.
                seen = replace(seen, barred="it is about to end")
            self._change(seen, self._ceiling(seen, limits.cpu_cores))

    def give_back(self, original: Original) -> GivenBack:
        """Give a container what it had, and compare what the kernel then says. Never raises."""
        with self._locks[original.container_id]:
            original = self._originals.of(original.container_id) or original
            now, failure = "", None
            try:
                now = self._give_back(original)
            except EngineRefused as error:
                if error.status != 404:
                    failure = error.reason
                elif (failure := self._is_elsewhere(original.container_id)) is None:
                    self._forget(original.container_id)
                    now = "gone"
            except (DlschedError, OSError, ValueError) as error:
                failure = one_line(error)
            if failure is not None:
                with suppress(DlschedError, OSError):
                    seen = self._look(original.container_id)
                    now = in_words(seen.words, seen.limits)
            return GivenBack(original.job, original.container_id, original.adopted, now, failure)

    def give_up(self, container: str) -> GivenBack | None:
        """What is told of a container whose record cannot be read; None: it is gone."""
        why = f"the record of what it had cannot be read: {self._originals.broken(container)}"
        now = ""
        try:
            if self.forget_if_gone(container):
                return None
            seen = self._look(container)
            now = in_words(seen.words, seen.limits)
        except DlschedError as error:
            why = f"{why}; {error}"
        return GivenBack(container[:12], container, adopted=True, now=now, failure=why)

    def forget_if_gone(self, container: str) -> bool:
        """Drop the record of a container that the engine does not know any more; whether it did.

        Raises EngineUnavailable or EngineRefused; NotGivenBack where another engine has it.
        """
        try:
            self._engine.inspect(container)
        except EngineRefused as error:
            if error.status != 404:
                raise
            if (why := self._is_elsewhere(container)) is not None:
                raise NotGivenBack(why) from error
            self._forget(container)
            return True
        return False

    def _look(self, container: str) -> Seen:
        return look(container, self._engine, self._injector, self.canary, self._proc)

    def _before(self, seen: Seen, own: Own | None) -> Original:
        """The record of what it had, on the disk and true."""
        kept = self._originals.of(seen.container)
        if own is not None:
            return self.remember(seen.container, own)
        if kept is None or kept.given_back:
            if (why := refusal(seen, self._originals)) is not None:
                raise Untouchable(f"left as it is: {why}")
            kept = Original(
                seen.container,
                seen.name,
                adopted=True,
                told=seen.words,
                files=dict(seen.limits.files),
                wall_time=self._wall_time(),
            )
            self._keep(kept)
        return kept

    def _keep(self, original: Original) -> None:
        try:
            self._originals.secure(replace(original, engine=self._facts.identity()))
        except OSError as error:
            why = error.strerror or error
            raise Untouchable(
                f"left as it is: what it had before cannot be written down: {why}"
            ) from error

    def _is_elsewhere(self, container: str) -> str | None:
        return elsewhere(container, self._originals, self._facts)

    def _forget(self, container: str) -> None:
        with suppress(OSError):
            self._originals.lift(container)
            self._originals.broken(container).unlink(missing_ok=True)
        self._locks.pop(container, None)
        self._files.pop(container, None)
        self._past.forget(container)
        self.canary.forget(container)

    def _ceiling(self, seen: Seen, cores: float | None) -> Body:
        told = seen.words
        return ceiling_update(told, cores, self._facts.cores() if told.dialect == "nano" else 0)

    def _has(self, seen: Seen, body: Body) -> bool:
        """Whether it has that already."""
        if not seen.by_file:
            return in_force(body, seen.words, seen.limits)
        return self._past.has(seen.files, seen.limits, body)

    def _change(self, seen: Seen, body: Body, *, wait: bool = False) -> None:
        """Through the engine, or past it; the kernel refuses a quota below the burst, and any
        weight in the idle class.

        `wait` where another container's update is being tried first.
        """
        quota = quota_after(body)
        leave_idle_class(seen)
        if quota != UNLIMITED_US and (seen.limits.burst_us or 0) > quota and seen.files is not None:
            with suppress(OSError):  # then the engine refuses, and says so
                seen.files.write_burst(quota)
        if seen.held is None:
            self._engine.update(seen.container, body)
            if seen.access is not None and (held := self._look(seen.container).held) is not None:
                self.canary.check(held)  # it was started in the middle
            return
        if seen.barred is not None:
            self._write(seen, seen.held, body, seen.barred)
            return
        try:
            update = partial(self._engine.update, seen.container, body)
            self.canary.update(seen.held, update, wait=wait)
        except (Unproven, Unsafe) as error:
            self._write(seen, seen.held, body, str(error))

    def _write(self, seen: Seen, held: Held, body: Body, why: str) -> None:
        """Past the engine, which for this reason must not be asked."""
        try:
            self._past.write(held, seen.files, body)
        except Unwritable as error:
            raise Untouchable(f"left as it is: {error}, and {why}") from error

    def _give_burst(self, seen: Seen, burst: int) -> None:
        """Past the engine, which has no word for it: last, since the quota bounds it."""
        if seen.files is None or seen.files.burst_us() in (None, burst):
            return
        try:
            seen.files.write_burst(burst)
            self.burst_trouble = None
        except OSError as error:
            self.burst_trouble = f"burst: {error.strerror}: {seen.files.burst_file}"

    def _make_idle(self, seen: Seen) -> None:
        """Past the engine too, and after the rest: in that class no weight can be given."""
        if seen.files is None or seen.limits.idle is None:
            return
        try:
            seen.files.write_idle(True)
            self.idle_trouble = None
        except OSError as error:
            if seen.files.hold(seen.pid):  # it may have ended meanwhile
                self.idle_trouble = f"idle class: {error.strerror}: cpu.idle"

    def _allot(self, job: str, **told: float | None) -> None:
        change_allotment(job_dir(self._state_dir, job), **told)

    def _give_back(self, original: Original) -> str:
        """Returns what it has now. Raises NotGivenBack, or what engine and files raise."""
        container = original.container_id
        seen = self._look(container)
        try:
            self._change_back(original, seen)
        except EngineRefused:
            again = self._look(container)
            if again.pid == seen.pid:
                raise
            self._change_back(original, again)  # it ended, or was started, in the middle
        now = self._look(container)
        if wrong := self._wrong(original, now):
            raise NotGivenBack("; ".join(wrong))
        if not original.adopted:
            # A job that fits its threads to its allotment would keep them few with nobody here.
            # Before the record: once that says so, nobody comes back to it.
            with suppress(OSError, ValueError):
                self._allot(original.job, cpu_cores=original.ceiling_cores, gpu_share=None)
        with suppress(OSError):  # it has it all the same, and gets it once more at the next start
            self._originals.secure(replace(original, given_back=True))
        return in_words(now.words, now.limits)

    def _change_back(self, original: Original, seen: Seen) -> None:
        body, files = self._body_back(original, seen), seen.files
        shares = original.told.shares if original.adopted else 0
        if files is not None and files.v2:

            def give(shares: int) -> int | None:
                self._change(seen, {**body, "CpuShares": shares}, wait=True)
                return files.read().weight

            weight = original.seen.weight if original.adopted else None
            search_shares(shares, DEFAULT_WEIGHT if weight is None else weight, give)
        else:
            default = DEFAULT_SHARES if files is not None else self._facts.default_shares()
            self._change(seen, {**body, "CpuShares": shares or default}, wait=True)
        self._give_burst(seen, original.seen.burst_us or 0)

    def _body_back(self, original: Original, seen: Seen) -> Body:
        """What the engine has to be told, but for the shares."""
        if original.adopted:
            return original_update(original.told)
        return self._ceiling(seen, original.ceiling_cores)

    def _wrong(self, original: Original, now: Seen) -> list[str]:
        """What the engine, and the kernel where it runs, say otherwise than they should."""
        body = self._body_back(original, now)
        wrong = unlike(body, now.words)
        if now.by_file:
            wrong = wrong_at_next_start(original, now.words)
        if not now.alive:
            return wrong
        if not now.limits.files:
            return [*wrong, "its control group cannot be read, to see what it has"]
        wanted, has = files_to_have(original, body, now.words, now.limits), now.limits.files
        return wrong + [
            f"{name} is {has.get(name, 'unreadable')}, must be {text}"
            for name, text in wanted.items()
            if has.get(name) != text
        ]
