"""CPU limits of containers whose GPUs an update could take away, written past the engine.

Owns that writing: what an update would say goes to the control group's own files instead. There the
container's next start loses it, and so does whatever writes the group anew; each cycle reads it
back, and what was lost is written again. It must not decide who is changed so, nor call the engine.
"""

from __future__ import annotations

from collections.abc import Callable

from dlsched.model.errors import DlschedError
from dlsched.runtime.cgroup.group_limits import GroupLimits, LimitFiles
from dlsched.runtime.cgroup.limits import PERIOD_US, bounded_shares, weight_of
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.canary import Canary, Held
from dlsched.runtime.docker.limits.dialect import in_kernel, quota_after


class Unwritable(DlschedError):
    """The control group's files cannot be written; the text says so."""


class PastEngine:
    """What was written so, by container. May be used from any thread, for one container by one."""

    def __init__(self, canary: Canary, newer_runc: Callable[[], bool]) -> None:
        """`canary` looks after GPUs that may have been taken; `newer_runc` tells how the engine
        makes weights of shares, on cgroup v2."""
        self._canary = canary
        self._newer_runc = newer_runc
        self._written: dict[str, tuple[int, int, int]] = {}
        """Process, quota and period."""

    def has(self, files: LimitFiles | None, limits: GroupLimits, update: Body) -> bool:
        """Whether the kernel has already what that update says; `limits` is what it has."""
        weight = None if files is None else self._weight(files, update)
        return weight in (None, limits.shares, limits.weight) and in_kernel(update, limits)

    def write(self, held: Held, files: LimitFiles | None, update: Body) -> None:
        """Have the kernel do what that update says. Raises Unwritable."""
        if files is None or not files.writable:
            raise Unwritable("its control group cannot be written")
        self._look_after(held, files.read())
        ceiling = (quota_after(update), int(update.get("CpuPeriod", PERIOD_US)))
        try:
            files.write_ceiling(*ceiling)
            if (weight := self._weight(files, update)) is not None:
                files.write_weight(weight)
        except OSError as error:
            raise Unwritable(f"its control group cannot be written: {error.strerror}") from error
        self._written[held.container] = (held.pid, *ceiling)

    def forget(self, container: str) -> None:
        """It is gone."""
        self._written.pop(container, None)

    def _look_after(self, held: Held, now: GroupLimits) -> None:
        written = self._written.get(held.container)
        if written is None:
            self._canary.check(held)  # before this agent's first word anything may have happened
        elif written[0] == held.pid and written[1:] != (now.quota_us, now.period_us):
            # Somebody wrote the whole group anew, as systemd does, the list of devices with it.
            self._canary.check(held)

    def _weight(self, files: LimitFiles, update: Body) -> int | None:
        """What the kernel has to have for the shares in that update; None: it says none."""
        if (shares := update.get("CpuShares")) is None:
            return None
        if not files.v2:
            return bounded_shares(int(shares))
        return weight_of(int(shares), newer=self._newer_runc())
