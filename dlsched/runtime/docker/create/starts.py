"""Starts in progress: pull, create and start in the background, one attempt for each job."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

from dlsched.model.actions import Outcome, Start
from dlsched.model.errors import EngineUnavailable
from dlsched.model.facts import Begun
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.create.creation import Creation, StartFailed
from dlsched.runtime.docker.create.images import ImageMissing, Images
from dlsched.runtime.machine.inspected import Listing
from dlsched.runtime.machine.outcomes import one_line

KEPT = 1000
"""Attempts kept: failures are reported until the job's next start, which may never come; beyond
this number the oldest finished attempts are dropped."""


@dataclass(slots=True)
class _Attempt:
    """One start in progress. The thread writes stage and progress, the loop reads them."""

    action: Start
    pulled: bool = False
    """An earlier attempt pulled the image for the same spec."""
    stage: Literal["pulling", "pulled", "starting"] = "starting"
    progress: Callable[[], str] = lambda: ""
    ended_s: float = 0.0
    future: Future[str | None] = field(default_factory=Future)
    """The container's id; None after a pull, which needs another start."""


class Starts:
    def __init__(
        self,
        images: Images,
        creation: Creation,
        gate: AbstractContextManager[object],
        ended: Callable[[str | None, str], None],
        now_s: Callable[[], float],
    ) -> None:
        """`ended` is called from the thread."""
        self._images = images
        self._creation = creation
        self._gate = gate
        self._ended = ended
        self._now_s = now_s
        self._attempts: dict[str, _Attempt] = {}

    def begin(self, action: Start) -> Outcome:
        """Begin to start a job, unless that is in progress already."""
        before = self._attempts.get(action.job)
        pulled = before is not None and before.stage == "pulled" and _same_spec(before, action)
        if before is not None and not before.future.done() and before.stage != "pulled":
            if _same_spec(before, action):
                return Outcome(action, "begun", f"{before.stage} already")
            if before.stage != "pulling":
                return Outcome(action, "failed", "operation under way: starting an older spec")
        attempt = _Attempt(action, pulled=pulled)
        self._attempts.pop(action.job, None)
        self._forget_oldest()
        self._attempts[action.job] = attempt
        attempt.future = begin(lambda: self._run(attempt), f"start-{action.job}")
        attempt.future.add_done_callback(lambda done: self._report(action.job, done))
        return Outcome(action, "begun")

    def begun(self, listing: Listing | None) -> tuple[Begun, ...]:
        """Starts in progress or failed, without those that a later listing shows as done."""
        operations = []
        for job, attempt in list(self._attempts.items()):
            if listing is not None and attempt.future.done() and listing.at_s > attempt.ended_s:
                # A call that timed out may have succeeded.
                wanted = attempt.action.spec.container_digest
                runs = any(
                    one.job == job and one.alive and one.container_digest == wanted
                    for one in listing.containers.values()
                )
                waits = attempt.stage == "pulled"
                if runs or (attempt.future.exception() is None and not waits):
                    del self._attempts[job]
                    continue
            operations.append(self._begun_of(attempt))
        return tuple(operations)

    def forget(self, job: str) -> None:
        """Forget that its last start failed: the next one is another matter."""
        attempt = self._attempts.get(job)
        if attempt is not None and attempt.future.done():
            del self._attempts[job]

    def _forget_oldest(self) -> None:
        surplus = len(self._attempts) + 1 - KEPT
        if surplus <= 0:
            return
        over = [job for job, attempt in self._attempts.items() if attempt.future.done()]
        over.sort(key=lambda job: self._attempts[job].ended_s)
        for job in over[:surplus]:
            del self._attempts[job]

    def _begun_of(self, attempt: _Attempt) -> Begun:
        job, digest = attempt.action.job, attempt.action.spec.digest
        error = attempt.future.exception() if attempt.future.done() else None
        if error is None:
            return Begun(job, attempt.stage, attempt.progress(), digest)
        retryable = isinstance(error, EngineUnavailable | OSError) or (
            isinstance(error, StartFailed | ImageMissing) and error.retryable
        )
        return Begun(job, "failed", one_line(error) or repr(error), digest, retryable)

    def _run(self, attempt: _Attempt) -> str | None:
        try:
            return self._start(attempt)
        finally:
            attempt.ended_s = self._now_s()

    def _report(self, job: str, done: Future[str | None]) -> None:
        failed = done.exception() is not None
        self._ended(
            None if failed else done.result(), f"{job}: start {'failed' if failed else 'done'}"
        )

    def _start(self, attempt: _Attempt) -> str | None:
        action, container = attempt.action, attempt.action.spec.container

        def report(progress: Callable[[], str]) -> None:
            attempt.progress, attempt.stage = progress, "pulling"

        policy = "missing" if attempt.pulled else container.pull_policy
        image = self._images.require(container.image, policy, report)
        if attempt.stage == "pulling":
            # The limits may be outdated after a long pull: they are decided again.
            attempt.stage, attempt.progress = "pulled", lambda: ""
            return None
        attempt.stage, attempt.progress = "starting", lambda: ""
        with self._gate:
            return self._creation.start(action, image)


def _same_spec(attempt: _Attempt, action: Start) -> bool:
    return attempt.action.spec.digest == action.spec.digest
