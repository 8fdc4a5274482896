"""The jobs that the cluster has given this node: the durable file of each, by which orders were
followed, archives of checkpoints that come and go, and the jobs beside those of the node's own
folder."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dlsched.cluster.agent.ports import OrderRefused
from dlsched.cluster.core.following import CLEARED, LEFT, RUNNING
from dlsched.cluster.core.records import Order, Phase, Saved, Verb
from dlsched.config.job import parse_spec
from dlsched.control.ledger.desired import Desired
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.cycle import RejectedFile
from dlsched.model.errors import SpecError
from dlsched.model.facts import ContainerFact
from dlsched.model.spec import NAME, JobSpec
from dlsched.store.records import Records

FOLDER = "cluster"
"""In the state directory: files of jobs, and archives of checkpoints that come and go."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One job. Its file is written before the act."""

    job: str
    epoch: int
    phase: Phase
    text: str = ""
    """The job file, as the controller sent it."""
    source: str | None = None
    """The node that it came from; None: it began here."""
    target: str | None = None
    """The node that may fetch its checkpoint."""
    saved: Saved | None = None
    """The checkpoint that it came with or left with."""
    confirmed: bool = True
    """Whether the controller's record says that it is placed here."""
    exit_code: int | None = None
    why: str = ""
    keeps: bool = True
    """Until it runs here: whether what an earlier stay left in its volume is its latest."""

    untried: bool = False
    """Whether it came without a checkpoint and has not had a container here yet: if that cannot be
    made, another node may try."""

    @property
    def is_latest(self) -> bool:
        """Whether its volume here has its latest state, as far as is known here."""
        if self.was_here:
            return self.confirmed or self.exit_code == 0 or self.phase is Phase.AWAY
        return self.keeps

    @property
    def was_here(self) -> bool:
        """Whether it has run here by this assignment, or was to."""
        unprepared = self.phase is Phase.FAILED and self.source is None and not self.confirmed
        return self.phase not in CLEARED and not unprepared


@dataclass(slots=True)
class Course:
    """What of a job is known only while this agent runs."""

    since_s: float
    """When its phase began, or this agent."""
    problem: str = ""
    """Why its order waits, although it is tried again in each cycle."""
    has_image: str = ""
    """The image that is here, of a job that is to come."""


class Assignments:
    """All of them, with the course of each; changed by the loop's thread alone."""

    def __init__(self, state_dir: Path, now_s: float) -> None:
        """Raises OSError."""
        self.files: Records[Assignment] = Records(
            state_dir / FOLDER / "jobs",
            Assignment,
            lambda one: one.job,
            NAME,
            "the job's container is not touched until the cluster's controller gives the job "
            "to a node again",
        )
        """To be read by any thread."""
        self.courses = {job: Course(now_s) for job in self.files.all()}
        self._unwritten: str | None = None

    def all(self) -> list[Assignment]:
        return list(self.files.all().values())

    def of(self, job: str) -> Assignment | None:
        return self.files.of(job)

    def write(self, own: Assignment, now_s: float, *, begins: bool = True) -> bool:
        """Whether the file was written; else nothing has changed, and the next cycle tries again.

        `begins`: a new phase begins with it."""
        try:
            self.files.secure(own)
        except OSError as error:
            self._unwritten = (
                f"{own.job}: this node cannot follow the controller's order, as its record of the "
                f"order cannot be written: {error}"
            )
            return False
        self._unwritten = None
        course = self.courses.setdefault(own.job, Course(now_s))
        if begins:
            course.since_s, course.problem = now_s, ""
            if own.phase is not Phase.PREPARED:
                course.has_image = ""
        return True

    def fail(self, own: Assignment, why: str, now_s: float) -> None:
        self.write(replace(own, phase=Phase.FAILED, why=why), now_s)

    def forget(self, own: Assignment) -> None:
        try:
            self.files.lift(own.job)
        except OSError as error:
            self._unwritten = (
                f"{own.job}: the record of the controller's order cannot be removed: {error}"
            )
            return
        del self.courses[own.job]

    def alarms(self) -> tuple[Alarm, ...]:
        """Broken files, and a disk that takes no more of them."""
        unwritten = self._unwritten
        key = AlarmKey.RECORD_NOT_WRITTEN
        more = () if unwritten is None else (Alarm("cluster", key, unwritten),)
        return (*self.files.alarms, *more)


def has_assignments(state_dir: Path) -> bool:
    """Whether the cluster has given this node a job, be it whole or broken. Raises OSError."""
    folder = state_dir / FOLDER / "jobs"
    return folder.is_dir() and any(".json" in path.name for path in folder.iterdir())


def followed(own: Assignment | None, order: Order, phase: Phase) -> Assignment:
    """What is written before an order is followed."""
    keeps = own is None or own.is_latest
    match order.verb:
        case Verb.PREPARE:
            return Assignment(order.job, order.epoch, phase, order.text, keeps=keeps)
        case Verb.ARRIVE if phase is Phase.RUNNING:
            assert own is not None
            changed = replace(own, epoch=order.epoch, phase=phase, text=order.text, why="")
            return replace(changed, source=None, saved=None, confirmed=True)
        case Verb.ARRIVE:
            return Assignment(
                order.job,
                order.epoch,
                phase,
                order.text,
                source=order.source,
                saved=order.saved,
                confirmed=order.source is None,
                keeps=keeps and order.source is None,
                untried=order.source is None,
            )
        case Verb.CLEAR:
            keeps = order.keeps if own is not None and own.was_here else keeps
            return Assignment(order.job, order.epoch, phase, keeps=keeps)
        case Verb.LEAVE:
            assert own is not None
            # Only what has arrived is asked to leave.
            return replace(own, phase=phase, target=order.target, confirmed=True, why="")
        case Verb.GIVE_BACK if own is None:
            return Assignment(order.job, order.epoch, phase, order.text)
        case Verb.GIVE_BACK:
            why = own.why if phase is Phase.ENDED else ""
            own = replace(own, epoch=order.epoch, phase=phase, why=why)
            return replace(own, target=None, confirmed=True)


class Archives:
    """One file for each job that comes, and for each that is away."""

    def __init__(self, state_dir: Path) -> None:
        """Raises OSError."""
        self._incoming = state_dir / FOLDER / "incoming"
        self._outgoing = state_dir / FOLDER / "outgoing"
        for folder in self._folders():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def incoming(self, own: Assignment) -> Path:
        return self._incoming / _name(own.job, own.epoch)

    def outgoing(self, own: Assignment) -> Path:
        return self._outgoing / _name(own.job, own.epoch)

    def of_lost(self, job: str) -> Path:
        """Of a job that is set aside, and whose epoch is not known any more."""
        return self._outgoing / _name(job, 0)

    def remove_incoming(self, own: Assignment) -> None:
        _remove(self.incoming(own))

    def remove_others(self, held: Iterable[Assignment]) -> None:
        """Remove archives that none of these jobs needs, and what is not whole. Raises OSError."""
        needed = set()
        for own in held:
            if own.phase is Phase.AWAY:
                needed.add(self.outgoing(own))
            elif own.phase in (*RUNNING, Phase.FAILED) and not own.confirmed:
                needed.add(self.incoming(own))
        for folder in self._folders():
            for path in folder.iterdir():
                if path not in needed:
                    _remove(path)

    def _folders(self) -> tuple[Path, Path]:
        return self._incoming, self._outgoing


def _name(job: str, epoch: int) -> str:
    return f"{job}-e{epoch}.tar"


def _remove(archive: Path) -> None:
    """Where it cannot be removed, it is tried again at the next start."""
    with suppress(OSError):
        archive.unlink(missing_ok=True)


_DESIRED = (*RUNNING, Phase.ENDED)
"""One that has ended is kept with its container, for its output, until it is cleared."""


class GivenJobs:
    """Desired jobs by their durable files."""

    def __init__(self, held: Records[Assignment]) -> None:
        self._held = held
        self._specs: dict[str, tuple[str, JobSpec | None]] = {}
        """By job: what was parsed, and what came of it."""

    def spec_of(self, own: Assignment) -> JobSpec | None:
        """The spec, parsed once; None: this version of dlsched cannot read the file."""
        text, spec = self._specs.get(own.job, (None, None))
        if text != own.text:
            try:
                spec = parsed(own.job, own.text)
            except OrderRefused:
                spec = None
            self._specs[own.job] = (own.text, spec)
        return spec

    def here(self) -> set[str]:
        """Jobs whose names are the cluster's on this node now."""
        return {own.job for own in self._held.all().values() if own.phase not in LEFT}

    def merged(self, desired: Desired, alarms: tuple[Alarm, ...]) -> Desired:
        """The node's own jobs and those that the cluster has given it."""
        held = self._held.all()
        for job in self._specs.keys() - held.keys():
            del self._specs[job]
        specs = {
            own.job: spec
            for own in held.values()
            if own.phase in _DESIRED and (spec := self.spec_of(own)) is not None
        }
        here = self.here()
        twice = [
            RejectedFile(
                desired.sources.get(job, job),
                job,
                (
                    (
                        f"{job}: this file is not used, as the cluster has given this node a job "
                        "of the same name: rename one of the two"
                    ),
                ),
            )
            for job in sorted(here & desired.specs.keys())
        ]
        local = {job: spec for job, spec in desired.specs.items() if job not in here}
        sources = {job: path for job, path in desired.sources.items() if job not in here}
        return replace(
            desired,
            specs={**local, **specs},
            sources={**sources, **{job: self._source(job) for job in specs}},
            rejected=(*desired.rejected, *twice),
            spares=lambda fact: self._spared(fact, desired),
            claimed=(*desired.claimed, *specs),
            alarms=(*desired.alarms, *alarms),
        )

    def _spared(self, fact: ContainerFact, desired: Desired) -> str | None:
        """Why a container of a job that is not desired is left alone; None: it is removed."""
        if fact.source != self._source(fact.job):
            return desired.spares(fact)
        own = self._held.of(fact.job)
        if own is None:
            return (
                f"the job's file {fact.source} is lost, and no controller has given the job to "
                "another node"
            )
        if own.phase in _DESIRED:
            return f"the job's file {fact.source} cannot be read"
        if own.phase is Phase.ARRIVING and own.source is None:
            return "the cluster gives the job to this node again"  # whose file was lost
        return None

    def _source(self, job: str) -> str:
        return str(self._held.path(job))


def check(order: Order, own: Assignment | None, is_local: bool) -> None:
    """Raises OrderRefused: a later one was followed, the node has a job of its own of that name, or
    the job file has problems."""
    if own is not None and order.epoch < own.epoch:
        raise OrderRefused(
            f"{order.job}: the order is refused, as this node follows a newer one (epoch "
            f"{own.epoch})"
        )
    needs_file = order.verb in (Verb.PREPARE, Verb.ARRIVE)
    if needs_file or (order.verb is Verb.GIVE_BACK and own is None):
        if is_local:
            text = f"{order.job}: {order.node} has a job of its own of that name"
            raise OrderRefused(text, is_for_good=True)
        parsed(order.job, order.text)


def parsed(job: str, text: str) -> JobSpec:
    """The job's spec. Raises OrderRefused with the first problem."""
    try:
        spec = parse_spec(text, f"{job}.yaml")
    except SpecError as error:
        raise OrderRefused(str(error.problems[0]), is_for_good=True) from None
    if spec.name != job:
        text = f"the job file of {job} is for another job, {spec.name}"
        raise OrderRefused(text, is_for_good=True)
    return replace(spec, owner=0)  # only an operator writes to a manager's folder
