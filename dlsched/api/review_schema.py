"""The schema of `dlsched report -o json`. Times are seconds; ratios 0 to 1; None: unknown, or there
is none. Every value of `Estimate` and `PlainDocker` is an estimate, never a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.api.schema import Value


@dataclass(frozen=True, eq=False, repr=False)
class Kept(Value):
    """How long a latency target was met."""

    target_s: float
    quantile: float | None
    """None: the mean."""
    met_s: float
    slow_s: float
    """Time in which it was slower than its target, or answered nothing for longer than that."""
    silent_s: float
    """Time without reports, or with too few requests to judge."""
    failing_s: float
    """Part of `slow_s` in which too many requests failed, however quick the answers were."""
    unclear_s: float
    """Time in which its latency may have been on either side of its target."""
    met_ratio: float | None
    """Of the time in which it was met or missed; None: there was none."""
    measured_s: float | None
    """The mean or quantile over all requests of the range."""
    requests: int


@dataclass(frozen=True, eq=False, repr=False)
class TierReached(Value):
    """One tier of an accuracy target."""

    tier: str
    """deliver or finish."""
    value: float
    """The value that is asked for."""
    reached_s: float | None
    """From its start, or from the range's beginning if it ran before; None: not reached in it."""
    wall_time: str | None
    before: bool
    """Whether it was reached before the range."""


@dataclass(frozen=True, eq=False, repr=False)
class Trained(Value):
    """How far a training came."""

    metric: str
    deadline_s: float | None
    tiers: tuple[TierReached, ...]
    ran_before: bool
    """Whether it ran before the range, so that its start is not known."""
    step: int | None
    value: float | None
    """The last one reported."""
    outlook: str | None
    """The policy's last forecast, in one sentence."""


@dataclass(frozen=True, eq=False, repr=False)
class PlainDocker(Value):
    """An estimate of one job under plain Docker, from a simulation of the recorded load."""

    why_not: str | None
    """Why there is no estimate; None: there is one."""
    met_ratio: float | None = None
    measured_s: float | None = None
    deliver_s: float | None = None
    """As `TierReached.reached_s`; None: not reached in the simulated time."""
    finish_s: float | None = None
    replayed_met_ratio: float | None = None
    """What the same simulation says under the recorded limits; its difference from the record is
    the model's error."""
    replayed_measured_s: float | None = None
    replayed_deliver_s: float | None = None
    replayed_finish_s: float | None = None
    remarks: tuple[str, ...] = ()
    """Guesses that it rests on."""


@dataclass(frozen=True, eq=False, repr=False)
class JobReview(Value):
    """One job, over all containers that had its name in the range."""

    name: str
    kind: str
    """service, training or other."""
    target: str | None
    adopted: bool
    ran_s: float
    used_core_s: float
    fair_core_s: float
    """Its fair share while it ran: the node by `weight`, within floors and ceilings."""
    borrowed_core_s: float
    """What it used beyond its fair share."""
    lent_core_s: float
    """The part of its fair share that other jobs used."""
    kept: Kept | None
    trained: Trained | None
    plain_docker: PlainDocker
    changes: int
    ratio: tuple[float | None, ...]
    """Measured over target by slice of `Review.slice_s`; None: not judged."""
    used_cores: tuple[float | None, ...]
    """By slice; None: it did not run."""


@dataclass(frozen=True, eq=False, repr=False)
class Counted(Value):
    """How often something happened."""

    what: str
    count: int


@dataclass(frozen=True, eq=False, repr=False)
class JudgedChange(Value):
    """A change of limits whose effect was large."""

    wall_time: str
    job: str
    before_cores: float | None
    after_cores: float | None
    changed: str
    """What changed, as `why` says it."""
    why: str
    verdict: str
    effect: str
    times: float
    """Latency after it over that before."""


@dataclass(frozen=True, eq=False, repr=False)
class Changes(Value):
    """What was changed in the range, and what was measured before and after."""

    count: int
    kinds: tuple[Counted, ...]
    failed: int
    """Those that failed or were withheld."""
    reasons: tuple[Counted, ...]
    """The most frequent ones, each by its first example: they differ in numbers only."""
    effects: tuple[Counted, ...]
    """Of the changes of limits of services: by verdict."""
    largest: tuple[JudgedChange, ...]
    left_out: int
    """Changes beyond the bound on what is read."""


@dataclass(frozen=True, eq=False, repr=False)
class AlarmReview(Value):
    """An alarm raised in the range."""

    text: str
    since: str
    """Wall time at which it was raised first, or the range's beginning."""
    lasted_s: float
    """In all."""
    raised: bool
    """Whether it is still raised at the end."""


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Value):
    """What plain Docker would have done, in all: an estimate, with the model's error."""

    why_not: str | None
    jobs: int
    """Services with an estimate, which the ratios are about, weighted by their time."""
    recorded_met_ratio: float | None
    plain_met_ratio: float | None
    replayed_met_ratio: float | None
    """Of the simulation under the recorded limits."""
    error_ratio: float | None
    """Mean over services of the difference between `replayed` and recorded, without its sign."""
    error_factor: float | None
    """Factor by which a replayed mean or quantile is off the measured one, in the median."""
    simulated_s: float
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Review(Value):
    """What `dlsched report` found in a range of the journal."""

    schema_version: int
    begins: str
    ends: str
    """Wall times of the first and last cycle."""
    recorded_s: float
    observed_s: float
    """The same without gaps in the record, in which nothing was counted."""
    asked_s: float
    cycles: int
    policies: tuple[str, ...]
    capacity_cores: float
    used_core_s: float
    foreign_core_s: float | None
    """CPU time of everything else on the host."""
    slice_s: float
    jobs: tuple[JobReview, ...]
    changes: Changes
    alarms: tuple[AlarmReview, ...]
    estimate: Estimate
    remarks: tuple[str, ...]
    """What limits this report."""
