"""The watch folder as the controller wants it: specs in force, and what must be spared.

Owns the rule when a container without a spec is left alone, and the durable record of which file
holds which job's name. It must not read files (`scan` does), nor touch containers.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dlsched.config.inbox.scan import Inbox, InboxScan
from dlsched.config.users import Tenants
from dlsched.control.ledger.desired import Desired
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact
from dlsched.store.jobs import Claim
from dlsched.store.records import Records


class DesiredInFolder:
    """The desired state as one folder says it; used by the loop's thread alone."""

    def __init__(self, inbox: Inbox, folder: Path, claims: Records[Claim] | None = None) -> None:
        """`claims` None: nothing is kept, as in a dry run."""
        self._inbox = inbox
        self._folder = folder
        self._claims = claims
        self._known: set[str] = set()
        """Files that were in force under this agent: when one of them is gone, it was removed."""
        self.next_s: float | None = None
        self._seen: InboxScan | None = None
        self._desired = Desired()
        """What `_seen` says."""

    def use(self, tenants: Tenants) -> None:
        """Other rules for users' files from the next scan on."""
        self._inbox.use(tenants)

    def scan(self, now_s: float) -> Desired:
        """Read the folder; a container is spared while its file may still be there."""
        seen = self._inbox.scan(now_s)
        self.next_s = seen.next_s
        if seen is not self._seen:
            self._known.update(seen.files.values())
            self._seen, self._desired = seen, self._desired_of(seen)
        alarms = [
            Alarm(user, AlarmKey.USER_FOLDER_REFUSED, why) for user, why in seen.closed.items()
        ]
        if seen.trouble is not None:
            alarms.insert(0, Alarm(str(self._folder), AlarmKey.FOLDER_UNREADABLE, seen.trouble))
        if (why := self._keep_claims(seen)) is not None:
            alarms.append(Alarm("claims", AlarmKey.RECORD_NOT_WRITTEN, why))
        return replace(self._desired, alarms=tuple(alarms))

    def _desired_of(self, seen: InboxScan) -> Desired:
        users = any("/" in name for name in seen.files.values())
        return Desired(
            specs={spec.name: spec for spec in seen.specs},
            sources={job: f"{self._folder}/{name}" for job, name in seen.files.items()},
            rejected=seen.rejected,
            spares=lambda fact: self._spared(fact, seen),
            settled=seen.settled and not _rejected(seen, ""),
            claimed=frozenset(seen.claims),
            yields=(lambda fact: _yields(fact, seen)) if users else None,
        )

    def _keep_claims(self, seen: InboxScan) -> str | None:
        """Make durable which file holds which name; returns what is wrong with that.

        After a restart the file that held a name goes before another owner's that came later.
        """
        if self._claims is None:
            return None
        kept = self._claims.all()
        try:
            for job in kept.keys() - seen.claims.keys():
                self._claims.lift(job)
            for job, name in seen.claims.items():
                if job not in kept or kept[job].file != name:
                    self._claims.record(Claim(job, name))
            self._claims.write_again()
        except OSError as error:
            return f"whose a job's name is cannot be recorded: {error}"
        return None

    def _spared(self, fact: ContainerFact, seen: InboxScan) -> str | None:
        """Why the container of a job without a spec is left alone; None: its file was removed."""
        if seen.trouble is not None:
            return seen.trouble
        source = Path(fact.source)
        name = self._name(source)
        if name is None:
            return f"it was started from {source.parent}, not from {self._folder}"
        user = name.rpartition("/")[0]
        if user in seen.closed:
            return seen.closed[user]
        rejected = _rejected(seen, user)
        if name in rejected or fact.job in rejected.values():
            return f"its job file {name} is rejected"
        if name in seen.unsettled:
            return f"its job file {name} is still being read"
        if name in self._known:
            return None
        # A restarted agent has not seen the file: it may have been renamed, and be among these.
        if not seen.settled or user in seen.unsettled_users:
            return "the job files are still being read"
        unknown = sorted(file for file, job in rejected.items() if job is None)
        if unknown:
            return f"its job file {name} is gone, but {unknown[0]} is rejected and may be it"
        return None

    def _name(self, source: Path) -> str | None:
        """A file's name in the folder; None: it is not from here."""
        if source.parent == self._folder:
            return source.name
        if source.parent.parent == self._folder:
            return f"{source.parent.name}/{source.name}"
        return None


def _yields(fact: ContainerFact, seen: InboxScan) -> bool:
    """Whether a user's file names a container that is not from their own folder.

    With the name they would end it, and read its log meanwhile: it is waited for.
    """
    user = seen.files.get(fact.job, "").rpartition("/")[0]
    return user != "" and (fact.adopted is not None or Path(fact.source).parent.name != user)


def _rejected(seen: InboxScan, user: str) -> dict[str, str | None]:
    """Files that are rejected in that subfolder (none: in the folder itself), and their jobs."""
    return {bad.file: bad.job for bad in seen.rejected if bad.file.rpartition("/")[0] == user}
