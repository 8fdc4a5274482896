"""A policy of your own, whole: copy this file, rename the class, change `decide`.

Try it where your module can be imported, against nothing real at first:

    PYTHONPATH=examples dlsched run --policy my_policy:SlowestFirst --dry-run

To install it under a short name, give your package an entry point:

    [project.entry-points."dlsched.policies"]
    slowest-first = "my_policy:SlowestFirst"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlsched.policies import (
    Decision,
    JobView,
    LatencyTarget,
    Limits,
    PolicyTraits,
    Snapshot,
    fair_shares,
    measured_s,
)


@dataclass(frozen=True, slots=True)
class SlowestFirstParameters:
    """What the settings may choose. Each has a default, a unit, and a reason."""

    step_ratio: float = 0.2
    """Part of its limit that the giving job loses in one step: small enough to be taken back."""
    interval_s: float = 5.0
    """Seconds between steps: long enough for requests to show what the last one did."""

    def __post_init__(self) -> None:
        # A ValueError in one line is all that it takes to refuse a setting.
        if not 0 < self.step_ratio < 1:
            raise ValueError(f"step_ratio is {self.step_ratio}, must be between 0 and 1")
        if not self.interval_s > 0:
            raise ValueError(f"interval_s is {self.interval_s}, must be above 0")


@dataclass(frozen=True, slots=True)
class SlowestFirstMemory:
    """What is carried to the next decision: plain values only, so that a restart keeps it."""

    cores: tuple[tuple[str, float], ...]


class SlowestFirst:
    """The job furthest behind its target takes CPU from the one furthest ahead.

    The first line of this docstring is what `dlsched policies` shows.
    """

    Parameters: ClassVar[type[SlowestFirstParameters]] = SlowestFirstParameters
    Memory: ClassVar[type[SlowestFirstMemory]] = SlowestFirstMemory
    # Where jobs share a GPU, `decide` is asked once more for that GPU: `cpu_cores` are parts of its
    # time then, and the capacity is 1. Nothing has to be written for that. To name the unit in a
    # reason, write `snapshot.resource.amount(0.5)`: "0.500 cores", or "0.500 of GPU 0's time".
    # Limits that are only passed on never sum to more than the capacity: say so, and it is kept.
    traits: ClassVar[PolicyTraits] = PolicyTraits(reserves=True)

    def __init__(self, parameters: SlowestFirstParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: object) -> Decision:
        """One step. The same snapshot and memory must always give the same decision."""
        jobs = snapshot.running  # the only jobs whose limits can be decided
        cores = dict(memory.cores) if isinstance(memory, SlowestFirstMemory) else {}
        if set(cores) != {job.name for job in jobs}:
            # At the start, and when a job has come or gone, begin from equal shares.
            cores = fair_shares(jobs, snapshot.node.capacity_cores)
        why = {job.name: f"{cores[job.name]:.3f} cores, unchanged" for job in jobs}

        # Not every job has a target, and not every job with one has been measured.
        measured = {job.name: lateness(job) for job in jobs}
        late = {name: ratio for name, ratio in measured.items() if ratio is not None}
        if late:
            slowest = max(late, key=lambda name: (late[name], name))
            fastest = min(late, key=lambda name: (late[name], name))
            if late[fastest] < 1 < late[slowest]:
                step = self.parameters.step_ratio * cores[fastest]
                cores[fastest] -= step
                cores[slowest] += step
                # One sentence with the numbers: `dlsched why JOB` shows it to a person.
                why[fastest] = f"at {late[fastest]:.2f} of its target: gives {step:.3f} cores"
                why[slowest] = f"at {late[slowest]:.2f} of its target: takes {step:.3f} cores"

        # Bounds, capacity and steps too small to matter are the guards' work, not ours.
        return Decision(
            limits={name: Limits(cpu_cores=one) for name, one in cores.items()},
            why=why,
            memory=SlowestFirstMemory(tuple(sorted(cores.items()))),
            next_s=self.parameters.interval_s,
        )


def lateness(job: JobView) -> float | None:
    """Measured latency over target, above 1 for late; None where there is nothing to compare."""
    target = job.spec.target
    if not isinstance(target, LatencyTarget):
        return None
    # `window` was measured wholly under the present limits: it tells what they do.
    measured = measured_s(job.progress.window, target.quantile)
    return None if measured is None else measured / target.seconds
