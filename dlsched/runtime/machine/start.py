"""Starts a job: pull, create and start, by one call. A failure stays until the next start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from dlsched.model.actions import Outcome, Start
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import Begun
from dlsched.runtime.machine.calls import Ended, Pulls, StartJob
from dlsched.runtime.machine.inspected import Listing
from dlsched.runtime.machine.outcomes import CallFailed, failure_of

KEPT = 1000
"""Attempts kept: failures are reported until the job's next start, which may never come; beyond
this number the oldest ended attempts are dropped."""


_OLDER = "the job's last start, by an older version of its file, is still under way"

Stage = Literal["starting", "pulling", "pulled", "started", "failed"]
"""`pulled`: it needs another start, as limits may be outdated after a long pull."""

TABLE: Mapping[tuple[Stage, Literal["pulls", "done", "failed"]], Stage] = {
    ("starting", "pulls"): "pulling",
    ("starting", "done"): "started",
    ("starting", "failed"): "failed",
    ("pulling", "pulls"): "pulling",
    ("pulling", "done"): "pulled",
    ("pulling", "failed"): "failed",
}
"""What a call reports or how it ends; one that has ended reports no more."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start."""

    call: StartJob
    stage: Stage = "starting"
    progress: Callable[[], str] = str
    ended: Ended | None = None
    """None: it is under way."""


def begin(before: Attempt | None, action: Start) -> Attempt | Outcome:
    """The next attempt, or the outcome where there is one that goes on."""
    same = before is not None and before.call.action.spec.digest == action.spec.digest
    if before is not None and before.ended is None:
        if same:
            return Outcome(action, "begun", f"{before.stage} already")
        if before.stage != "pulling":
            return Outcome(action, "failed", _OLDER)
    # An earlier attempt pulled the image for the same spec.
    pulled = same and before is not None and before.stage == "pulled"
    policy = "missing" if pulled else action.spec.container.pull_policy
    return Attempt(StartJob("", action, policy))


def surplus(attempts: Mapping[str, Attempt]) -> list[str]:
    """The jobs whose attempts are dropped, as another one begins."""
    over_s = {job: one.ended.at_s for job, one in attempts.items() if one.ended is not None}
    return sorted(over_s, key=over_s.__getitem__)[: max(0, len(attempts) + 1 - KEPT)]


def after(one: Attempt, event: Pulls | Ended) -> Attempt:
    """The attempt after that; an earlier attempt's call changes nothing, nor one that has ended."""
    if event.call is not one.call or one.ended is not None:
        return one
    if isinstance(event, Pulls):
        return replace(one, stage=TABLE[one.stage, "pulls"], progress=event.progress)
    stage = TABLE[one.stage, "done" if event.error is None else "failed"]
    return replace(one, stage=stage, progress=str, ended=event)


def is_shown(one: Attempt, listing: Listing | None) -> bool:
    """Whether a listing shows that it is done: a call that timed out may have succeeded."""
    if one.ended is None or listing is None or listing.at_s <= one.ended.at_s:
        return False
    job, digest = one.call.job, one.call.action.spec.container_digest
    return one.stage == "started" or any(
        there.job == job and there.alive and there.container_digest == digest
        for there in listing.containers.values()
    )


def begun(one: Attempt) -> Begun:
    """How far it is, or why it failed."""
    job, digest = one.call.job, one.call.action.spec.digest
    error = None if one.ended is None else one.ended.error
    if (why := failure_of(error)) is not None:
        passing = isinstance(error, EngineUnavailable | OSError)
        passing = passing or (isinstance(error, CallFailed) and error.retryable)
        return Begun(job, "failed", why, digest, passing)
    # Until a listing shows it, it is starting.
    stage = one.stage if one.stage in ("pulling", "pulled") else "starting"
    return Begun(job, stage, one.progress(), digest)
