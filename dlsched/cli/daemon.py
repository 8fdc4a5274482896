"""The command that is the daemon: run.

Owns its options. It must not import what only tables or clients need: the daemon lives in 80 MiB.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli import options

if TYPE_CHECKING:
    from dlsched.config.settings import Settings

_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(short_help="Run the daemon in the foreground.")
@options.config
@click.option("--policy", metavar="NAME", help="Who decides: see `dlsched policies`.")
@click.option("--shadow", metavar="NAME", help="Who looks on: told beside, never done.")
@click.option("--watch", metavar="DIR", type=_FOLDER, help="Folder of job files.")
@click.option("--dry-run", is_flag=True, help="Decide and tell, but touch no container.")
@click.option("--state-dir", metavar="DIR", type=_FOLDER, help="What must outlive the daemon.")
@click.option("--run-dir", metavar="DIR", type=_FOLDER, help="Where the sockets are made.")
@click.option("--instance", metavar="NAME", help="Whose containers are ours; one daemon each.")
@click.option("--period", metavar="TIME", help="Time between cycles, such as 1s.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="The log on stderr.")
def run(config: Path | None, dry_run: bool, log_format: str | None, **flags: Any) -> None:
    """Run the daemon in the foreground, until SIGTERM or Ctrl-C. SIGHUP reads the settings again.

    A flag goes before the environment (DLSCHED_POLICY and so on), that before the settings file.
    Containers run on when the daemon ends; they get their full ceilings back.

    Without a policy's name it is `adaptive`. Parameters may stand behind a name, as in
    adaptive?mode=band. What the shadow would do, from the state that the policy brought about, is
    in `dlsched why` and the journal.

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

    raise SystemExit(main.run(settings, dry_run=dry_run, reload=load))
