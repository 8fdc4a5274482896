"""The command line: `dlsched COMMAND`. stdout carries data, stderr everything else.

Exit codes: 0, 1 failure, 2 usage or an invalid file, 3 daemon or engine not reachable, or not yet.
Each module has some commands, and imports slow modules inside them.
"""

from __future__ import annotations

import click

from dlsched import __version__
from dlsched.cli.program import Program


@click.group(
    "dlsched",
    cls=Program,
    context_settings={
        "auto_envvar_prefix": "DLSCHED",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
@click.version_option(__version__, "--version", "-V", prog_name="dlsched")
def main() -> None:
    """Keep the latency and accuracy targets of deep-learning containers on one Docker host.

    \b
    Start the daemon:         dlsched run
    Add a job:                dlsched submit face-unlock.yaml
    See whether targets hold: dlsched ps
    See why:                  dlsched why face-unlock
    """
