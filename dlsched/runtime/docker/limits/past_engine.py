"""Writes CPU limits to control group files for containers whose GPUs an engine update could take.
Each cycle writes again what a restart or a rewrite of the group has undone."""

from __future__ import annotations

from collections.abc import Callable

from dlsched.model.errors import DlschedError
from dlsched.runtime.cgroup.group_limits import GroupLimits, LimitFiles
from dlsched.runtime.cgroup.limits import PERIOD_US, bounded_shares, weight_of
from dlsched.runtime.docker.engine import Body
from dlsched.runtime.docker.gpus.canary import Canary, GpuContainer
from dlsched.runtime.docker.limits.dialect import in_kernel, quota_after


class Unwritable(DlschedError):
    """The control group's files cannot be written; the text says so."""


class PastEngine:
    """What was written, by container. Thread-safe, one thread for each container."""

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

    def write(self, held: GpuContainer, files: LimitFiles | None, update: Body) -> None:
        """Write the update's limits to the kernel. Raises Unwritable."""
        if files is None or not files.writable:
            raise Unwritable("its control group cannot be written")
        self._check_gpus(held, files.read())
        ceiling = (quota_after(update), int(update.get("CpuPeriod", PERIOD_US)))
        try:
            files.write_ceiling(*ceiling)
            if (weight := self._weight(files, update)) is not None:
                files.write_weight(weight)
        except OSError as error:
            raise Unwritable(f"its control group cannot be written: {error.strerror}") from error
        self._written[held.container] = (held.pid, *ceiling)

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
