"""Durable records written in a cycle: ended jobs, and deliveries with what follows from them, the
job's own allotment and the operator's command. `tiers` decides when a tier is reached. A failure
here is an alarm; the job and the loop continue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from dlsched.config.settings import DeliverHook
from dlsched.control.ledger.tiers import reached_text
from dlsched.control.ledger.updated import State
from dlsched.daemon.hook import Hook
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.cycle import HookRun
from dlsched.model.state import Delivered, Ended, JobState, JobView
from dlsched.store.records import Records

log = logging.getLogger(__name__)

Allot = Callable[[str, bool], None]
"""Writes to a job's allotment whether it can be delivered; may raise OSError."""


class Deliveries:
    """The pending steps of each delivery. Only the loop's thread uses it."""

    def __init__(self, records: Records[Delivered], hook: Hook, allot: Allot) -> None:
        self._records = records
        self._hook = hook
        self._allot = allot
        self._allotted: dict[str, tuple[str, bool]] = {}
        """By job, its container and the last value written to its allotment."""
        self._offered: dict[str, Delivered] = {}
        """Deliveries that the hook has taken, or could not run for."""
        self._failed: dict[str, str] = {}
        self._unwritten: Alarm | None = None
        """An alarm while records on disk are older than in memory."""
        self._unlifted: dict[str, str] = {}
        """By job, why a record that no longer counts is still on disk."""
        self._unallotted: Alarm | None = None

    def keep(self, state: State, wall_time: str) -> tuple[HookRun, ...]:
        """Record and announce deliveries; returns the hook's runs that ended."""
        for name in (*self._unlifted, *state.undelivered):
            self._void(name)
        for delivery in state.delivered:
            self._deliver(delivery, wall_time)
        self._write_again()
        runs = self._hook.ended()
        self._settle(runs)
        self._offer()
        self._notify_jobs(state.snapshot.jobs)
        return runs

    def alarms(self) -> Sequence[Alarm]:
        """Deliveries that could not be stored, announced or passed on."""
        hooks = [
            Alarm(name, AlarmKey.DELIVER_HOOK_FAILED, f"deliver_hook failed for {name}: {why}")
            for name, why in self._failed.items()
        ]
        unlifted = [
            Alarm(name, AlarmKey.RECORD_NOT_WRITTEN, why) for name, why in self._unlifted.items()
        ]
        others = (self._unwritten, *unlifted[:1], self._unallotted)
        return [*self._records.alarms, *hooks, *(alarm for alarm in others if alarm is not None)]

    def use(self, hook: DeliverHook) -> None:
        """Switch to another hook, also for deliveries that the old one failed to run for. Failures
        are reset. Raises SettingsError, and keeps the old hook."""
        self._hook.use(hook)
        for name in self._failed:
            self._offered.pop(name, None)
        self._failed.clear()

    def close(self) -> None:
        """End the hook. The next agent does what is left."""
        self._hook.close()
        self._settle(self._hook.ended())

    def _deliver(self, delivery: Delivered, wall_time: str) -> None:
        known = self._records.of(delivery.name)
        if known is not None and _same(delivery, known):
            self._record(replace(known, tiers=delivery.tiers))
        else:
            self._record(replace(delivery, wall_time=wall_time, told=not self._hook.wanted))
            log.info("job %s reached its deliver value: %s", delivery.name, _first(delivery))
        if (finished := delivery.tiers.finished) is not None:
            how = reached_text(delivery.metric, finished, "finish", delivery.finish)
            log.info("job %s reached its finish value: %s", delivery.name, how)

    def _void(self, name: str) -> None:
        self._offered.pop(name, None)
        self._failed.pop(name, None)
        try:
            self._records.lift(name)
            self._unlifted.pop(name, None)
        except OSError as error:
            self._unlifted[name] = f"the record that a job was delivered cannot be removed: {error}"

    def _record(self, delivery: Delivered) -> None:
        self._unlifted.pop(delivery.name, None)
        with suppress(OSError):  # a full disk: it is valid in memory, and written later
            self._records.record(delivery)

    def _write_again(self) -> None:
        """Write pending records, in every cycle until the disk accepts all."""
        try:
            self._records.write_again()
            self._unwritten = None
        except OSError as error:
            text = (
                f"that a job was delivered (reached its deliver value) cannot be recorded: {error}"
            )
            self._unwritten = Alarm("deliveries", AlarmKey.RECORD_NOT_WRITTEN, text)

    # ------------------------------------------------------------------ the operator's command

    def _offer(self) -> None:
        """Offer each delivery once, in order. What the hook's full queue refuses waits."""
        owed = [
            one
            for name, one in self._records.all().items()
            if not (one.told or name in self._unlifted or _same(one, self._offered.get(name)))
        ]
        for delivery in sorted(owed, key=_delivered_s):
            if not self._hook.wanted:
                self._record(replace(delivery, told=True))
            elif self._hook.offer(delivery):
                self._offered[delivery.name] = delivery
            else:
                break

    def _settle(self, runs: Sequence[HookRun]) -> None:
        for run in runs:
            name = run.delivered.name
            known = None if name in self._unlifted else self._records.of(name)
            if not _same(run.delivered, known) or known is None:
                continue  # it no longer counts
            if run.status == "done":
                self._failed.pop(name, None)
            elif run.status != "aborted":
                self._failed[name] = run.detail
            if run.status in ("done", "failed"):
                self._record(replace(known, told=True))

    # ------------------------------------------------------------------ the job itself

    def _notify_jobs(self, jobs: Sequence[JobView]) -> None:
        self._unallotted = None
        for job in jobs:
            left_alone = job.state is JobState.UNMANAGED or not job.state.holds
            if job.container_id is None or left_alone:
                continue
            now = (job.container_id, job.tiers.delivered is not None)
            if self._allotted.get(job.name) == now:
                continue
            try:
                self._allot(job.name, now[1])
                self._allotted[job.name] = now
            except (OSError, ValueError) as error:
                text = f"{job.name} cannot be notified that it was delivered: {error}"
                self._unallotted = Alarm(job.name, AlarmKey.JOB_NOT_NOTIFIED, text)
        for gone in self._allotted.keys() - {job.name for job in jobs}:
            del self._allotted[gone]


def _first(delivery: Delivered) -> str:
    delivered = delivery.tiers.delivered
    if delivered is None:
        return ""
    how = reached_text(delivery.metric, delivered, "deliver", delivery.deliver)
    saved = delivery.checkpoint
    return how if saved is None else f"{how}; saved step {saved.step} at {saved.path}"


def _same(one: Delivered, other: Delivered | None) -> bool:
    return (
        other is not None
        and one.container_id == other.container_id
        and one.tiers.delivered == other.tiers.delivered
    )


def _delivered_s(delivery: Delivered) -> float:
    return delivery.tiers.delivered.at_s if delivery.tiers.delivered is not None else 0.0


class JobRecords:
    """Records of ended and delivered jobs; implements the port `CycleRecords`."""

    def __init__(
        self, ended: Records[Ended], deliveries: Deliveries, wall_time: Callable[[], str]
    ) -> None:
        self._ended = ended
        self._deliveries = deliveries
        self._wall_time = wall_time
        self._unwritten: tuple[Alarm, ...] = ()
        self._read: Mapping[str, Ended] = {}

    def ended(self) -> Mapping[str, Ended]:
        """The records that a cycle begins with. A command that replaces one before the cycle ends
        is not undone by it."""
        self._read = self._ended.all()
        return self._read

    def keep(self, state: State) -> tuple[HookRun, ...]:
        """Write ends and deliveries; returns the runs of the operator's command that ended. On a
        full disk, records count in memory and are written in a later cycle."""
        try:
            for name in state.lifts:
                self._ended.lift(name, self._read)
            for ended in state.ended:
                log.info("job %s ended: %s: %s", ended.name, ended.kind, ended.detail)
                self._ended.record(replace(ended, wall_time=self._wall_time()), self._read)
            self._ended.write_again()
            self._unwritten = ()
        except OSError as error:
            text = f"that a job has ended cannot be recorded: {error}"
            self._unwritten = (Alarm("ends", AlarmKey.RECORD_NOT_WRITTEN, text),)
        return self._deliveries.keep(state, self._wall_time())

    def alarms(self) -> tuple[Alarm, ...]:
        """Records that could not be read or written, and deliveries that failed."""
        return (*self._ended.alarms, *self._unwritten, *self._deliveries.alarms())


class ReadOnlyRecords:
    """The same records for a dry run, which writes none."""

    def __init__(self, records: JobRecords) -> None:
        self.ended = records.ended

    def keep(self, state: State) -> tuple[HookRun, ...]:  # noqa: ARG002 - a dry run keeps nothing
        return ()
