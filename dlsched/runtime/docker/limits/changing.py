"""Has limits changed and given back, and waits for that no longer than the loop's patience."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from dlsched.model.actions import Memory, Outcome, Resize
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.runtime.docker.background import Patience
from dlsched.runtime.docker.executor import Executor
from dlsched.runtime.docker.instance import Instance
from dlsched.runtime.docker.limits.writer import LimitWriter
from dlsched.runtime.docker.listing import Listings
from dlsched.runtime.machine import limits
from dlsched.runtime.machine.calls import (
    Call,
    Ended,
    Examine,
    GiveBack,
    ReleaseContainer,
    Remember,
    SetLimits,
    SetMemory,
)
from dlsched.runtime.machine.container import Listed, Machine
from dlsched.runtime.machine.inspected import Inspected, Listing
from dlsched.runtime.machine.outcomes import GivenBack, Own, Untouchable
from dlsched.runtime.originals import Original

_log = logging.getLogger(__name__)

NO_ANSWER = "the Docker Engine is not answering"
BUSY = "the Docker Engine is busy; next try in the next cycle"


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of limits on one engine; only for the loop's thread."""

    instance: Instance
    machine: Machine
    executor: Executor
    writer: LimitWriter
    listings: Listings
    patience: Patience

    def _now_s(self) -> float:
        return self.instance.clock.now_s()

    def make(self, changes: Sequence[tuple[Resize | Memory, Inspected]]) -> tuple[Outcome, ...]:
        """Change the limits of several containers, some at a time; a slow change goes on. Where
        only the share of GPU time changes, only the job's allotment is written."""
        lost = self.patience.lost
        begun = [self._begin(action, described, lost=lost) for action, described in changes]
        self.executor.update()
        outcomes = tuple(
            one if isinstance(one, Outcome) else self._wait(action, one)
            for (action, _), one in zip(changes, begun, strict=True)
        )
        self.machine.take(self.executor.ended())
        return outcomes

    def _begin(
        self, action: Resize | Memory, described: Inspected, *, lost: bool
    ) -> Outcome | Call:
        """The call that was begun, or the outcome where none is needed, or may be begun."""
        container, now_s = action.container_id, self._now_s()
        notifies = isinstance(action, Resize) and action.only_notifies and described.adopted is None
        if lost and not notifies:
            return self._not_asked(action)
        one, original = self.machine.of(container), self.instance.originals.of(container)
        # A call under way writes the allotment, too, and may be about to record an original.
        bar = one.operation(described, now_s) if isinstance(action, Memory) else one.bars(now_s)
        if bar is not None:
            return Outcome(action, "failed", f"operation under way: {bar}")
        if isinstance(action, Memory):
            call: Call = SetMemory(container, action, described)
        elif notifies:
            return self._allot(action, described)
        else:
            altered = self.instance.originals.holds(container)
            settled = limits.without_call(action, one.refused, now_s, altered=altered)
            if settled is not None:
                return settled
            call = SetLimits(container, action, described)
            if action.gives_back and original is not None:
                call = GiveBack(container, described, original)
        self.machine.post(container, call, now_s)
        return call

    def _allot(self, action: Resize, described: Inspected) -> Outcome:
        own = Own(action.job, action.ceiling_cores, described.mps_threads_percent)
        try:
            self.writer.update_allotment(own, action.limits)
        except (OSError, ValueError) as error:
            return Outcome(action, "failed", str(error))
        return Outcome(action, "done")

    def _not_asked(self, action: Resize | Memory) -> Outcome:
        """The outcome where the loop's wait for the engine is used up."""
        if self.listings.problem is not None:
            return Outcome(action, "failed", NO_ANSWER)
        return Outcome(action, "withheld", BUSY)

    def _wait(self, action: Resize | Memory, call: Call) -> Outcome:
        began_s, over = self._now_s(), self.executor.over(call)
        if self.patience.wait(over):
            return limits.outcome(action, self.executor.wait(call))
        if over.cancel():
            return self._not_asked(action)
        # A listing shows whether only this call is slow, or the whole engine.
        self.listings.want(call.container)
        over.add_done_callback(partial(_log_failure, action))
        return Outcome(
            action,
            "begun",
            "the engine has not answered yet; the change goes on",
            engine_s=self._now_s() - began_s,
        )

    def keep_true(self, ceilings: Mapping[str, float | None], own: Mapping[str, str]) -> None:
        """Record in the background what own containers go back to, where that has changed. `own`
        are their ids by job, `ceilings` their specs' present ceilings."""
        for job in own.keys() & ceilings.keys():
            kept = self.instance.originals.of(own[job])
            if kept is not None and (kept.given_back or kept.ceiling_cores == ceilings[job]):
                continue
            call = Remember(own[job], Own(job, ceilings[job]))
            self.machine.post(own[job], call, self._now_s())

    def release(
        self, ceilings: Mapping[str, float | None], own: Mapping[str, str], until_s: float
    ) -> tuple[GivenBack, ...]:
        """Give all limits back; waits until `until_s` at most. Parameters as for `keep_true`."""
        for job in own.keys() & ceilings.keys():
            # If that cannot be recorded, the container gets its last recorded ceiling.
            with suppress(Untouchable):
                self.writer.remember(own[job], Own(job, ceilings[job]))
        calls = [
            ReleaseContainer(one.container_id, one) for one in self.instance.originals.changed()
        ]
        for call in calls:
            self.machine.post(call.container, call, self._now_s())
        backs = tuple(self._back(call, until_s) for call in calls)
        self.machine.take(self.executor.ended())
        return backs

    def _back(self, call: ReleaseContainer, until_s: float) -> GivenBack:
        original = call.original
        try:
            ended = self.executor.wait(call, max(0.0, until_s - self._now_s()))
            failure = str(ended.error)
            if isinstance(ended.result, GivenBack):
                return ended.result
        except TimeoutError:
            failure = "the engine does not answer"
        return GivenBack(original.job, original.container_id, original.adopted, "", failure)

    def examine(self, described: Inspected) -> None:
        """Check in the background whether another program's container may be touched at all."""
        if described.alive and not self.instance.originals.holds(described.container_id):
            call = Examine(described.container_id, described)
            self.machine.post(call.container, call, self._now_s())

    def examine_again(self, listing: Listing) -> None:
        """As `settle` does, have those that are left alone examined after a while, and nothing
        else: for a dry run."""
        answers = self.listings.problem is None
        for container in [key for key, one in self.machine.busy.items() if one.refused is not None]:
            described = listing.containers.get(container)
            event = Listed(described, listing.at_s, held=True, answers=answers)
            self.machine.post(container, event, self._now_s())

    def settle(self, listing: Listing, moving: Set[str], managed: Set[str] | None) -> None:
        """Show the machine every container with which something was begun, or is to be. `moving`:
        jobs; `managed`: the containers that belong to one (None: not known yet)."""
        # Not the cycle's time: that is from before the listing, which may not show a new container.
        records, now_s = self.instance.originals.all(), self._now_s()
        answers, held = self.listings.problem is None, self.machine.held is not None
        if answers:
            self._claim(records)
        there = listing.containers
        # A job file may have taken the name of an adopted one.
        managed = there.keys() if managed is None else managed
        kept = {key for key, one in there.items() if one.adopted is None or key in managed}
        # One that is being started has a record before it can be described.
        kept |= listing.set_aside.keys() | listing.undescribed
        strays = {key for key, one in there.items() if one.restart_strays}
        owed = records.keys() if held else records.keys() - kept
        for container in {*self.machine.busy, *strays, *owed}:
            described = there.get(container)
            event = Listed(
                described,
                listing.at_s,
                moves=described is not None and described.job in moving,
                managed=container in kept,
                original=records.get(container),
                held=held,
                answers=answers,
            )
            self.machine.post(container, event, now_s)

    def _claim(self, records: Mapping[str, Original]) -> None:
        """Claim adopted containers that are changed, also by an agent that was killed, and no
        other but those that are just being changed."""
        changed = {key for key, one in records.items() if one.adopted and not one.given_back}
        for container in changed:
            self.writer.claims.take(container)
        updating = (key for key, one in self.machine.busy.items() if one.updating)
        self.writer.claims.release_others(changed.union(updating))

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """What is wrong with limits and with changing them."""
        refused = [
            (one.refused.job, f"{one.refused.job}: {one.refused.why}")
            for one in self.machine.busy.values()
            if one.refused is not None
        ]
        node = {
            AlarmKey.BURST_REFUSED: self.writer.burst_problem,
            AlarmKey.IDLE_CLASS_REFUSED: self.writer.idle_problem,
            AlarmKey.GPU_UPDATES_STOPPED: self.writer.canary.alarm,
        }
        return (
            *self.instance.originals.alarms,
            *(Alarm(job, AlarmKey.LIMITS_REFUSED, text) for job, text in sorted(refused)),
            *(Alarm("node", key, text) for key, text in node.items() if text is not None),
        )


def _log_failure(action: Resize | Memory, over: Future[Ended]) -> None:
    """Log why a change has failed whose outcome was that it is begun."""
    outcome = limits.outcome(action, over.result())
    if outcome.status == "failed":
        kind = type(action).__name__.lower()
        _log.warning("%s %s: failed %s", kind, action.job, outcome.detail)
