"""What the daemon is going to touch, logged before its first change: once, at the first start with
an empty state directory, and at each start of a dry run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from dlsched.control.ledger.updated import State
from dlsched.model.actions import Action
from dlsched.model.state import JobState, JobView
from dlsched.model.units import counted, render_bytes, render_cores

log = logging.getLogger(__name__)

_CYCLES = 3
"""Cycles in which job files that are still being read are waited for: the folder may be missing."""
_LISTED = 20
"""Containers that are listed, so that a node with hundreds does not fill the log."""


class FirstStart:
    """Called in every cycle before its actions are executed."""

    def __init__(self, watch: Path, *, first: bool, dry_run: bool) -> None:
        self._watch = watch
        self._dry_run = dry_run
        self._cycles_left = _CYCLES if first or dry_run else 0

    def __call__(self, state: State, actions: Sequence[Action]) -> None:
        """Log the jobs, once: when all files are read, or before the first actions."""
        if self._cycles_left == 0 or not state.engine_ok:
            return
        self._cycles_left -= 1
        if state.desired.settled or actions or self._cycles_left == 0:
            self._cycles_left = 0
            self._list(state.snapshot.jobs, state)

    def _list(self, jobs: Sequence[JobView], state: State) -> None:
        if self._dry_run:
            head = "dry run: nothing is changed; without --dry-run dlsched would manage"
        else:
            head = "first start: nothing has been changed yet; dlsched manages"
        log.info("%s %s", head, _count(jobs))
        for job in jobs[:_LISTED]:
            log.info("  %s", _line(job, state))
        if len(jobs) > _LISTED:
            log.info("  and %d more jobs: `dlsched ps` lists all", len(jobs) - _LISTED)
        if not jobs:
            log.info(
                "  no container was adopted or has the label dlsched.enable, and %s has no job "
                "file; `dlsched probe` shows what could be adopted, and how",
                self._watch,
            )
        log.info(
            "no other container is touched; `dlsched release` gives all their limits back, "
            "`dlsched drop CONTAINER` gives back the limits of an adopted one and lets it go"
        )


def _count(jobs: Sequence[JobView]) -> str:
    adopted = sum(job.adopted for job in jobs)
    own = len(jobs) - adopted
    return f"{counted(adopted, 'adopted container')} and {counted(own, 'job')} of its own"


def _line(job: JobView, state: State) -> str:
    """What may be done to one job's container."""
    if job.state is JobState.UNMANAGED:
        return f"{job.name}: left alone: {job.reason}"
    if job.adopted:
        container = (job.container_id or "?")[:12]
        limit = job.actual.cpu_cores
        has = "no limit" if limit is None else render_cores(limit)
        most = job.spec.memory_max_bytes
        memory = "" if most is None else f", and memory limit up to {render_bytes(most)}"
        return (
            f"{job.name} (adopted, container {container}, {has}): may change CPU limit, weight and "
            f"burst{memory}; never starts, stops or removes it"
        )
    source = state.desired.sources.get(job.name)
    file = f"job file {Path(source).name}" if source else "its job file is not known"
    return (
        f"{job.name} ({file}, image {job.spec.container.image}): starts its container, "
        "changes its limits, and ends it when the file is removed"
    )
