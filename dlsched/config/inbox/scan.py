"""Scans the watch folder: which job files apply, why others do not, which file owns a job name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlsched.config.inbox.files import (
    FolderListing,
    JobFile,
    Moved,
    Stamp,
    beside_reader,
    is_operator,
    list_files,
    read_job_file,
    stamp_at,
)
from dlsched.config.job import ENV_FILE_MAX_BYTES, env_file_reader, parse_spec
from dlsched.config.metrics.resolving import Presets
from dlsched.config.text import SIZE_MAX_BYTES
from dlsched.config.users import NO_TENANTS, Rules, Tenants, owner_of, refusals
from dlsched.config.yaml import Path as Place
from dlsched.model.cycle import RejectedFile
from dlsched.model.errors import SpecError
from dlsched.model.spec import JobSpec

_USER_PROBLEMS = 5
"""Reported of a user's file at most; `dlsched check` reports all."""


class EnvFiles:
    """Reads env_files and remembers their stamps, to notice changes."""

    def __init__(self, folder: Path, read: Callable[[str], str], *, anywhere: bool) -> None:
        """`anywhere`: names may lead out of the folder, also through links."""
        self._folder = folder
        self._read = read
        self._anywhere = anywhere
        self._stamps: dict[str, Stamp | None] = {}
        self.size_bytes = 0
        """Bytes read so far, which count towards the scan's budget."""

    def __call__(self, name: str) -> str:
        if self._anywhere or "/" not in name:
            self._stamps[name] = self._stamp(name)
        content = self._read(name)
        self.size_bytes += len(content)
        return content

    @property
    def watched(self) -> bool:
        """Whether there is any file that can change."""
        return bool(self._stamps)

    @property
    def changed(self) -> bool:
        """Whether any file changed since it was read."""
        return any(self._stamp(name) != stamp for name, stamp in self._stamps.items())

    def _stamp(self, name: str) -> Stamp | None:
        return stamp_at(self._folder / name, through_links=self._anywhere)


@dataclass(frozen=True, slots=True)
class Judged:
    """The job, or its problems, a line each."""

    spec: JobSpec | None
    problems: tuple[str, ...]
    env_files: EnvFiles


def judge(
    folder: Path, name: str, file: JobFile, tenants: Tenants, presets: Presets | None = None
) -> Judged:
    """Check that file of the watch folder by the rules of its owner."""
    rules: Rules | None = None
    if is_operator(file.owner):
        env_files = EnvFiles(folder, env_file_reader(folder), anywhere=True)
    else:
        within = (folder / name).parent
        reader = beside_reader(within, file.owner, ENV_FILE_MAX_BYTES)
        env_files = EnvFiles(within, reader, anywhere=False)
        rules = tenants.rules_of(file.owner)
        if rules is None:
            what = f"belongs to uid {file.owner}, for whom the setting `tenants` has no rules"
            return Judged(None, (f"{name}: {what}",), env_files)

    def refused(spec: JobSpec) -> Iterable[tuple[Place, str]]:
        return () if rules is None else refusals(spec, rules, owner_of(file.owner))

    try:
        spec = parse_spec(file.text, name, env_files, refused, presets)
    except SpecError as error:
        problems = tuple(str(problem) for problem in error.problems)
        if rules is not None and len(problems) > _USER_PROBLEMS:
            more = f"{name}: {len(problems) - _USER_PROBLEMS} more problems: see `dlsched check`"
            problems = (*problems[:_USER_PROBLEMS], more)
        return Judged(None, problems, env_files)
    return Judged(replace(spec, owner=file.owner), (), env_files)


_SCAN_BYTES, _FILE_BYTES = 128 * 1024, 1024
"""Bytes read in one scan at most, and the cost counted for each file. The next scans, which follow
immediately, read the rest."""

_USER_BYTES_PER_S, _USER_FILE_BYTES = 64 * 1024, 8 * 1024
"""The same for each user's subfolder, by time, so that no user can slow the loop."""


_QUIET_S, _GONE_S = 0.1, 0.5
"""Time without a change until a file is read, and of absence until it counts as removed."""


@dataclass(frozen=True, slots=True)
class InboxScan:
    """The folder's desired state at one moment."""

    specs: tuple[JobSpec, ...] = ()
    """The jobs that apply, sorted by name."""
    files: Mapping[str, str] = field(default_factory=dict)
    """File name by job name."""
    rejected: tuple[RejectedFile, ...] = ()
    problem: str | None = None
    """Why the folder cannot be listed; then no file counts as removed."""
    unsettled: tuple[str, ...] = ()
    """Files that have just appeared, changed or vanished: not read yet."""
    settled: bool = False
    """Whether a job without a file of the operator's is truly not desired: the folder was readable
    for half a second, and no file directly in it is unsettled. See `rejected`, too."""
    unsettled_users: frozenset[str] = frozenset()
    """Subfolders that are not settled."""
    closed: Mapping[str, str] = field(default_factory=dict)
    """Subfolders that cannot be read, and why."""
    claims: Mapping[str, str] = field(default_factory=dict)
    """File name by job name, also of files that own a name but do not apply now."""
    next_s: float | None = None
    """When the next scan is due because of an unsettled file."""


@dataclass(slots=True)
class _File:
    """The state of one file name."""

    stamp: Stamp
    since_s: float
    settled: bool = False
    """Whether the content with this stamp was read."""
    barred: bool = False
    """Not readable, so not settled; every scan retries."""
    env_files: EnvFiles | None = None
    offered: JobSpec | None = None
    """The spec in the latest content; None: it is invalid."""
    held: JobSpec | None = None
    """The spec of this file that applies."""
    claim: str | None = None
    """The job name that this file owns while it exists."""
    problems: tuple[str, ...] = ()
    missing_since_s: float | None = None

    @property
    def unsettled(self) -> bool:
        """Whether it needs another scan."""
        return self.missing_since_s is not None or not (self.settled or self.barred)


@dataclass(slots=True)
class _User:
    """The state of one user's subfolder."""

    since_s: float
    """Since when it is readable."""
    rests_until_s: float = 0.0
    """When its next file may be read."""


class Inbox:
    """Turns listings of the folder into the desired state; one thread only.

    A file is read once its stamp has not changed for a tenth of a second, and counts as removed
    once it was missing from a readable folder for half a second. An invalid file never ends the job
    of its earlier content. The owner of a job name keeps it while its file asks for it.
    """

    def __init__(
        self,
        folder: Path,
        tenants: Tenants = NO_TENANTS,
        claims: Mapping[str, str] | None = None,
        presets: Presets | None = None,
        *,
        wall_s: Callable[[], float] | None = None,
    ) -> None:
        """`claims`: file name by job name, as of this agent's predecessor's last scan.
        `presets`: those that files may name; None: those of the package. `wall_s`: unix seconds, so
        that files which are old at the first scan are read in it."""
        self._folder = folder
        self._presets = presets
        self._tenants = tenants
        self._wall_s = wall_s
        self._before = {file: job for job, file in (claims or {}).items()}
        self._files: dict[str, _File] = {}
        self._readable_since_s: float | None = None
        self._users: dict[str, _User] = {}
        self._closed: Mapping[str, str] = {}
        self._lost: Mapping[str, str] = {}
        """Files whose job name another file owns, and that file."""
        self._last = InboxScan()
        self._still: FolderListing | None = None
        """The listing of the last scan that left nothing to do or to wait for."""
        self._stamps: Mapping[str, Stamp] | None = None
        """The operator's files in the last listing; None: the folder could not be listed."""

    def use(self, tenants: Tenants, presets: Presets | None = None) -> None:
        """Apply other rules, and presets (None: the same as before), from the next scan on: every
        file is checked again."""
        self._tenants = tenants
        self._presets = presets or self._presets
        self._still = None
        for known in self._files.values():
            known.settled = known.barred = False

    def scan(self, now_s: float) -> InboxScan:
        """Scan the folder once. Never raises for its content or absence."""
        problem: str | None = None
        self._stamps = None
        try:
            # Users' jobs must not count as removed because the settings no longer name the users.
            known = any(_user(name) for name in (*self._files, *self._before))
            listing = list_files(self._folder, users=self._tenants.any or known)
        except OSError as error:
            problem = f"{self._folder} cannot be listed: {error.strerror or error}"
            if isinstance(error, FileNotFoundError):
                problem += f" (`mkdir -p {self._folder}`, or `--watch` another folder)"
            self._readable_since_s = None
            self._users.clear()
            for file in self._files.values():
                file.missing_since_s = None
        else:
            self._stamps = {name: one for name, one in listing.stamps.items() if not _user(name)}
            if listing == self._still and not self._env_files_changed():
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
        self._last = scan = self._report(problem, lost, now_s)
        next_s = min(self._due(now_s), default=None)
        quiet = problem is None and next_s is None and scan.settled and not self._is_restless(scan)
        self._still = listing if quiet else None
        return replace(scan, next_s=next_s)

    def changed(self) -> bool:
        """Whether a file of the operator's has changed since the last scan, or call of this. Users'
        files wait for the next scan, so that no user makes the loop run faster."""
        before = self._stamps
        try:
            self._stamps = list_files(self._folder).stamps
        except OSError:
            self._stamps = None
        return self._stamps != before

    def _env_files_changed(self) -> bool:
        return any(one.env_files and one.env_files.changed for one in self._files.values())

    def _is_restless(self, scan: InboxScan) -> bool:
        """Whether the same files may have another meaning at the next scan."""
        waits = bool(scan.unsettled or scan.unsettled_users or self._before)
        return waits or any(known.barred for known in self._files.values())

    def _follow(self, listing: FolderListing, now_s: float) -> None:
        for name, stamp in listing.stamps.items():
            known = self._files.get(name)
            if known is None:
                old_s = self._unchanged_s(stamp) if self._readable_since_s == now_s else 0.0
                claim = self._before.pop(name, None)
                self._files[name] = _File(stamp, now_s - old_s, claim=claim)
            elif known.stamp != stamp:
                known.stamp, known.since_s = stamp, now_s
                known.settled = known.barred = False
            elif known.env_files is not None and known.env_files.changed:
                known.since_s, known.settled, known.env_files = now_s, False, None
        if self._settled_since(now_s):
            # Files missing by now were removed while no agent ran.
            for name in [name for name in self._before if _user(name) not in listing.closed]:
                del self._before[name]
        for name, known in list(self._files.items()):
            if name in listing.stamps or _user(name) in listing.closed:
                known.missing_since_s = None
            elif known.missing_since_s is None:
                known.missing_since_s = now_s
            elif now_s >= known.missing_since_s + _GONE_S:
                del self._files[name]

    def _unchanged_s(self, stamp: Stamp) -> float:
        """How long a file has not changed. Its ctime is the kernel's, by the clock on the wall."""
        return 0.0 if self._wall_s is None else max(0.0, self._wall_s() - stamp[-1] / 1e9)

    def _settle(self, now_s: float) -> None:
        due = [
            (known.since_s, name)
            for name, known in self._files.items()
            if now_s >= known.since_s + _QUIET_S
            and not known.settled
            and known.missing_since_s is None
        ]
        room_bytes = _SCAN_BYTES
        # The longest unread first, so that a file that keeps changing does not delay others.
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
                judged = judge(self._folder, name, file, self._tenants, self._presets)
            except Moved:
                known.since_s = now_s
                continue
            except OSError as error:
                # Not settled: the next scan may be permitted to read it.
                known.offered, known.problems = None, (f"{name}: cannot be read: {error.strerror}",)
                known.barred = True
                continue
            except ValueError as error:
                known.offered, known.problems = None, (f"{name}: {error}",)
            except SpecError as error:
                known.offered, known.problems = None, tuple(str(one) for one in error.problems)
            else:
                known.offered, known.problems = judged.spec, judged.problems
                env_files = judged.env_files
                known.env_files = env_files if env_files.watched else None
                room_bytes -= env_files.size_bytes
                if user is not None:
                    user.rests_until_s += env_files.size_bytes / _USER_BYTES_PER_S
            known.settled = True

    def _assign(self) -> dict[str, str]:
        """Decide which file owns which job name; returns for each file that lost, the owner.

        A file that lost keeps the name it held, which may make another file lose: repeat until
        stable. Names held before this agent started stay with files that are unread, invalid or
        unreadable.
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
            known.held, known.claim = self._desired(name, lost), self._claim(name, lost)
        self._lost = lost
        return lost

    def _succession(self, name: str) -> tuple[bool, bool, str]:
        """Sort key for files that ask for a job name without a holder.

        When the holder is just being renamed, files in its own folder come first, so that a waiting
        file elsewhere does not win; then the operator's files before users'.
        """
        waits_elsewhere = _user(self._lost.get(name, name)) != _user(name)
        return waits_elsewhere, _user(name) != "", name

    def _holds(self, name: str, job: str) -> bool:
        known = self._files.get(name)
        return known is None or job in (_name(known.held), known.claim)

    def _claim(self, name: str, lost: Mapping[str, str]) -> str | None:
        """The job name that this file owns; a file without a spec keeps its previous one."""
        desired = self._desired(name, lost)
        return self._files[name].claim if desired is None else desired.name

    def _desired(self, name: str, lost: Mapping[str, str]) -> JobSpec | None:
        known = self._files[name]
        return known.held if name in lost or known.offered is None else known.offered

    def _report(self, problem: str | None, lost: Mapping[str, str], now_s: float) -> InboxScan:
        applied = sorted(
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
                # The holder may just be being renamed to this very name.
                if first is None or first.missing_since_s is None:
                    what = f"{name}: the file {lost[name]} already has the job {known.offered.name}"
                    rejected.append(RejectedFile(name, held, (what,)))
        unsettled = tuple(sorted(name for name, known in self._files.items() if known.unsettled))
        restless = {_user(name) for name in unsettled}
        restless |= {name for name, user in self._users.items() if now_s < user.since_s + _GONE_S}
        return InboxScan(
            specs=tuple(spec for spec, _ in applied),
            files={spec.name: name for spec, name in applied},
            rejected=tuple(rejected),
            problem=problem,
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
        return since_s is not None and now_s >= since_s + _GONE_S

    def _due(self, now_s: float) -> Iterator[float]:
        if self._readable_since_s is None:
            return
        if now_s < self._readable_since_s + _GONE_S:
            yield self._readable_since_s + _GONE_S
        for name, known in self._files.items():
            if _user(name):
                # Once a cycle, so that no user makes the loop run faster.
                continue
            if known.missing_since_s is not None:
                yield known.missing_since_s + _GONE_S
            elif known.unsettled:
                yield known.since_s + _QUIET_S


def _name(spec: JobSpec | None) -> str | None:
    return spec.name if spec else None


def _user(name: str) -> str:
    """The file's subfolder; empty for the operator's."""
    return name.rpartition("/")[0]
