"""One schedule under one policy on real containers, its journal kept for whoever judges.

Owns the course of events and the kept files: `.build/bench/training/SCENARIO/POLICY-SEED/` holds
the journal and `run.json`. It must not judge.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import places
from benchmarks.real.kept import RUN, KeptRun
from benchmarks.real.training_set import Schedule
from dlsched.model.state import JobState
from tools.session import Session, session, wait_for

KEPT = places.KEPT / "training"

_POLL_S = 1.0
_OVER = {JobState.FINISHED, JobState.STOPPED}


@dataclass(frozen=True)
class Kept(KeptRun):
    """What is known of a run beside its journal."""

    scenario: str
    policy: str
    """As rows call it."""
    spelled: str
    """As settings spell it, with its parameters."""
    seed: int
    digest: str
    """Of all that was asked for: a run of another set is not taken for this one."""
    capacity_cores: float
    arrivals: Mapping[str, float]
    """When each file was dropped, on the agent's clock."""
    daemon_core_ratio: float
    """CPU of the daemon over the run, in cores."""
    host: Mapping[str, object]


def folder_of(scenario: str, policy: str, seed: int) -> Path:
    return KEPT / scenario / f"{policy}-{seed}"


def digest_of(schedule: Schedule, spelled: str, seed: int) -> str:
    """What a run is asked for, as one word."""
    parts = [spelled, *(f"{job.arrives_s:g} {schedule.text(job, seed)}" for job in schedule.jobs)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def load(folder: Path) -> Kept | None:
    """The run kept there; None without one."""
    file = folder / RUN
    return Kept(folder, **json.loads(file.read_text())) if file.exists() else None


def void(kept: Kept) -> None:
    """It does not count: its journal stays for whoever wants to know, but nobody judges it."""
    (kept.folder / RUN).unlink()


def run(
    schedule: Schedule,
    policy: str,
    spelled: str,
    seed: int,
    host: Mapping[str, object],
) -> Kept:
    """Drop the files at their times, wait until all have ended, keep the journal.

    Raises RuntimeError when a job fails, or the deadline passes.
    """
    with session() as one:
        one.start(spelled)
        one.confine()
        agent = one.process
        agent_s, began_s = sum(agent.cpu_times()[:4]), time.monotonic()
        arrivals = _arrive(one, schedule, seed)
        names = {job.name for job in schedule.jobs}
        wait_for(
            lambda: names <= _over(one),
            max(1.0, schedule.deadline_s - (time.monotonic() - began_s)),
            f"{schedule.name} under {policy} to end",
        )
        agent_s = sum(agent.cpu_times()[:4]) - agent_s
        ratio = agent_s / (time.monotonic() - began_s)
        capacity = float(one.client.jobs()["node"]["capacity_cores"])
        one.stop()
        folder = folder_of(schedule.name, policy, seed)
        one.keep(folder)
    kept = Kept(
        folder=folder,
        scenario=schedule.name,
        policy=policy,
        spelled=spelled,
        seed=seed,
        digest=digest_of(schedule, spelled, seed),
        capacity_cores=capacity,
        arrivals=arrivals,
        daemon_core_ratio=ratio,
        host=dict(host),
    )
    kept.write()
    return kept


def _arrive(one: Session, schedule: Schedule, seed: int) -> dict[str, float]:
    """Drop each file when it is due; returns the times on the agent's clock."""
    began_s = boot_s()
    arrivals: dict[str, float] = {}
    for job in sorted(schedule.jobs, key=lambda job: job.arrives_s):
        while (left_s := began_s + job.arrives_s - boot_s()) > 0:
            _over(one, min(left_s, _POLL_S))
        arrivals[job.name] = boot_s()
        one.drop(job.name, schedule.text(job, seed))
    return arrivals


def _over(one: Session, pause_s: float = _POLL_S) -> set[str]:
    """The jobs that have ended, after a pause, since looking costs CPU. Raises RuntimeError where
    one failed."""
    time.sleep(pause_s)
    rows = one.client.jobs()["jobs"]
    for row in rows:
        if row["state"] == JobState.FAILED:
            raise RuntimeError(f"{row['name']} failed: {row['reason'] or ''}")
    return {row["name"] for row in rows if row["state"] in _OVER}


def boot_s() -> float:
    """The clock that the agent's cycles carry."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
