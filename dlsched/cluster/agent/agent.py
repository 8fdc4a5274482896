"""The agent's part in a cluster: it follows orders, a step a cycle, and reports what came of them.

It changes no owner. Every change is written to the job's durable file first, so that an agent that
was killed goes on from there, and an order of an earlier epoch is refused.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlsched.cluster.agent.assignments import (
    Assignment,
    archive_path,
    assignment_records,
    lost_jobs,
)
from dlsched.cluster.agent.ports import Checkpoints, NodeJobs, OrderRefused
from dlsched.cluster.agent.reporting import NodeFacts, node_report
from dlsched.cluster.core.following import (
    LEASE_S,
    REFUSED_S,
    RESERVED_S,
    RUNNING,
    is_overtaken,
    next_phase,
)
from dlsched.cluster.core.records import Order, Phase, Saved, Verb
from dlsched.cluster.core.reports import NodeReport
from dlsched.config.job import parse_spec
from dlsched.control.ledger.desired import Desired
from dlsched.control.ports import Clock, DesiredSource
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.cycle import CycleReport, RejectedFile
from dlsched.model.errors import SpecError
from dlsched.model.facts import ContainerFact
from dlsched.model.leaving import LeavingPhase
from dlsched.model.spec import JobSpec
from dlsched.model.state import JobState, JobView

KEPT_S = 90_000.0
"""How long the epoch of a removed job is known: an hour longer than the controller's record."""
GRANTED_S = 600.0
"""How long a checkpoint may be fetched, from when its job was away."""

_DESIRED = (*RUNNING, Phase.ENDED)
"""One that has ended is kept with its container, for its output, until it is cleared."""
_CLEARED = (Phase.FENCED, Phase.PREPARED, Phase.ARRIVING)
"""What an earlier stay left is removed, and must not start again meanwhile."""
_OVER = (JobState.FINISHED, JobState.FAILED)
_LEFT = (Phase.FENCED, Phase.PREPARED, Phase.FAILED)
"""Phases in which the job is not the cluster's here: the node may have one of that name."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    node: str
    """The node's name in the cluster."""
    state_dir: Path
    checkpoint_max_bytes: int


@dataclass(slots=True)
class _Course:
    """What of a job is known only while this agent runs."""

    since_s: float
    """When its phase began, or this agent."""
    digest: Future[str] | None = None
    """Of the archive that has come."""
    spec: JobSpec | None = None


class ClusterAgent:
    """A source of desired jobs beside the watch folder, and the port NodeAgent.

    `scan` and `step` are for the loop's thread, `report`, `follow` and `checkpoint` for others.
    """

    def __init__(
        self,
        options: AgentOptions,
        inner: DesiredSource,
        node: NodeJobs,
        checkpoints: Checkpoints,
        clock: Clock,
        digest_of: Callable[[Path], Future[str]],
        facts: NodeFacts,
    ) -> None:
        """`inner` is the node's own source of jobs; `digest_of` begins to compute a file's sha256.
        Raises OSError."""
        self._options, self._inner, self._node = options, inner, node
        self._checkpoints, self._clock, self._digest_of = checkpoints, clock, digest_of
        self._facts = facts
        self._held = assignment_records(options.state_dir)
        for direction in ("incoming", "outgoing"):
            self._folder(direction).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._contact_s = now_s = clock.now_s()
        self._confirmed: Mapping[str, int] = {}
        self._courses = {job: _Course(now_s) for job in self._held.all()}
        self._locals: frozenset[str] = frozenset()
        self._members: frozenset[str] = frozenset()
        self._views: Mapping[str, JobView] = {}
        self._unwritten: str | None = None
        self._last = NodeReport(options.node, 0.0)
        self._last_s = now_s
        self._resume()

    # ------------------------------------------------------------------ for the server's thread

    def report(self, placed: Mapping[str, int], nodes: frozenset[str]) -> NodeReport:
        """The report of the last cycle. `placed` confirms jobs by epoch."""
        now_s = self._clock.now_s()
        self._contact_s, self._confirmed, self._members = now_s, dict(placed), nodes
        return replace(self._last, age_s=max(now_s - self._last_s, 0.0))

    def follow(self, order: Order) -> None:
        """Take an order for the next cycle. Raises OrderRefused."""
        own = self._held.of(order.job)
        if own is not None and is_overtaken(own.epoch, order):
            raise OrderRefused(f"{order.job}: epoch {own.epoch} was followed", epoch=own.epoch)
        if order.verb in (Verb.PREPARE, Verb.ARRIVE):
            if order.job in self._locals:
                text = f"{order.job}: {self._options.node} has a job of its own of that name"
                raise OrderRefused(text, 422)
            self._parsed(order.job, order.text)
        self._orders.put(order)
        self._clock.wake()

    def checkpoint(self, job: str, epoch: int, peer: str) -> Path | None:
        """The archive of a job that is away, for the one node that it moves to."""
        own, course = self._held.of(job), self._courses.get(job)
        if own is None or course is None or own.phase is not Phase.AWAY:
            return None
        granted = peer == own.target and peer in self._members and epoch == own.epoch + 1
        if not granted or self._clock.now_s() - course.since_s > GRANTED_S:
            return None
        return self._archive("outgoing", own)

    # ------------------------------------------------------------------ for the loop's thread

    def scan(self, now_s: float) -> Desired:
        """The node's own jobs and those that the cluster has given it."""
        while not self._orders.empty():
            self._take(self._orders.get(), now_s)
        desired = self._inner.scan(now_s)
        here = {own.job for own in self._held.all().values() if own.phase not in _LEFT}
        self._locals = frozenset({*desired.specs, *desired.claimed} - here)
        return self._merged(desired)

    def step(self, report: CycleReport) -> None:
        """Go on with every job, by what this cycle showed."""
        now_s = self._clock.now_s()
        self._views = {one.name: one for one in report.snapshot.jobs}
        for own in list(self._held.all().values()):
            course = self._courses[own.job]
            if own.phase is Phase.FENCED:
                self._fenced(own, course, now_s)
            elif own.phase is Phase.PREPARED and now_s > course.since_s + RESERVED_S:
                self._lapse(own, now_s)
            elif own.phase is Phase.ARRIVING:
                self._arriving(own, course, now_s)
            elif own.phase is Phase.FAILED:
                self._failed(own, now_s)
            elif own.phase in RUNNING:
                self._running(own, course, now_s)
        self._last = node_report(
            self._options.node,
            report,
            self._held.all(),
            self._locals,
            self._facts,
            self._parsed_or_none,
            now_s,
        )
        self._last_s = now_s

    def alarms(self) -> tuple[Alarm, ...]:
        """Broken files, and a disk that takes no more of them."""
        unwritten = self._unwritten
        key = AlarmKey.RECORD_NOT_WRITTEN
        more = () if unwritten is None else (Alarm("cluster", key, unwritten),)
        return (*self._held.alarms, *more)

    # ------------------------------------------------------------------ orders

    def _take(self, order: Order, now_s: float) -> None:
        own = self._held.of(order.job)
        phase = next_phase(None if own is None else (own.epoch, own.phase), order)
        if phase is None or not self._write(_followed(own, order, phase), now_s):
            return
        begins = order.verb is Verb.ARRIVE and order.source is None
        if order.verb is Verb.GIVE_BACK:
            self._node.give_back(order.job)
        elif order.verb is Verb.CLEAR or begins:
            self._node.clear(order.job)  # with the volumes of its earlier epochs

    def _resume(self) -> None:
        """Tell the runtime, before its first cycle, what an earlier agent has written."""
        held = self._held.all().values()
        folder, away = self._options.state_dir, (Phase.AWAY, *_CLEARED)
        # Another node may have those whose file is lost: what is set aside of them stays so.
        lost = lost_jobs(folder, self._held.all())
        aside = {job: archive_path(folder, "outgoing", job, 0) for job in lost}
        aside |= {own.job: self._archive("outgoing", own) for own in held if own.phase in away}
        self._node.keep_away(aside)
        for own in held:
            if own.phase in _CLEARED:
                self._node.clear(own.job)
            elif own.phase in RUNNING and not own.confirmed:
                self._bring(own)
        self._remove_others(held)

    def _remove_others(self, held: Collection[Assignment]) -> None:
        """Remove archives that no job needs, and what is not whole."""
        needed = {self._archive("outgoing", own) for own in held if own.phase is Phase.AWAY}
        needed |= {
            self._archive("incoming", own)
            for own in held
            if own.phase in (*RUNNING, Phase.FAILED) and not own.confirmed
        }
        for direction in ("incoming", "outgoing"):
            for path in self._folder(direction).iterdir():
                if path not in needed:
                    _remove(path)

    # ------------------------------------------------------------------ steps

    def _fenced(self, own: Assignment, course: _Course, now_s: float) -> None:
        _remove(self._archive("incoming", own))
        if now_s > course.since_s + KEPT_S:
            self._forget(own)

    def _lapse(self, own: Assignment, now_s: float) -> None:
        """Keep no room any more. Orders of earlier epochs stay refused, this epoch's is not."""
        if own.epoch == 1:
            self._forget(own)
        else:
            fence = Assignment(own.job, own.epoch - 1, Phase.FENCED)
            self._write(fence, now_s)

    def _arriving(self, own: Assignment, course: _Course, now_s: float) -> None:
        if own.source is None or own.saved is None:
            self._write(replace(own, phase=Phase.RUNNING), now_s)
            return
        if own.job in self._views:
            return  # what is left of an earlier stay is still being removed
        archive, most_bytes = self._archive("incoming", own), self._options.checkpoint_max_bytes
        if course.digest is None:
            self._checkpoints.begin(own.source, own.job, own.epoch, archive, most_bytes)
            problem = self._checkpoints.fetched(own.job, own.epoch)
            if problem:
                self._fail(own, f"its checkpoint does not come: {problem}", now_s)
            elif problem is not None:
                course.digest = self._digest_of(archive)
        elif course.digest.done():
            problem = _differs(course.digest, archive, own.saved)
            course.digest = None
            if problem is not None:
                _remove(archive)
                self._fail(own, problem, now_s)
            elif self._write(replace(own, phase=Phase.RUNNING), now_s):
                self._bring(own)

    def _running(self, own: Assignment, course: _Course, now_s: float) -> None:
        view = self._views.get(own.job)
        if self._confirmed.get(own.job) == own.epoch and not own.confirmed:
            own = replace(own, confirmed=True)
            if self._write(own, now_s, begins=False):
                _remove(self._archive("incoming", own))
        failed = view is not None and view.state is JobState.FAILED
        interrupted = failed and self._node.ended_with_engine(own.job)
        if view is not None and view.state in _OVER and not interrupted:
            code = 0 if view.state is JobState.FINISHED else 1
            why = view.reason or ""
            self._write(replace(own, phase=Phase.ENDED, exit_code=code, why=why), now_s)
        elif not own.confirmed and now_s - self._contact_s > LEASE_S:
            self._fail(own, f"no manager has confirmed its arrival for {LEASE_S:.0f} s", now_s)
        elif interrupted and own.phase is not Phase.SAVING:
            self._node.start_again(own.job)
        elif own.phase is Phase.SAVING:
            self._saving(own, view, now_s)
        elif own.phase is Phase.REFUSED and now_s > course.since_s + REFUSED_S:
            self._write(replace(own, phase=Phase.RUNNING, why=""), now_s)

    def _failed(self, own: Assignment, now_s: float) -> None:
        """Go on where the record says that it had arrived before its lease ran out here: then no
        other node has it."""
        if self._confirmed.get(own.job) == own.epoch:
            runs = replace(own, phase=Phase.RUNNING, confirmed=True, why="")
            if self._write(runs, now_s):
                self._bring(runs)

    def _saving(self, own: Assignment, view: JobView | None, now_s: float) -> None:
        leaving = self._node.leaving(own.job)
        spec = self._parsed_or_none(own)
        if leaving is None:
            runs = view is not None and view.runs
            if spec is None or spec.checkpoint is None or not runs:
                why = "it declares no checkpoint" if runs else "it does not run"
                self._write(replace(own, phase=Phase.REFUSED, why=why), now_s)
                return
            archive = self._archive("outgoing", own)
            self._node.leave(own.job, spec.checkpoint, archive, self._options.checkpoint_max_bytes)
        elif leaving.phase is LeavingPhase.REFUSED:
            self._write(replace(own, phase=Phase.REFUSED, why=leaving.why), now_s)
            self._node.give_back(own.job)
        elif leaving.phase is LeavingPhase.ENDED:
            self._write(replace(own, phase=Phase.RUNNING), now_s)  # its view says how
            self._node.give_back(own.job)
        elif leaving.phase is LeavingPhase.AWAY:
            saved = Saved(leaving.step or 0, leaving.sha256, leaving.size_bytes)
            self._write(replace(own, phase=Phase.AWAY, saved=saved), now_s)

    def _bring(self, own: Assignment) -> None:
        """Let the job's next container begin with the archive that has come."""
        try:
            self._node.bring(own.job, own.epoch, self._archive("incoming", own))
        except OSError as error:
            now_s = self._clock.now_s()
            self._fail(own, f"its checkpoint cannot be unpacked: {error.strerror or error}", now_s)

    def _fail(self, own: Assignment, why: str, now_s: float) -> None:
        self._write(replace(own, phase=Phase.FAILED, why=why), now_s)

    # ------------------------------------------------------------------ desired jobs

    def _merged(self, desired: Desired) -> Desired:
        specs: dict[str, JobSpec] = {}
        for own in self._held.all().values():
            if own.phase in _DESIRED and (spec := self._parsed_or_none(own)) is not None:
                specs[own.job] = spec
        twice = [
            RejectedFile(
                desired.sources.get(job, job),
                job,
                (f"{job}: the cluster has given this node a job of that name",),
            )
            for job in sorted(specs.keys() & desired.specs.keys())
        ]
        return replace(
            desired,
            specs={**desired.specs, **specs},
            sources={**desired.sources, **{job: self._source(job) for job in specs}},
            rejected=(*desired.rejected, *twice),
            spares=lambda fact: self._spared(fact, desired),
            claimed=(*desired.claimed, *specs),
            alarms=(*desired.alarms, *self.alarms()),
        )

    def _spared(self, fact: ContainerFact, desired: Desired) -> str | None:
        """Why a container of a job that is not desired is left alone; None: it is removed."""
        if fact.source != self._source(fact.job):
            return desired.spares(fact)
        own = self._held.of(fact.job)
        if own is None:
            return f"its file {fact.source} is lost, and no controller has given it away"
        if own.phase in _DESIRED:
            return f"its file {fact.source} cannot be read"
        if own.phase is Phase.ARRIVING and own.source is None:
            return "the cluster gives it to this node again"  # whose file was lost
        return None

    def _source(self, job: str) -> str:
        return str(self._held.path(job))

    def _parsed(self, job: str, text: str) -> JobSpec:
        """The job's spec. Raises OrderRefused with the problems, a line each."""
        try:
            spec = parse_spec(text, f"{job}.yaml")
        except SpecError as error:
            lines = "\n".join(str(problem) for problem in error.problems)
            raise OrderRefused(lines, 422) from None
        if spec.name != job:
            raise OrderRefused(f"the job file of {job} is one of {spec.name}", 422)
        return replace(spec, owner=0)  # only an operator writes to a manager's folder

    def _parsed_or_none(self, own: Assignment) -> JobSpec | None:
        """The spec, parsed once; None: this version of dlsched cannot read the file any more."""
        course = self._courses[own.job]
        if course.spec is None:
            try:
                course.spec = self._parsed(own.job, own.text)
            except OrderRefused:
                return None
        return course.spec

    # ------------------------------------------------------------------ files

    def _write(self, own: Assignment, now_s: float, *, begins: bool = True) -> bool:
        """Whether the file was written; else nothing has changed, and the next cycle tries again.

        `begins`: a new phase begins with it."""
        try:
            self._held.secure(own)
        except OSError as error:
            self._unwritten = f"{own.job}: an order is not followed: {error}"
            return False
        self._unwritten = None
        course = self._courses.setdefault(own.job, _Course(now_s))
        if begins:
            course.since_s, course.spec, course.digest = now_s, None, None
        return True

    def _forget(self, own: Assignment) -> None:
        try:
            self._held.lift(own.job)
        except OSError as error:
            self._unwritten = f"{own.job}: its file cannot be removed: {error}"
            return
        del self._courses[own.job]

    def _folder(self, direction: str) -> Path:
        return archive_path(self._options.state_dir, direction, "x", 0).parent

    def _archive(self, direction: str, own: Assignment) -> Path:
        return archive_path(self._options.state_dir, direction, own.job, own.epoch)


def _remove(archive: Path) -> None:
    """Where it cannot be removed, it is tried again at the next start."""
    with suppress(OSError):
        archive.unlink(missing_ok=True)


def _followed(own: Assignment | None, order: Order, phase: Phase) -> Assignment:
    """What is written before an order is followed."""
    match order.verb:
        case Verb.PREPARE:
            return Assignment(order.job, order.epoch, phase, order.text)
        case Verb.ARRIVE:
            return Assignment(
                order.job,
                order.epoch,
                phase,
                order.text,
                source=order.source,
                saved=order.saved,
                confirmed=order.source is None,
            )
        case Verb.CLEAR:
            return Assignment(order.job, order.epoch, phase)
        case Verb.LEAVE:
            assert own is not None
            # Only what has arrived is asked to leave.
            return replace(own, phase=phase, target=order.target, confirmed=True, why="")
        case Verb.GIVE_BACK:
            assert own is not None
            return replace(own, epoch=order.epoch, phase=phase, target=None, confirmed=True, why="")


def _differs(digest: Future[str], archive: Path, saved: Saved) -> str | None:
    """Why what came differs from the one that the source has; None: it does not."""
    try:
        size_bytes, found = archive.stat().st_size, digest.result()
    except OSError as error:
        return f"its checkpoint cannot be read: {error.strerror or error}"
    if size_bytes != saved.size_bytes:
        return f"its checkpoint has {size_bytes} bytes instead of {saved.size_bytes}"
    if found != saved.sha256:
        return f"its checkpoint has digest {found[:12]} instead of {saved.sha256[:12]}"
    return None
