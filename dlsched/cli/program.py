"""The group of all commands, and how failures end. A command's module is imported on use, since
imports take most of a short command's time."""

from __future__ import annotations

import errno
from importlib import import_module
from typing import Any

import click

from dlsched.cli.output import say
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
    "top": "top",
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
}

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
            module = import_module(f"dlsched.cli.commands.{_MODULES[cmd_name]}")
            self.add_command(getattr(module, cmd_name))
        return super().get_command(ctx, cmd_name)

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
