"""The watch folder: which job files are there, which of them are in force, and why others are not.

Owns the rule when a file is taken, kept, refused or gone. Time comes in as a number, so that every
case can be played through; it must not sleep, nor know containers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlsched.document import SIZE_MAX_BYTES
from dlsched.durable import write_whole
from dlsched.errors import Problem, SpecError
from dlsched.job_files import Moved, Stamp, is_job_file, list_stamps, read_job_file, stamp_at
from dlsched.model import JobSpec, RejectedFile
from dlsched.spec import env_file_reader, parse_spec

_SCAN_BYTES, _FILE_BYTES = 128 * 1024, 1024
"""At most so much is read in one scan, each file counted with so much beside its content: more
would hold up the loop. The rest is read by the scans after it, which come at once."""


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
    """Whether a job without a file is truly not wished for: the folder was readable for `gone_s`,
    and no file is unsettled. Look at `rejected` beside it."""
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
    beside: tuple[tuple[str, Stamp | None], ...] = ()
    """The env_files that the content names, as they were when they were read."""
    offered: JobSpec | None = None
    """What the latest content asks for; None: it is wrong."""
    held: JobSpec | None = None
    """What is in force from this file."""
    problems: tuple[str, ...] = ()
    missing_since_s: float | None = None

    @property
    def unsettled(self) -> bool:
        """Whether time alone will tell more of it."""
        return self.missing_since_s is not None or not (self.settled or self.barred)


class Inbox:
    """Turns listings of the folder into the wish in force; one thread only.

    A file is taken once its stamp stood still for `quiet_s` and counts as removed once it was
    missing from a readable folder for `gone_s`. What is wrong with a file never ends the job that
    came from its content before. The holder of a job name keeps it as long as its file asks for it.
    """

    def __init__(self, folder: Path, quiet_s: float = 0.1, gone_s: float = 0.5) -> None:
        self._folder = folder
        self._quiet_s = quiet_s
        self._gone_s = gone_s
        self._files: dict[str, _File] = {}
        self._readable_since_s: float | None = None
        self._last = InboxScan()

    def scan(self, now_s: float) -> InboxScan:
        """Look at the folder once. Never raises for what is in it, or for its absence."""
        trouble: str | None = None
        try:
            listing = list_stamps(self._folder)
        except OSError as error:
            trouble = f"{self._folder} cannot be listed: {error.strerror or error}"
            self._readable_since_s = None
            for known in self._files.values():
                known.missing_since_s = None
        else:
            if self._readable_since_s is None:
                self._readable_since_s = now_s
            self._follow(listing, now_s)
            self._settle(now_s)
        lost = self._assign()
        scan = self._report(trouble, lost, now_s)
        changed = scan != self._last
        self._last = scan
        return replace(scan, next_s=min(self._due(now_s), default=None), changed=changed)

    def _follow(self, listing: Mapping[str, Stamp], now_s: float) -> None:
        for name, stamp in listing.items():
            known = self._files.get(name)
            if known is None:
                self._files[name] = _File(stamp, now_s)
            elif known.stamp != stamp:
                known.stamp, known.since_s = stamp, now_s
                known.settled = known.barred = False
            elif any(stamp_at(self._folder / path) != seen for path, seen in known.beside):
                known.since_s, known.settled, known.beside = now_s, False, ()
        for name, known in list(self._files.items()):
            if name in listing:
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
            size_bytes = known.stamp[1]
            room_bytes -= _FILE_BYTES + (size_bytes if size_bytes <= SIZE_MAX_BYTES else 0)
            try:
                content = read_job_file(self._folder / name, known.stamp)
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
            else:
                beside = _Beside(self._folder)
                known.offered, known.problems = _parsed(content, name, beside)
                known.beside = tuple(beside.seen.items())
            known.settled = True

    def _assign(self) -> dict[str, str]:
        """Settle who holds which job name; returns, for each file that lost, whose it is.

        A file that cannot have what it asks for keeps what it held, which may in turn keep another
        file from its wish: so until nothing more is lost.
        """
        lost: dict[str, str] = {}
        while True:
            claims: dict[str, list[str]] = {}
            for name in sorted(self._files):
                wish = self._wish(name, lost)
                if wish is not None:
                    claims.setdefault(wish.name, []).append(name)
            clashes = [(job, names) for job, names in claims.items() if len(names) > 1]
            if not clashes:
                break
            for job, names in clashes:
                holders = [name for name in names if _name(self._files[name].held) == job]
                winner = (holders or names)[0]
                lost |= {name: winner for name in names if name != winner}
        for name, known in self._files.items():
            known.held = self._wish(name, lost)
        return lost

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
                first = self._files[lost[name]]
                # The holder may just be under its way to this very name.
                if first.missing_since_s is None:
                    what = f"{name}: the job {known.offered.name} is already that of {lost[name]}"
                    rejected.append(RejectedFile(name, held, (what,)))
        unsettled = tuple(sorted(name for name, known in self._files.items() if known.unsettled))
        since_s = self._readable_since_s
        return InboxScan(
            specs=tuple(spec for spec, _ in in_force),
            files={spec.name: name for spec, name in in_force},
            rejected=tuple(rejected),
            trouble=trouble,
            unsettled=unsettled,
            settled=not unsettled and since_s is not None and now_s >= since_s + self._gone_s,
        )

    def _due(self, now_s: float) -> Iterator[float]:
        if self._readable_since_s is None:
            return
        if now_s < self._readable_since_s + self._gone_s:
            yield self._readable_since_s + self._gone_s
        for known in self._files.values():
            if known.missing_since_s is not None:
                yield known.missing_since_s + self._gone_s
            elif known.unsettled:
                yield known.since_s + self._quiet_s


def submit(text: str, file_name: str, folder: Path) -> JobSpec:
    """Check the text and put it into the folder under that name, whole or not at all.

    Raises SpecError when the text is wrong, the name is none for a job file, or the file that it
    would replace is another job's; OSError when the folder cannot be written.
    """
    if not is_job_file(file_name) or "/" in file_name or "\0" in file_name:
        what = "is not the name of a job file: it must end in .yaml or .yml, and hold no /"
        raise SpecError((Problem(file_name, 0, 0, "", what),))
    spec = parse_spec(text, file_name, env_file_reader(folder))
    _refuse_other_job(spec, folder / file_name)
    write_whole(folder / file_name, text)
    return spec


class _Beside:
    """Reads env_files and remembers how each one was, so that a change of one shows."""

    def __init__(self, folder: Path) -> None:
        self.seen: dict[str, Stamp | None] = {}
        self._folder = folder
        self._read = env_file_reader(folder)

    def __call__(self, name: str) -> str:
        self.seen[name] = stamp_at(self._folder / name)
        return self._read(name)


def _parsed(
    content: str, name: str, read_file: Callable[[str], str]
) -> tuple[JobSpec | None, tuple[str, ...]]:
    try:
        return parse_spec(content, name, read_file), ()
    except SpecError as error:
        return None, tuple(str(problem) for problem in error.problems)


def _refuse_other_job(spec: JobSpec, path: Path) -> None:
    try:
        content = read_job_file(path, list_stamps(path.parent)[path.name])
    except (Moved, OSError, ValueError, KeyError):
        return
    there, _ = _parsed(content, path.name, env_file_reader(path.parent))
    if there is not None and there.name != spec.name:
        what = f"is the file of the job {there.name}: submit {spec.name} under another name"
        raise SpecError((Problem(path.name, 0, 0, "", what),))


def _name(spec: JobSpec | None) -> str | None:
    return spec.name if spec else None
