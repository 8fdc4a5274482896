"""The group of all commands: lookup, help, version, hints for unknown commands, and how failures
end. A command's module is imported on use, as imports take most of a short command's time."""

from __future__ import annotations

import errno
from importlib import import_module
from typing import Any

import click

from dlsched import __version__
from dlsched.cli.output import print_text, say
from dlsched.model.errors import (
    AlreadyRunning,
    CannotStart,
    DaemonUnavailable,
    DlschedError,
    EngineUnavailable,
    FileError,
    NoJournal,
    NotNow,
    PolicyError,
)

FAILURE = 1
INVALID = 2
"""Wrong usage, or an invalid file."""
UNREACHABLE = 3
"""No daemon or no engine, or the daemon cannot answer yet: it has just started, or is busy."""

_MODULES = {
    "run": "daemon",
    "adopt": "adopting",
    "drop": "adopting",
    "export": "adopting",
    "check": "jobs",
    "cluster": "cluster",
    "schema": "jobs",
    "submit": "jobs",
    "events": "events",
    "ps": "asking",
    "logs": "asking",
    "stop": "asking",
    "why": "asking",
    "top": "top.command",
    "web": "web",
    "policies": "policies",
    "presets": "presets",
    "simulate": "simulating",
    "trace": "tracing",
    "replay": "replaying",
    "recommend": "recommending",
    "report": "reporting",
    "doctor": "doctor",
    "probe": "probing",
    "release": "release",
    "usage": "usage",
    "help": "program",
    "version": "program",
}

_SUGGESTED = (
    "check",
    "events",
    "help",
    "logs",
    "policies",
    "presets",
    "ps",
    "recommend",
    "replay",
    "report",
    "schema",
    "top",
    "usage",
    "version",
    "web",
    "why",
)
"""Suggestions for a mistyped command. None of them changes anything."""

_PS = "`dlsched ps` lists jobs"
_WHY = "`dlsched why JOB` explains a job, `dlsched why JOB --json` prints all of it"
_ELSEWHERE = {
    "list": f"{_PS}, `dlsched policies` lists policies",
    "ls": f"{_PS}, `dlsched policies` lists policies",
    "describe": _WHY,
    "inspect": _WHY,
    "stats": "`dlsched top` shows live what each job uses, `dlsched ps` once",
    "status": f"{_PS} with their results, and the state of the node",
    "rm": f"a job is removed when its file leaves the watch folder; {_PS}",
    "kill": f"{_PS}, `dlsched help` says which command ends one",
    "start": f"a job starts when its file comes into the watch folder; {_PS}",
    "up": f"a job starts when its file comes into the watch folder; {_PS}",
}
"""Commands of other programs, with their counterparts here."""


_EXITS = (
    ((NoJournal, PolicyError), INVALID),
    ((DaemonUnavailable, NotNow, EngineUnavailable, AlreadyRunning), UNREACHABLE),
)


class Program(click.Group):
    """Ends failures with one line (an invalid file: one per problem) and the exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_MODULES, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name. Imports its module."""
        if cmd_name not in self.commands and cmd_name in _MODULES:
            module = import_module(f"dlsched.cli.{_MODULES[cmd_name]}")
            self.add_command(getattr(module, cmd_name))
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command and its arguments, including options given before it."""
        typed = args[0]
        if self.get_command(ctx, typed) is None and not typed.startswith("-"):
            raise click.UsageError(f"no command {typed[:40]!r}; {hint(typed)}", ctx)
        name, command, rest = super().resolve_command(ctx, args)
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if command is None or value is None:
                continue
            option = parameter.opts[0]
            if not any(option in one.opts for one in command.params):
                raise click.UsageError(f"`dlsched {name}` has no option {option}", ctx)
            rest = [option, str(value), *rest]
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn exceptions into lines and exit codes."""
        try:
            return super().invoke(ctx)
        except FileError as error:
            for problem in error.problems:
                say(str(problem))
            ctx.exit(INVALID)
        except CannotStart as error:
            for line in error.problems:
                say(f"error: {line}")
            ctx.exit(FAILURE)
        except DlschedError as error:
            say(f"error: {error}")
            ctx.exit(next((code for kinds, code in _EXITS if isinstance(error, kinds)), FAILURE))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            say(f"error: {error.filename or 'system'}: {error.strerror or error}")
            ctx.exit(FAILURE)


def hint(name: str) -> str:
    """A suggestion for an unknown command; never one that changes anything."""
    known = _ELSEWHERE.get(name.lower())
    if known is not None:
        return known
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), _SUGGESTED, n=1)
    return f"did you mean {near[0]!r}?" if near else "`dlsched help` lists the commands"


@click.command("help", short_help="Show the help of a command, or list all commands.")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help(ctx: click.Context, names: tuple[str, ...]) -> None:  # noqa: A001
    """Show the help of a command, or the list of all commands.

    \b
    Examples:
      dlsched help
      dlsched help ps
      dlsched help trace generate
    """
    above = ctx.parent
    assert above is not None
    for name in names:
        if not isinstance(above.command, click.Group):
            raise click.UsageError(f"`{above.command_path}` has no commands of its own")
        command = above.command.resolve_command(above, [name])[1]
        assert command is not None
        above = click.Context(command, parent=above, info_name=name)
    print_text(above.get_help())


@click.command(short_help="Show the version.")
def version() -> None:
    """Show the version, as --version does.

    \b
    Example:
      dlsched version
    """
    print_text(f"dlsched, version {__version__}")
