"""The group: help, version, and what failures end in."""

from __future__ import annotations

import errno

import click
import pytest

from dlsched import __version__
from dlsched.cli import main
from dlsched.model.errors import (
    AlreadyRunning,
    DaemonUnavailable,
    DlschedError,
    EngineUnavailable,
    PolicyError,
    Problem,
    SettingsError,
    SpecError,
)
from tests.cli.conftest import Program

PROBLEMS = (Problem("a.yaml", 1, 2, "cpus", "0 is too low"), Problem("a.yaml", 3, 4, "", "twice"))


def test_version(program: Program) -> None:
    assert program("--version").stdout.strip() == f"dlsched, version {__version__}"


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_has_an_example(program: Program, name: str) -> None:
    told = program(name, "--help")
    assert told.exit_code == 0
    assert f"  dlsched {name}" in told.stdout.partition("Example")[2]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError(PROBLEMS), 2),
        (SettingsError(PROBLEMS), 2),
        (PolicyError("no policy 'x'"), 2),
        (DaemonUnavailable("nobody"), 3),
        (EngineUnavailable("nobody"), 3),
        (AlreadyRunning("another"), 3),
        (DlschedError("other"), 1),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 1),
    ],
)
def test_failures_are_lines_on_stderr_and_a_code(
    program: Program, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setitem(main.commands, "fail", fail)
    result = program("fail")
    assert result.exit_code == code
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == (2 if code == 2 and not isinstance(error, PolicyError) else 1)


def test_an_unknown_option_is_usage(program: Program) -> None:
    assert program("ps", "--nonsense").exit_code == 2
