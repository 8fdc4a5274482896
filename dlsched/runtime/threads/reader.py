"""Takes a sample of the threads of containers: first what they compute and how long they wait for
CPU, by the kernel's counts; then, where several want more CPU than they get, where in their program
they are. Blocks for its time. What a container can write is hostile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dlsched.model.facts import ThreadsFact
from dlsched.runtime.cgroup.read import PROC, belongs, integer, start_of
from dlsched.runtime.threads.places import NotAllowed, Thread, spun

COUNTED_S, PLACED_S = 0.3, 1.0
"""Of a sample: three periods of a limit, to find the threads that compute; and while their places
are noted."""
THREADS_MAX = 128
"""Threads of a container whose counts are read, at 0.05 ms each."""
PLACED_MAX = 8
"""Threads of a container whose places are noted: those that compute or wait most."""
PLACES_MAX = 512
"""Places of a container whose code is read, of some 2000: hostile code takes 0.3 ms each. With so
many the ratio is right within 0.05."""
BUSY_RATIO = 0.1
"""Part of the time that a busy thread computes or waits for CPU, of a sample."""
WANTED_RATIO = 1.15
"""Threads that want less than this, of the CPU that they get, do not lack it."""

_TASKS_BYTES = 16 << 10
_FILE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Group:
    """A container's counts at one moment, by which it may lack CPU or not."""

    container: str
    start: object
    """Another value: another start of it."""
    folder: Path
    """Of the control group with the CPU files."""
    v2: bool
    usage_core_s: float
    periods: int
    throttled_periods: int


Samples = Mapping[str, ThreadsFact]
"""By container."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The kernel's counts of one thread."""

    ran_ns: int
    waited_ns: int

    @property
    def wanted_ns(self) -> int:
        return self.ran_ns + self.waited_ns


@dataclass(frozen=True, slots=True)
class Span:
    """What threads did between two readings of their counts."""

    before: Mapping[int, Counts]
    after: Mapping[int, Counts]
    elapsed_s: float

    @property
    def used_cores(self) -> float:
        """Cores that they used."""
        return self._cores(lambda one: one.ran_ns)

    @property
    def waited_cores(self) -> float:
        """Cores that they waited for."""
        return self._cores(lambda one: one.waited_ns)

    def busiest(self) -> list[int]:
        """Threads that computed or waited for a good part of the time, most first."""
        wanted = {
            one: self.after[one].wanted_ns - self.before[one].wanted_ns
            for one in self.after.keys() & self.before.keys()
        }
        least_ns = BUSY_RATIO * self.elapsed_s * 1e9
        return sorted(
            (one for one in wanted if wanted[one] >= least_ns), key=lambda one: -wanted[one]
        )

    def _cores(self, count_ns: Callable[[Counts], int]) -> float:
        same = self.after.keys() & self.before.keys()
        grew_ns = sum(count_ns(self.after[one]) - count_ns(self.before[one]) for one in same)
        return max(grew_ns, 0) / 1e9 / self.elapsed_s


class _Taken(NamedTuple):
    """The beginning of a container's sample."""

    counts: Mapping[int, Counts]
    lacks: Sequence[int]
    """Threads that want more CPU than they get, most first."""


class _Noted(NamedTuple):
    """The end of it."""

    span: Span
    at_s: float
    places: Mapping[int, Sequence[int]]
    """Of threads, where in their program they were."""


class ThreadReader:
    """Takes a sample of containers; blocks for its time."""

    def __init__(
        self,
        now_s: Callable[[], float],
        sleep: Callable[[float], None],
        proc: Path = PROC,
        place: Callable[[int], Thread] = Thread,
    ) -> None:
        self._now_s, self._sleep, self._proc, self._place = now_s, sleep, proc, place

    def read(self, groups: Sequence[Group]) -> Samples:
        """A fact for each container whose threads could be read. It may hang in the files or memory
        of a process: before the places are noted, or after."""
        tasks = {one.container: self._threads(one) for one in groups}
        first = {name: self._counted(threads) for name, threads in tasks.items()}
        began_s = self._now_s()
        self._sleep(COUNTED_S)
        elapsed_s = self._now_s() - began_s
        taken = {
            name: self._begun(Span(first[name], self._counted(threads), elapsed_s))
            for name, threads in tasks.items()
        }
        with ExitStack() as opened:
            placed = {name: self._placed(name, one, opened) for name, one in taken.items()}
            began_s = self._now_s()
            self._sleep(PLACED_S)
            now_s = self._now_s()
            noted = {
                name: _Noted(
                    Span(taken[name].counts, self._counted(threads), now_s - began_s),
                    now_s,
                    {thread: one.places() for thread, one in placed[name].items()},
                )
                for name, threads in tasks.items()
            }
        return {name: self._fact(name, one) for name, one in noted.items()}

    def _begun(self, span: Span) -> _Taken:
        busy = span.busiest()
        wanted = span.used_cores + span.waited_cores
        lacks = len(busy) > 1 and wanted >= WANTED_RATIO * span.used_cores
        return _Taken(span.after, busy[:PLACED_MAX] if lacks else ())

    def _placed(self, container: str, taken: _Taken, opened: ExitStack) -> dict[int, Thread]:
        """Have the places of its threads noted, until `opened` is closed."""
        placed: dict[int, Thread] = {}
        with suppress(NotAllowed):
            for thread in taken.lacks:
                with suppress(OSError):
                    found = opened.enter_context(closing(self._place(thread)))
                    if self._is_in(thread, container):
                        placed[thread] = found
        return placed

    def _is_in(self, thread: int, container: str) -> bool:
        """Whether that number is still a thread of the container."""
        return belongs(thread, container, self._proc)

    def _fact(self, container: str, noted: _Noted) -> ThreadsFact:
        span = noted.span
        same = {one: many for one, many in noted.places.items() if self._is_in(one, container)}
        spun_ratio, spins_in = self._spun(same)
        return ThreadsFact(
            at_s=noted.at_s,
            busy=len(span.busiest()),
            used_cores=span.used_cores,
            waited_cores=span.waited_cores,
            spun_ratio=spun_ratio,
            spins_in=spins_in,
        )

    def _threads(self, group: Group) -> list[int]:
        listed = start_of(group.folder / ("cgroup.threads" if group.v2 else "tasks"), _TASKS_BYTES)
        # The last number may be cut off.
        lines = (listed or b"").rpartition(b"\n")[0].split()
        return [int(one) for one in lines[:THREADS_MAX] if one.isdigit() and one != b"0"]

    def _counted(self, threads: Iterable[int]) -> Mapping[int, Counts]:
        counts = {}
        for thread in threads:
            fields = self._file(thread, "schedstat").split()
            if len(fields) == 3 and fields[0].isdigit() and fields[1].isdigit():
                counts[thread] = Counts(int(fields[0]), int(fields[1]))
        return counts

    def _file(self, thread: int, name: str) -> bytes:
        return start_of(self._proc / str(thread) / name, _FILE_BYTES) or b""

    def _spun(self, noted: Mapping[int, Sequence[int]]) -> tuple[float | None, str]:
        """Which part of the places only waits, and the file with most of them."""
        by_process: dict[int, list[int]] = {}
        step = -(-sum(map(len, noted.values())) // PLACES_MAX) or 1
        for thread, found in noted.items():
            process = integer(_line(self._file(thread, "status"), b"Tgid"))
            if process is not None:
                by_process.setdefault(process, []).extend(found[::step])
        spins, whole, files = 0, 0, Counter[str]()
        for process, places in by_process.items():
            with suppress(OSError):
                count, name = spun(process, places, self._proc)
                spins, whole = spins + count, whole + len(places)
                files[name] += count
        if not whole:
            return None, ""
        return spins / whole, files.most_common(1)[0][0] if files else ""


def _line(status: bytes, name: bytes) -> bytes | None:
    """The value of that name in a file `status`; None: there is none."""
    begin = status.find(b"\n" + name + b":")
    end = status.find(b"\n", begin + 1)
    return None if begin < 0 or end < 0 else status[begin + len(name) + 2 : end]
