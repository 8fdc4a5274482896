"""What containers had before our first change of them, kept until they are gone.

Owns the folder `originals` in the state directory, one file a container. It must not change a
container, nor decide when: `runtime.docker.limits.writer` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dlsched.runtime.cgroup.cpu_units import engine_cores
from dlsched.runtime.cgroup.group_limits import GroupLimits
from dlsched.store.records import BROKEN, Records

FOLDER = "originals"

_CONTAINER_ID = "[0-9a-f]{64}"

Dialect = Literal["quota", "nano"]
"""How a container's CPU limit is given to the engine: the two exclude each other."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """A container's limits in the engine's inspection, as it says them; 0: not given."""

    nano_cpus: int = 0
    quota_us: int = 0
    period_us: int = 0
    shares: int = 0
    memory_bytes: int = 0
    memory_swap_bytes: int = 0

    @property
    def dialect(self) -> Dialect:
        """The one that it was made in."""
        return "nano" if self.nano_cpus > 0 else "quota"

    @property
    def cpu_cores(self) -> float | None:
        """The ceiling; None: none."""
        return engine_cores(self.nano_cpus, self.quota_us, self.period_us)


@dataclass(frozen=True, slots=True)
class MemoryOriginal:
    """One container's memory limit before our first change of it."""

    memory_bytes: int
    swap_bytes: int
    """Limit of memory and swap together, as the engine says it; -1: none."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What the kernel said, by file."""
    given: tuple[int, ...] = ()
    """The limits that we may have set, the last one last, as the engine says them. Any other is the
    owner's."""

    @property
    def limits(self) -> EngineLimits:
        return EngineLimits(memory_bytes=self.memory_bytes, memory_swap_bytes=self.swap_bytes)

    def before(self, now: EngineLimits) -> EngineLimits:
        """The limits to give back: those of `now` where the owner has set others since."""
        ours = now.memory_bytes in (self.memory_bytes, *self.given)
        return self.limits if ours else now


@dataclass(frozen=True, slots=True)
class Original:
    """One container's limits before our first change of them."""

    container_id: str
    job: str
    adopted: bool
    """Whether somebody else made it: it goes back to what it had. Own ones go to their ceiling."""
    told: EngineLimits = EngineLimits()
    """What the engine said."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What the kernel said, by file; empty for one that did not run yet."""
    ceiling_cores: float | None = None
    """Of an own job's spec, as it is now; None: no ceiling."""
    wall_time: str = ""
    engine: str = ""
    """Which engine has it, by that engine's own id; empty: not known."""
    memory: MemoryOriginal | None = None
    """None: we have not changed its memory limit."""
    given_back: bool = False
    """Whether it has this again. The next change writes the record again."""

    @property
    def kernel(self) -> GroupLimits:
        """What the kernel said."""
        return GroupLimits(self.files)

    @property
    def cpu_cores(self) -> float | None:
        """The ceiling that it goes back to; None: none."""
        return self.told.cpu_cores if self.adopted else self.ceiling_cores


class Originals(Records[Original]):
    """The records of all containers that were ever changed and may still be there, by id."""

    def __init__(self, state_dir: Path, *, read_only: bool = False) -> None:
        """Load them. Raises OSError when the folder cannot be used."""
        super().__init__(
            state_dir / FOLDER,
            Original,
            lambda record: record.container_id,
            _CONTAINER_ID,
            "the container's original limits are not known, so its limits are not changed",
            read_only=read_only,
        )

    def changed(self) -> tuple[Original, ...]:
        """The records of all that were not given back yet, by job."""
        there = [record for record in self.all().values() if not record.given_back]
        return tuple(sorted(there, key=lambda record: record.job))

    def holds(self, container: str) -> bool:
        """Whether that container was changed, and does not have its own limits again."""
        original = self.of(container)
        return original is not None and not original.given_back

    def cores_before(self, container: str, now_cores: float | None) -> float | None:
        """The ceiling that a container had before any change of ours, or has now."""
        original = self.of(container)
        return now_cores if original is None or original.given_back else original.cpu_cores

    def memory_before(self, container: str, now: EngineLimits) -> int | None:
        """The memory limit that a container had before any change of ours, or has now; None:
        none."""
        original = self.of(container)
        if original is None or original.given_back or original.memory is None:
            return now.memory_bytes or None
        return original.memory.before(now).memory_bytes or None

    def all_lost(self) -> tuple[str, ...]:
        """The containers whose record cannot be read. Raises OSError."""
        names = (path.name.partition(".")[0] for path in self._folder.glob(f"*.json{BROKEN}"))
        return tuple(sorted(name for name in names if re.fullmatch(_CONTAINER_ID, name)))

    def lost(self, container: str) -> Path | None:
        """The file that was its record and cannot be read; None: there is none such."""
        broken = self.broken(container)
        return broken if broken.exists() else None
