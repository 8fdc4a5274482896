"""The agent: connects the adapters to the controller and runs the loop.

Handles start, signals, reload and shutdown. One thread runs the loop. The API, the journal and the
watchers have threads of their own, which only read the last report or wake the loop.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from dlsched import __version__
from dlsched.api.metrics.totals import JournalTotals, LoopTotals
from dlsched.api.server import ApiServer
from dlsched.api.stream import Stream
from dlsched.cluster.agent.assignments import has_assignments
from dlsched.config.inbox.desired import DesiredFolder
from dlsched.config.inbox.scan import Inbox
from dlsched.config.metrics.loading import load_presets
from dlsched.config.metrics.resolving import Presets
from dlsched.config.settings import DeliverHook, Settings
from dlsched.config.users import resolve
from dlsched.control.controller import Controller
from dlsched.control.decider import Decider, NamedPolicy, ShadowDecider
from dlsched.control.ledger.ledger import Ledger
from dlsched.control.ports import Clock, Ports, Wake
from dlsched.daemon import logs
from dlsched.daemon.cluster_agent import ClusterPart, certificates_of
from dlsched.daemon.failed_cycles import FailedCycles
from dlsched.daemon.first_start import FirstStart
from dlsched.daemon.hook import Hook
from dlsched.daemon.records import Deliveries, JobRecords, ReadOnlyRecords
from dlsched.daemon.source import AgentSource, Release
from dlsched.daemon.systemd import Notify
from dlsched.daemon.wiring import (
    confinement,
    cpu_text,
    engine_options,
    guard_options,
    ledger_options,
    policies_of,
    policies_text,
    reloaded,
)
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.cycle import CycleReport
from dlsched.model.decision import PolicyMemory
from dlsched.model.errors import DlschedError, SettingsError
from dlsched.model.state import JobState, JobView
from dlsched.runtime.clock import SystemClock, wait
from dlsched.runtime.docker.instance import DockerOptions
from dlsched.runtime.docker.runtime import DockerRuntime
from dlsched.runtime.originals import FOLDER as ORIGINALS
from dlsched.store.jobs import claim_records, delivered_records, ended_records
from dlsched.store.journal.coding import shadow_name
from dlsched.store.journal.schema import DRY_RUN_JOURNAL_NAME, JOURNAL_NAME
from dlsched.store.journal.writer import Journal
from dlsched.store.policy_memory import memory_size_check, recalled

log = logging.getLogger(__name__)

_LEAST_GAP_S = 0.02
"""Minimum time between two cycles, however many events wake the loop."""

Reload = Callable[[], Settings]


class Agent:
    """Everything that lives as long as the daemon."""

    def __init__(
        self,
        settings: Settings,
        *,
        dry_run: bool,
        clock: Clock | None = None,
        runtime: Callable[[DockerOptions, Clock, Wake], DockerRuntime] = DockerRuntime,
        notes: Sequence[str] = (),
    ) -> None:
        """`clock` None: the system's, continuing from the journal's last time. `notes` are logged
        at the start."""
        self._settings = settings
        self._dry_run = dry_run
        self._notes = notes
        self._began = False
        self._failures = FailedCycles()
        self._stopping = self._reloading = False
        self._notify = Notify(os.environ)
        policy, shadow = policies_of(settings)
        hook = Hook(DeliverHook() if dry_run else settings.deliver_hook, self._wake)
        self._journal_path = settings.state_dir / (
            DRY_RUN_JOURNAL_NAME if dry_run else JOURNAL_NAME
        )
        self.journal = Journal(
            self._journal_path,
            frame_s=settings.journal.frame_s,
            max_bytes=settings.journal.max_size_bytes,
            max_age_s=settings.journal.max_age_s,
        )
        self._clock = clock or SystemClock(not_before_s=self.journal.last_now_s())
        self._ended = ended_records(settings.state_dir, read_only=dry_run)
        delivered = delivered_records(settings.state_dir, read_only=dry_run)
        folder = settings.watch.resolve()
        tenants = resolve(settings.tenants)
        self._claims = claims = claim_records(settings.state_dir, read_only=dry_run)
        presets = load_presets(settings.presets)
        held = {job: claim.file for job, claim in claims.all().items()}
        inbox = Inbox(folder, tenants, held, presets, wall_s=time.time)
        self._inbox = DesiredFolder(inbox, folder, None if dry_run else claims)
        engine = replace(
            engine_options(settings),
            read_only=dry_run,
            confine=lambda spec: confinement(spec, self._settings),
            presets=presets,
        )
        self._runtime = docker = runtime(engine, self._clock, self._wake)
        self._cluster = None
        # Switched off, it still keeps the jobs that it has: they are not to end for a setting.
        part = settings.cluster.enabled or has_assignments(settings.state_dir)
        if part and not dry_run:
            self._cluster = ClusterPart(
                settings,
                certificates_of(settings, engine.host),
                self._inbox,
                docker.moves,
                docker.images,
                self._clock,
                lambda: self._settings.policy,
            )
        self._release = Release(settings.state_dir, self._clock, self._wake)
        self._deliveries = Deliveries(delivered, hook, self._runtime.report_deliverable)
        self._records = JobRecords(self._ended, self._deliveries, self._clock.wall_time)
        self._ledger = Ledger(ledger_options(settings), self.journal.last_cycle(), delivered.all())
        self._controller = Controller(
            Ports(
                runtime=self._runtime,
                clock=self._clock,
                inbox=self._cluster or self._inbox,
                records=ReadOnlyRecords(self._records) if dry_run else self._records,
                publish=self._publish,
                alarms=self._alarms,
                before_actions=FirstStart(settings.watch, first=self._is_first(), dry_run=dry_run),
            ),
            self._ledger,
            Decider(policy, self._memory(policy, policy.name), memory_size_check),
            guard_options(settings),
            None
            if shadow is None
            else ShadowDecider(
                shadow, self._memory(shadow, shadow_name(shadow.name)), memory_size_check
            ),
        )
        self._totals = LoopTotals()
        self._stream = Stream(secrets.token_hex(4), self.journal.earlier_report())
        self.source = AgentSource(
            self._journal_path,
            lambda: self._controller.last_report,
            self._failure,
            lambda: self._totals.last,
            self._stream,
            self._ended,
            self._release,
            docker,
            self._clock.wall_time,
            self._wake,
            self._about,
            run_dir=settings.run_dir,
            dry_run=dry_run,
        )
        self._api = ApiServer(
            self.source,
            settings.run_dir,
            settings.status_group,
            settings.control_group,
            settings.listen,
        )

    def run(self, reload: Reload | None) -> None:
        """Run cycles: one each period, or immediately on a wake or a changed job file."""
        # A SIGCHLD that a parent left ignored would hide how the operator's command ended.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._runtime.check_engine()
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)
        self._api.start()
        if self._cluster is not None:
            self._cluster.start()
        log.info(
            "dlsched %s: instance %s, %s, jobs in %s%s",
            __version__,
            self._settings.instance,
            policies_text(self._settings),
            self._settings.watch,
            "; dry run: dlsched touches nothing" if self._dry_run else "",
        )
        for note in self._notes:
            log.info("%s", note)
        log.info("%s", cpu_text(self._settings))
        self._began = True
        while not self._stopping:
            began_s = self._clock.now_s()
            if self._reloading:
                self._reloading = False
                self._notify.reloading()
                try:
                    self._reload(reload)
                except Exception:
                    log.exception(
                        "not all settings were read again, by a fault of dlsched: restart dlsched"
                    )
            self.cycle()
            due_s = began_s + self._settings.period_s
            if self._inbox.next_s is not None:
                due_s = min(due_s, self._inbox.next_s)
            self._sleep(began_s, due_s)
        self._notify.stopping()

    def cycle(self) -> CycleReport | None:
        """Run one cycle, with the release, API and systemd steps around it. None: it failed, which
        ends nothing: limits stay, and the next cycle runs as usual."""
        try:
            self._runtime.read_from(job.spec for job in self._jobs())
            self._runtime.examine(self._ledger.missed, self._clock.now_s())
            self._see_to_release()
            report = self._controller.run_once()
        except Exception as error:  # noqa: BLE001  no daemon would be left to adapt limits
            self._failed(error)
            return None
        self._failures.succeeded()
        self._notify.ready()
        self._notify.status(_in_one_line(report))
        return report

    def _failed(self, error: Exception) -> None:
        """Show a cycle's failure; after several in a row, give all limits back."""
        gives_back = self._failures.failed(error)
        alarm = self._failures.alarm()
        try:
            if gives_back:
                self._runtime.hold(self._failures.hold)
                self._give_back()
            if alarm is not None and (report := self._controller.failed(alarm)) is not None:
                self._totals.show(report)
        except Exception:
            log.exception("a control cycle failed, and then showing that failed, too")
        self._notify.ready()
        self._notify.status(f"a control cycle failed: {alarm}")

    def _failure(self) -> str | None:
        alarm = self._failures.alarm()
        return None if alarm is None else alarm.text

    def close(self) -> None:
        """Give limits back, leave containers running, and complete the journal."""
        parts = [self._release.close, self._api.stop, self._deliveries.close]
        if self._cluster is not None:
            parts.insert(2, self._cluster.stop)
        for end in parts:
            try:
                end()
            except Exception:  # limits are given back whatever else fails
                log.exception("a part of dlsched failed while dlsched ended")
        self._give_back()
        self._runtime.close()
        self.journal.close()
        if self._began:
            own = "" if self._dry_run else " under their own limits"
            log.info("dlsched ended; containers run on%s", own)

    def _give_back(self) -> None:
        for back in self._runtime.release(self._ceilings()):
            if back.failure is not None:
                log.warning(
                    "%s: the container's limits are not given back: %s", back.job, back.failure
                )

    def _sleep(self, began_s: float, due_s: float) -> None:
        """Sleep until the cycle is due, a wake, or a changed job file; a burst of events counts as
        one wake. The watchdog is fed meanwhile, as it is for cycles that hang."""
        until_s = began_s
        while not self._stopping and until_s < due_s:
            self._notify.alive()
            until_s = min(due_s, self._clock.now_s() + self._notify.feed_s)
            if wait(self._clock, until_s, self._inbox.changed):
                while not self._stopping and self._clock.sleep_until(began_s + _LEAST_GAP_S):
                    pass
                return

    def _is_first(self) -> bool:
        """Whether no daemon has had a cycle or changed a container with this state directory."""
        originals = self._settings.state_dir / ORIGINALS
        return self.journal.last_cycle() == 0 and not any(originals.glob("*.json*"))

    def _see_to_release(self) -> None:
        """Give everything back if requested, and hold the runtime until a resume."""
        if self._dry_run:
            return
        if self._controller.last_report is not None:
            managed = {job.container_id for job in self._jobs() if job.container_id is not None}
            self._runtime.expect(self._ceilings(), managed)
        self._release.answer(lambda: self._runtime.release(self._ceilings()))
        self._runtime.hold(self._release.why or self._failures.hold)

    def _ceilings(self) -> dict[str, float | None]:
        """Ceilings in the specs, by job, except for jobs whose file cannot be read."""
        return {
            job.name: job.spec.bounds.ceiling_cores
            for job in self._jobs()
            if job.state is not JobState.UNMANAGED
        }

    def _memory(self, named: NamedPolicy, kept_as: str) -> PolicyMemory | None:
        plain = self.journal.last_memory(kept_as)
        memory, problem = recalled(named.policy, plain)
        if problem is not None:
            log.warning(
                "policy %s starts without the memory of its last run: %s", named.name, problem
            )
        return memory

    def _publish(self, report: CycleReport) -> None:
        """Hand the report to the journal, the stream and the cluster, and count it. Nothing
        blocks."""
        self.journal.write(report)
        self._stream.publish(report)
        if self._cluster is not None:
            self._cluster.step(report)
        duration_s = self._clock.now_s() - report.snapshot.now_s
        journal = JournalTotals(self.journal.size_bytes, self.journal.lost_cycles)
        self._totals.count(report, duration_s, journal)

    def _alarms(self) -> tuple[Alarm, ...]:
        parts = (
            ("release", AlarmKey.RELEASED, None if self._dry_run else self._release.why),
            ("journal", AlarmKey.JOURNAL_FAILED, self.journal.problem()),
            ("api", AlarmKey.API_DOWN, self._api.problem),
        )
        failed = self._failures.alarm()
        return (
            *(() if failed is None else (failed,)),
            *self._records.alarms(),
            *self._claims.alarms,
            *self._runtime.alarms(),
            *(() if self._cluster is None else self._cluster.alarms()),
            *(Alarm(source, key, text) for source, key, text in parts if text is not None),
        )

    def _wake(self, reason: str) -> None:
        log.debug("woken: %s", reason)
        self._clock.wake()

    def _on_stop(self, *_: object) -> None:
        self._stopping = True
        self._clock.wake()

    def _on_reload(self, *_: object) -> None:
        self._reloading = True
        self._clock.wake()

    def _reload(self, reload: Reload | None) -> None:
        """Apply new settings that can change at run time. On an error the old ones stay."""
        self._failures = FailedCycles()
        if not self._dry_run:
            with suppress(OSError):  # the alarm stays, and says that nothing is changed
                self._release.resume()
        if reload is None:
            return
        try:
            settings = reload()
            policy, shadow = policies_of(settings)
            if not self._dry_run:
                self._deliveries.use(settings.deliver_hook)
        except DlschedError as error:
            log.error("the old settings stay, as the new ones are refused: %s", error)  # noqa: TRY400
            return
        self._settings, kept = reloaded(self._settings, settings)
        for name in kept:
            log.warning("the setting %s was changed: restart dlsched to apply it", name)
        settings = self._settings
        logs.set_up(settings.log.level, settings.log.format)
        self._inbox.use(resolve(settings.tenants), self._read_presets())
        self._ledger.adopt(ledger_options(settings))
        self._controller.use(policy, guard_options(settings), shadow)
        log.info(
            "settings read again and applied: %s; %s", policies_text(settings), cpu_text(settings)
        )

    def _read_presets(self) -> Presets | None:
        """The presets, read again and given to the runtime; None: the old ones stay."""
        try:
            presets = load_presets(self._settings.presets)
        except SettingsError as error:
            first, *more = error.problems
            further = f" (and {len(more)} more)" if more else ""
            log.error("the old presets stay, as the new ones are refused: %s%s", first, further)  # noqa: TRY400
            return None
        self._runtime.use_presets(presets)
        return presets

    def _about(self) -> Mapping[str, object]:
        """The agent's version, instance and main settings."""
        return {
            "version": __version__,
            "instance": self._settings.instance,
            "policy": self._settings.policy,
            "shadow": self._settings.shadow,
            "dry_run": self._dry_run,
            "watch": str(self._settings.watch),
            "pid": os.getpid(),
        }

    def _jobs(self) -> Sequence[JobView]:
        report = self._controller.last_report
        return report.snapshot.jobs if report is not None else ()


def _in_one_line(report: CycleReport) -> str:
    """The status line for `systemctl status`."""
    jobs = report.snapshot.jobs
    running = sum(job.state is JobState.RUNNING for job in jobs)
    engine = "" if report.engine_ok else ", the engine does not answer"
    alarms = f", {len(report.alarms)} alarms" if report.alarms else ""
    return f"{running} of {len(jobs)} jobs run, policy {report.policy}{engine}{alarms}"
