"""The daemon as the API sees it: readings from the last report and the journal, and requests that
are recorded before they are answered. Called from the API's threads.

Once everything was released, that stays so until a resume, also over restarts: the file `released`
in the state directory says so. Requests pass to the loop, whose callback gives limits back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from dlsched.api.metrics.totals import Totals
from dlsched.api.stream import Stream
from dlsched.cluster.status_file import latest_status
from dlsched.control.ports import Clock, Wake
from dlsched.estimate.effect import Effect
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import DlschedError, NotOurs
from dlsched.model.spec import LatencyTarget
from dlsched.model.state import STOPPED_BY_COMMAND, Ended, JobState, JobView
from dlsched.runtime.docker.identity.commands import AdoptionCommands
from dlsched.runtime.docker.runtime import DockerRuntime
from dlsched.runtime.machine.outcomes import GivenBack
from dlsched.store.atomic import remove, write_whole
from dlsched.store.jobs import ask_start
from dlsched.store.journal.effects import Effects
from dlsched.store.journal.history import CpuUsage, Curves, Range, read_curves, read_usage
from dlsched.store.journal.reader import JournalReader
from dlsched.store.journal.rows import Change, Event
from dlsched.store.records import Records

FILE = "released"

WITHIN_S = 60.0
"""The loop begins within a cycle, and waits for the engine at most its timeout."""


class NotReleased(DlschedError):
    """Nothing was given back, or not all in time; the text says why."""


class Release:
    """The release state. `ask` and `resume` may be called from any thread."""

    def __init__(self, state_dir: Path, clock: Clock, wake: Wake) -> None:
        self._file = state_dir / FILE
        self._clock = clock
        self._wake = wake
        self._asked: SimpleQueue[Future[Sequence[GivenBack]]] = SimpleQueue()
        self._undurable: str | None = None
        self._released = self._file.exists()

    @property
    def why(self) -> str | None:
        """Why nothing may be changed; None: changes are allowed."""
        if not self._released:
            return None
        text = (
            "all limits were given back by `dlsched release`: nothing is changed until `dlsched "
            "release --resume` or SIGHUP"
        )
        return text if self._undurable is None else f"{text}, or a restart, as {self._undurable}"

    def ask(self) -> Sequence[GivenBack]:
        """Request that everything is given back, and wait for it. Raises NotReleased."""
        answer: Future[Sequence[GivenBack]] = Future()
        self._asked.put(answer)
        self._wake("release")
        try:
            return answer.result(WITHIN_S)
        except TimeoutError:
            raise NotReleased(f"not all limits were given back within {WITHIN_S:g} s") from None

    def resume(self) -> None:
        """End the release. Raises OSError if that cannot be made durable."""
        remove(self._file)
        self._released = False
        self._wake("resume")

    def answer(self, give_back: Callable[[], Sequence[GivenBack]]) -> None:
        """Answer all requests, in the loop. `give_back` does not raise."""
        while not self._asked.empty():
            asked = self._asked.get()
            self._released = True
            try:
                write_whole(self._file, f"{self._clock.wall_time()}\n")
                self._undurable = None
            except OSError as error:
                self._undurable = f"the release cannot be recorded: {error.strerror}"
            asked.set_result(give_back())

    def close(self) -> None:
        """Refuse pending requests, as the agent ends."""
        while not self._asked.empty():
            refusal = NotReleased("refused, as the daemon is ending, and gives all limits back")
            self._asked.get().set_exception(refusal)


T = TypeVar("T")


class NotDurable(DlschedError):
    """A command cannot be recorded, so it would be lost at the next start."""


class AgentSource:
    """Implements `dlsched.api.source.StatusSource`."""

    def __init__(
        self,
        journal_path: Path,
        last_report: Callable[[], CycleReport | None],
        failure: Callable[[], str | None],
        totals: Callable[[], Totals | None],
        stream: Stream,
        ended: Records[Ended],
        release: Release,
        runtime: DockerRuntime,
        wall_time: Callable[[], str],
        wake: Callable[[str], None],
        about: Callable[[], Mapping[str, object]],
        *,
        run_dir: Path,
        dry_run: bool,
    ) -> None:
        self._journal_path = journal_path
        self.cluster = partial(latest_status, run_dir)
        self._effects = Effects(journal_path)
        self.last_report = last_report
        self.failure = failure
        self.totals = totals
        self.stream = stream
        self._ended = ended
        self._release = release
        self._runtime = runtime
        self.logs = runtime.logs
        self._wall_time = wall_time
        self._wake = wake
        self.about = about
        self._dry_run = dry_run

    def changes(self, job: str, limit: int) -> Sequence[Change]:
        """The job's last changes, newest first."""
        with JournalReader(self._journal_path) as reader:
            return reader.last_changes(job, limit)

    def events(self, job: str, limit: int) -> Sequence[Event]:
        """The job's other events, newest first."""
        with JournalReader(self._journal_path) as reader:
            return reader.events(job, limit)

    def effects(self, job: str, limit: int) -> Mapping[int, Effect]:
        """By cycle, the effects of its last changes of limits, while it has a latency target."""
        view = next((view for view in self._jobs() if view.name == job), None)
        if view is None or not isinstance(view.spec.target, LatencyTarget):
            return {}
        return self._effects.last(job, view.spec.target.quantile, limit)

    def curves(self, asked: Range, stopped: Callable[[], bool]) -> Curves:
        """That range of the journal. Raises NoJournal, and Cancelled once `stopped` is true."""
        return read_curves(self._journal_path, asked, stopped)

    def usage(self, from_s: float, to_s: float, stopped: Callable[[], bool]) -> CpuUsage:
        """Who used the CPU in that range. Raises as `curves`."""
        return read_usage(self._journal_path, from_s, to_s, stopped)

    def some_effects(
        self, changes: Sequence[Change], stopped: Callable[[], bool]
    ) -> Mapping[tuple[str, int], Effect]:
        """By job and cycle, the effects that are known of these changes, and a few more."""
        quantiles = {
            view.name: view.spec.target.quantile
            for view in self._jobs()
            if isinstance(view.spec.target, LatencyTarget)
        }
        return self._effects.some(changes, quantiles, stopped)

    def stop(self, job: str) -> None:
        """Record that the job must not run. Raises KeyError, NotOurs, NotDurable."""
        view = self._ours(job)
        if view.state is JobState.UNMANAGED:
            why = f"{job} is not stopped, as dlsched does not touch it ({view.reason})"
            raise NotOurs(f"{why}: correct or remove its file")
        ended = Ended(
            name=job,
            digest=view.spec.digest,
            kind="stopped",
            detail=STOPPED_BY_COMMAND,
            wall_time=self._wall_time(),
            attained_core_s=view.attained_core_s,
        )
        try:
            self._ended.secure(ended)
        except OSError as error:
            raise NotDurable(
                f"{job} is not stopped, as that cannot be recorded: {error}"
            ) from error
        self._wake(f"stop {job}")

    def start(self, job: str) -> None:
        """Record that a job that ended is to run again. Raises KeyError, NotOurs, NotDurable."""
        self._ours(job)
        try:
            ask_start(self._ended, job)
        except OSError as error:
            raise NotDurable(
                f"{job} is not started, as that cannot be recorded: {error}"
            ) from error
        self._wake(f"start {job}")

    def release(self) -> Sequence[Mapping[str, object]]:
        """Give everything back, then change nothing. Raises NotOurs, NotReleased."""
        if self._dry_run:
            raise NotOurs(
                "this daemon runs with --dry-run: it has changed nothing that could be given back"
            )
        return [asdict(back) for back in self._release.ask()]

    def resume(self) -> None:
        """End a release. Raises NotOurs, NotDurable."""
        if self._dry_run:
            raise NotOurs("this daemon runs with --dry-run: it sets no limits")
        try:
            self._release.resume()
        except OSError as error:
            raise NotDurable(
                f"no limits are set, as the end of the release cannot be recorded: {error}"
            ) from error

    def adopt(self, container: str, labels: Mapping[str, str]) -> Mapping[str, object]:
        """Adopt a running container. Raises KeyError, AdoptionRefused, NotOurs, NotDurable."""
        return asdict(self._adopting(container, lambda adopting: adopting.adopt(container, labels)))

    def drop(self, container: str) -> Mapping[str, object]:
        """Let an adopted container go. Raises as `adopt`."""
        return asdict(self._adopting(container, lambda adopting: adopting.drop(container)))

    def found(self) -> Mapping[str, object]:
        """The adopted containers, and those that could be. Raises DlschedError."""
        return asdict(self._runtime.adopting.found())

    def adopted_labels(self, container: str) -> Mapping[str, str]:
        """The labels that `adopt` was given. Raises KeyError."""
        return self._runtime.adopting.labels(container)

    def _adopting(self, container: str, change: Callable[[AdoptionCommands], T]) -> T:
        if self._dry_run:
            raise NotOurs("this daemon runs with --dry-run: it adopts and drops nothing")
        try:
            answer = change(self._runtime.adopting)
        except OSError as error:
            raise NotDurable(
                f"{container} is not changed, as that cannot be recorded: {error}"
            ) from error
        self._wake(f"adoption of {container}")
        return answer

    def _ours(self, job: str) -> JobView:
        """The job, if this agent may stop and start it. Raises KeyError, NotOurs."""
        view = next((view for view in self._jobs() if view.name == job), None)
        if view is None:
            raise KeyError(job)
        if self._dry_run:
            raise NotOurs(f"{job}: this daemon runs with --dry-run, and changes nothing")
        if view.adopted:
            raise NotOurs(
                f"{job} is an adopted container: dlsched only sets its limits; use `docker stop`"
            )
        return view

    def _jobs(self) -> Sequence[JobView]:
        report = self.last_report()
        return report.snapshot.jobs if report is not None else ()
