"""The command `run`, the daemon. It imports little, since the daemon must fit in 80 MiB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli.commands import options

if TYPE_CHECKING:
    from dlsched.config.settings import Settings


@click.command(short_help="Run the daemon in the foreground.")
@options.config
@click.option("--policy", metavar="NAME", help="The policy that decides: see `dlsched policies`.")
@click.option("--shadow", metavar="NAME", help="A policy whose decisions are only shown.")
@click.option("--watch", metavar="DIR", type=options.FOLDER, help="Folder of job files.")
@click.option("--dry-run", is_flag=True, help="Decide and log, but change no container.")
@click.option(
    "--state-dir",
    metavar="DIR",
    type=options.FOLDER,
    help="Folder of records and journal, kept between restarts.",
)
@click.option("--run-dir", metavar="DIR", type=options.FOLDER, help="Directory of the sockets.")
@click.option(
    "--instance",
    metavar="NAME",
    help="Containers with this instance name are this daemon's; one daemon for each.",
)
@click.option("--period", metavar="TIME", help="Time between cycles, such as 1s.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Log format on stderr.")
def run(config: Path | None, dry_run: bool, log_format: str | None, **flags: Any) -> None:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C. SIGHUP makes it read the settings
    again.

    A flag takes precedence over the environment (DLSCHED_POLICY and so on), which takes precedence
    over the settings file. When the daemon ends, containers go on and get their full ceilings back.

    The default policy is `adaptive`. Parameters follow a policy's name, as in adaptive?mode=band.
    `dlsched why` and the journal show what the shadow policy would do in the present state.

    \b
    Examples:
      dlsched run --policy 'adaptive?mode=band' --watch ./jobs
      dlsched run --policy dqoes --shadow adaptive
      dlsched run --config /etc/dlsched/dlsched.yaml --dry-run
    """

    def load() -> Settings:
        return options.settings(config, {**flags, "log.format": log_format})

    settings = load()
    from dlsched.daemon import main

    file = options.settings_file(config)
    raise SystemExit(main.run(settings, dry_run=dry_run, reload=load, settings_file=file))
