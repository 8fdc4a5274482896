"""The controller's process on a manager: rounds until SIGTERM. It leads only where its manager
does; its watch folder is submitted in any case."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlsched import __version__
from dlsched.api.cluster_schema import ClusterStatus
from dlsched.cluster.controller import Agents, ClusterController
from dlsched.cluster.core.decider import ClusterDecider
from dlsched.cluster.core.registry import load
from dlsched.cluster.round_report import PAUSE_S, RoundReport
from dlsched.cluster.rounds import RoundLog, asked, changes, nodes
from dlsched.cluster.status_file import SCHEMA_VERSION, status_file, write_status
from dlsched.cluster.store import ClusterStore, Member, StoreError
from dlsched.cluster.submitted import FolderReport, SubmittedFolder, SubmittedJobs
from dlsched.config.metrics.loading import load_presets
from dlsched.config.settings import Settings
from dlsched.control.ports import Clock
from dlsched.daemon import logs
from dlsched.daemon.systemd import Notify
from dlsched.model.errors import AlreadyRunning, CannotStart, unexpected
from dlsched.model.units import counted
from dlsched.runtime.clock import SystemClock, wait
from dlsched.runtime.doctor.host import folder
from dlsched.store.jobs import Lock, lock_state_dir

log = logging.getLogger(__name__)

LOCK_FOLDER = "controller"
"""In the state directory: held while a controller runs."""
_ALARMS_MAX = 100


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """What the loop needs of the real cluster."""

    name: str
    """Of this manager, as the store's leader is named."""
    store: ClusterStore
    agents: Agents
    follow: Callable[[Mapping[str, Member]], None] = lambda _: None
    """Takes the present nodes before each round."""
    node_problems: Callable[[], Mapping[str, str]] = lambda: {}
    """One line by node that does not answer."""
    job_problems: Callable[[], Mapping[str, str]] = lambda: {}
    """One line by job whose record cannot be read."""
    close: Callable[[], None] = lambda: None


class ClusterLoop:
    """Everything that lives as long as the controller's process."""

    def __init__(self, settings: Settings, parts: ClusterParts, clock: Clock) -> None:
        """Raises PolicyError, and SettingsError for presets that cannot be read."""
        self._settings, self._parts = settings, parts
        self._clock = clock
        self._notify = Notify(os.environ)
        presets = load_presets(settings.presets)
        cluster = settings.cluster
        self._folder = SubmittedFolder(cluster.watch, parts.store, parts.name, presets)
        self._jobs = SubmittedJobs(parts.store, presets)
        policy = load(cluster.policy, cluster.policy_options)
        self._controller = ClusterController(
            parts.name,
            parts.store,
            parts.agents,
            self._jobs,
            ClusterDecider(cluster.policy, policy),
            self._clock.now_s,
        )
        self._rounds = RoundLog()
        self._logged: set[str] = set()
        """Problems that are in the log already."""
        self._nodes: dict[str, str] = {}
        self._status = self._first_status()
        self._unwritten = ""
        self._leads = False
        self._stopping = False

    def run(self) -> None:
        """Rounds until SIGTERM or SIGINT."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        cluster = self._settings.cluster
        log.info(
            "dlsched %s: controller of the cluster on manager %s, policy %s, jobs in %s",
            __version__,
            self._parts.name,
            cluster.policy,
            cluster.watch,
        )
        while not self._stopping:
            next_s = self.step()
            self._notify.ready()
            self._notify.status(self._line())
            self._sleep(next_s)
        self._notify.stopping()
        log.info("the cluster's controller ended; the nodes and their jobs go on")

    def step(self) -> float:
        """One scan of the folder and one round; returns the seconds until the next. One that raises
        ends nothing: jobs stay as they are, an alarm says so, and the next one runs as usual."""
        try:
            next_s = self._step()
        except Exception as error:
            alarm = f"a round of the controller failed, by a fault of dlsched: {unexpected(error)}"
            if alarm not in self._status.alarms:
                log.critical("%s", alarm, exc_info=error)
            now, alarms = self._clock.wall_time(), (alarm, *self._status.alarms)
            self._status = replace(
                self._status, written_at=now, alarms=_bounded(list(dict.fromkeys(alarms)))
            )
            next_s = PAUSE_S
        self._write_status()
        return next_s

    def _step(self) -> float:
        began_s = self._clock.now_s()
        scanned = self._folder.scan(began_s)
        self._log_folder(scanned)
        with suppress(StoreError):  # the round reports it
            self._parts.follow(self._parts.store.nodes())
        report = self._controller.round()
        for line in self._rounds.take(report, self._clock.wall_time()):
            log.info("%s", line)
        self._lead(report.snapshot is not None, report)
        self._status = self._next_status(report, scanned)
        self._log_problems(report)
        next_s = report.next_s
        if scanned.next_s is not None:
            next_s = min(next_s, max(scanned.next_s - began_s, 0.0))
        return next_s

    def _write_status(self) -> None:
        try:
            write_status(self._settings.run_dir, self._status)
            self._unwritten = ""
        except OSError as error:
            if str(error) != self._unwritten:
                log.warning("the cluster's status file cannot be written: %s", error)
            self._unwritten = str(error)

    # ------------------------------------------------------------------ log

    def _log_folder(self, scanned: FolderReport) -> None:
        for job in scanned.submitted:
            log.info("%s: the job was submitted to the cluster", job)
        for job in scanned.withdrawn:
            log.info("%s: the job was withdrawn, as its file was removed", job)

    def _lead(self, leads: bool, report: RoundReport) -> None:
        if leads and not self._leads:
            log.info("this manager leads: its controller acts")
        elif self._leads and not leads and not report.alarms:
            log.info("another manager leads: this controller only submits its own jobs")
        self._leads = leads or (self._leads and bool(report.alarms))

    def _log_problems(self, report: RoundReport) -> None:
        status = self._status
        if report.snapshot is not None:
            for line in changes(self._nodes, status.nodes):
                log.info("%s", line)
            self._nodes = {row.name: row.state for row in status.nodes}
        present = {*status.rejected, *status.alarms}
        for line in sorted(present - self._logged):
            log.warning("%s", line)
        self._logged = present

    # ------------------------------------------------------------------ status

    def _first_status(self) -> ClusterStatus:
        settings = self._settings
        return ClusterStatus(
            schema_version=SCHEMA_VERSION,
            instance=settings.instance,
            manager=self._parts.name,
            leader="",
            policy=settings.cluster.policy,
        )

    def _next_status(self, report: RoundReport, scanned: FolderReport) -> ClusterStatus:
        """The snapshot after this round. Without an answer of the store, nodes and jobs are those
        of the round before, as `observed_at` says."""
        now = self._clock.wall_time()
        alarms = [line for line in (scanned.problem, *report.alarms) if line]
        base = replace(self._status, written_at=now, rejected=scanned.rejected)
        if report.snapshot is None:
            leader = self._leader()
            if leader and leader != self._parts.name:
                base = replace(self._first_status(), written_at=now, rejected=scanned.rejected)
            return replace(base, leader=leader, alarms=_bounded(alarms))
        unread = {**self._parts.job_problems(), **self._jobs.problems()}
        return replace(
            base,
            leader=self._parts.name,
            observed_at=now,
            nodes=nodes(report, self._parts.node_problems()),
            jobs=self._rounds.jobs(report),
            queue=self._rounds.queue(report),
            asked=asked(report),
            rejected=(*scanned.rejected, *(f"{job}: {line}" for job, line in unread.items())),
            alarms=_bounded(alarms),
            totals=self._rounds.totals(),
        )

    def _leader(self) -> str:
        try:
            return self._parts.store.leader()
        except StoreError:
            return ""

    def _line(self) -> str:
        """The status line for `systemctl status`."""
        status = self._status
        if status.leader != self._parts.name:
            return f"{status.leader or 'no manager'} leads"
        jobs = counted(len(status.jobs), "job")
        return f"leads {counted(len(status.nodes), 'node')}, {jobs}, {len(status.queue)} waiting"

    # ------------------------------------------------------------------ time

    def _sleep(self, next_s: float) -> None:
        """Sleep for so long, or until a wake or a changed job file. The watchdog is fed
        meanwhile."""
        until_s = self._clock.now_s() + next_s
        while not self._stopping and (now_s := self._clock.now_s()) < until_s:
            self._notify.alive()
            fed_s = min(until_s, now_s + self._notify.feed_s)
            if wait(self._clock, fed_s, self._folder.changed):
                return

    def _on_stop(self, *_: object) -> None:
        self._stopping = True
        self._clock.wake()


def run(settings: Settings, connect: Callable[[Settings, Clock], ClusterParts]) -> int:
    """Run the controller until SIGTERM or SIGINT; returns the exit code. Raises AlreadyRunning,
    CannotStart, PolicyError, SettingsError or EngineUnavailable where it cannot start."""
    logs.set_up(settings.log.level, settings.log.format)
    run_dir = status_file(settings.run_dir).parent
    findings = (folder("state", settings.state_dir), folder("run", run_dir))
    if failed := [found for found in findings if found.state == "fail"]:
        raise CannotStart(tuple(f"{found.line}: {found.remedy}" for found in failed))
    with _lock(settings.state_dir / LOCK_FOLDER, settings.instance):
        clock = SystemClock()
        parts = connect(settings, clock)
        try:
            ClusterLoop(settings, parts, clock).run()
        finally:
            parts.close()
    return 0


def _lock(path: Path, instance: str) -> Lock:
    try:
        return lock_state_dir(path, instance)
    except AlreadyRunning as error:
        raise AlreadyRunning(
            f"a controller of the cluster already runs on this host: {error}"
        ) from None


def _bounded(lines: list[str]) -> tuple[str, ...]:
    more = len(lines) - _ALARMS_MAX
    return (*lines[:_ALARMS_MAX], *([f"and {more} more"] if more > 0 else []))
