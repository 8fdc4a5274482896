"""Whether what a process holds stays flat: samples over time, first, last and slope.

Owns the judgement. It must not know what is sampled, nor how long a run is.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

WARM_UP_RATIO = 0.2
"""Part of a run in which caches and windows may still fill."""
_END_RATIO = 0.1
"""First and last are medians over such a part of what follows."""

ALLOWED: Mapping[str, float] = {
    "RSS MiB": 8.0,
    "descriptors": 4.0,
    "threads": 4.0,
    "journal MiB": 1.0,
    "state files": 8.0,
}
"""By how much the last may be above the first. Connections to an engine are kept, so descriptors
grow a little until there are as many as it was ever asked at a time."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was held at one moment."""

    at_s: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Flatness:
    """One measure over a run after its warm-up."""

    measure: str
    first: float
    last: float
    slope_per_h: float
    samples: int

    @property
    def flat(self) -> bool:
        """Whether it stayed within what is allowed."""
        return self.last - self.first <= ALLOWED[self.measure]

    def row(self) -> dict[str, object]:
        return {
            "measure": self.measure,
            "first": round(self.first, 2),
            "last": round(self.last, 2),
            "slope an hour": round(self.slope_per_h, 4) + 0.0,
            "flat": "yes" if self.flat else "NO",
            "samples": self.samples,
        }


def held(process: psutil.Process, state_dir: Path, at_s: float) -> Sample:
    """What that process holds now, and what its state directory holds."""
    with process.oneshot():
        values = {
            "RSS MiB": process.memory_info().rss / 2**20,
            "descriptors": float(process.num_fds()),
            "threads": float(process.num_threads()),
        }
    sizes = {}
    for path in state_dir.rglob("*"):
        with suppress(FileNotFoundError):  # it went meanwhile
            if path.is_file():
                sizes[str(path.relative_to(state_dir))] = path.stat().st_size
    journal_bytes = sum(size for name, size in sizes.items() if name.startswith("journal.db"))
    more = {"journal MiB": journal_bytes / 2**20, "state files": float(len(sizes))}
    return Sample(at_s, values | more)


def judged(samples: Sequence[Sample]) -> list[Flatness]:
    """Each measure after the warm-up; needs some samples beyond it."""
    begun_s = samples[0].at_s + WARM_UP_RATIO * (samples[-1].at_s - samples[0].at_s)
    warm = [sample for sample in samples if sample.at_s >= begun_s]
    end = max(1, int(_END_RATIO * len(warm)))
    hours = [sample.at_s / 3600.0 for sample in warm]
    rows = []
    for measure in warm[0].values:
        told = [sample.values[measure] for sample in warm]
        slope = statistics.linear_regression(hours, told).slope if len(told) > 1 else 0.0
        first, last = statistics.median(told[:end]), statistics.median(told[-end:])
        rows.append(Flatness(measure, first, last, slope, len(told)))
    return rows
