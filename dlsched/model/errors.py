"""One exception tree, split by whose fault it is (each class says what it ends in).

Owns the exceptions that cross a module's border. It must not format reports or decide exit codes:
`cli` maps the classes to exit codes 1, 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a file that a person wrote: where, what, and the bound that it broke.

    Line 0 means that `file` is no file with lines: a variable, an option, a file not readable.
    """

    file: str
    line: int
    column: int
    path: str
    what: str

    def __str__(self) -> str:
        path = f" {self.path}:" if self.path else ""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}:{path} {self.what}"


class DlschedError(Exception):
    """Everything that dlsched raises on purpose."""


class FileError(DlschedError):
    """A file that a person wrote is wrong; carries all problems at once, never only the first."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class SpecError(FileError):
    """A job file is wrong: the job that runs under its old spec keeps running."""


class SettingsError(FileError):
    """The operator's settings are wrong: exit 2 at start, old settings stay on SIGHUP."""


class PolicyError(DlschedError):
    """A policy cannot be loaded, or answered something that no policy may answer."""


class EngineUnavailable(DlschedError):
    """The container engine does not answer: the cycle is skipped, containers run on."""


class DaemonUnavailable(DlschedError):
    """No dlsched daemon answers on the socket."""


class AlreadyRunning(DlschedError):
    """Another agent of the same instance holds the state directory."""
