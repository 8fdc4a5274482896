"""What each call of the machine does at the engine.

The order of a move's acts lets a later agent tell how far it came. The old container is renamed
before it gets its signal, and gets its name back only when it runs again; the new one is created
only after the old one has ended, and the old one is removed only after the new one has reported.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from dlsched.model.actions import Memory, Resize, Start
from dlsched.model.errors import DlschedError
from dlsched.model.facts import ContainerState
from dlsched.model.spec import Checkpoint, Limits, Stop
from dlsched.runtime.allotment import (
    Allotment,
    change_allotment,
    job_dir,
    job_path,
    read_allotment,
    write_allotment,
)
from dlsched.runtime.cgroup.read import belongs
from dlsched.runtime.docker.carrying import Arrivals, pack, size_of
from dlsched.runtime.docker.create.containers import NO_RESTART, restart_update
from dlsched.runtime.docker.create.creation import Creation, heritage_of
from dlsched.runtime.docker.create.images import Images
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.identity.labels import container_name, set_aside_name
from dlsched.runtime.docker.instance import Instance
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.machine.calls import (
    Act,
    AskToEnd,
    Call,
    Examine,
    GiveBack,
    Kill,
    Pulls,
    ReleaseContainer,
    Remember,
    RemoveContainer,
    SetLimits,
    SetMemory,
    SetRestart,
    StartJob,
    Tidy,
)
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.outcomes import Own, Packed

POLL_S = 0.25

CONCURRENT_FORKS = 4
"""Each forks a runc, and more would only queue at the engine."""


@dataclass(slots=True, eq=False)
class EngineCalls:
    """What each call of the machine does at the engine. Thread-safe; all of it blocks."""

    instance: Instance
    writer: LimitWriter
    creation: Creation
    images: Images
    arrivals: Arrivals
    """Has the volumes of earlier moves."""
    forks: AbstractContextManager[object] = field(
        default_factory=partial(threading.Semaphore, CONCURRENT_FORKS)
    )
    """Where calls that fork a process on the host wait for each other."""

    def make(
        self,
        call: Call,
        report: Callable[[Pulls], None] = lambda _: None,
        abandoned: Callable[[], bool] = lambda: False,
    ) -> object:
        """Make it; `report` is given what becomes known meanwhile, and `abandoned` returns whether
        it is to end early. Raises what the engine raises."""
        match call:
            case Act():
                stop = [abandoned] if call.act == "pack" else []
                return getattr(self, call.act)(*call.args, *stop)
            case StartJob():
                return self._start(call, report)
            case AskToEnd():
                self._ask_to_end(call)
            case Kill():
                self.kill(call.container)
            case RemoveContainer():
                self.instance.unhurried.remove(call.container)
            case SetRestart():
                self.instance.engine.update(call.container, restart_update(call.restart))
            case SetLimits():
                self._set_limits(call)
            case SetMemory():
                action = call.action
                own = _own(action, call.described)
                self.writer.set_memory(call.container, action.limit_bytes, own)
            case Tidy() if self.writer.forget_if_gone(call.container) or call.original.given_back:
                return None
            case ReleaseContainer() | GiveBack():
                return self.writer.give_back(call.original)
            case Remember():
                self.writer.remember(call.container, call.own)
            case Examine():
                return self.writer.refusal(call.container)
        return None

    def _start(self, call: StartJob, report: Callable[[Pulls], None]) -> str | None:
        pulls: list[Pulls] = []

        def note(progress: Callable[[], str]) -> None:
            pulls.append(Pulls(call, progress))
            report(pulls[-1])

        image = self.images.require(call.action.spec.container.image, call.policy, note)
        if pulls:
            return None
        with self.forks:
            return self.creation.start(call.action, image)

    def _ask_to_end(self, call: AskToEnd) -> None:
        # An update could take a job's GPUs away while it saves itself. The engine does not restart
        # a container that ended by its own signal, or was killed.
        if not call.described.risks_gpus:
            with suppress(EngineRefused):
                self.instance.unhurried.update(call.container, NO_RESTART)
        with suppress(DlschedError):  # without it, the end only takes longer
            self.writer.lift(call.container, call.action.lift)
        if call.described.state is ContainerState.PAUSED:
            with suppress(EngineRefused):
                self.instance.unhurried.unpause(call.container)
        self._signal(call.container, call.action.stop.signal)

    def _set_limits(self, call: SetLimits) -> None:
        action, described = call.action, call.described
        self.writer.set(
            call.container,
            action.limits,
            action.cpu_shares,
            burst_cores=action.burst_cores,
            idle=action.cpu_idle,
            own=_own(action, described),
            described=described,
        )

    # ------------------------------------------------------------------ acts of moves

    def ask(
        self, old: Inspected, checkpoint: Checkpoint, lifted: Limits | None = None
    ) -> Allotment:
        """Ask the job to save itself, under these limits (None: under its present ones); returns
        its previous allotment. Raises OSError, ValueError, EngineRefused."""
        before = read_allotment(job_dir(self.instance.state_dir, old.job))
        self._say(old.job, wanted=True)
        if checkpoint.signal and not _signalled(old, checkpoint.signal):
            self.instance.unhurried.kill(old.container_id, checkpoint.signal)
        if lifted is not None:
            with suppress(DlschedError):  # without it, saving only takes longer
                self.writer.lift(old.container_id, lifted)
        return before

    def was_asked(self, job: str) -> bool:
        """Whether its allotment asks it to save itself."""
        try:
            allotment = read_allotment(job_path(self.instance.state_dir, job))
        except (OSError, ValueError):
            return False
        return allotment.checkpoint_wanted or allotment.stop_soon

    def withdraw(self, job: str) -> None:
        """Withdraw the request. Raises OSError, ValueError."""
        self._say(job, wanted=False)

    def poll(self, _job: str) -> None:
        """Wait until the job may have acknowledged: steps that it makes after that are lost."""
        time.sleep(POLL_S)

    def sweep(self, job: str) -> None:
        """Remove the volumes of its earlier moves."""
        self.arrivals.sweep(job)

    def start_again(self, container: str) -> None:
        """Start a container that has ended."""
        self.instance.start(container)

    def end_old(self, old: Inspected, stop: Stop) -> None:
        """Rename the old container, then signal it to end. Raises EngineRefused: it keeps its own
        name."""
        self._name(old.container_id, set_aside_name(self.instance.name, old.job))
        self.end(old, stop, soon=True)

    def end(self, one: Inspected, stop: Stop, *, soon: bool = False) -> None:
        """Signal a container to end, without a restart policy; `soon`: also in its allotment."""
        if soon:
            with suppress(OSError):  # the signal suffices
                change_allotment(job_dir(self.instance.state_dir, one.job), stop_soon=True)
        if not one.risks_gpus:  # the engine does not restart it after its own stop signal either
            with suppress(EngineRefused):  # it has just ended, or SIGKILL follows
                self.instance.unhurried.update(one.container_id, NO_RESTART)
        self._signal(one.container_id, stop.signal)

    def kill(self, container: str) -> None:
        self._signal(container, "SIGKILL")

    def _signal(self, container: str, signal: str) -> None:
        # Refused: it has just ended, or the signal is invalid; the listing or SIGKILL follow.
        with suppress(EngineRefused):
            self.instance.unhurried.kill(container, signal)

    def replace(self, old: Inspected, action: Start) -> str:
        """Create and start the new container with the old one's heritage; returns its id. Raises
        StartFailed, EngineRefused: there is none then."""
        self._keep_down(old)
        heritage = heritage_of(self.instance.unhurried.inspect(old.container_id))
        image = self.instance.unhurried.image(heritage.image)
        moved = self._meant_by(action.spec.container.image) != heritage.image
        return self.creation.start(action, image, replace(heritage, image_moved=moved))

    def pack(
        self, old: Inspected, path: str, archive: Path, most_bytes: int, stop: Callable[[], bool]
    ) -> Packed:
        """Pack that folder of a container that has ended into an archive; `stop` is asked all the
        time. Raises EngineRefused, EngineUnavailable, Unfit, Withdrawn, OSError: there is none
        then."""
        self._keep_down(old)
        with (
            self.instance.busy.of(old.container_id),
            # An error keeps its generators alive, and the engine would wait for this one's reader.
            closing(self.instance.unhurried.archive(old.container_id, path)) as chunks,
        ):
            return pack(chunks, archive, most_bytes, stop)

    def find(self, old: Inspected, path: str) -> Packed:
        """The file at that path of a container that has ended, in storage that other nodes have.
        Raises EngineRefused, EngineUnavailable, NotShared."""
        self._keep_down(old)
        with self.instance.busy.of(old.container_id):
            return Packed("", size_of(self.instance.unhurried, old.container_id, path), path)

    def remove(self, container: str) -> None:
        """Remove a container that has ended; its volumes stay. Raises EngineRefused."""
        self.instance.unhurried.remove(container)

    def bring_back(self, old: Inspected, before: Allotment | None) -> None:
        """Start the old container again with its settings, then rename it back.

        `before` is its previous allotment; None: unknown, since an earlier agent began. Raises
        EngineRefused: the name is still the other one.
        """
        folder = job_dir(self.instance.state_dir, old.job)
        allotment = replace(before or read_allotment(folder), gpus=old.gpus)
        with suppress(OSError):  # then it saves itself once more, without being stopped
            write_allotment(folder, replace(allotment, stop_soon=False, checkpoint_wanted=False))
        if old.restart is not None and not old.risks_gpus:
            self.instance.unhurried.update(old.container_id, restart_update(old.restart))
        self.instance.start(old.container_id)
        self.name(old)

    def name(self, old: Inspected) -> None:
        """Give the old container its own name. Raises EngineRefused: another has it."""
        self._name(old.container_id, container_name(self.instance.name, old.job))

    def _name(self, container: str, name: str) -> None:
        if str(self.instance.unhurried.inspect(container)["Name"]).lstrip("/") != name:
            self.instance.unhurried.rename(container, name)

    def _keep_down(self, old: Inspected) -> None:
        """See that the engine does not start it again. For its GPUs an update is safe now that it
        has ended."""
        if old.gpu_access is not None:
            self.instance.unhurried.update(old.container_id, NO_RESTART)

    def _meant_by(self, reference: str) -> str | None:
        try:
            return str(self.instance.unhurried.image(reference)["Id"])
        except EngineRefused:
            return None

    def _say(self, job: str, *, wanted: bool) -> None:
        folder = job_dir(self.instance.state_dir, job)
        change_allotment(folder, checkpoint_wanted=wanted, stop_soon=False)


def _own(action: Resize | Memory, described: Inspected) -> Own | None:
    """The job of that container; None: another program made it."""
    if described.adopted is not None:
        return None
    return Own(action.job, action.ceiling_cores, described.mps_threads_percent)


def _signalled(one: Inspected, name: str) -> bool:
    """Signal its first process directly; False: not possible. The engine would take any signal for
    a stop, and not restart it later as its policy says."""
    number = getattr(signal, name, None)
    if number is None:
        return False
    try:
        process = os.pidfd_open(one.pid)
    except OSError:
        return False
    try:
        # Checked while it is held, so that the PID cannot be reused.
        if not belongs(one.pid, one.container_id):
            return False
        signal.pidfd_send_signal(process, number)
    except OSError:
        return False
    finally:
        os.close(process)
    return True
