"""Changes of limits under way, containers that must not be changed, and giving everything back.

Owns what of this the loop has to remember, and waits for none of it longer than its patience. It
must not speak to the engine itself: `writer` does.
"""

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
from dlsched.runtime.docker.identity.labels import Inspected
from dlsched.runtime.docker.limits.outcome import GivenBack, Own, Untouchable
from dlsched.runtime.docker.limits.writer import Hands
from dlsched.runtime.docker.listing import Listing
from dlsched.runtime.originals import Original, Originals

AGAIN_S = 10.0
"""What could not be changed is tried again after so long, or when it was started anew."""

UPDATES_AT_ONCE = 4
"""Each forks a runc: more of them only queue at the engine."""

NO_ANSWER = "the Docker Engine is not answering"

SWEEP_S = 30.0
"""So long after it was asked what became of an unlisted container, it is asked again."""


@dataclass(frozen=True, slots=True)
class _Refused:
    """A container that is left as it is."""

    job: str
    why: str
    start: tuple[int, str]
    at_s: float


class Resizes:
    """The changes of limits that this agent makes; only the loop's thread uses it."""

    def __init__(
        self,
        hands: Hands,
        originals: Originals,
        patience: Patience,
        gate: AbstractContextManager[object],
        want: Callable[[str | None], None],
        now_s: Callable[[], float],
    ) -> None:
        """`gate` bounds how many are given back at once; `want` as in `Listings.want`."""
        self._hands = hands
        self._originals = originals
        self._patience = patience
        self._gate = gate
        self._want = want
        self._now_s = now_s
        self._calls: dict[str, Future[Any]] = {}
        self._refused: dict[str, _Refused] = {}
        """Also written by threads that look at one container."""
        self._sweeping: dict[str, Future[Any]] = {}
        self._missing_s: dict[str, float] = {}
        """Since when a container with a record is in no listing."""
        self.managed: Set[str] | None = None
        """The containers that are any job's; None: not known yet."""
        self.held = False
        """Whether everything was given back, and nothing is to be changed any more."""

    def begin(self, action: Resize, described: Inspected) -> Outcome:
        """Change the limits; what takes longer than the loop may wait is begun."""
        return self.begin_all([(action, described)])[0]

    def begin_all(self, changes: Sequence[tuple[Resize, Inspected]]) -> tuple[Outcome, ...]:
        """The same for as many containers, `UPDATES_AT_ONCE` at a time.

        Where only the share of its GPUs' time is another, the job is told, and the engine is not.
        """
        lost = self._patience.lost
        asks = [
            partial(self._change, action, described)
            for action, described in changes
            if not lost and not _only_tells(action, described)
        ]
        calls = iter(begin_all(asks, "update", UPDATES_AT_ONCE))
        outcomes = []
        for action, described in changes:
            if _only_tells(action, described):
                outcomes.append(self._told(action, described))
            elif lost:
                outcomes.append(Outcome(action, "failed", NO_ANSWER))
            else:
                outcomes.append(self._outcome(action, described, next(calls)))
        return tuple(outcomes)

    def _told(self, action: Resize, described: Inspected) -> Outcome:
        try:
            self._hands.tell(_own(action, described), action.limits)
        except (OSError, ValueError) as error:
            return Outcome(action, "failed", str(error))
        return Outcome(action, "done")

    def _change(self, action: Resize, described: Inspected) -> float:
        """How long it took, in seconds."""
        own = None if described.adopted is not None else _own(action, described)
        began_s = self._now_s()
        self._hands.set(
            action.container_id,
            action.limits,
            action.cpu_shares,
            burst_cores=action.burst_cores,
            idle=action.cpu_idle,
            own=own,
            described=described,
        )
        return self._now_s() - began_s

    def _outcome(self, action: Resize, described: Inspected, call: Future[float]) -> Outcome:
        container, began_s = action.container_id, self._now_s()
        if not self._patience.wait(call):
            if call.cancel():  # it is still behind others
                return Outcome(action, "failed", NO_ANSWER)
            self._calls[container] = call
            # A listing shows whether it is this call that is slow, or the whole engine.
            self._want(container)
            waited_s = self._now_s() - began_s
            return Outcome(action, "begun", "the engine is slow", engine_s=waited_s)
        try:
            return Outcome(action, "done", engine_s=call.result())
        except Waits as error:
            return Outcome(action, "withheld", str(error))
        except Untouchable as error:
            self._leave(described, str(error))
            return Outcome(action, "failed", str(error))
        except EngineRefused as error:
            # The container may have ended a moment ago; if it has not, asking again will tell.
            self._want(container)
            return Outcome(action, "failed", error.reason)
        except (DlschedError, OSError, ValueError) as error:
            return Outcome(action, "failed", str(error))

    def take(self, calls: Mapping[str, Future[Any]]) -> None:
        """Other changes of containers that are under way, by container."""
        self._calls.update(calls)

    def examine(self, described: Inspected) -> None:
        """Ask of a container that somebody else made whether it may be touched at all."""

        container = described.container_id
        kept = self._originals.of(container)

        def ask() -> None:
            why = self._hands.refusal(container)
            if why is None:
                self._refused.pop(container, None)
            else:
                self._leave(described, f"left as it is: {why}")

        if described.alive and (kept is None or kept.given_back):
            begin(ask, "examine")

    def updating(self, container: str) -> bool:
        """Whether a change of that container is under way."""
        call = self._calls.get(container)
        if call is not None and call.done():
            del self._calls[container]
            return False
        return call is not None

    @property
    def idle(self) -> bool:
        """Whether no container is being changed, or left as it is for a reason."""
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
        if another or (over and described.adopted is None):
            self._refused.pop(described.container_id, None)
            return None
        if over:
            # Asked again in the background: until it is cured it goes on showing why.
            self._refused[described.container_id] = replace(refused, at_s=self._now_s())
            self.examine(described)
        return Operation(OperationKind.REFUSED, refused.why)

    @property
    def can_burst(self) -> bool:
        """Whether a burst can be set here, as far as that was tried."""
        return self._hands.burst_trouble is None

    @property
    def can_idle(self) -> bool:
        """Whether containers can be put into the idle class here, as far as that was tried."""
        return self._hands.idle_trouble is None

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What is wrong with limits and with changing them."""
        refused = sorted((one.job, f"{one.job}: {one.why}") for one in [*self._refused.values()])
        node = {
            AlarmKey.BURST_REFUSED: self._hands.burst_trouble,
            AlarmKey.IDLE_CLASS_REFUSED: self._hands.idle_trouble,
            AlarmKey.GPU_UPDATES_STOPPED: self._hands.canary.alarm,
        }
        return (
            *self._originals.alarms,
            *(Alarm(job, AlarmKey.LIMITS_REFUSED, text) for job, text in refused),
            *(Alarm("node", key, text) for key, text in node.items() if text is not None),
        )

    def sweep(self, listing: Listing) -> None:
        """See to the records of containers that are not managed any more. Waits for nothing.

        One that no listing shows as managed is gone, and its record forgotten, or it is given back
        what it had. While everything is `held`, so is what a change that was under way has
        changed since.
        """
        listed = self._listed(listing)
        for container in set(self._refused) - listed:
            self._refused.pop(container, None)
        for container in self._calls.keys() - listed:
            self.updating(container)  # nobody asks after it any more
        self._sweeping = {key: call for key, call in self._sweeping.items() if not call.done()}
        records = self._originals.all()
        self._missing_s = {
            container: self._missing_s.get(container, self._now_s())
            for container in records.keys() - listed
        }
        for container in records if self.held else self._missing_s:
            original = records[container]
            # A listing from before the container was made does not show it.
            missing = self._missing_s.get(container, float("inf")) < listing.at_s
            changed = self.held and not original.given_back
            if (missing or changed) and container not in self._sweeping:
                self._missing_s[container] = self._now_s() + SWEEP_S
                self._sweeping[container] = begin(
                    partial(self._tidy, original), "sweep", self._gate
                )

    def keep_true(self, ceilings: Mapping[str, float | None], own: Mapping[str, str]) -> None:
        """Have it written down what own containers go back to, where that is not so yet.

        `own` are their ids by job, `ceilings` what their specs allow them now. Waits for nothing.
        """
        for job in own.keys() & ceilings.keys():
            kept = self._originals.of(own[job])
            if kept is not None and (kept.given_back or kept.ceiling_cores == ceilings[job]):
                continue
            if not self.updating(own[job]):
                remember = partial(self._hands.remember, own[job], Own(job, ceilings[job]))
                self._calls[own[job]] = begin(remember, f"remember-{job}")

    def release(
        self, ceilings: Mapping[str, float | None], own: Mapping[str, str], until_s: float
    ) -> tuple[GivenBack, ...]:
        """Give everything back that was changed; waits until `until_s` at the latest.

        `own` are our containers' ids by job, and `ceilings` what their specs now allow them.
        """
        for job in own.keys() & ceilings.keys():
            # Where that cannot be written down, the ceiling of the last change is given.
            with suppress(Untouchable):
                self._hands.remember(own[job], Own(job, ceilings[job]))
        calls = [
            (word, begin(partial(self._hands.give_back, word), "release", self._gate))
            for word in self._originals.changed()
        ]
        return tuple(self._waited(word, call, until_s) for word, call in calls)

    def _waited(self, word: Original, call: Future[GivenBack], until_s: float) -> GivenBack:
        try:
            return call.result(max(0.0, until_s - self._now_s()))
        except TimeoutError:
            failure = "the engine does not answer"
            return GivenBack(word.job, word.container_id, word.adopted, "", failure)

    def _listed(self, listing: Listing) -> Set[str]:
        """The containers that are managed: one whose name a job file has taken is not."""
        listed = {
            container
            for container, one in listing.containers.items()
            if one.adopted is None or self.managed is None or container in self.managed
        }
        return listed | listing.set_aside.keys()

    def _leave(self, described: Inspected, why: str) -> None:
        self._refused[described.container_id] = _Refused(
            described.job, why, described.start, self._now_s()
        )

    def _tidy(self, original: Original) -> None:
        if not self._hands.forget_if_gone(original.container_id) and not original.given_back:
            self._hands.give_back(original)


def _own(action: Resize, described: Inspected) -> Own:
    return Own(action.job, action.ceiling_cores, described.mps_threads_percent)


def _only_tells(action: Resize, described: Inspected) -> bool:
    return action.only_tells and described.adopted is None
