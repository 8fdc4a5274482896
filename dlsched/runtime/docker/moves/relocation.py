"""The single acts of a move, each a call that waits for the engine.

Owns what is said to the job and to the engine in each of them, and in which order, so that a death
between any two leaves something that an agent can tell apart. It must not know which comes next.

What stands tells how far it came. While the old container has its own name nothing has happened to
it. It is renamed before it is told to end, and gets its name back only when it runs again; the new
one is made only once the old one has ended, and the old one is removed only once the new one has
shown that it is back.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dlsched.model.actions import Start
from dlsched.model.spec import Checkpoint, Stop
from dlsched.runtime.allotment import (
    Allotment,
    change_allotment,
    job_dir,
    read_allotment,
    write_allotment,
)
from dlsched.runtime.cgroup.read import belongs
from dlsched.runtime.docker.create.containers import NO_RESTART, restart_update
from dlsched.runtime.docker.create.creation import Creation
from dlsched.runtime.docker.engine import Engine, EngineRefused
from dlsched.runtime.docker.identity.heritage import heritage_of
from dlsched.runtime.docker.identity.labels import Inspected, container_name, set_aside_name


class Relocation:
    """The acts of moves of one instance. May be used from any thread."""

    def __init__(self, engine: Engine, creation: Creation, instance: str, state_dir: Path) -> None:
        """`state_dir` is where own jobs read what they are allotted."""
        self._engine = engine
        self._creation = creation
        self._instance = instance
        self._state_dir = state_dir

    def ask(self, old: Inspected, checkpoint: Checkpoint) -> Allotment:
        """Have the job save itself; returns what it was allotted before.

        Raises OSError, ValueError, EngineRefused.
        """
        before = read_allotment(job_dir(self._state_dir, old.job))
        self._say(old.job, wanted=True)
        if checkpoint.signal and not _signalled(old, checkpoint.signal):
            self._engine.kill(old.container_id, checkpoint.signal)
        return before

    def was_asked(self, job: str) -> bool:
        """Whether its allotment says that it shall save itself."""
        try:
            told = read_allotment(job_dir(self._state_dir, job))
        except (OSError, ValueError):
            return False
        return told.checkpoint_wanted or told.stop_soon

    def withdraw(self, job: str) -> None:
        """Nothing is asked of the job any more. Raises OSError, ValueError."""
        self._say(job, wanted=False)

    def set_aside(self, old: Inspected) -> None:
        """Give the old container its other name. Raises EngineRefused: it has its own still."""
        self._name(old.container_id, set_aside_name(self._instance, old.job))

    def end(self, one: Inspected, stop: Stop, *, soon: bool = False) -> None:
        """Tell a container to end, whatever its restart policy; `soon`: in its allotment too."""
        if soon:
            with suppress(OSError):  # the signal says it as well
                change_allotment(job_dir(self._state_dir, one.job), stop_soon=True)
        if not one.risks_gpus:  # else it is not started again either: the signal is its own
            with suppress(EngineRefused):  # it has just ended; else SIGKILL follows
                self._engine.update(one.container_id, NO_RESTART)
        with suppress(EngineRefused):
            self._engine.kill(one.container_id, stop.signal)

    def kill(self, container: str) -> None:
        """End a container at once."""
        with suppress(EngineRefused):  # it has just ended
            self._engine.kill(container, "SIGKILL")

    def replace(self, old: Inspected, action: Start) -> str:
        """Make and start the new container from what the old one leaves; returns its id.

        Raises StartFailed, EngineRefused: there is none then.
        """
        if old.gpu_access is not None:
            # Now that it has ended no update can take its GPUs away; nor must the engine start it.
            self._engine.update(old.container_id, NO_RESTART)
        heritage = heritage_of(self._engine.inspect(old.container_id))
        image = self._engine.image(heritage.image)
        moved = self._meant_by(action.spec.container.image) != heritage.image
        return self._creation.start(action, image, replace(heritage, image_moved=moved))

    def remove(self, container: str) -> None:
        """Remove a container that has ended; its volumes stay. Raises EngineRefused."""
        self._engine.remove(container)

    def bring_back(self, old: Inspected, before: Allotment | None) -> None:
        """Start the old container again, as it was, and then give it its name.

        `before` is what it was allotted; None: an agent that is gone knew. Raises EngineRefused:
        the name is still the other one.
        """
        folder = job_dir(self._state_dir, old.job)
        told = replace(before or read_allotment(folder), gpus=old.gpus)
        with suppress(OSError):  # it saves itself once more, and is ended by nobody
            write_allotment(folder, replace(told, stop_soon=False, checkpoint_wanted=False))
        if old.restart is not None and not old.risks_gpus:
            self._engine.update(old.container_id, restart_update(old.restart))
        self._engine.start(old.container_id)
        self.name(old)

    def name(self, old: Inspected) -> None:
        """Give the old container its name. Raises EngineRefused: another has it."""
        self._name(old.container_id, container_name(self._instance, old.job))

    def _name(self, container: str, name: str) -> None:
        if str(self._engine.inspect(container)["Name"]).lstrip("/") != name:
            self._engine.rename(container, name)

    def _meant_by(self, reference: str) -> str | None:
        try:
            return str(self._engine.image(reference)["Id"])
        except EngineRefused:
            return None

    def _say(self, job: str, *, wanted: bool) -> None:
        folder = job_dir(self._state_dir, job)
        change_allotment(folder, checkpoint_wanted=wanted, stop_soon=False)


def _signalled(one: Inspected, name: str) -> bool:
    """Signal its first process past the engine; False: that cannot be done.

    The engine would take any signal for a wish to have it ended, and not start it again later where
    its restart policy says so.
    """
    number = getattr(signal, name, None)
    if number is None:
        return False
    try:
        process = os.pidfd_open(one.pid)
    except OSError:
        return False
    try:
        # Looked at once it is held: the number cannot be another process's any more.
        if not belongs(one.pid, one.container_id):
            return False
        signal.pidfd_send_signal(process, number)
    except OSError:
        return False
    finally:
        os.close(process)
    return True
