"""The port of the cluster's store, which decides whose a job is: few small records, each changed by
compare-and-swap only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from dlsched.cluster.core.records import Record, Request, Submission


class StoreError(Exception):
    """The store did not answer: nothing is known about what was to be written."""


class StaleRecord(StoreError):
    """Another controller has changed this record meanwhile."""


class NotStorable(StoreError):
    """This can never be stored, such as a job file that is too long."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node that belongs to the cluster, as the store knows it."""

    name: str
    """Unique, and the name in the node's certificate."""
    up: bool = True
    draining: bool = False
    host: str = ""
    """The host's name, for people; need not be unique."""
    address: str = ""
    """IP address at which its agent listens."""
    labels: Mapping[str, str] = field(default_factory=dict)
    manages: bool = True
    """Whether it is a manager now, and so can withdraw what it has submitted."""


def can_withdraw(members: Mapping[str, Member], by: str) -> bool:
    """Whether what `by` has submitted is still that manager's. Else another may take it over."""
    return by in members and members[by].manages


@dataclass(frozen=True, slots=True)
class Stored:
    record: Record
    version: int


class ClusterStore(Protocol):
    """Every method raises StoreError when there is no answer."""

    def nodes(self) -> Mapping[str, Member]: ...

    def drain(self, node: str, *, on: bool = True) -> None:
        """Let the node's jobs move away, and no other come; or let it take jobs again. It may be so
        already."""

    def leader(self) -> str:
        """The controller that may act."""

    def records(self) -> Mapping[str, Stored]:
        """All records by job."""

    def put(self, record: Record, version: int | None) -> int:
        """Write it over that version, or as the first one (None); returns the new version. Raises
        StaleRecord where the present version is another."""

    def remove(self, job: str, version: int) -> None:
        """Remove that version. Raises StaleRecord where the present version is another."""

    def submissions(self) -> Mapping[str, Submission]:
        """All submissions by job."""

    def check(self, submission: Submission) -> None:
        """Raise what `submit` would raise now, and write nothing."""

    def submit(self, submission: Submission) -> None:
        """Submit a job, or replace a submission of the same manager, or of one that is no longer a
        manager. Raises StaleRecord where another one has submitted a job of that name, NotStorable
        where it is too long."""

    def withdraw(self, job: str, by: str) -> None:
        """Remove that manager's submission, if there is one."""

    def requests(self) -> Sequence[Request]:
        """What people have asked for and is not done yet, in a fixed order."""

    def ask(self, request: Request) -> None:
        """Ask for something, in place of an earlier request of this kind for the same subject."""

    def done(self, request: Request) -> None:
        """Remove exactly that request, if it is there."""


class MemoryStore:
    """A store in memory, for simulations and tests."""

    def __init__(self, members: Sequence[Member], leader: str = "") -> None:
        self.members = {one.name: one for one in members}
        self.leading = leader
        self._records: dict[str, Stored] = {}
        self._version = 0
        self._submissions: dict[str, Submission] = {}
        self._requests: dict[tuple[str, str], Request] = {}

    def nodes(self) -> Mapping[str, Member]:
        return dict(sorted(self.members.items()))

    def drain(self, node: str, *, on: bool = True) -> None:
        if node not in self.members:
            raise StoreError(f"{node} is not a node of the cluster")
        self.members[node] = replace(self.members[node], draining=on)

    def leader(self) -> str:
        return self.leading

    def records(self) -> Mapping[str, Stored]:
        return dict(self._records)

    def put(self, record: Record, version: int | None) -> int:
        self._check(record.job, version)
        self._version += 1
        self._records[record.job] = Stored(record, self._version)
        return self._version

    def remove(self, job: str, version: int) -> None:
        self._check(job, version)
        del self._records[job]

    def submissions(self) -> Mapping[str, Submission]:
        return dict(self._submissions)

    def check(self, submission: Submission) -> None:
        before = self._submissions.get(submission.job)
        others = before is not None and before.by != submission.by
        if before is not None and others and can_withdraw(self.members, before.by):
            raise StaleRecord(
                f"{submission.job}: manager {before.by} has submitted a job of that name"
            )

    def submit(self, submission: Submission) -> None:
        self.check(submission)
        self._submissions[submission.job] = submission

    def withdraw(self, job: str, by: str) -> None:
        if job in self._submissions and self._submissions[job].by == by:
            del self._submissions[job]

    def requests(self) -> Sequence[Request]:
        return [self._requests[key] for key in sorted(self._requests)]

    def ask(self, request: Request) -> None:
        self._requests[request.verb, request.subject] = request

    def done(self, request: Request) -> None:
        if self._requests.get((request.verb, request.subject)) == request:
            del self._requests[request.verb, request.subject]

    def _check(self, job: str, version: int | None) -> None:
        present = self._records.get(job)
        if (present.version if present else None) != version:
            raise StaleRecord(
                f"{job}: another program has changed the job's record: version {version} is no "
                "longer the present one"
            )
