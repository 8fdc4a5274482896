"""Checks job files, a user's file against the user's rules too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dlsched.config.inbox.files import JobFile, Stamp, beside_reader, is_operator, stamp_at
from dlsched.config.job import ENV_FILE_MAX_BYTES, env_file_reader, parse_spec
from dlsched.config.metrics.resolving import Presets
from dlsched.config.users import Rules, Tenants, owner_of, refusals
from dlsched.config.yaml import Path as Place
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
