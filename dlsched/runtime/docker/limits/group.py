"""The parent group of all our containers: its name, weight and removal. It competes with the rest
of the host as one, so its weight decides what all jobs together get."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path

from dlsched.model.errors import DlschedError
from dlsched.runtime.cgroup.cpu_units import (
    DEFAULT_SHARES,
    DEFAULT_WEIGHT,
    bounded_shares,
    bounded_weight,
)
from dlsched.runtime.cgroup.read import PROC, CgroupReader, hierarchies
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.engine import Engine
from dlsched.runtime.docker.identity.labels import INSTANCE
from dlsched.runtime.docker.instance import DockerOptions
from dlsched.runtime.docker.watch import Watch

_log = logging.getLogger(__name__)

SYSTEMCTL_WITHIN_S = 5.0


class ParentGroup:
    """One instance's parent group."""

    def __init__(
        self,
        instance: str,
        under: str,
        most: float | None = None,
        run: Callable[..., object] = subprocess.run,
    ) -> None:
        """`most`: in multiples of one container's weight; None: its weight is left alone."""
        self._instance, self._under, self._most, self._run = instance, under.rstrip("/"), most, run
        self._last: float | None = None
        self._problem: str | None = None

    def name(self, driver: str) -> str:
        """The `CgroupParent` of a container with this cgroup driver."""
        if driver != "systemd":
            return f"{self._under}/dlsched-{self._instance}"
        # For systemd a dash separates levels: `a-b.slice` lies within `a.slice`.
        return f"dlsched_{self._instance.replace('-', '_')}.slice"

    def follow(
        self, watches: Collection[Watch], *, again: bool = True, given_back: bool = False
    ) -> Future[None] | None:
        """Begin to set its weight for these containers; waits for nothing. Returns the call; None:
        there is none. `again`: also if it is the last one. `given_back`: ours get their default
        weights."""
        if self._most is None:
            return None
        own = [watch for watch in watches if watch.described.adopted is None]
        readers = (watch.reader for watch in own)
        reader = next((r for r in readers if r is not None and r.cpu_folder is not None), None)
        if reader is None:
            return None
        default = _default(reader)
        weight = self._most * default
        if len(own) < len(watches):
            # Adopted containers lie beside the group: it weighs no more than what is in it. That is
            # read, since engines differ in the weight that they make of shares.
            inside = (default if given_back else watch.kernel_weight for watch in own)
            weight = min(weight, sum(inside))
        if weight == self._last and not again:
            return None
        self._last = weight
        return begin(lambda: self._weigh(reader, weight), "weight")

    def _weigh(self, reader: CgroupReader, weight: float) -> None:
        if reader.cpu_folder is not None:
            problem = self.weigh(reader.cpu_folder, weight, v2=reader.v2)
            if problem is not None and problem != self._problem:
                _log.warning("%s", problem)
            self._problem = problem

    def weigh(self, container_cpu_folder: Path, weight: float, *, v2: bool) -> str | None:
        """Set the group's weight unless it has it; returns what went wrong, in one line.

        `weight` is in the kernel's unit: shares, or with `v2` a weight. The group is the parent of
        one of its containers, and only touched if it has our name.
        """
        group = container_cpu_folder.parent
        driver = "systemd" if group.suffix == ".slice" else "cgroupfs"
        if group.name != Path(self.name(driver)).name:
            return None
        file = group / ("cpu.weight" if v2 else "cpu.shares")
        value = str(bounded_weight(weight) if v2 else bounded_shares(weight))
        try:
            if file.read_text(encoding="ascii").strip() == value:
                return None
            if driver == "systemd":
                # systemd would overwrite the file the next time it applies its units.
                return self._set_property(group.name, int(value))
            file.write_text(value, encoding="ascii")
        except OSError as error:
            return f"weight of the parent group {group}: {error.strerror}"
        return None

    def remove(self, proc: Path = PROC) -> None:
        """Remove the group if it is empty; systemd removes its own slices."""
        with suppress(OSError):
            for hierarchy in hierarchies(proc):
                folder = hierarchy.folder(self.name("cgroupfs"))
                if folder is not None:
                    with suppress(OSError):
                        folder.rmdir()

    def _set_property(self, unit: str, weight: int) -> str | None:
        command = ["systemctl", "set-property", "--runtime", unit, f"CPUWeight={weight}"]
        try:
            self._run(command, check=True, capture_output=True, timeout=SYSTEMCTL_WITHIN_S)
        except (OSError, subprocess.SubprocessError) as error:
            return f"weight of the parent group {unit}: {error}"
        return None


def give_weight_back(engine: Engine, options: DockerOptions, proc: Path = PROC) -> None:
    """Set the group's weight for containers that have their default weights again, where no agent
    runs. Never raises."""
    if options.group_weight is None:
        return
    group = ParentGroup(options.instance, options.cgroup_under)
    problem = None
    try:
        listed = engine.containers({INSTANCE: options.instance})
        inspected = [engine.inspect(str(one["Id"])) for one in listed if one["State"] == "running"]
        pids = [int(one["State"]["Pid"]) for one in inspected]
        if pids:
            with closing(CgroupReader(pids[0], proc)) as reader:
                weight = min(options.group_weight, len(pids)) * _default(reader)
                if reader.cpu_folder is not None:
                    problem = group.weigh(reader.cpu_folder, weight, v2=reader.v2)
    except DlschedError as error:
        problem = f"weight of the parent group: {error}"
    if problem is not None:
        _log.warning("%s", problem)


def _default(reader: CgroupReader) -> int:
    """A container's default weight, in the kernel's unit."""
    return DEFAULT_WEIGHT if reader.v2 else DEFAULT_SHARES
