"""What `/v1/usage` answers and `dlsched usage -o json` prints. Versioned as `schema` is."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.api.schema import Value


@dataclass(frozen=True, eq=False, repr=False)
class CpuSeconds(Value):
    """CPU-seconds of one job, of all jobs of one owner, or of all."""

    asked_core_s: float
    """What it needed for its target by the policy's forecast, at least what it used; a job that
    waited for room asks for its floor."""
    given_core_s: float
    """Its ceiling times the time; without a ceiling, what it used."""
    used_core_s: float
    lent_core_s: float
    """The part of its fair share that other jobs used."""
    borrowed_core_s: float
    """What it used beyond its fair share."""


@dataclass(frozen=True, eq=False, repr=False)
class UsageRow(Value):
    """One user or one job."""

    name: str
    """Name of the user or the job; `no owner`: containers that were adopted. The last row may be
    `(N others)`, those who used least."""
    owner: int | None
    """uid of the job file's owner. None: there is no file."""
    jobs: int
    cpu: CpuSeconds


@dataclass(frozen=True, eq=False, repr=False)
class UsageStatus(Value):
    """Who used the CPU in a range of the journal."""

    schema_version: int
    from_s: float
    to_s: float
    """Unix seconds."""
    by: str
    """user or job."""
    recorded_s: float
    """Time of the range in which the daemon ran."""
    capacity_core_s: float
    """What the node had in that time."""
    used_core_s: float
    """What all jobs used, summed up apart from the rows."""
    total: CpuSeconds
    """Sum of the rows."""
    rows: tuple[UsageRow, ...]
    """Those who used most first."""
    notes: tuple[str, ...]
    """What could not be read, or is estimated, a line each."""
