"""The group: help, version, hints, options before the command, and what failures end in."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import click
import pytest

from dlsched import __version__
from dlsched.cli import main
from dlsched.cli.program import hint
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


@pytest.mark.parametrize("words", [("--version",), ("-V",), ("version",)])
def test_version(program: Program, words: tuple[str, ...]) -> None:
    assert program(*words).stdout.strip() == f"dlsched, version {__version__}"


@pytest.mark.parametrize("words", [("ps",), ("trace", "generate"), ("stop",), ()])
def test_help_is_that_of_the_command(program: Program, words: tuple[str, ...]) -> None:
    shown = program("help", *words)
    assert (shown.exit_code, shown.stdout) == (0, program(*words, "--help").stdout)


def test_help_of_what_is_no_command_is_usage(program: Program) -> None:
    assert program("help", "stats").exit_code == 2
    assert "`dlsched ps` has no commands" in program("help", "ps", "x").stderr


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("list", "dlsched ps"),
        ("ls", "dlsched ps"),
        ("rm", "dlsched ps"),
        ("kill", "dlsched ps"),
        ("stats", "dlsched ps"),
        ("status", "dlsched ps"),
        ("describe", "dlsched why JOB"),
        ("inspect", "dlsched why JOB"),
        ("wyh", "did you mean 'why'?"),
        ("chekc", "did you mean 'check'?"),
        ("zzz", "dlsched help"),
    ],
)
def test_an_unknown_command_is_answered_with_the_right_one(
    program: Program, word: str, named: str
) -> None:
    result = program(word)
    assert result.exit_code == 2
    assert f"Error: no command '{word}'; " in result.stderr
    assert named in result.stderr.partition("; ")[2]


def typed() -> set[str]:
    """Every command, and all that a slip of the hand makes of one or of another program's."""
    letters = "abcdefghijklmnopqrstuvwxyz-"
    others = (
        *("stats", "stup", "shop", "restop", "purge", "prune", "down", "remove", "delete", "free"),
        *("relase", "submt", "rum", "rn", "rm", "kill", "start", "restart", "pause", "exec"),
    )
    words = {*COMMANDS, *others}
    slips = set(words)
    for word in words:
        for at in range(len(word)):
            slips |= {word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:]}
            slips |= {word[:at] + letter + word[at + 1 :] for letter in letters}
            slips.add(word[:at] + word[at : at + 2][::-1] + word[at + 2 :])
    return slips


def test_no_hint_offers_what_changes_anything() -> None:
    words = typed()
    assert len(words) > 3000
    changing = re.compile(r"\b(stop|release|submit|run|resume|start|doctor)\b")
    offered = {word: hint(word) for word in words}
    assert {word: line for word, line in offered.items() if changing.search(line)} == {}
    assert "did you mean 'ps'?" in offered.values(), "some words have a hint"


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.timed
def test_run_dir_and_config_stand_before_the_command_too(
    program: Program, tmp_path: Path, before: bool
) -> None:
    """The flag goes before the environment either way, and the later one before the earlier."""
    (tmp_path / "a.yaml").write_text(f"run_dir: {tmp_path}/of-file\n")
    for option, value, socket in (
        ("--run-dir", f"{tmp_path}/flag", f"{tmp_path}/flag/status.sock"),
        ("--config", f"{tmp_path}/a.yaml", f"{tmp_path}/of-file/status.sock"),
    ):
        words = (option, value, "ps") if before else ("ps", option, value)
        env = {"DLSCHED_RUN_DIR": None if option == "--config" else str(tmp_path)}
        result = program(*words, env=env)
        assert (result.exit_code, socket in result.stderr) == (3, True), result.stderr
    result = program("--run-dir", "/first", "ps", "--run-dir", f"{tmp_path}/last")
    assert f"{tmp_path}/last/status.sock" in result.stderr


def test_an_option_before_a_command_that_has_none_is_usage(program: Program) -> None:
    result = program("--run-dir", "/x", "policies")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        "Error: `dlsched policies` has no option --run-dir",
    )
    assert program("policies", env={"DLSCHED_RUN_DIR": "/x"}).exit_code == 0


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
