"""Stops containers: signal, grace, SIGKILL, removal. The engine's own stop would block for the
whole grace, so each cycle takes one step. Restores restart policies that a stop has set to `no` and
an agent that ended left so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

from dlsched.model.actions import Outcome, Remove
from dlsched.model.errors import DlschedError
from dlsched.model.facts import ContainerState, Operation, OperationKind
from dlsched.model.spec import Limits, Restart
from dlsched.runtime.docker.background import begin
from dlsched.runtime.docker.create.containers import NO_RESTART, restart_update
from dlsched.runtime.docker.engine import Engine, EngineRefused
from dlsched.runtime.docker.listing import Listing
from dlsched.runtime.machine.inspected import RUNS, Inspected

KILL_AGAIN_S = 5.0

AFTER_S = 5.0
"""A stop that is still wanted has begun again by then. Also the time between two attempts."""


@dataclass(slots=True)
class _Leaving:
    """The stop of one container."""

    action: Remove
    begun_s: float
    removing: bool
    call: Future[None] = field(default_factory=Future)
    kill_at_s: float | None = None
    """None: its signal was not sent yet."""
    killed: bool = False


class Stops:
    def __init__(
        self,
        engine: Engine,
        gate: AbstractContextManager[object],
        want: Callable[[str | None], None],
        lift: Callable[[str, Limits | None], None],
        now_s: Callable[[], float],
    ) -> None:
        """`lift` gives a container that is about to end other limits, as `LimitWriter.lift`."""
        self._engine = engine
        self._gate = gate
        self._want = want
        self._lift = lift
        self._now_s = now_s
        self._leaving: dict[str, _Leaving] = {}

    def begin(self, action: Remove, described: Inspected | None, now_s: float) -> Outcome:
        """Begin to stop a container; a second call changes nothing."""
        if described is None:
            return Outcome(action, "done", "there is no such container")
        container = action.container_id
        if container in self._leaving:
            return Outcome(action, "begun", str(self.operation(container, now_s) or ""))
        runs = described.state in RUNS
        self._leaving[container] = leaving = _Leaving(action, now_s, removing=not runs)
        leaving.call = self._ask(leaving, described) if runs else self._remove(container)
        return Outcome(action, "begun")

    def advance(self, listing: Listing, now_s: float) -> None:
        """Take the next step of every container for which it is due."""
        for container, leaving in list(self._leaving.items()):
            described = listing.containers.get(container)
            if described is None:
                if listing.at_s > leaving.begun_s:
                    del self._leaving[container]
            elif leaving.call.done():
                self._step(leaving, described, now_s)

    @property
    def idle(self) -> bool:
        """Whether no container is being stopped."""
        return not self._leaving

    def operation(self, container: str, now_s: float) -> Operation | None:
        """What is being done to that container; None: nothing."""
        leaving = self._leaving.get(container)
        if leaving is None:
            return None
        if leaving.removing:
            return Operation(OperationKind.REMOVING, "removing")
        if leaving.killed:
            return Operation(OperationKind.STOPPING, "stopping (killed: its grace is over)")
        left_s = leaving.action.stop.grace_s
        if leaving.kill_at_s is not None:
            left_s = max(0.0, leaving.kill_at_s - now_s)
        return Operation(OperationKind.STOPPING, f"stopping ({left_s:.0f} s of grace left)")

    def _step(self, leaving: _Leaving, described: Inspected, now_s: float) -> None:
        container = leaving.action.container_id
        failed = leaving.call.exception() is not None
        if described.state not in RUNS:
            if described.state is not ContainerState.REMOVING and (failed or not leaving.removing):
                leaving.removing = True
                leaving.call = self._remove(container)
        elif leaving.removing or leaving.kill_at_s is None:
            # It was started when it was to be removed, or the signal was not delivered: the next
            # attempt sends the signal, and its grace starts then.
            self._want(container)
            del self._leaving[container]
        elif now_s >= leaving.kill_at_s:
            leaving.killed, leaving.kill_at_s = True, now_s + KILL_AGAIN_S
            leaving.call = begin(lambda: self._signal(container, "SIGKILL"), "kill")

    def _ask(self, leaving: _Leaving, described: Inspected) -> Future[None]:
        action, container = leaving.action, leaving.action.container_id

        def ask() -> None:
            # An update could take a job's GPUs away while it saves itself. The engine does not
            # restart a container that ended by its own signal, or was killed.
            if not described.risks_gpus:
                with suppress(EngineRefused):
                    self._engine.update(container, NO_RESTART)
            # Without it, the end only takes longer.
            with suppress(DlschedError):
                self._lift(container, action.lift)
            if described.state is ContainerState.PAUSED:
                with suppress(EngineRefused):
                    self._engine.unpause(container)
            self._signal(container, action.stop.signal)
            # Before, this may have waited at the gate, or long for the engine.
            leaving.kill_at_s = self._now_s() + action.stop.grace_s

        return begin(ask, f"stop-{action.job}", self._gate)

    def _signal(self, container: str, signal: str) -> None:
        # Refused: it has just ended, or the signal is invalid; the listing or SIGKILL follow.
        with suppress(EngineRefused):
            self._engine.kill(container, signal)
        self._want(container)

    def _remove(self, container: str) -> Future[None]:
        def remove() -> None:
            try:
                self._engine.remove(container)
            finally:
                self._want(container)

        return begin(remove, "remove", self._gate)


class Restarts:
    """Running containers whose restart policy differs, and since when."""

    def __init__(self, engine: Engine, want: Callable[[str | None], None]) -> None:
        """`want` is called, from a thread, with the container to inspect again."""
        self._engine = engine
        self._want = want
        self._since_s: dict[str, float] = {}

    def set_back(self, idle: Iterable[Inspected], now_s: float) -> dict[str, Future[None]]:
        """Begin to restore policies that have differed for a while; `idle`: without an operation.
        Returns the calls by container, which must not be stopped until its call is done."""
        since_s, calls = {}, {}
        for one in idle:
            strays = one.restart is not None and one.restart_strays and one.alive
            if one.restart is None or not strays or one.risks_gpus:
                continue
            since_s[one.container_id] = self._since_s.get(one.container_id, now_s)
            if now_s - since_s[one.container_id] >= AFTER_S:
                since_s[one.container_id] = now_s
                calls[one.container_id] = self._begin(one.container_id, one.job, one.restart)
        self._since_s = since_s
        return calls

    def _begin(self, container: str, job: str, restart: Restart) -> Future[None]:
        def update() -> None:
            try:
                self._engine.update(container, restart_update(restart))
            finally:
                self._want(container)

        return begin(update, f"restart-policy-{job}")
