"""The watch folder: which job files are there, which of them are in force, and why others are not.

Owns the rule when a file is taken, kept, refused or gone, and which of two owners has a job's name.
Time comes in as a number, so that every case can be played through; it must not sleep, nor know
containers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlsched.config.inbox.check import Beside, judge
from dlsched.config.inbox.files import Listing, Moved, Stamp, list_files, read_job_file
from dlsched.config.users import NOBODY, Tenants
from dlsched.config.yaml import SIZE_MAX_BYTES
from dlsched.model.cycle import RejectedFile
from dlsched.model.errors import SpecError
from dlsched.model.spec import JobSpec

_SCAN_BYTES, _FILE_BYTES = 128 * 1024, 1024
"""At most so much is read in one scan, each file counted with so much beside its content: more
would hold up the loop. The rest is read by the scans after it, which come at once."""

_USER_BYTES_PER_S, _USER_FILE_BYTES = 64 * 1024, 8 * 1024
"""The same for each user's subfolder, by time: reading it must not cost the others their loop."""


@dataclass(frozen=True, slots=True)
class InboxScan:
    """What the folder wishes for at one moment."""

    specs: tuple[JobSpec, ...] = ()
    """The jobs in force, by name."""
    files: Mapping[str, str] = field(default_factory=dict)
    """File name by job name."""
    rejected: tuple[RejectedFile, ...] = ()
    trouble: str | None = None
    """Why the folder cannot be listed; nothing counts as removed then."""
    unsettled: tuple[str, ...] = ()
    """Files that just came, changed or went: what they ask for is not known yet."""
    settled: bool = False
    """Whether a job of the operator without a file is truly not wished for: the folder was readable
    for `gone_s`, and no file directly in it is unsettled. Look at `rejected` beside it."""
    unsettled_users: frozenset[str] = frozenset()
    """Subfolders of which the same cannot be said."""
    closed: Mapping[str, str] = field(default_factory=dict)
    """Subfolders that cannot be read, and why."""
    claims: Mapping[str, str] = field(default_factory=dict)
    """File name by job name: also of files that hold a name, but are not in force now."""
    next_s: float | None = None
    """When to look again because something is not yet settled."""
    changed: bool = False
    """Whether anything above but `next_s` differs from the scan before."""


@dataclass(slots=True)
class _File:
    """What is remembered of one file name."""

    stamp: Stamp
    since_s: float
    settled: bool = False
    """Whether the content of this stamp was read."""
    barred: bool = False
    """Not readable, so not settled; tried again at every scan."""
    beside: Beside | None = None
    """The env_files that the content names, as they were when they were read."""
    offered: JobSpec | None = None
    """What the latest content asks for; None: it is wrong."""
    held: JobSpec | None = None
    """What is in force from this file."""
    claim: str | None = None
    """The job that is this file's; nobody else's takes its name while the file is there."""
    problems: tuple[str, ...] = ()
    missing_since_s: float | None = None

    @property
    def unsettled(self) -> bool:
        """Whether time alone will tell more of it."""
        return self.missing_since_s is not None or not (self.settled or self.barred)


@dataclass(slots=True)
class _User:
    """What is remembered of one user's subfolder."""

    since_s: float
    """Since when it can be read."""
    rests_until_s: float = 0.0
    """When the next of its files may be read."""


class Inbox:
    """Turns listings of the folder into the wish in force; one thread only.

    A file is taken once its stamp stood still for `quiet_s` and counts as removed once it was
    missing from a readable folder for `gone_s`. What is wrong with a file never ends the job that
    came from its content before. The holder of a job name keeps it as long as its file asks for it.
    """

    def __init__(
        self,
        folder: Path,
        tenants: Tenants = NOBODY,
        claims: Mapping[str, str] | None = None,
        *,
        quiet_s: float = 0.1,
        gone_s: float = 0.5,
    ) -> None:
        """`claims` are those of the scan before this agent began: file name by job name."""
        self._folder = folder
        self._tenants = tenants
        self._quiet_s = quiet_s
        self._gone_s = gone_s
        self._before = {file: job for job, file in (claims or {}).items()}
        self._files: dict[str, _File] = {}
        self._readable_since_s: float | None = None
        self._users: dict[str, _User] = {}
        self._closed: Mapping[str, str] = {}
        self._lost: Mapping[str, str] = {}
        """Files that did not get the job's name that they ask for, and who has it."""
        self._last = InboxScan()
        self._still: Listing | None = None
        """What was listed when nothing was left to be done, nor to be waited for."""

    def use(self, tenants: Tenants) -> None:
        """Other rules from the next scan on: every file is judged again."""
        self._tenants = tenants
        self._still = None
        for known in self._files.values():
            known.settled = known.barred = False

    def scan(self, now_s: float) -> InboxScan:
        """Look at the folder once. Never raises for what is in it, or for its absence."""
        trouble: str | None = None
        try:
            # Users' jobs of before must not count as gone because the settings no longer name them.
            known = any(_user(name) for name in (*self._files, *self._before))
            listing = list_files(self._folder, users=self._tenants.any or known)
        except OSError as error:
            trouble = f"{self._folder} cannot be listed: {error.strerror or error}"
            self._readable_since_s = None
            self._users.clear()
            for file in self._files.values():
                file.missing_since_s = None
        else:
            if listing == self._still and not self._beside_changed():
                return self._last
            if self._readable_since_s is None:
                self._readable_since_s = now_s
            self._closed = listing.closed
            self._users = {
                name: self._users.get(name) or _User(now_s) for name in sorted(listing.users)
            }
            self._follow(listing, now_s)
            self._settle(now_s)
        lost = self._assign()
        scan = self._report(trouble, lost, now_s)
        changed = scan != self._last
        self._last = scan
        next_s = min(self._due(now_s), default=None)
        quiet = trouble is None and next_s is None and scan.settled and not self._is_restless(scan)
        self._still = listing if quiet else None
        return replace(scan, next_s=next_s, changed=changed)

    def _beside_changed(self) -> bool:
        besides = [known.beside for known in self._files.values() if known.beside is not None]
        return any(beside.changed for beside in besides)

    def _is_restless(self, scan: InboxScan) -> bool:
        """Whether the same files may mean something else at the next scan."""
        waits = bool(scan.unsettled or scan.unsettled_users or self._before)
        return waits or any(known.barred for known in self._files.values())

    def _follow(self, listing: Listing, now_s: float) -> None:
        for name, stamp in listing.stamps.items():
            known = self._files.get(name)
            if known is None:
                self._files[name] = _File(stamp, now_s, claim=self._before.pop(name, None))
            elif known.stamp != stamp:
                known.stamp, known.since_s = stamp, now_s
                known.settled = known.barred = False
            elif known.beside is not None and known.beside.changed:
                known.since_s, known.settled, known.beside = now_s, False, None
        if self._settled_since(now_s):
            # What is not there by now went while no agent ran.
            for name in [name for name in self._before if _user(name) not in listing.closed]:
                del self._before[name]
        for name, known in list(self._files.items()):
            if name in listing.stamps or _user(name) in listing.closed:
                known.missing_since_s = None
            elif known.missing_since_s is None:
                known.missing_since_s = now_s
            elif now_s >= known.missing_since_s + self._gone_s:
                del self._files[name]

    def _settle(self, now_s: float) -> None:
        due = [
            (known.since_s, name)
            for name, known in self._files.items()
            if now_s >= known.since_s + self._quiet_s
            and not known.settled
            and known.missing_since_s is None
        ]
        room_bytes = _SCAN_BYTES
        # The longest unread first, so that no file that changes all the time keeps others waiting.
        for _, name in sorted(due):
            if room_bytes <= 0:
                break
            known = self._files[name]
            size_bytes = known.stamp[1] if known.stamp[1] <= SIZE_MAX_BYTES else 0
            user = self._users.get(_user(name))
            if user is not None:
                if now_s < user.rests_until_s:
                    continue
                user.rests_until_s = now_s + (_USER_FILE_BYTES + size_bytes) / _USER_BYTES_PER_S
            room_bytes -= _FILE_BYTES + size_bytes
            try:
                file = read_job_file(self._folder, name, known.stamp)
            except Moved:
                known.since_s = now_s
                continue
            except OSError as error:
                # Not settled: a file that may not be read now may be at the next scan.
                known.offered, known.problems = None, (f"{name}: cannot be read: {error.strerror}",)
                known.barred = True
                continue
            except ValueError as error:
                known.offered, known.problems = None, (f"{name}: {error}",)
            except SpecError as error:
                known.offered, known.problems = None, tuple(str(one) for one in error.problems)
            else:
                judged = judge(self._folder, name, file, self._tenants)
                known.offered, known.problems = judged.spec, judged.problems
                seen = judged.beside is not None and judged.beside.seen
                known.beside = judged.beside if seen else None
                if judged.beside is not None:
                    room_bytes -= judged.beside.size_bytes
                    if user is not None:
                        user.rests_until_s += judged.beside.size_bytes / _USER_BYTES_PER_S
            known.settled = True

    def _assign(self) -> dict[str, str]:
        """Settle who holds which job name; returns, for each file that lost, whose it is.

        A file that cannot have what it asks for keeps what it held, which may in turn keep another
        file from its wish: so until nothing more is lost. Names held before this agent began are
        kept for files that are not read yet, or are wrong now, or lie where nobody can look.
        """
        lost: dict[str, str] = {}
        while True:
            claims: dict[str, list[str]] = {job: [file] for file, job in self._before.items()}
            for name in sorted(self._files):
                claim = self._claim(name, lost)
                if claim is not None:
                    claims.setdefault(claim, []).append(name)
            clashes = [(job, names) for job, names in claims.items() if len(names) > 1]
            if not clashes:
                break
            for job, names in clashes:
                holders = [name for name in names if self._holds(name, job)]
                winner = min(holders or names, key=self._succession)
                lost |= {name: winner for name in names if name != winner}
        for name, known in self._files.items():
            known.held, known.claim = self._wish(name, lost), self._claim(name, lost)
        self._lost = lost
        return lost

    def _succession(self, name: str) -> tuple[bool, bool, str]:
        """Who comes first where nobody holds a job's name, or not any more.

        A file that lay in wait for it does not get it from a holder that is just being renamed:
        what is in the holder's own folder goes before, and the operator's before a user's.
        """
        lay_in_wait = _user(self._lost.get(name, name)) != _user(name)
        return lay_in_wait, _user(name) != "", name

    def _holds(self, name: str, job: str) -> bool:
        known = self._files.get(name)
        return known is None or job in (_name(known.held), known.claim)

    def _claim(self, name: str, lost: Mapping[str, str]) -> str | None:
        """The job name that is this file's; a file without a wish keeps the one that it had."""
        wish = self._wish(name, lost)
        return self._files[name].claim if wish is None else wish.name

    def _wish(self, name: str, lost: Mapping[str, str]) -> JobSpec | None:
        known = self._files[name]
        return known.held if name in lost or known.offered is None else known.offered

    def _report(self, trouble: str | None, lost: Mapping[str, str], now_s: float) -> InboxScan:
        in_force = sorted(
            ((known.held, name) for name, known in self._files.items() if known.held),
            key=lambda pair: pair[0].name,
        )
        rejected: list[RejectedFile] = []
        for name, known in sorted(self._files.items()):
            held = _name(known.held)
            if known.offered is None and known.problems:
                rejected.append(RejectedFile(name, held, known.problems))
            elif name in lost and known.offered is not None:
                first = self._files.get(lost[name])
                # The holder may just be under its way to this very name.
                if first is None or first.missing_since_s is None:
                    what = f"{name}: the job {known.offered.name} is already that of {lost[name]}"
                    rejected.append(RejectedFile(name, held, (what,)))
        unsettled = tuple(sorted(name for name, known in self._files.items() if known.unsettled))
        restless = {_user(name) for name in unsettled}
        restless |= {
            name for name, user in self._users.items() if now_s < user.since_s + self._gone_s
        }
        return InboxScan(
            specs=tuple(spec for spec, _ in in_force),
            files={spec.name: name for spec, name in in_force},
            rejected=tuple(rejected),
            trouble=trouble,
            unsettled=unsettled,
            settled="" not in restless and self._settled_since(now_s),
            unsettled_users=frozenset(restless - {""}),
            closed=dict(self._closed),
            claims={
                **{job: file for file, job in self._before.items()},
                **{known.claim: name for name, known in self._files.items() if known.claim},
            },
        )

    def _settled_since(self, now_s: float) -> bool:
        since_s = self._readable_since_s
        return since_s is not None and now_s >= since_s + self._gone_s

    def _due(self, now_s: float) -> Iterator[float]:
        if self._readable_since_s is None:
            return
        if now_s < self._readable_since_s + self._gone_s:
            yield self._readable_since_s + self._gone_s
        for name, known in self._files.items():
            if _user(name):
                # A user's files are looked at once a cycle: nobody makes the loop run faster.
                continue
            if known.missing_since_s is not None:
                yield known.missing_since_s + self._gone_s
            elif known.unsettled:
                yield known.since_s + self._quiet_s


def _name(spec: JobSpec | None) -> str | None:
    return spec.name if spec else None


def _user(name: str) -> str:
    """The subfolder that a file is in; empty for the operator's."""
    return name.rpartition("/")[0]
