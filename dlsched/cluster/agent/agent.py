"""The agent's part in a cluster: it follows orders, a step a cycle, and reports what came of them.

It changes no owner. Every change is written to the job's durable file first, so that an agent that
was killed goes on from there, and an order of an earlier epoch is refused.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from dlsched.cluster.agent.assignments import (
    Archives,
    Assignment,
    Assignments,
    Course,
    GivenJobs,
    check,
    followed,
    parsed,
)
from dlsched.cluster.agent.contact import Contact, Leases, cut_off
from dlsched.cluster.agent.fetching import KNOWN_WITHIN_S, HttpsCheckpoints
from dlsched.cluster.agent.node_report import node_report
from dlsched.cluster.agent.ports import NodeImages, NodeJobs, OrderRefused
from dlsched.cluster.core.following import (
    CLEARED,
    GRANTED_S,
    KEPT_S,
    LEFT,
    REFUSED_S,
    RESERVED_S,
    RUNNING,
    next_phase,
)
from dlsched.cluster.core.records import Order, Phase, Saved, Verb
from dlsched.cluster.core.reports import NodeReport
from dlsched.control.ledger.desired import Desired
from dlsched.control.ports import Clock, DesiredSource
from dlsched.model.alarms import Alarm
from dlsched.model.cycle import CycleReport
from dlsched.model.errors import NotNow
from dlsched.model.leaving import LeavingPhase
from dlsched.model.spec import Limits
from dlsched.model.state import JobState, JobView

GONE = "the job's file on this node is lost, and the job has no container here"
KEEPS = (
    "the node has volumes of an earlier run of {0}, and takes the job only without them: list them "
    "by `docker volume ls -f label=dlsched.job={0}`, save what you need, and remove them by "
    "`docker volume rm`"
)
_OVER = (JobState.FINISHED, JobState.FAILED)


class ClusterAgent:
    """A source of desired jobs beside the watch folder, and what the HTTPS server calls.

    `scan` and `step` are for the loop's thread, `report`, `follow` and `checkpoint` for others.
    Nothing blocks.
    """

    def __init__(
        self,
        state_dir: Path,
        checkpoint_max_bytes: int,
        inner: DesiredSource,
        node: NodeJobs,
        images: NodeImages,
        checkpoints: HttpsCheckpoints,
        clock: Clock,
        policy: Callable[[], str],
        contact: Contact,
    ) -> None:
        """`inner` is the node's own source of jobs; `policy` returns the name of the node's present
        policy. Raises OSError."""
        self._most_bytes, self._inner, self._node = checkpoint_max_bytes, inner, node
        self._checkpoints, self._clock = checkpoints, clock
        self._images, self._policy, self._contact = images, policy, contact
        self._began_s = now_s = clock.now_s()
        self._held = Assignments(state_dir, now_s)
        self._given = GivenJobs(self._held.files)
        self._leases = Leases(contact, self._given.spec_of)
        self._archives = Archives(state_dir)
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._confirmed: Mapping[str, int] = {}
        self._locals: frozenset[str] = frozenset()
        self._members: frozenset[str] = frozenset()
        self._views: Mapping[str, JobView] = {}
        self._last: NodeReport | None = None
        self._last_s = now_s
        self._resume()

    # ------------------------------------------------------------------ for the server's thread

    def report(
        self, placed: Mapping[str, int], nodes: frozenset[str], heard_s: float | None = None
    ) -> NodeReport:
        """The report of the last cycle, without the node's name. `placed` confirms which jobs are
        the node's own, by epoch; `nodes` are the cluster's present members; `heard_s`, by the
        node's clock: the last report that came to the manager, which is the sign that one is there.
        Raises NotNow before the first cycle that saw the engine's containers."""
        now_s = self._clock.now_s()
        if heard_s is not None and self._began_s <= heard_s <= now_s:
            self._contact.renew(now_s - heard_s)
        self._confirmed, self._members = dict(placed), nodes
        if self._last is None:
            raise NotNow(
                503, "the agent has just started: it does not know this node's containers yet"
            )
        return replace(self._last, age_s=max(now_s - self._last_s, 0.0))

    def follow(self, order: Order) -> None:
        """Take an order for the next cycle; what comes of it shows in later reports. Raises
        OrderRefused."""
        try:
            check(order, self._held.of(order.job), order.job in self._locals)
        except OrderRefused as refused:
            if refused.is_for_good:
                self._orders.put(order)  # to be fenced, so that another node may get the job
            raise
        if order.verb in (Verb.ARRIVE, Verb.GIVE_BACK):
            self._contact.renew()  # a manager orders these by a report that has come to it
        self._orders.put(order)
        self._clock.wake()

    def checkpoint(self, job: str, epoch: int, peer: str) -> Path | None:
        """The archive of a job that is away, for the one node that it moves to; None: none, or not
        for that node."""
        own, course = self._held.of(job), self._held.courses.get(job)
        if own is None or course is None or own.phase is not Phase.AWAY:
            return None
        granted = peer == own.target and peer in self._members and epoch == own.epoch + 1
        if not granted or self._clock.now_s() - course.since_s > GRANTED_S:
            return None
        return self._archives.outgoing(own)

    # ------------------------------------------------------------------ for the loop's thread

    def scan(self, now_s: float) -> Desired:
        """The node's own jobs and those that the cluster has given it."""
        while not self._orders.empty():
            self._take(self._orders.get(), now_s)
        desired = self._inner.scan(now_s)
        self._locals = frozenset({*desired.specs, *desired.claimed} - self._given.here())
        return self._given.merged(desired, self.alarms())

    def step(self, report: CycleReport) -> None:
        """Go on with every job, by what this cycle showed."""
        now_s = self._clock.now_s()
        self._views = {one.name: one for one in report.snapshot.jobs}
        for own in self._held.all():
            course = self._held.courses[own.job]
            if own.phase is Phase.FENCED:
                self._fenced(own, course, now_s)
            elif own.phase is Phase.PREPARED:
                self._prepared(own, course, now_s)
            elif own.phase is Phase.ARRIVING:
                self._arriving(own, course, now_s)
            elif own.phase is Phase.FAILED:
                self._failed(own, course, now_s)
            elif own.phase in RUNNING:
                self._running(own, course, now_s)
        if not report.engine_ok and self._last is None:
            return  # its containers are not known yet
        self._last = node_report(
            report,
            {own.job: self._shown(own) for own in self._held.all()},
            self._locals,
            self._policy(),
            self._images.names(),
            self._given.spec_of,
            self._checkpoints.came_bytes,
            now_s,
        )
        self._last_s = now_s
        self._contact.keep()

    def running(self) -> list[str]:
        """Jobs that the cluster has given this node, and that run here."""
        return sorted(own.job for own in self._held.all() if own.phase in RUNNING)

    def _shown(self, own: Assignment) -> Assignment:
        problem = self._held.courses[own.job].problem
        return replace(own, why=problem) if problem else own

    def alarms(self) -> tuple[Alarm, ...]:
        """Broken files, and a disk that takes no more of them."""
        return self._held.alarms()

    # ------------------------------------------------------------------ orders

    def _take(self, order: Order, now_s: float) -> None:
        own = self._held.of(order.job)
        try:
            check(order, own, order.job in self._locals)
        except OrderRefused as refused:
            # Something may have changed since it came; then the next one like it is answered so.
            if refused.is_for_good:
                self._report_refusal(order, own, str(refused), now_s)
            return
        if own is not None and self._is_over_already(order, own):
            self._held.write(replace(own, epoch=order.epoch, text=order.text), now_s, begins=False)
            return
        phase = next_phase(None if own is None else (own.epoch, own.phase), order)
        lost = own is None and order.verb is Verb.GIVE_BACK
        if phase is None or (lost and self._last is None):
            return
        following = followed(own, order, phase)
        if lost and order.job not in self._views and not self._node.is_aside(order.job):
            # Without a spec, so that it is not started from the beginning.
            following = Assignment(order.job, order.epoch, Phase.ENDED, exit_code=1, why=GONE)
        if not self._held.write(following, now_s):
            return
        if own is not None and (phase in CLEARED or self._is_just_confirmed(own)):
            self._drop_incoming(own)
        if order.verb is Verb.GIVE_BACK:
            self._node.give_back(order.job)
        elif order.verb is Verb.CLEAR or (phase is Phase.ARRIVING and order.source is None):
            self._node.clear(order.job, keeps=following.keeps)

    def _report_refusal(self, order: Order, own: Assignment | None, why: str, now_s: float) -> None:
        """Report why that order is never followed: the job starts elsewhere, or stays there."""
        if own is not None and (own.phase not in LEFT or own.epoch >= order.epoch):
            return
        fence = replace(order, verb=Verb.CLEAR)
        refusal = replace(followed(own, fence, Phase.FENCED), why=why)
        if order.verb is Verb.PREPARE:
            self._held.write(replace(refusal, phase=Phase.FAILED, confirmed=False), now_s)
        elif order.verb is Verb.ARRIVE and order.source is None:
            self._held.write(refusal, now_s)

    def _is_over_already(self, order: Order, own: Assignment) -> bool:
        """Whether the order has another file for a job that has ended, and it is the same job."""
        if order.verb is not Verb.ARRIVE or order.source is not None or order.epoch <= own.epoch:
            return False
        if own.phase is not Phase.ENDED or own.exit_code is None:
            return False
        spec = self._given.spec_of(own)
        return spec is not None and spec.digest == parsed(order.job, order.text).digest

    def _is_just_confirmed(self, own: Assignment) -> bool:
        """Whether the record says that it has arrived, and its file does not say so yet."""
        return not own.confirmed and self._confirmed.get(own.job) == own.epoch

    def _resume(self) -> None:
        """Tell the runtime, before its first cycle, what an earlier agent has written."""
        for own in self._held.all():
            if self._leases.ended(own):
                self._held.fail(own, cut_off(own), self._clock.now_s())
        held = self._held.all()
        away = (Phase.AWAY, *CLEARED)
        aside = {
            own.job: self._archives.outgoing(own)
            for own in held
            if own.phase in away or (own.phase is Phase.FAILED and own.confirmed)
        }
        self._node.keep_away(aside, self._lost)
        for own in held:
            if own.phase in CLEARED:
                self._node.clear(own.job, keeps=own.keeps)
            elif own.phase in RUNNING and not own.confirmed:
                self._bring(own)
        self._archives.remove_others(held)

    def _lost(self, job: str, source: str) -> Path | None:
        """The archive of a job of the cluster whose file is lost: another node may have it."""
        lost = source == str(self._held.files.path(job)) and self._held.of(job) is None
        return self._archives.of_lost(job) if lost else None

    # ------------------------------------------------------------------ steps

    def _fenced(self, own: Assignment, course: Course, now_s: float) -> None:
        self._archives.remove_incoming(own)
        # Epochs begin again after it: not where an earlier one has a volume.
        if now_s > course.since_s + KEPT_S and not self._node.has_volume(own.job):
            self._held.forget(own)

    def _prepared(self, own: Assignment, course: Course, now_s: float) -> None:
        """Keep room for a job that still runs elsewhere, or is to start here, and pull its image
        meanwhile."""
        spec = self._given.spec_of(own)
        if own.job in self._locals or now_s > course.since_s + RESERVED_S:
            self._lapse(own, now_s)
        elif self._node.has_volume(own.job):
            self._not_kept(own, KEEPS.format(own.job), now_s)
        elif spec is not None and course.has_image != spec.container.image:
            problem = self._images.fetch(spec.container)
            course.problem = ""
            if problem == "":
                course.has_image = spec.container.image
            elif problem is None:
                progress = self._images.progress(spec.container)
                course.problem = f"pulling the job's image: {progress or 'looking for it'}"
            else:
                self._not_kept(own, problem, now_s)

    def _not_kept(self, own: Assignment, why: str, now_s: float) -> None:
        self._held.fail(replace(own, confirmed=False), why, now_s)  # it was never here

    def _lapse(self, own: Assignment, now_s: float) -> None:
        """Keep no room any more. Orders of earlier epochs stay refused, this epoch's is not."""
        if own.epoch == 1:
            self._held.forget(own)
        else:
            fence = Assignment(own.job, own.epoch - 1, Phase.FENCED)
            self._held.write(fence, now_s)

    def _arriving(self, own: Assignment, course: Course, now_s: float) -> None:
        if own.source is None or own.saved is None:
            self._held.write(replace(own, phase=Phase.RUNNING), now_s)
            return
        if own.job in self._views:
            return  # what is left of an earlier stay is still being removed
        if self._leases.is_over(own):
            self._drop_incoming(own)
            self._held.fail(own, cut_off(own), now_s)
            return
        if own.saved.file:
            if self._held.write(replace(own, phase=Phase.RUNNING), now_s):
                self._bring(own)
            return
        archive = self._archives.incoming(own)
        course.problem, problem = "", None
        if not self._checkpoints.begin(own.source, own.job, own.epoch, archive, own.saved):
            unknown = (
                f"the address of node {own.source}, which has the job's checkpoint, is not known: "
                "no manager has reported it"
            )
            if now_s > course.since_s + KNOWN_WITHIN_S:
                problem = unknown
            else:
                course.problem = unknown
        else:
            problem = self._checkpoints.fetched(own.job, own.epoch)
        if problem:
            self._held.fail(own, f"the job's checkpoint cannot be fetched: {problem}", now_s)
        elif problem is not None and self._held.write(replace(own, phase=Phase.RUNNING), now_s):
            self._bring(own)

    def _running(self, own: Assignment, course: Course, now_s: float) -> None:
        view = self._views.get(own.job)
        if self._is_just_confirmed(own):
            own = replace(own, confirmed=True)
            if self._held.write(own, now_s, begins=False):
                self._archives.remove_incoming(own)
        untried = own.untried and (view is None or view.container_id is None)
        if own.untried and not untried:
            own = replace(own, untried=False)
            self._held.write(own, now_s, begins=False)
        failed = view is not None and view.state is JobState.FAILED
        interrupted = failed and self._node.ended_with_engine(own.job)
        if view is not None and view.state in _OVER and not interrupted:
            code = 0 if view.state is JobState.FINISHED else None if untried else 1
            why = view.reason or ("the job could not be started" if untried else "")
            self._held.write(replace(own, phase=Phase.ENDED, exit_code=code, why=why), now_s)
        elif not own.confirmed and self._leases.is_over(own):
            self._held.fail(own, cut_off(own), now_s)
        elif own.phase is not Phase.SAVING and self._leases.is_over(own):
            self._held.write(replace(own, phase=Phase.SAVING, why=cut_off(own)), now_s)
        elif interrupted and own.phase is not Phase.SAVING:
            self._node.start_again(own.job)
        elif own.phase is Phase.SAVING:
            self._saving(own, view, now_s)
        elif own.phase is Phase.REFUSED and now_s > course.since_s + REFUSED_S:
            self._held.write(replace(own, phase=Phase.RUNNING, why=""), now_s)

    def _failed(self, own: Assignment, course: Course, now_s: float) -> None:
        """Go on where the record says that it had arrived before its lease ran out here: then no
        other node has it. One that had is only given back by an order, once it has ended."""
        view = self._views.get(own.job)
        if own.source is None and not own.confirmed:
            if (
                now_s > course.since_s + REFUSED_S
            ):  # no room could be made; it may be asked for again
                self._lapse(own, now_s)
        elif own.confirmed and self._leases.binds(own):
            if view is None or not view.state.holds:
                self._held.write(replace(own, phase=Phase.AWAY, saved=None), now_s)
        elif self._confirmed.get(own.job) == own.epoch and not self._leases.is_over(own):
            runs = replace(own, phase=Phase.RUNNING, confirmed=True, why="")
            if self._held.write(runs, now_s):
                self._bring(runs)

    def _saving(self, own: Assignment, view: JobView | None, now_s: float) -> None:
        leaving = self._node.leaving(own.job)
        spec = self._given.spec_of(own)
        if leaving is None:
            runs = view is not None and view.runs
            if spec is None or spec.checkpoint is None or not runs:
                self._refuse(
                    own,
                    "the job declares no checkpoint" if runs else "the job does not run",
                    now_s,
                )
                return
            archive = self._archives.outgoing(own)
            limits = Limits(spec.bounds.ceiling_cores)
            self._node.leave(own.job, spec.checkpoint, archive, self._most_bytes, limits)
        elif leaving.phase is LeavingPhase.REFUSED:
            self._refuse(own, leaving.why, now_s)
            self._node.give_back(own.job)
        elif leaving.phase is LeavingPhase.ENDED:
            self._held.write(replace(own, phase=Phase.RUNNING), now_s)  # its view says how
            self._node.give_back(own.job)
        elif leaving.phase is LeavingPhase.AWAY:
            saved = Saved(leaving.step or 0, leaving.sha256, leaving.size_bytes, leaving.file)
            self._held.write(replace(own, phase=Phase.AWAY, saved=saved), now_s)

    def _refuse(self, own: Assignment, why: str, now_s: float) -> None:
        """It is not away: it runs on, but where another node may get it."""
        if self._leases.is_over(own):
            self._held.fail(own, cut_off(own), now_s)
        else:
            self._held.write(replace(own, phase=Phase.REFUSED, why=why), now_s)

    def _bring(self, own: Assignment) -> None:
        """Let the job's next container begin with the archive that has come, or with its file in
        shared storage."""
        source = str(self._held.files.path(own.job))
        try:
            if own.saved is not None and own.saved.file:
                file, size_bytes = own.saved.file, own.saved.size_bytes
                self._node.expect(own.job, own.epoch, file, size_bytes, source)
                return
            self._node.bring(own.job, own.epoch, self._archives.incoming(own), source)
        except OSError as error:
            problem = f"the job's checkpoint cannot be unpacked: {error.strerror or error}"
            self._held.fail(own, problem, self._clock.now_s())

    def _drop_incoming(self, own: Assignment) -> None:
        """Its checkpoint comes no more, or is needed no more."""
        self._checkpoints.end(own.job)
        self._archives.remove_incoming(own)
