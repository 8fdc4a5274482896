"""Changes of limits in progress, containers that must not be changed, and giving everything back.
The loop waits for none of it longer than its patience. `writer` talks to the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dlsched.model.actions import Outcome, Resize
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.errors import DlschedError
from dlsched.model.facts import Operation, OperationKind
from dlsched.runtime.docker.background import Patience, begin, begin_all
from dlsched.runtime.docker.engine import EngineRefused
from dlsched.runtime.docker.gpus.canary import Waits
from dlsched.runtime.docker.limits.outcome import GivenBack, NotGivenBack, Own, Untouchable
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.docker.listing import Listing
from dlsched.runtime.machine.inspected import Inspected
from dlsched.runtime.originals import Original, Originals

AGAIN_S = 10.0
"""A container that could not be changed is retried after this time, or after a restart."""

CONCURRENT_UPDATES = 4
"""Concurrent updates: each forks a runc, and more would only queue at the engine."""

NO_ANSWER = "the Docker Engine is not answering"
BUSY = "the Docker Engine is busy; tried again in the next cycle"

SWEEP_S = 30.0
"""Time between two checks of an unlisted container."""


@dataclass(frozen=True, slots=True)
class _LeftAlone:
    """A container that is left as it is."""

    job: str
    why: str
    start: tuple[int, str]
    at_s: float
    failure: NotGivenBack | None = None
    """Why it did not get back what it had; then it is not left alone, but tried again."""


class Resizes:
    """The changes of limits that this agent makes; only for the loop's thread."""

    def __init__(
        self,
        writer: LimitWriter,
        originals: Originals,
        patience: Patience,
        gate: AbstractContextManager[object],
        want: Callable[[str | None], None],
        now_s: Callable[[], float],
        silent: Callable[[], bool],
    ) -> None:
        """`gate` bounds concurrent returns; `want` as in `Listings.want`; `silent`: whether the
        engine does not answer at all."""
        self._writer = writer
        self._originals = originals
        self._patience = patience
        self._gate = gate
        self._want = want
        self._now_s = now_s
        self._silent = silent
        self._calls: dict[str, Future[Any]] = {}
        self._refused: dict[str, _LeftAlone] = {}
        """Also written by threads that examine a container."""
        self._sweeping: dict[str, Future[Any]] = {}
        self._missing_s: dict[str, float] = {}
        """Since when a container with a record has been unlisted."""
        self.managed: Set[str] | None = None
        """The containers that belong to a job; None: not known yet."""
        self.held = False
        """Whether everything was given back, and nothing may be changed any more."""

    def begin_all(self, changes: Sequence[tuple[Resize, Inspected]]) -> tuple[Outcome, ...]:
        """Change the limits of several containers, `CONCURRENT_UPDATES` at a time; a slow change
        continues in the background. Where only the share of GPU time changes, only the job's
        allotment is written."""
        lost = self._patience.lost
        asks = [
            partial(self._change, action, described)
            for action, described in changes
            if not lost and not _only_allots(action, described)
        ]
        calls = iter(begin_all(asks, "update", CONCURRENT_UPDATES))
        outcomes = []
        for action, described in changes:
            if _only_allots(action, described):
                outcomes.append(self._allotted(action, described))
            elif lost:
                outcomes.append(self._not_asked(action))
            else:
                outcomes.append(self._outcome(action, described, next(calls)))
        return tuple(outcomes)

    def _allotted(self, action: Resize, described: Inspected) -> Outcome:
        try:
            self._writer.update_allotment(_own(action, described), action.limits)
        except (OSError, ValueError) as error:
            return Outcome(action, "failed", str(error))
        return Outcome(action, "done")

    def _not_asked(self, action: Resize) -> Outcome:
        """The outcome where the loop's wait for the engine is used up."""
        if self._silent():
            return Outcome(action, "failed", NO_ANSWER)
        return Outcome(action, "withheld", BUSY)

    def _change(self, action: Resize, described: Inspected) -> float:
        """Returns how long it took, in seconds."""
        own = None if described.adopted is not None else _own(action, described)
        began_s = self._now_s()
        if action.gives_back:
            self._give_back(action.container_id)
            return self._now_s() - began_s
        self._writer.set(
            action.container_id,
            action.limits,
            action.cpu_shares,
            burst_cores=action.burst_cores,
            idle=action.cpu_idle,
            own=own,
            described=described,
        )
        return self._now_s() - began_s

    def _give_back(self, container: str) -> None:
        original = self._originals.of(container)
        if original is None or original.given_back:
            return
        failed = self._failed(container)
        if failed is not None and self._now_s() - failed.at_s <= AGAIN_S:
            raise NotGivenBack(str(failed.failure))  # in each cycle the same: it is reported once
        given = self._writer.give_back(original)
        if given.failure is not None:
            raise NotGivenBack(given.failure)

    def _outcome(self, action: Resize, described: Inspected, call: Future[float]) -> Outcome:
        container, began_s = action.container_id, self._now_s()
        if not self._patience.wait(call):
            if call.cancel():  # still queued
                return self._not_asked(action)
            self._calls[container] = call
            # A listing shows whether only this call is slow, or the whole engine.
            self._want(container)
            waited_s = self._now_s() - began_s
            return Outcome(action, "begun", "the engine is slow", engine_s=waited_s)
        try:
            done = Outcome(action, "done", engine_s=call.result())
            self._refused.pop(container, None)
            return done
        except Waits as error:
            return Outcome(action, "withheld", str(error))
        except NotGivenBack as error:
            failed = self._failed(container)
            if failed is None or self._now_s() - failed.at_s > AGAIN_S:
                self._leave(described, f"not given back: {error}", error)
            return Outcome(action, "failed", str(error))
        except Untouchable as error:
            self._leave(described, str(error))
            return Outcome(action, "failed", str(error))
        except EngineRefused as error:
            # The container may have just ended; a new inspection shows it.
            self._want(container)
            return Outcome(action, "failed", error.reason)
        except (DlschedError, OSError, ValueError) as error:
            return Outcome(action, "failed", str(error))

    def take(self, calls: Mapping[str, Future[Any]]) -> None:
        """Track other changes in progress, by container."""
        self._calls.update(calls)

    def examine(self, described: Inspected) -> None:
        """Check in the background whether another program's container may be touched at all."""

        container = described.container_id
        unchanged = not self._originals.holds(container)

        def ask() -> None:
            why = self._writer.refusal(container)
            if why is None:
                self._refused.pop(container, None)
            else:
                self._leave(described, f"left as it is: {why}")

        if described.alive and (unchanged or container in self._refused):
            begin(ask, "examine")

    def updating(self, container: str) -> bool:
        """Whether a change of that container is in progress."""
        call = self._calls.get(container)
        if call is not None and call.done():
            del self._calls[container]
            return False
        return call is not None

    @property
    def idle(self) -> bool:
        """Whether no container is being changed or left alone."""
        return not (self._calls or self._refused)

    def operation(self, described: Inspected) -> Operation | None:
        """What is being done to it, or why nothing is; None: it may be changed."""
        if self.updating(described.container_id):
            return Operation(OperationKind.UPDATING, "updating")
        refused = self._refused.get(described.container_id)
        if refused is None:
            return None
        over = self._now_s() - refused.at_s > AGAIN_S
        another = refused.start != described.start or not described.alive
        failed = refused.failure is not None
        given_back = failed and not self._originals.holds(described.container_id)
        if another or given_back or (over and described.adopted is None):
            self._refused.pop(described.container_id, None)
            return None
        if failed:
            return None
        if over:
            # Checked again in the background; until then the reason stays.
            self._refused[described.container_id] = replace(refused, at_s=self._now_s())
            self.examine(described)
        return Operation(OperationKind.REFUSED, refused.why)

    @property
    def can_burst(self) -> bool:
        """Whether a burst can be set here, as far as known."""
        return self._writer.burst_problem is None

    @property
    def can_idle(self) -> bool:
        """Whether the idle class can be used here, as far as known."""
        return self._writer.idle_problem is None

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What is wrong with limits and with changing them."""
        refused = sorted((one.job, f"{one.job}: {one.why}") for one in [*self._refused.values()])
        node = {
            AlarmKey.BURST_REFUSED: self._writer.burst_problem,
            AlarmKey.IDLE_CLASS_REFUSED: self._writer.idle_problem,
            AlarmKey.GPU_UPDATES_STOPPED: self._writer.canary.alarm,
        }
        return (
            *self._originals.alarms,
            *(Alarm(job, AlarmKey.LIMITS_REFUSED, text) for job, text in refused),
            *(Alarm("node", key, text) for key, text in node.items() if text is not None),
        )

    def sweep(self, listing: Listing) -> None:
        """Handle the records of containers that are no longer managed, in the background.

        The record of a vanished container is dropped; one that still exists gets its limits back.
        While everything is `held`, so do containers that a late change affected.
        """
        listed = self._listed(listing)
        for container in set(self._refused) - listed:
            self._refused.pop(container, None)
        for container in self._calls.keys() - listed:
            self.updating(container)  # no other caller asks for it any more
        self._sweeping = {key: call for key, call in self._sweeping.items() if not call.done()}
        records = self._originals.all()
        self._claim({key for key, one in records.items() if one.adopted and not one.given_back})
        self._missing_s = {
            container: self._missing_s.get(container, self._now_s())
            for container in records.keys() - listed
        }
        for container in records if self.held else self._missing_s:
            original = records[container]
            # A listing older than the container does not show it.
            missing = self._missing_s.get(container, float("inf")) < listing.at_s
            changed = self.held and not original.given_back
            if (missing or changed) and container not in self._sweeping:
                self._missing_s[container] = self._now_s() + SWEEP_S
                self._sweeping[container] = begin(
                    partial(self._tidy, original), "sweep", self._gate
                )

    def keep_true(self, ceilings: Mapping[str, float | None], own: Mapping[str, str]) -> None:
        """Record in the background what own containers go back to, where that has changed. `own`
        are their ids by job, `ceilings` their specs' present ceilings."""
        for job in own.keys() & ceilings.keys():
            kept = self._originals.of(own[job])
            if kept is not None and (kept.given_back or kept.ceiling_cores == ceilings[job]):
                continue
            if not self.updating(own[job]):
                remember = partial(self._writer.remember, own[job], Own(job, ceilings[job]))
                self._calls[own[job]] = begin(remember, f"remember-{job}")

    def release(
        self, ceilings: Mapping[str, float | None], own: Mapping[str, str], until_s: float
    ) -> tuple[GivenBack, ...]:
        """Give all limits back; waits until `until_s` at most. Parameters as for `keep_true`."""
        for job in own.keys() & ceilings.keys():
            # If that cannot be recorded, the container gets its last recorded ceiling.
            with suppress(Untouchable):
                self._writer.remember(own[job], Own(job, ceilings[job]))
        calls = [
            (original, begin(partial(self._writer.give_back, original), "release", self._gate))
            for original in self._originals.changed()
        ]
        return tuple(self._waited(original, call, until_s) for original, call in calls)

    def close(self) -> None:
        """Let other instances have the containers."""
        self._writer.claims.close()

    def _waited(self, original: Original, call: Future[GivenBack], until_s: float) -> GivenBack:
        try:
            return call.result(max(0.0, until_s - self._now_s()))
        except TimeoutError:
            failure = "the engine does not answer"
            return GivenBack(original.job, original.container_id, original.adopted, "", failure)

    def _listed(self, listing: Listing) -> Set[str]:
        """The managed containers: not one whose name a job file has taken, but one that is being
        started, too, which has a record before it can be described."""
        listed = {
            container
            for container, one in listing.containers.items()
            if one.adopted is None or self.managed is None or container in self.managed
        }
        return listed | listing.set_aside.keys() | listing.undescribed

    def _leave(self, described: Inspected, why: str, failure: NotGivenBack | None = None) -> None:
        self._refused[described.container_id] = _LeftAlone(
            described.job, why, described.start, self._now_s(), failure
        )

    def _failed(self, container: str) -> _LeftAlone | None:
        """Of a container that did not get back what it had."""
        refused = self._refused.get(container)
        return None if refused is None or refused.failure is None else refused

    def _claim(self, changed: Set[str]) -> None:
        """Claim adopted containers that are changed, also by an agent that was killed, and no
        other but those that are just being changed."""
        for container in changed:
            self._writer.claims.take(container)
        self._writer.claims.release_others(changed | self._calls.keys())

    def _tidy(self, original: Original) -> None:
        if not self._writer.forget_if_gone(original.container_id) and not original.given_back:
            self._writer.give_back(original)


def _own(action: Resize, described: Inspected) -> Own:
    return Own(action.job, action.ceiling_cores, described.mps_threads_percent)


def _only_allots(action: Resize, described: Inspected) -> bool:
    return action.only_notifies and described.adopted is None
