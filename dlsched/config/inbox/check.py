"""What a job file asks for, or why it may not: a user's by their rules too.

Owns which rules and which env_files a file's owner has. It must not list folders, nor remember.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dlsched.config.inbox.files import JobFile, Stamp, beside_reader, is_operator, stamp_at
from dlsched.config.job import ENV_FILE_MAX_BYTES, env_file_reader, parse_spec
from dlsched.config.users import Tenants, owner_of, refusals
from dlsched.config.yaml import Path as Place
from dlsched.model.errors import SpecError
from dlsched.model.spec import JobSpec

_USER_PROBLEMS = 5
"""Told of a user's file; `dlsched check` tells all."""


class Beside:
    """Reads env_files and remembers how each one was, so that a change of one shows."""

    def __init__(self, folder: Path, read: Callable[[str], str], *, anywhere: bool) -> None:
        """`anywhere`: names may lead out of the folder, through links too."""
        self._folder = folder
        self._read = read
        self._anywhere = anywhere
        self._seen: dict[str, Stamp | None] = {}
        self.size_bytes = 0
        """What was read so far, which takes time as the job file itself does."""

    def __call__(self, name: str) -> str:
        if self._anywhere or "/" not in name:
            self._seen[name] = self._stamp(name)
        content = self._read(name)
        self.size_bytes += len(content)
        return content

    @property
    def seen(self) -> bool:
        """Whether there is any that can change."""
        return bool(self._seen)

    @property
    def changed(self) -> bool:
        """Whether one of them is no longer as it was read."""
        return any(self._stamp(name) != stamp for name, stamp in self._seen.items())

    def _stamp(self, name: str) -> Stamp | None:
        return stamp_at(self._folder / name, through_links=self._anywhere)


@dataclass(frozen=True, slots=True)
class Judged:
    """The job, or else its problems, a line each."""

    spec: JobSpec | None
    problems: tuple[str, ...] = ()
    beside: Beside | None = None
    """The env_files that were read for it."""


def judge(folder: Path, name: str, file: JobFile, tenants: Tenants) -> Judged:
    """The job file of that name in the watch folder, by the rules of its owner."""
    if is_operator(file.owner):
        return _judged(file, name, Beside(folder, env_file_reader(folder), anywhere=True))
    within = (folder / name).parent
    reader = beside_reader(within, file.owner, ENV_FILE_MAX_BYTES)
    judged = _judged(file, name, Beside(within, reader, anywhere=False), tenants)
    if len(judged.problems) <= _USER_PROBLEMS:
        return judged
    more = f"{name}: and {len(judged.problems) - _USER_PROBLEMS} more: see `dlsched check`"
    return replace(judged, problems=(*judged.problems[:_USER_PROBLEMS], more))


def _judged(file: JobFile, name: str, beside: Beside, tenants: Tenants | None = None) -> Judged:
    """`tenants` None: no rules bind the file."""
    rules = None if tenants is None else tenants.rules_of(file.owner)
    if tenants is not None and rules is None:
        told = f"{name}: belongs to uid {file.owner}, whom the settings' `tenants` leave out"
        return Judged(None, (told,), beside)

    def refused(spec: JobSpec) -> Iterable[tuple[Place, str]]:
        return () if rules is None else refusals(spec, rules, owner_of(file.owner))

    try:
        spec = parse_spec(file.text, name, beside, refused)
    except SpecError as error:
        return Judged(None, tuple(str(problem) for problem in error.problems), beside)
    return Judged(replace(spec, owner=file.owner), (), beside)
