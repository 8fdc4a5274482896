"""What the idle class is worth to a training that comes first: with and without, in one run.

Two trainings of two threads share the node, one of them first in turn: under even weights, with a
thousand times the other's weight, with the other in the idle class beside that, and with the other
paused. The same containers run all the while; the daemon is started again and again with other
settings, in the order given and then in its reverse, so that a drift of the host falls on each
alike. The kernel is asked before and after each phase whether the other is in that class.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from benchmarks.real import training_set
from benchmarks.real.session import Session, wait_for
from benchmarks.real.training_run import boot_s
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import Decision, PolicyMemory
from dlsched.model.spec import Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.runtime.cgroup.group_limits import LimitFiles

NAME = "idle-class"
POLICY = "benchmarks.kernel.idle_class:FirstPolicy"
SEED = 1
TRAININGS = ("vae", "cnn")
LOAD_S = 60.0
SETTLE_S = 4.0
EVALUATE_EVERY = 10


@dataclass(frozen=True)
class Variant:
    """How the other is kept behind."""

    words: str
    weight: float = 1000.0
    """Of the first, as a multiple of the other's."""
    idle_class: bool = False
    pauses: bool = False


EVEN = Variant("even weights", weight=1.0)
ALONE = Variant("the other paused", pauses=True)
VARIANTS = (
    EVEN,
    Variant("1000 times the weight"),
    Variant("1000 times the weight, the other in the idle class", idle_class=True),
    ALONE,
)


@dataclass(frozen=True)
class FirstParameters:
    """Who comes first."""

    first: str = ""
    weight: float = 1.0


class FirstPolicy:
    """One job outweighs all others; there are no ceilings."""

    Parameters: ClassVar[type[Any]] = FirstParameters
    Memory: ClassVar[type[Any] | None] = None
    reserves: ClassVar[bool] = False

    def __init__(self, parameters: FirstParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        """The same every time."""
        names = [job.name for job in snapshot.running]
        rule = self.parameters
        weights = {name: rule.weight if name == rule.first else 1.0 for name in names}
        return Decision(dict.fromkeys(names, Limits()), dict.fromkeys(names, "fixed"), None, 60.0,
                        weights=weights)  # fmt: skip


@dataclass(frozen=True)
class Phase:
    """One stretch of time, on the boot clock."""

    variant: Variant
    order: str
    first: str
    begin_s: float
    end_s: float


def measure(session: Session, phase_s: float) -> list[dict[str, object]]:
    """One row for each training that comes first, variant and order."""
    _begin(session)
    phases = [
        _phase(session, variant, order, first, phase_s)
        for order, variants in (("forward", VARIANTS), ("backward", VARIANTS[::-1]))
        for variant in variants
        for first in TRAININGS
    ]
    return rows(phases, list(session.reports(0)))


def rows(phases: Sequence[Phase], reports: Sequence[CycleReport]) -> list[dict[str, object]]:
    """One row a phase: cores that each uses, and steps a second of the first."""
    told = []
    for phase in phases:
        seen = [one for one in reports if phase.begin_s <= one.snapshot.now_s < phase.end_s]
        (other,) = set(TRAININGS) - {phase.first}
        steps_per_s = _steps_per_s(seen, phase)
        told.append(
            {
                "first": phase.first,
                "the other": phase.variant.words,
                "order": phase.order,
                "first_cores": round(_cores(seen, phase.first), 3),
                "other_cores": round(_cores(seen, other), 3),
                "first_steps_per_s": round(steps_per_s, 2),
            }
        )
    return told


def table(told: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Both orders and both trainings together, against the training that has the node alone."""
    shown = []
    for variant in VARIANTS:
        mine = [row for row in told if row["the other"] == variant.words]
        part = [
            _number(row, "first_steps_per_s")
            / _mean(told, ALONE, row["first"], "first_steps_per_s")
            for row in mine
        ]
        shown.append(
            {
                "the other": variant.words,
                "phases": len(mine),
                "cores of the first": statistics.fmean(_number(row, "first_cores") for row in mine),
                "cores of the other": statistics.fmean(_number(row, "other_cores") for row in mine),
                "steps of the first, of those alone": statistics.fmean(part),
                "least": min(part),
            }
        )
    return shown


def _number(row: dict[str, object], name: str) -> float:
    return float(row[name])  # type: ignore[arg-type]


def _mean(told: Sequence[dict[str, object]], variant: Variant, first: object, name: str) -> float:
    same = [row for row in told if row["the other"] == variant.words and row["first"] == first]
    return statistics.fmean(_number(row, name) for row in same)


def _begin(session: Session) -> None:
    """Both trainings, until each has told of its first steps."""
    for name in TRAININGS:
        endless = replace(training_set.MODELS[name], steps=1_000_000, evaluate_every=EVALUATE_EVERY)
        job = training_set.TrainingJob(name, endless, 0.0)
        session.drop(name, training_set.spec_text(job, SEED))
    session.start("none")
    wait_for(lambda: session.running() == len(TRAININGS), LOAD_S, "the trainings to run")
    wait_for(lambda: _sighted(session), LOAD_S, "their first steps")
    session.stop()


def _sighted(session: Session) -> bool:
    return all(row["blind"] is None for row in session.client.jobs()["jobs"])


def _phase(session: Session, variant: Variant, order: str, first: str, phase_s: float) -> Phase:
    (other,) = set(TRAININGS) - {first}
    session.start(
        f"{POLICY}?first={first}&weight={variant.weight:g}",
        more={"idle_class": variant.idle_class},
    )
    wait_for(lambda: session.running() == len(TRAININGS), LOAD_S, "the trainings to run")
    session.confine()
    wait_for(lambda: _is_idle(session, other) == variant.idle_class, 30, "the class of the other")
    container = session.engine.containers.get(f"dlsched-{session.instance}-{other}")
    if variant.pauses:
        container.pause()
    try:
        time.sleep(SETTLE_S)
        begin_s = boot_s()
        time.sleep(phase_s)
        end_s = boot_s()
    finally:
        if variant.pauses:
            container.unpause()
    if _is_idle(session, first) or _is_idle(session, other) != variant.idle_class:
        raise RuntimeError(f"{variant.words}: the classes changed meanwhile")
    session.stop()
    return Phase(variant, order, first, begin_s, end_s)


def _is_idle(session: Session, name: str) -> bool:
    """Whether the kernel has it in the idle class."""
    container = session.engine.containers.get(f"dlsched-{session.instance}-{name}")
    return bool(LimitFiles(container.attrs["State"]["Pid"], str(container.id)).read().idle)


def _job(report: CycleReport, name: str) -> JobView:
    return next(job for job in report.snapshot.jobs if job.name == name)


def _cores(seen: Sequence[CycleReport], name: str) -> float:
    """Mean use between the first and the last of these reports."""
    begun, ended = _job(seen[0], name), _job(seen[-1], name)
    elapsed_s = seen[-1].snapshot.now_s - seen[0].snapshot.now_s
    return (ended.attained_core_s - begun.attained_core_s) / elapsed_s


def _steps_per_s(seen: Sequence[CycleReport], phase: Phase) -> float:
    """From its evaluations in that time."""
    told = {
        sample.received_s: sample.step
        for report in seen
        for sample in _job(report, phase.first).progress.samples
        if sample.step is not None and phase.begin_s <= sample.received_s < phase.end_s
    }
    if len(told) < 2:
        raise RuntimeError(f"{phase.first} told of {len(told)} evaluations in a phase")
    first_s, last_s = min(told), max(told)
    return (told[last_s] - told[first_s]) / (last_s - first_s)
