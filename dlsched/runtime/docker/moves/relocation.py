"""The single acts of a move, each a call that blocks on the engine.

Their order lets a later agent tell how far a move came. The old container is renamed before it gets
its signal, and gets its name back only when it runs again; the new one is created only after the
old one has ended, and the old one is removed only after the new one has reported.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from dlsched.model.actions import Start
from dlsched.model.errors import DlschedError
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
from dlsched.runtime.docker.carrying import Arrivals, pack
from dlsched.runtime.docker.create.containers import NO_RESTART, restart_update
from dlsched.runtime.docker.create.creation import Creation
from dlsched.runtime.docker.engine import Engine, EngineRefused
from dlsched.runtime.docker.identity.heritage import heritage_of
from dlsched.runtime.docker.identity.labels import container_name, set_aside_name
from dlsched.runtime.docker.listing import BusyContainers
from dlsched.runtime.docker.shared_files import size_of
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.machine.outcomes import Packed

POLL_S = 0.25


class Relocation:
    """The acts of one instance's moves. Thread-safe."""

    def __init__(
        self,
        engine: Engine,
        creation: Creation,
        instance: str,
        state_dir: Path,
        busy: BusyContainers,
        lift: Callable[[str, Limits | None], None],
        arrivals: Arrivals,
    ) -> None:
        """`state_dir` holds own jobs' allotments; `lift` gives a container that is about to end
        other limits, as `LimitWriter.lift`; `arrivals` has the volumes of earlier moves."""
        self._arrivals = arrivals
        self._lift = lift
        self._busy = busy
        self._engine = engine
        self._creation = creation
        self._instance = instance
        self._state_dir = state_dir

    def ask(
        self, old: Inspected, checkpoint: Checkpoint, lifted: Limits | None = None
    ) -> Allotment:
        """Ask the job to save itself, under these limits (None: under its present ones); returns
        its previous allotment. Raises OSError, ValueError, EngineRefused."""
        before = read_allotment(job_dir(self._state_dir, old.job))
        self._say(old.job, wanted=True)
        if checkpoint.signal and not _signalled(old, checkpoint.signal):
            self._engine.kill(old.container_id, checkpoint.signal)
        if lifted is not None:
            with suppress(DlschedError):  # without it, saving only takes longer
                self._lift(old.container_id, lifted)
        return before

    def was_asked(self, job: str) -> bool:
        """Whether its allotment asks it to save itself."""
        try:
            allotment = read_allotment(job_path(self._state_dir, job))
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
        self._arrivals.sweep(job)

    def start_again(self, container: str) -> None:
        """Start a container that has ended."""
        with self._busy.of(container):
            self._engine.start(container)

    def end_old(self, old: Inspected, stop: Stop) -> None:
        """Rename the old container, then signal it to end."""
        self.set_aside(old)
        self.end(old, stop, soon=True)

    def set_aside(self, old: Inspected) -> None:
        """Rename the old container. Raises EngineRefused: it keeps its own name."""
        self._name(old.container_id, set_aside_name(self._instance, old.job))

    def end(self, one: Inspected, stop: Stop, *, soon: bool = False) -> None:
        """Signal a container to end, without a restart policy; `soon`: also in its allotment."""
        if soon:
            with suppress(OSError):  # the signal suffices
                change_allotment(job_dir(self._state_dir, one.job), stop_soon=True)
        if not one.risks_gpus:  # the engine does not restart it after its own stop signal either
            with suppress(EngineRefused):  # it has just ended, or SIGKILL follows
                self._engine.update(one.container_id, NO_RESTART)
        with suppress(EngineRefused):
            self._engine.kill(one.container_id, stop.signal)

    def kill(self, container: str) -> None:
        with suppress(EngineRefused):  # it has just ended
            self._engine.kill(container, "SIGKILL")

    def replace(self, old: Inspected, action: Start) -> str:
        """Create and start the new container with the old one's heritage; returns its id. Raises
        StartFailed, EngineRefused: there is none then."""
        self._keep_down(old)
        heritage = heritage_of(self._engine.inspect(old.container_id))
        image = self._engine.image(heritage.image)
        moved = self._meant_by(action.spec.container.image) != heritage.image
        return self._creation.start(action, image, replace(heritage, image_moved=moved))

    def pack(
        self, old: Inspected, path: str, archive: Path, most_bytes: int, stop: Callable[[], bool]
    ) -> Packed:
        """Pack that folder of a container that has ended into an archive; `stop` is asked all the
        time. Raises EngineRefused, EngineUnavailable, Unfit, Withdrawn, OSError: there is none
        then."""
        self._keep_down(old)
        with (
            self._busy.of(old.container_id),
            # An error keeps its generators alive, and the engine would wait for this one's reader.
            closing(self._engine.archive(old.container_id, path)) as chunks,
        ):
            return pack(chunks, archive, most_bytes, stop)

    def find(self, old: Inspected, path: str) -> Packed:
        """The file at that path of a container that has ended, in storage that other nodes have.
        Raises EngineRefused, EngineUnavailable, NotShared."""
        self._keep_down(old)
        with self._busy.of(old.container_id):
            return Packed("", size_of(self._engine, old.container_id, path), path)

    def remove(self, container: str) -> None:
        """Remove a container that has ended; its volumes stay. Raises EngineRefused."""
        self._engine.remove(container)

    def bring_back(self, old: Inspected, before: Allotment | None) -> None:
        """Start the old container again with its settings, then rename it back.

        `before` is its previous allotment; None: unknown, since an earlier agent began. Raises
        EngineRefused: the name is still the other one.
        """
        folder = job_dir(self._state_dir, old.job)
        allotment = replace(before or read_allotment(folder), gpus=old.gpus)
        with suppress(OSError):  # then it saves itself once more, without being stopped
            write_allotment(folder, replace(allotment, stop_soon=False, checkpoint_wanted=False))
        if old.restart is not None and not old.risks_gpus:
            self._engine.update(old.container_id, restart_update(old.restart))
        with self._busy.of(old.container_id):
            self._engine.start(old.container_id)
        self.name(old)

    def name(self, old: Inspected) -> None:
        """Give the old container its own name. Raises EngineRefused: another has it."""
        self._name(old.container_id, container_name(self._instance, old.job))

    def _name(self, container: str, name: str) -> None:
        if str(self._engine.inspect(container)["Name"]).lstrip("/") != name:
            self._engine.rename(container, name)

    def _keep_down(self, old: Inspected) -> None:
        """See that the engine does not start it again. For its GPUs an update is safe now that it
        has ended."""
        if old.gpu_access is not None:
            self._engine.update(old.container_id, NO_RESTART)

    def _meant_by(self, reference: str) -> str | None:
        try:
            return str(self._engine.image(reference)["Id"])
        except EngineRefused:
            return None

    def _say(self, job: str, *, wanted: bool) -> None:
        folder = job_dir(self._state_dir, job)
        change_allotment(folder, checkpoint_wanted=wanted, stop_soon=False)


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
