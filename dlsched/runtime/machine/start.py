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
from dlsched.runtime.machine.outcomes import failure_of

KEPT = 1000
"""Attempts kept: failures are reported until the job's next start, which may never come; beyond
this number the oldest ended attempts are dropped."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start."""

    call: StartJob
    stage: Literal["starting", "pulling", "pulled"] = "starting"
    """`pulled`: it needs another start, as limits may be outdated after a long pull."""
    progress: Callable[[], str] = str
    ended: Ended | None = None
    """None: it is under way."""

    @property
    def failed(self) -> str | None:
        """Why it failed, in one line; None: it did not, or is under way."""
        return None if self.ended is None else failure_of(self.ended.error)


def begin(before: Attempt | None, action: Start) -> Attempt | Outcome:
    """The next attempt, or the outcome where there is one that goes on."""
    same = before is not None and before.call.action.spec.digest == action.spec.digest
    if before is not None and before.ended is None:
        if same:
            return Outcome(action, "begun", f"{before.stage} already")
        if before.stage != "pulling":
            return Outcome(action, "failed", "operation under way: starting an older spec")
    # An earlier attempt pulled the image for the same spec.
    pulled = same and before is not None and before.stage == "pulled"
    policy = "missing" if pulled else action.spec.container.pull_policy
    return Attempt(StartJob("", action, policy))


def surplus(attempts: Mapping[str, Attempt]) -> list[str]:
    """The jobs whose attempts are dropped, as another one begins."""
    over_s = {job: one.ended.at_s for job, one in attempts.items() if one.ended is not None}
    return sorted(over_s, key=over_s.__getitem__)[: max(0, len(attempts) + 1 - KEPT)]


def after(one: Attempt, event: Pulls | Ended) -> Attempt:
    """The attempt after that; an earlier attempt's call changes nothing."""
    if event.call is not one.call:
        return one
    if isinstance(event, Pulls):
        return replace(one, stage="pulling", progress=event.progress)
    pulled = one.stage == "pulling" and event.error is None
    return replace(one, stage="pulled" if pulled else one.stage, progress=str, ended=event)


def is_shown(one: Attempt, listing: Listing | None) -> bool:
    """Whether a listing shows that it is done: a call that timed out may have succeeded."""
    if one.ended is None or listing is None or listing.at_s <= one.ended.at_s:
        return False
    spec = one.call.action.spec
    return (one.failed is None and one.stage != "pulled") or any(
        there.job == spec.name and there.alive and there.container_digest == spec.container_digest
        for there in listing.containers.values()
    )


def begun(one: Attempt) -> Begun:
    """How far it is, or why it failed."""
    spec, failed = one.call.action.spec, one.failed
    if one.ended is None or failed is None:
        return Begun(spec.name, one.stage, one.progress(), spec.digest)
    error = one.ended.error
    passing = isinstance(error, EngineUnavailable | OSError) or getattr(error, "retryable", False)
    return Begun(spec.name, "failed", failed, spec.digest, bool(passing))
