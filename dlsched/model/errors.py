"""The exceptions that cross module borders, grouped by who has to act. They carry data only. `cli`
maps the classes to exit codes 1, 2 and 3."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model.units import plain_text


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a user's file: position, what is wrong, and the violated bound. Line 0 means
    that there is no line to name: a variable, an option, or an unreadable file."""

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
    """Base of all errors that dlsched raises deliberately."""


class FileError(DlschedError):
    """A user's file is invalid. The error carries all problems, not only the first."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class SpecError(FileError):
    """A job file is invalid. The job keeps running under its old spec."""


class SettingsError(FileError):
    """The operator's settings are invalid: exit 2 at start; on SIGHUP the old settings stay."""


class PolicyError(DlschedError):
    """A policy cannot be loaded, or its answer is not valid."""


class NoJournal(DlschedError):
    """There is no journal, or nothing in it can be read."""


class EngineUnavailable(DlschedError):
    """The container engine does not answer. The cycle is skipped; containers keep running."""


class CannotStart(DlschedError):
    """The daemon cannot start for this user on this host. It carries all problems, each in one line
    that says what to do."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class DaemonUnavailable(DlschedError):
    """No dlsched daemon answers on the socket."""


class Refused(DlschedError):
    """The daemon refused the request, such as one for an unknown job."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        """Of HTTP."""
        super().__init__(text)


class NotNow(Refused):
    """The daemon answers, but not this request now, such as before its first cycle."""


class AlreadyRunning(DlschedError):
    """Another agent of this instance holds the state directory."""


class NotOurs(DlschedError):
    """A job that this agent must not change now."""


class AdoptionRefused(DlschedError):
    """A container cannot be adopted or dropped, in one line; nothing has changed."""


UNEXPECTED_CHARACTERS = 200
"""Of an unexpected error's text in a message; the log's traceback has all of it."""


def unexpected(error: BaseException) -> str:
    """Kind and first line of an unexpected error, printable and bounded."""
    text = plain_text((str(error).strip().splitlines() or [""])[0])[:UNEXPECTED_CHARACTERS]
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind
