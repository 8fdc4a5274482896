"""Options that commands share, and the settings that they lead to.

Owns the order flag > environment > file > default, by handing all three to `load_settings`. It
must not know what a setting means.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from dlsched.api.client import Daemon
    from dlsched.config.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

config = click.option(
    "--config",
    "-c",
    envvar="DLSCHED_CONFIG",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings file; /etc/dlsched/dlsched.yaml where there is one.",
)
run_dir = click.option(
    "--run-dir",
    envvar="DLSCHED_RUN_DIR",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the daemon's sockets are.",
)
output = click.option(
    "--output",
    "-o",
    envvar="DLSCHED_OUTPUT",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON for programs.",
)


def asking(command: F) -> F:
    """The options of every command that asks the daemon."""
    return config(run_dir(command))


def settings(file: Path | None, flags: Mapping[str, object] | None = None) -> Settings:
    """The settings in force with these flags, by dotted name; None there: not given.

    Raises SettingsError with every problem.
    """
    from dlsched.config.settings import load_settings

    return load_settings(file, os.environ, flags or {})


def daemon(file: Path | None, run_dir: Path | None) -> Daemon:
    """The daemon that these options lead to."""
    from dlsched.api.client import Daemon

    # Who names the directory need not be able to read the operator's settings.
    return Daemon(run_dir if run_dir is not None else settings(file).run_dir)


def daemon_of(settings: Settings) -> Daemon:
    """The daemon that runs under these settings."""
    from dlsched.api.client import Daemon

    return Daemon(settings.run_dir)
