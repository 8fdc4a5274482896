"""The group: version, options that all have, and what failures end in."""

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

COMMANDS = main.list_commands(click.Context(main))
PROBLEMS = (Problem("a.yaml", 1, 2, "cpus", "0 is too low"), Problem("a.yaml", 3, 4, "", "twice"))


@pytest.mark.parametrize("words", [("--version",), ("-V",)])
def test_version(program: Program, words: tuple[str, ...]) -> None:
    assert program(*words).stdout.strip() == f"dlsched, version {__version__}"


def test_json_is_output_json_wherever_there_is_one(program: Program) -> None:
    with_output = [
        name for name in COMMANDS if any("--output" in one.opts for one in command(name).params)
    ]
    assert {"check", "doctor", "policies", "ps", "release", "simulate", "why"} < {*with_output}
    for name in with_output:
        assert any("--json" in one.opts for one in command(name).params)
    assert program("policies", "--json").stdout == program("policies", "-o", "json").stdout
    assert program("policies", "--json", "-o", "table").stdout.startswith("{")


def command(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
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
