"""Durable records written in a cycle: ended jobs, and deliveries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from dlsched.control.ledger.state import State
from dlsched.daemon.deliveries import Deliveries
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.cycle import HookRun
from dlsched.model.state import Ended
from dlsched.store.records import Records

log = logging.getLogger(__name__)


class JobRecords:
    """Records of ended and delivered jobs; implements the port `CycleRecords`."""

    def __init__(
        self, ended: Records[Ended], deliveries: Deliveries, wall_time: Callable[[], str]
    ) -> None:
        self._ended = ended
        self._deliveries = deliveries
        self._wall_time = wall_time
        self._unwritten: tuple[Alarm, ...] = ()

    def ended(self) -> Mapping[str, Ended]:
        return self._ended.all()

    def keep(self, state: State) -> tuple[HookRun, ...]:
        """Write ends and deliveries; returns the runs of the operator's command that ended. On a
        full disk, records count in memory and are written in a later cycle."""
        try:
            for name in state.lifts:
                self._ended.lift(name)
            for ended in state.ended:
                log.info("job %s ended: %s: %s", ended.name, ended.kind, ended.detail)
                self._ended.record(replace(ended, wall_time=self._wall_time()))
            self._ended.write_again()
            self._unwritten = ()
        except OSError as error:
            text = f"the end of a job cannot be recorded: {error}"
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
