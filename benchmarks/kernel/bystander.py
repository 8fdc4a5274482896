"""What the rest of the host waits while trainings keep every core busy, by `group_weight`.

The parent group of all jobs competes as one with everything else on the host. More weight keeps
others' work from slowing the jobs, and lets everything else wait: a process that sleeps most of the
time, as the engine does, and the agent. The same five trainings run all the while under equal
shares, as under plain Docker; the daemon is started again and again with another weight, in the
order given and then in its reverse, so that a drift of the host falls on each alike. On each core a
process wants to wake every 10 ms and tells how late it did; the engine is asked ten times a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.kernel.tail import quantile
from benchmarks.real import training_set
from benchmarks.real.session import Session, wait_for

WEIGHTS = (1.0, 2.0, 4.0, 8.0)
"""In multiples of one container's default."""
SETTLE_S = 10.0
_ASK_EVERY_S = 0.1
_LATE_S = 0.2

_WAKES = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
until, late = time.monotonic() + float(sys.argv[2]), []
while (began := time.monotonic()) < until:
    time.sleep(0.01)
    late.append(time.monotonic() - began - 0.01)
print(*late)
"""


@dataclass(frozen=True)
class Phase:
    """What was waited for in one stretch of time under one weight, in seconds."""

    group_weight: float
    order: str
    wakes_late_s: tuple[float, ...]
    answers_s: tuple[float, ...]
    """Of the engine."""


def measure(session: Session, seed: int, phase_s: float) -> list[dict[str, object]]:
    """One row a phase, and one for both orders of a weight together."""
    jobs = training_set.SCHEDULES[-1].jobs
    for job in jobs:
        endless = replace(job, model=replace(job.model, steps=1000 * job.model.steps))
        session.drop(job.name, training_set.spec_text(endless, seed))
    phases = []
    for order, weights in (("forward", WEIGHTS), ("backward", WEIGHTS[::-1])):
        for weight in weights:
            session.start("none", more={"group_weight": weight})
            wait_for(lambda: session.running() == len(jobs), 60, "the trainings to run")
            session.confine(weight)
            time.sleep(SETTLE_S)
            phases.append(_watched(session, weight, order, phase_s))
            session.stop()
    return rows(seed, phases)


def rows(seed: int, phases: Sequence[Phase]) -> list[dict[str, object]]:
    """One row a phase, and one for both orders of a weight together; times in ms."""
    parts = list(phases)
    for weight in dict.fromkeys(phase.group_weight for phase in phases):
        same = [phase for phase in phases if phase.group_weight == weight]
        late_s = tuple(late_s for phase in same for late_s in phase.wakes_late_s)
        answers_s = tuple(answer_s for phase in same for answer_s in phase.answers_s)
        parts.append(Phase(weight, "both", late_s, answers_s))
    return [
        {
            "seed": seed,
            "group_weight": phase.group_weight,
            "order": phase.order,
            "wakes": len(phase.wakes_late_s),
            "p99_late_ms": _ms(quantile(phase.wakes_late_s, 0.99)),
            "most_late_ms": _ms(max(phase.wakes_late_s)),
            "wakes_late_by_200_ms": sum(late_s > _LATE_S for late_s in phase.wakes_late_s),
            "engine_answers": len(phase.answers_s),
            "engine_p99_ms": _ms(quantile(phase.answers_s, 0.99)),
            "engine_most_ms": _ms(max(phase.answers_s)),
        }
        for phase in parts
    ]


def table(told: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """The rows of both orders together, as README shows them."""
    return [
        {
            "group_weight": row["group_weight"],
            "a process wakes late, p99, ms": row["p99_late_ms"],
            "at most, ms": row["most_late_ms"],
            "by more than 200 ms": f"{row['wakes_late_by_200_ms']} of {row['wakes']}",
            "the engine answers, p99, ms": row["engine_p99_ms"],
            "at most after ms": row["engine_most_ms"],
        }
        for row in told
        if row["order"] == "both"
    ]


def _watched(session: Session, weight: float, order: str, phase_s: float) -> Phase:
    wakers = [
        subprocess.Popen(
            [sys.executable, "-c", _WAKES, str(core), str(phase_s)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for core in sorted(os.sched_getaffinity(0))
    ]
    answers_s = []
    try:
        until_s = time.monotonic() + phase_s
        while (began_s := time.monotonic()) < until_s:
            session.engine.ping()
            answers_s.append(time.monotonic() - began_s)
            time.sleep(_ASK_EVERY_S)
        late_s = [float(told) for waker in wakers for told in waker.communicate()[0].split()]
    finally:
        for waker in wakers:
            waker.kill()
    return Phase(weight, order, tuple(late_s), tuple(answers_s))


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)
