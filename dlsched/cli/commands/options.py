"""Shared options, with the settings and the daemon that they select. A flag takes precedence over
the environment, that over the settings file, that over the default."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from dlsched.model.errors import SettingsError
from dlsched.model.units import SECONDS_MAX, parse_seconds

if TYPE_CHECKING:
    from dlsched.api.client import Daemon
    from dlsched.config.metrics.resolving import Presets
    from dlsched.config.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

FOLDER = click.Path(file_okay=False, path_type=Path)

config = click.option(
    "--config",
    "-c",
    envvar="DLSCHED_CONFIG",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings file (default: /etc/dlsched/dlsched.yaml, if it exists).",
)
run_dir = click.option(
    "--run-dir",
    envvar="DLSCHED_RUN_DIR",
    metavar="DIR",
    type=FOLDER,
    help="Directory of the daemon's sockets (default: the setting run_dir).",
)
_output = click.option(
    "--output",
    "-o",
    envvar="DLSCHED_OUTPUT",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON for programs.",
)
_json = click.option("--json", "as_json", is_flag=True, help="The same as --output json.")


class Number(click.FloatRange):
    """A number within bounds, which alone do not keep `nan` out."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = float(super().convert(value, param, ctx))
        return self.fail("nan is not a number.", param, ctx) if math.isnan(found) else found


def seconds(text: str, option: str, low: float, high: float = SECONDS_MAX) -> float:
    """That option as a duration. Raises BadParameter."""
    try:
        return parse_seconds(text, low=low, high=high)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def output(command: F) -> F:
    """Options of a command that can print JSON."""

    @wraps(command)
    def with_json(*args: Any, as_json: bool, **given: Any) -> Any:
        return command(*args, **{**given, **({"output": "json"} if as_json else {})})

    return _output(_json(cast("F", with_json)))


def asking(command: F) -> F:
    return config(run_dir(command))


def settings(file: Path | None, flags: Mapping[str, object] | None = None) -> Settings:
    """The settings with these flags, by dotted name; a flag of None is not given. Raises
    SettingsError with every problem."""
    from dlsched.config.settings import load_settings

    return load_settings(file, os.environ, flags or {})


def readable_settings(file: Path | None) -> Settings | None:
    """The settings; None without the right to read those in their default place. Raises
    SettingsError."""
    try:
        return settings(file)
    except SettingsError:
        if file is not None:
            raise
        return None


def settings_file(file: Path | None) -> Path | None:
    from dlsched.config import settings_file

    default = settings_file.default_settings_file
    return file or (default if default.exists() else None)


def daemon(file: Path | None, run_dir: Path | None) -> Daemon:
    from dlsched.api.client import Daemon

    return Daemon(run_dir_of(file, run_dir))


def run_dir_of(file: Path | None, given: Path | None) -> Path:
    """The flag, else the setting `run_dir`, without checks of other settings if the file has it as
    plain text."""
    from dlsched.config.settings_file import plain_run_dir

    # With --run-dir the operator's settings need not be readable.
    if given is not None:
        return given
    return plain_run_dir(file) or settings(file).run_dir


def presets(file: Path | None) -> Presets:
    """The presets that the package and the operator's folder give. Raises SettingsError."""
    from dlsched.config.metrics.loading import load_presets
    from dlsched.config.settings_file import PRESETS_DIR

    readable = readable_settings(file)
    return load_presets(PRESETS_DIR if readable is None else readable.presets)


def daemon_of(settings: Settings) -> Daemon:
    from dlsched.api.client import Daemon

    return Daemon(settings.run_dir)
