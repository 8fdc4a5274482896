"""Starts under way: image, create, start, each in the background, and what became of them.

Owns one attempt per job. It must not decide whether a job should be started.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dlsched.errors import DlschedError, EngineUnavailable
from dlsched.model import Begun, JobSpec, Outcome, Start
from dlsched.runtime.allotment import (
    IN,
    LIB,
    OUT,
    OUT_TMPFS_OPTIONS,
    Allotment,
    container_environment,
    install_reporter,
    job_dir,
    write_allotment,
)
from dlsched.runtime.confinement import Confinement
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.claims import inherits_labels
from dlsched.runtime.docker.containers import (
    Surroundings,
    create_body,
    restart_policy,
)
from dlsched.runtime.docker.engine import Body, Engine, EngineRefused, one_line
from dlsched.runtime.docker.group import ParentGroup
from dlsched.runtime.docker.hands import Hands, Own, Untouchable
from dlsched.runtime.docker.labels import container_name, inspected, labels_of
from dlsched.runtime.docker.listing import Listing
from dlsched.runtime.docker.pulls import ImageMissing, Images

_PASSING = ("port is already allocated", "address already in use")
"""Refusals that another job's end cures."""

KEPT = 1000
"""Failures are told until the next start, but of a job that is gone there is none: of more than
so many attempts those are forgotten that have been over for longest."""


class StartFailed(DlschedError):
    """The container cannot be started; whether it is worth trying again."""

    def __init__(self, reason: str, *, retryable: bool) -> None:
        self.retryable = retryable
        super().__init__(reason)


@dataclass(slots=True)
class _Attempt:
    """One start under way. The thread writes stage and progress, the loop reads them."""

    action: Start
    pulled: bool = False
    """An attempt before this one pulled the image, for the same spec."""
    stage: Literal["pulling", "pulled", "starting"] = "starting"
    progress: Callable[[], str] = lambda: ""
    ended_s: float = 0.0
    future: Future[str | None] = field(default_factory=Future)
    """The container's id; None after a pull, which wants to be started anew."""


class Starts:
    """The starts that this agent has begun."""

    def __init__(
        self,
        engine: Engine,
        images: Images,
        group: ParentGroup,
        hands: Hands,
        instance: str,
        state_dir: Path,
        gate: AbstractContextManager[object],
        driver: Callable[[], str],
        ended: Callable[[str | None, str], None],
        now_s: Callable[[], float],
        confine: Callable[[JobSpec], Confinement | None] = lambda _: None,
    ) -> None:
        """`driver` asks the engine for its cgroup driver; `ended` is told from the thread;
        `confine` tells what a user's container is held to."""
        self._engine = engine
        self._images = images
        self._group = group
        self._hands = hands
        self._instance = instance
        self._state_dir = state_dir
        self._gate = gate
        self._driver = driver
        self._ended = ended
        self._now_s = now_s
        self._confine = confine
        self._installing = threading.Lock()
        self._attempts: dict[str, _Attempt] = {}

    def begin(self, action: Start) -> Outcome:
        """Begin to start a job, unless that is under way already."""
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
        attempt.future.add_done_callback(lambda done: self._tell(action.job, done))
        return Outcome(action, "begun")

    def begun(self, listing: Listing | None) -> tuple[Begun, ...]:
        """What is under way or has failed; what a later listing shows as done is left out."""
        words = []
        for job, attempt in list(self._attempts.items()):
            if listing is not None and attempt.future.done() and listing.at_s > attempt.ended_s:
                # A call that ran out of time may have done its work all the same.
                wanted = attempt.action.spec.container_digest
                runs = any(
                    one.job == job and one.alive and one.container_digest == wanted
                    for one in listing.containers.values()
                )
                waits = attempt.stage == "pulled"
                if runs or (attempt.future.exception() is None and not waits):
                    del self._attempts[job]
                    continue
            words.append(self._word(attempt))
        return tuple(words)

    def _forget_oldest(self) -> None:
        surplus = len(self._attempts) + 1 - KEPT
        if surplus <= 0:
            return
        over = [job for job, attempt in self._attempts.items() if attempt.future.done()]
        over.sort(key=lambda job: self._attempts[job].ended_s)
        for job in over[:surplus]:
            del self._attempts[job]

    def _word(self, attempt: _Attempt) -> Begun:
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

    def _tell(self, job: str, done: Future[str | None]) -> None:
        failed = done.exception() is not None
        self._ended(
            None if failed else done.result(), f"{job}: start {'failed' if failed else 'done'}"
        )

    def _start(self, attempt: _Attempt) -> str | None:
        action, container = attempt.action, attempt.action.spec.container

        def tell(progress: Callable[[], str]) -> None:
            attempt.progress, attempt.stage = progress, "pulling"

        policy = "missing" if attempt.pulled else container.pull_policy
        image = self._images.require(container.image, policy, tell)
        if attempt.stage == "pulling":
            # However long that took: the limits are of another time, and are decided again.
            attempt.stage, attempt.progress = "pulled", lambda: ""
            return None
        attempt.stage, attempt.progress = "starting", lambda: ""
        with self._gate:
            return self._create_and_start(action, image)

    def _create_and_start(self, action: Start, image: Body) -> str:
        name = container_name(self._instance, action.job)
        try:
            inside = job_dir(self._state_dir, action.job)
            around = self._surroundings(action, image, inside)
            body = create_body(action.spec, action.limits, action.cpu_shares, around)
        except ValueError as error:
            raise StartFailed(one_line(error), retryable=False) from error
        made = True
        try:
            container = self._engine.create(name, body)
        except EngineRefused as error:
            if error.status != 409:
                raise StartFailed(error.reason, retryable=False) from error
            container, made = self._found(name, action), False
        try:
            # Before it runs: whatever happens to the agent, it can be given its ceiling.
            self._hands.remember(container, _own(action))
            write_allotment(inside, Allotment(cpu_cores=action.limits.cpu_cores))
            self._engine.start(container)
        except (EngineRefused, Untouchable) as error:
            if made:
                with suppress(DlschedError):
                    self._engine.remove(container)
            passing = isinstance(error, Untouchable) or any(
                words in error.reason for words in _PASSING
            )
            raise StartFailed(str(error), retryable=passing) from error
        return container

    def _surroundings(self, action: Start, image: Body, inside: Path) -> Surroundings:
        config = image.get("Config") or {}
        confined = self._confine(action.spec)
        if confined is not None:
            confined.check(action.spec.container.volumes)
        variables = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
        return Surroundings(
            environment=container_environment(
                action.job,
                variables.get("PYTHONPATH"),
                dict(action.spec.container.environment),
            ),
            labels=labels_of(action.spec, self._instance, action.source),
            cgroup_parent=self._group.name(self._driver()),
            tmpfs={OUT: OUT_TMPFS_OPTIONS},
            read_only={IN: inside, LIB: self._reporter()},
            confined=confined,
        )

    def _reporter(self) -> Path:
        # Two installations at once would clear away each other's unfinished files.
        with self._installing:
            return install_reporter(self._state_dir)

    def _found(self, name: str, action: Start) -> str:
        """The container that has the name already: ours to start, or a reason to fail."""
        try:
            body = self._engine.inspect(name)
            found, inherited = inspected(body), inherits_labels(self._engine, body)
        except (EngineRefused, ValueError) as error:
            raise StartFailed(f"container {name}: {one_line(error)}", retryable=True) from error
        short = found.container_id[:12]
        if found.instance != self._instance or found.job != action.job or inherited:
            raise StartFailed(
                f"the name {name} is taken by container {short} (image {found.image}), which is "
                "not this instance's",
                retryable=False,
            )
        if found.container_digest != action.spec.container_digest:
            raise StartFailed(f"container {short} of an older spec is still there", retryable=True)
        self._hands.set(found.container_id, action.limits, action.cpu_shares, own=_own(action))
        restart = restart_policy(action.spec.container.restart)
        self._engine.update(found.container_id, {"RestartPolicy": restart})
        return found.container_id


def _own(action: Start) -> Own:
    return Own(action.job, action.spec.bounds.ceiling_cores)


def _same_spec(attempt: _Attempt, action: Start) -> bool:
    return attempt.action.spec.digest == action.spec.digest
