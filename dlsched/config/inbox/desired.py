"""The watch folder's desired state: specs to run, containers to spare, owners of job names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dlsched.config.inbox.scan import Inbox, InboxScan
from dlsched.config.metrics.resolving import Presets
from dlsched.config.users import Tenants
from dlsched.control.ledger.desired import Desired
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact
from dlsched.store.jobs import NameClaim
from dlsched.store.records import Records


class DesiredFolder:
    """The desired state of one folder; only for the loop's thread."""

    def __init__(
        self, inbox: Inbox, folder: Path, claims: Records[NameClaim] | None = None
    ) -> None:
        """`claims` None: nothing is recorded, as in a dry run."""
        self._inbox = inbox
        self._folder = folder
        self._claims = claims
        self._known: set[tuple[str, str]] = set()
        """Jobs that this agent has applied, by subfolder and name: the file of one that is now gone
        was removed. Kept while the job has a file or a container, as names can be changed for
        ever."""
        self._asked: set[tuple[str, str]] = set()
        """Those of them whose container was asked about since the folder changed."""
        self.next_s: float | None = None
        self._scanned: InboxScan | None = None
        self._desired = Desired()
        """The result of `_scanned`."""

    def use(self, tenants: Tenants, presets: Presets | None) -> None:
        """As `Inbox.use`."""
        self._inbox.use(tenants, presets)

    def changed(self) -> bool:
        """As `Inbox.changed`."""
        return self._inbox.changed()

    def scan(self, now_s: float) -> Desired:
        """Scan the folder; a container is spared while its file may still be there."""
        scan = self._inbox.scan(now_s)
        self.next_s = scan.next_s
        if scan is not self._scanned:
            last = _applied(self._scanned) if self._scanned is not None else set()
            self._known = last | self._asked | _applied(scan)
            self._asked = set()
            self._scanned, self._desired = scan, self._desired_of(scan)
        alarms = [
            Alarm(user, AlarmKey.USER_FOLDER_REFUSED, why) for user, why in scan.closed.items()
        ]
        if scan.problem is not None:
            alarms.insert(0, Alarm(str(self._folder), AlarmKey.FOLDER_UNREADABLE, scan.problem))
        if (why := self._keep_claims(scan)) is not None:
            alarms.append(Alarm("claims", AlarmKey.RECORD_NOT_WRITTEN, why))
        return replace(self._desired, alarms=tuple(alarms))

    def _desired_of(self, scan: InboxScan) -> Desired:
        users = any("/" in name for name in scan.files.values())
        return Desired(
            specs={spec.name: spec for spec in scan.specs},
            sources={job: f"{self._folder}/{name}" for job, name in scan.files.items()},
            rejected=scan.rejected,
            spares=lambda fact: self._spared(fact, scan),
            settled=scan.settled and not _rejected(scan, ""),
            claimed=frozenset(scan.claims),
            yields=lambda fact: bool(users) and self._yields(fact, scan),
        )

    def _keep_claims(self, scan: InboxScan) -> str | None:
        """Record which file owns which name, for after a restart; returns what went wrong, if
        anything."""
        if self._claims is None:
            return None
        kept = self._claims.all()
        try:
            for job in kept.keys() - scan.claims.keys():
                self._claims.lift(job)
            for job, name in scan.claims.items():
                if job not in kept or kept[job].file != name:
                    self._claims.record(NameClaim(job, name))
            self._claims.write_again()
        except OSError as error:
            return f"which file owns a job's name cannot be recorded: {error}"
        return None

    def _spared(self, fact: ContainerFact, scan: InboxScan) -> str | None:
        """Why the container of a job without a spec is left alone; None: its file was removed."""
        if scan.problem is not None:
            return scan.problem
        source = Path(fact.source)
        name = self._name(source)
        if name is None:
            return f"its job file was in {source.parent}, but the watch folder is {self._folder}"
        user = name.rpartition("/")[0]
        applied = (user, fact.job) in self._known
        if applied:
            self._asked.add((user, fact.job))
        if user in scan.closed:
            return scan.closed[user]
        rejected = _rejected(scan, user)
        if name in rejected or fact.job in rejected.values():
            return f"its job file {name} is rejected"
        if name in scan.unsettled:
            return f"its job file {name} is still being read"
        if applied:
            return None
        # After a restart the file is unknown: it may have been renamed to one of these.
        if not scan.settled or user in scan.unsettled_users:
            return "not all job files have been read yet"
        unknown = sorted(file for file, job in rejected.items() if job is None)
        if unknown:
            return (
                f"its job file {name} is gone, but the rejected file {unknown[0]} may be the same "
                "job"
            )
        return None

    def _yields(self, fact: ContainerFact, scan: InboxScan) -> bool:
        """Whether a user's file names a container that is not from the user's folder. Taking the
        name would let the user end that job and read its log, so the file waits. A subfolder may
        have the name of another watch folder: the whole path counts."""
        user = scan.files.get(fact.job, "").rpartition("/")[0]
        folder = Path(fact.source).parent
        return user != "" and (fact.adopted is not None or folder != self._folder / user)

    def _name(self, source: Path) -> str | None:
        """A file's name relative to the folder; None: it lies elsewhere."""
        if source.parent == self._folder:
            return source.name
        if source.parent.parent == self._folder:
            return f"{source.parent.name}/{source.name}"
        return None


def _applied(scan: InboxScan) -> set[tuple[str, str]]:
    """By subfolder and name, the jobs with a file."""
    return {(name.rpartition("/")[0], job) for job, name in scan.files.items()}


def _rejected(scan: InboxScan, user: str) -> dict[str, str | None]:
    """Rejected files of that subfolder (empty: the folder itself), with their jobs."""
    return {bad.file: bad.job for bad in scan.rejected if bad.file.rpartition("/")[0] == user}
