"""Submitted jobs: a manager's watch folder into the store, and from the store to the controller.

Every manager submits its own folder's files, whether it leads or not. Only the leader reads what
all of them have submitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.records import Submission
from dlsched.cluster.store import (
    ClusterStore,
    NotStorable,
    StaleRecord,
    StoreError,
    can_withdraw,
)
from dlsched.config.inbox.files import Moved, Stamp, read_job_file, stamp_at
from dlsched.config.inbox.scan import Inbox, InboxScan
from dlsched.config.inbox.submit import submit
from dlsched.config.job import parse_spec
from dlsched.config.metrics.resolving import Presets
from dlsched.config.users import NO_TENANTS
from dlsched.config.yaml import Path as Place
from dlsched.model.errors import SpecError
from dlsched.model.spec import JobSpec
from dlsched.model.units import plain_text, shown

_LINE_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class FolderReport:
    """What one scan of the watch folder came to."""

    submitted: tuple[str, ...] = ()
    """Jobs that were submitted, or submitted again with another file."""
    withdrawn: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    """One line for each problem of a file."""
    problem: str = ""
    """Why the folder cannot be listed, or the store not be written."""
    next_s: float | None = None
    """When the next scan is due because of a file that has just changed."""


class SubmittedFolder:
    """One manager's watch folder; for one thread.

    A job is withdrawn only when its file was removed: not while the folder or the file cannot be
    read, and after a restart not before the first whole scan.
    """

    def __init__(
        self, folder: Path, store: ClusterStore, by: str, presets: Presets | None = None
    ) -> None:
        """`by`: this manager's name in the cluster."""
        self._folder, self._store, self._by, self._presets = folder, store, by, presets
        self._inbox: Inbox | None = None
        """None until the store has said what was submitted before this start."""
        self._known: set[str] = set()
        """Files that were read since this start."""
        self._texts: dict[str, tuple[str, Stamp | None, str]] = {}
        """Digest of the specification, its file's stamp and text, by job."""

    def changed(self) -> bool:
        """As `Inbox.changed`; False before the first scan."""
        return self._inbox is not None and self._inbox.changed()

    def scan(self, now_s: float) -> FolderReport:
        """Scan the folder once, and write to the store what has changed. Never raises for the
        folder or the store."""
        try:
            everyones = self._store.submissions()
        except StoreError as error:
            return FolderReport(problem=f"the store: {error}")
        own = {job: one for job, one in everyones.items() if one.by == self._by}
        if self._inbox is None:
            claims = {job: one.name for job, one in own.items()}
            self._inbox = Inbox(self._folder, NO_TENANTS, claims, self._presets)
        scan = self._inbox.scan(now_s)
        self._known.update(scan.files.values())
        rejected = [line for bad in scan.rejected for line in bad.problems]
        rejected += self._orphans(everyones, scan)
        submitted: list[str] = []
        withdrawn: list[str] = []
        problem = scan.problem or ""
        try:
            for spec in scan.specs:
                line = self._submit(spec, scan.files[spec.name], everyones, submitted)
                rejected += [line] if line and line not in rejected else []
            for job, one in own.items():
                if self._is_removed(one, scan):
                    self._store.withdraw(job, self._by)
                    withdrawn.append(job)
        except StoreError as error:
            problem = problem or f"the store: {error}"
        self._texts = {job: one for job, one in self._texts.items() if job in scan.files}
        return FolderReport(
            tuple(submitted), tuple(withdrawn), tuple(rejected), problem, scan.next_s
        )

    def _submit(
        self, spec: JobSpec, file: str, everyones: Mapping[str, Submission], submitted: list[str]
    ) -> str:
        """Submit that job if its file has changed; returns why it is rejected, if it is. Raises
        StoreError when the store does not answer."""
        there = everyones.get(spec.name)
        others = there is not None and there.by != self._by
        if there is not None and others and can_withdraw(self._store.nodes(), there.by):
            return f"{file}: the job {spec.name} is already submitted by {there.by}"
        try:
            text = self._text(spec, file)
        except SpecError as error:
            return str(error.problems[0])
        if text is None:
            return ""
        submission = Submission(spec.name, text, self._by, file)
        if submission == there:
            return ""
        try:
            self._store.submit(submission)
        except (NotStorable, StaleRecord) as error:
            return f"{file}: {error}"
        submitted.append(spec.name)
        return ""

    def _text(self, spec: JobSpec, file: str) -> str | None:
        """The file, as it was when that specification was read from it; None: it has just changed.
        Raises SpecError for a file that means something on this host only."""
        stamp = stamp_at(self._folder / file, through_links=False)
        kept = self._texts.get(spec.name)
        if kept is not None and kept[:2] == (spec.digest, stamp):
            return kept[2]
        try:
            if stamp is None:
                return None
            text = read_job_file(self._folder, file, stamp).text
            if carried_spec(text, file, self._presets).digest != spec.digest:
                return None
        except (Moved, OSError, ValueError):
            return None
        self._texts[spec.name] = spec.digest, stamp, text
        return text

    def _is_removed(self, one: Submission, scan: InboxScan) -> bool:
        """Whether the submitted file is truly no longer there."""
        if not scan.settled or one.job in scan.claims:
            return False
        # After a restart the file is unknown: it may have been renamed to one of these.
        unknown = any(bad.job is None for bad in scan.rejected)
        return one.name in self._known or not unknown

    def _orphans(self, everyones: Mapping[str, Submission], scan: InboxScan) -> Iterator[str]:
        """Submissions that no manager can withdraw."""
        others = {job: one.by for job, one in everyones.items() if one.by != self._by}
        if not others:
            return
        try:
            members = self._store.nodes()
        except StoreError:
            return
        for job, by in sorted(others.items()):
            if not can_withdraw(members, by) and job not in scan.claims:
                yield (
                    f"{job}: {by}, which submitted the job, is no longer a manager: put the "
                    "job's file into this folder; to end the job, remove the file again"
                )


class SubmittedJobs:
    """The jobs that the store's submissions ask for: DesiredJobs of the controller.

    Another manager wrote them, so nothing about them is certain. One that cannot be read leaves its
    job as it is: with the specification that it had before, as far as this controller knows it.
    """

    def __init__(self, store: ClusterStore, presets: Presets | None = None) -> None:
        self._store, self._presets = store, presets
        self._read: dict[str, tuple[Submission, str]] = {}
        """The submission that was last read, and what is wrong with it."""
        self._jobs: dict[str, DesiredJob] = {}

    def scan(self, now_s: float) -> Mapping[str, DesiredJob]:
        """Raises StoreError."""
        submissions = self._store.submissions()
        for job in self._read.keys() - submissions.keys():
            del self._read[job]
            self._jobs.pop(job, None)
        for job, one in submissions.items():
            known = self._read.get(job)
            if known is None or known[0] != one:
                self._read[job] = one, self._parse(job, one, now_s)
        return self._jobs

    def unread(self) -> Collection[str]:
        return self.problems().keys()

    def problems(self) -> Mapping[str, str]:
        """What is wrong with a submission, in one line by job."""
        return {job: problem for job, (_, problem) in self._read.items() if problem}

    def _parse(self, job: str, one: Submission, now_s: float) -> str:
        """Returns what is wrong with it; usually nothing."""
        where = plain_text(f"{one.by}:{one.name or job}"[:_LINE_CHARACTERS])
        try:
            spec = carried_spec(one.text, where, self._presets)
        except SpecError as error:
            return plain_text(str(error.problems[0])[:_LINE_CHARACTERS])
        if spec.name != job:
            return f"{where}: the file names the job {shown(spec.name)}, but was submitted as {job}"
        before = self._jobs.get(job)
        arrived_s = now_s if before is None else before.arrived_s
        self._jobs[job] = DesiredJob(spec, arrived_s, one.text)
        return ""


def carried_spec(text: str, file: str, presets: Presets | None) -> JobSpec:
    """The job of a file that has to mean the same on every node. Raises SpecError."""
    return parse_spec(text, file, not_carried, presets=presets)


def not_carried(_name: str) -> str:
    """Reads no env_file: for `parse_spec`. Raises ValueError."""
    raise ValueError("an env_file is not sent to other hosts: write `environment` instead")


def submit_file(
    text: str, file_name: str, folder: Path, store: ClusterStore, by: str, presets: Presets
) -> tuple[JobSpec, str]:
    """Check the text and write it into the folder of the manager `by`; returns the job, and why it
    was not compared with the cluster's jobs, if it was not. Raises SpecError and OSError."""
    silent = ""

    def refusals(spec: JobSpec) -> Iterator[tuple[Place, str]]:
        nonlocal silent
        try:
            there = store.submissions().get(spec.name)
            if there is not None and there.by == by and there.name != file_name:
                if (folder / there.name).is_file():
                    yield ("name",), f"file {there.name} already has a job named {spec.name}"
            elif there and there.by != by and can_withdraw(nodes := store.nodes(), there.by):
                host = nodes[there.by].host or there.by
                yield ("name",), f"manager {host} has submitted a job of that name"
            else:
                store.check(Submission(spec.name, text, by, file_name))
        except (NotStorable, StaleRecord) as error:
            yield ("name",), str(error)
        except StoreError as error:
            silent = str(error)

    spec = submit(text, file_name, folder, refusals, presets, not_carried)
    return spec, silent
