"""The cluster's store in a swarm: one config object for each record, submission and request.

Swarm changes labels of a config by compare-and-swap, takes each name once, and keeps all of it on
a majority of the managers. What a person has edited so that it cannot be read stays as it is, is
reported, and its job is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dlsched.cluster.core.records import Record, Request, Submission
from dlsched.cluster.store import (
    Member,
    NotStorable,
    StaleRecord,
    Stored,
    StoreError,
    can_withdraw,
)
from dlsched.cluster.swarm.calls import Config, SwarmCalls
from dlsched.cluster.swarm.labels import (
    JOB,
    PREFIX,
    RECORDS,
    REQUESTS,
    SUBMISSIONS,
    VALUE,
    Names,
    is_removed,
    name_part,
    read_record,
    read_request,
    read_submission,
    record_labels,
    removed_labels,
    request_labels,
    submission_labels,
)
from dlsched.runtime.docker.engine import Engine

DRAIN = f"{PREFIX}drain"
"""The label of a node from which jobs move away. `docker node update --availability drain` has the
same effect on jobs, and takes services of Swarm away, too."""


_Kind = TypeVar("_Kind", Record, Submission, Request)


@dataclass(slots=True)
class _Read:
    """What the configs say, by job."""

    records: dict[str, Stored] = field(default_factory=dict)
    submissions: dict[str, Submission] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


class SwarmStore:
    """A ClusterStore over one manager's engine. May be used from any thread."""

    def __init__(self, engine: Engine, instance: str) -> None:
        """`engine`: a manager's."""
        self._calls = SwarmCalls(engine)
        self._instance = instance
        self._names = Names(instance)
        self._problems: Mapping[str, str] = {}
        self._request_problems: Mapping[str, str] = {}

    def own_id(self) -> str:
        """The name of the manager itself, which `leader` names while it leads."""
        return self._calls.own_id()

    def leader(self) -> str:
        for node in self._calls.nodes():
            if node.leads:
                return node.id
        raise StoreError("no manager of the swarm leads")

    def problems(self) -> Mapping[str, str]:
        """What cannot be read, in one line, by job; of the last reading. These jobs are in neither
        `records` nor `submissions`."""
        return {**self._request_problems, **self._problems}

    # ------------------------------------------------------------------ nodes

    def nodes(self) -> Mapping[str, Member]:
        return {
            node.id: Member(
                node.id,
                up=node.is_ready,
                draining=node.availability == "drain" or DRAIN in node.labels,
                host=node.host,
                address=node.address,
                labels=node.labels,
                manages=node.manages,
            )
            for node in sorted(self._calls.nodes(), key=lambda one: one.id)
        }

    def managers(self) -> Mapping[str, bool]:
        """The managers, and whether the others reach them."""
        return {node.id: node.reachable for node in self._calls.nodes() if node.manages}

    def drain(self, node: str, *, on: bool = True) -> None:
        """Raises StaleRecord where something else has changed the node meanwhile, StoreError where
        it is to take jobs again and Swarm itself drains it."""
        found = next((one for one in self._calls.nodes() if one.id == node), None)
        if found is None:
            raise StoreError(f"{node} is not a node of the swarm")
        labels = {key: value for key, value in found.labels.items() if key != DRAIN}
        if on:
            labels[DRAIN] = "true"
        if labels != found.labels:
            self._calls.relabel_node(found, labels)
        if not on and found.availability == "drain":
            raise StoreError(
                f"{node} is drained by Docker Swarm, too: run `docker node update --availability "
                f"active {node}`"
            )

    # ------------------------------------------------------------------ records

    def records(self) -> Mapping[str, Stored]:
        return self._read().records

    def put(self, record: Record, version: int | None) -> int:
        job, name = record.job, self._names.of(RECORDS, record.job)
        labels = record_labels(record, self._instance)
        if version is None:
            self._create(job, name, labels)
        else:
            before = self._present(job, version)
            self._calls.relabel(before, labels)
        return self._written(job, name, labels)

    def remove(self, job: str, version: int) -> None:
        """A config is removed whatever its version, so it is marked first, by its version."""
        before = self._present(job, version)
        self._calls.relabel(before, removed_labels(job, self._instance))
        self._calls.remove(before)

    def _create(self, job: str, name: str, labels: Mapping[str, str]) -> None:
        try:
            self._calls.create(name, labels)
        except StaleRecord as error:
            before = self._calls.config(name)
            if before is None or not self._is_removed(before):
                raise StaleRecord(
                    f"{job}: its record was not written, as another controller has just created "
                    f"it; the next round reads that one ({error})"
                ) from error
            # Its remover did not come to the end.
            self._calls.remove(before)
            self._calls.create(name, labels)

    def _present(self, job: str, version: int) -> Config:
        """The job's config, which must have this version. Raises StaleRecord."""
        found = self._calls.config(self._names.of(RECORDS, job))
        if found is None or found.version != version:
            raise StaleRecord(
                f"{job}: another program has changed the job's record: version {version} is no "
                "longer the present one"
            )
        self._record(found)
        return found

    def _written(self, job: str, name: str, labels: Mapping[str, str]) -> int:
        """The version of what was just written: the engine's answer does not say it."""
        found = self._calls.config(name)
        if found is None or any(found.labels.get(key) != labels[key] for key in labels):
            raise StaleRecord(f"{job}: another program replaced the record just written")
        return found.version

    # ------------------------------------------------------------------ submissions

    def submissions(self) -> Mapping[str, Submission]:
        return self._read().submissions

    def check(self, submission: Submission) -> None:
        """Raises NotStorable for a job file that is too long."""
        self._checked_submission(submission)

    def submit(self, submission: Submission) -> None:
        """Raises NotStorable for a job file that is too long."""
        labels, found = self._checked_submission(submission)
        if found is None:
            self._calls.create(self._names.of(SUBMISSIONS, submission.job), labels)
        elif found.labels.get(VALUE) != labels[VALUE]:
            # Labels, not data: a config with other data is another one, and in the moment between
            # the two the job would not be desired.
            self._calls.relabel(found, labels)

    def _checked_submission(self, submission: Submission) -> tuple[dict[str, str], Config | None]:
        """Its labels, and the present config of that name."""
        job = submission.job
        try:
            labels = submission_labels(submission, self._instance)
        except ValueError as error:
            raise NotStorable(f"{job}: {error}") from error
        found = self._calls.config(self._names.of(SUBMISSIONS, job))
        by = submission.by if found is None else self._submission(found).by
        if by != submission.by and can_withdraw(self.nodes(), by):
            raise StaleRecord(f"{job}: manager {by} has submitted a job of that name")
        return labels, found

    def withdraw(self, job: str, by: str) -> None:
        found = self._calls.config(self._names.of(SUBMISSIONS, job))
        if found is not None and self._submission(found).by == by:
            self._calls.remove(found)

    # ------------------------------------------------------------------ requests

    def requests(self) -> Sequence[Request]:
        """Those that can be read; the others are among the problems, by the config's name."""
        found, problems = [], {}
        for config in sorted(
            self._calls.configs(self._names.start(REQUESTS)), key=lambda config: config.name
        ):
            try:
                found.append(self._request(config))
            except StaleRecord as problem:
                problems[config.name] = str(problem)
        self._request_problems = problems
        return found

    def ask(self, request: Request) -> None:
        name, labels = self._names.request(request), request_labels(request, self._instance)
        found = self._calls.config(name)
        if found is None:
            self._calls.create(name, labels)
        elif self._request(found) != request:
            self._calls.relabel(found, labels)

    def done(self, request: Request) -> None:
        found = self._calls.config(self._names.request(request))
        if found is not None and self._request(found) == request:
            self._calls.remove(found)

    def _request(self, config: Config) -> Request:
        """Raises StaleRecord for one that cannot be read."""
        return self._checked(config, read_request, self._names.request)

    # ------------------------------------------------------------------ reading

    def _read(self) -> _Read:
        """Everything in one call: a job of which one half cannot be read is left out whole, lest it
        count as no longer desired, or as not yet placed."""
        read, names = _Read(), self._names
        unread = set()
        for config in self._calls.configs(names.prefix):
            try:
                if config.name.startswith(names.start(SUBMISSIONS)):
                    submission = self._submission(config)
                    read.submissions[submission.job] = submission
                elif config.name.startswith(names.start(RECORDS)) and not self._is_removed(config):
                    record = self._record(config)
                    read.records[record.job] = Stored(record, config.version)
            except StaleRecord as problem:
                job, part = config.labels.get(JOB, ""), _end_of(config.name, names)
                read.problems[job if name_part(job) == part else part] = str(problem)
                unread.add(part)
        for jobs in (read.records, read.submissions):
            for job in [job for job in jobs if name_part(job) in unread]:
                del jobs[job]
        self._problems = read.problems
        return read

    def _is_removed(self, config: Config) -> bool:
        return is_removed(config.labels, self._instance)

    def _record(self, config: Config) -> Record:
        """Raises StaleRecord for one that cannot be read."""
        return self._checked(config, read_record, lambda one: self._names.of(RECORDS, one.job))

    def _submission(self, config: Config) -> Submission:
        """Raises StaleRecord for one that cannot be read."""
        return self._checked(
            config, read_submission, lambda one: self._names.of(SUBMISSIONS, one.job)
        )

    def _checked(
        self,
        config: Config,
        read: Callable[[Mapping[str, str], str], _Kind],
        name_of: Callable[[_Kind], str],
    ) -> _Kind:
        try:
            found = read(config.labels, self._instance)
        except ValueError as error:
            raise StaleRecord(f"config {config.name} is not touched: {error}") from error
        if config.name != name_of(found):
            raise StaleRecord(
                f"config {config.name} is not touched: its labels name another config"
            )
        return found


def _end_of(name: str, names: Names) -> str:
    for start in (names.start(RECORDS), names.start(SUBMISSIONS)):
        if name.startswith(start):
            return name.removeprefix(start)
    return name
