"""One schedule under one policy on real containers, its journal kept for whoever judges.

Owns the course of events and the kept files: `.build/bench/training/SCENARIO/POLICY-SEED/` holds
the journal and `run.json`. It must not judge.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import places
from benchmarks.real.training_set import Schedule, TrainingJob
from dlsched.model.cycle import CycleReport
from dlsched.model.state import JobState
from dlsched.store.journal.reader import JournalReader
from tools.session import JOURNAL, Session, session, wait_for

KEPT = places.KEPT / "training"

_WHOLE = "run.json"
"""Written last: a folder with this file is a whole run."""

_POLL_S = 1.0
_OVER = {JobState.FINISHED, JobState.FAILED, JobState.STOPPED}


@dataclass(frozen=True)
class Kept:
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
    folder: Path

    def reports(self) -> list[CycleReport]:
        """Every cycle of the run. Raises RuntimeError for a journal that cannot be read."""
        with JournalReader(self.folder / JOURNAL) as reader:
            found = list(reader.reports())
            if reader.problem is not None:
                raise RuntimeError(reader.problem)
        return found


def folder_of(scenario: str, policy: str, seed: int) -> Path:
    """Where that run is kept."""
    return KEPT / scenario / f"{policy}-{seed}"


def digest_of(schedule: Schedule, spelled: str, seed: int) -> str:
    """What a run is asked for, as one word."""
    parts = [spelled, *(f"{job.arrives_s:g} {schedule.text(job, seed)}" for job in schedule.jobs)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def load(folder: Path) -> Kept | None:
    """The run kept there; None without one."""
    file = folder / _WHOLE
    if not file.exists():
        return None
    return Kept(**json.loads(file.read_text()), folder=folder)


def void(kept: Kept) -> None:
    """It does not count: its journal stays for whoever wants to know, but nobody judges it."""
    (kept.folder / _WHOLE).unlink()


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
        wait_for(
            lambda: _all_over(one, schedule.jobs, _POLL_S),
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
        scenario=schedule.name,
        policy=policy,
        spelled=spelled,
        seed=seed,
        digest=digest_of(schedule, spelled, seed),
        capacity_cores=capacity,
        arrivals=arrivals,
        daemon_core_ratio=ratio,
        host=dict(host),
        folder=folder,
    )
    written: dict[str, Any] = {k: v for k, v in asdict(kept).items() if k != "folder"}
    (folder / _WHOLE).write_text(json.dumps(written, indent=1) + "\n")
    return kept


def _arrive(one: Session, schedule: Schedule, seed: int) -> dict[str, float]:
    """Drop each file when it is due; returns the times on the agent's clock."""
    began_s = boot_s()
    arrivals: dict[str, float] = {}
    for job in sorted(schedule.jobs, key=lambda job: job.arrives_s):
        while (left_s := began_s + job.arrives_s - boot_s()) > 0:
            time.sleep(min(left_s, _POLL_S))
            _complain(_states(one))
        arrivals[job.name] = boot_s()
        one.drop(job.name, schedule.text(job, seed))
    return arrivals


def _all_over(one: Session, jobs: Sequence[TrainingJob], pause_s: float) -> bool:
    """Whether every job has ended; looks on no more often than that, since looking costs CPU."""
    time.sleep(pause_s)
    states = _states(one)
    _complain(states)
    return all(states.get(job.name, ("", ""))[0] in _OVER for job in jobs)


def _states(one: Session) -> dict[str, tuple[str, str]]:
    rows = one.client.jobs()["jobs"]
    return {row["name"]: (row["state"], row["reason"] or "") for row in rows}


def _complain(states: Mapping[str, tuple[str, str]]) -> None:
    for name, (state, reason) in states.items():
        if state == JobState.FAILED:
            raise RuntimeError(f"{name} failed: {reason}")


def boot_s() -> float:
    """The clock that the agent's cycles carry."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
