"""The command `cluster doctor`, which checks a host's part in the cluster and asks others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlsched.cli import options
from dlsched.cli.doctor import show, unusable
from dlsched.model.errors import SettingsError

if TYPE_CHECKING:
    from dlsched.runtime.doctor.finding import Finding


@click.command(short_help="Check what keeps the cluster from working.")
@options.output
@options.config
@click.pass_context
def doctor(ctx: click.Context, output: str, config: Path | None) -> None:
    """Check this host's part in the cluster, and show what to do: the swarm, its managers, the
    certificate, and on a manager the controller and the jobs that cannot be moved.

    It also asks the other nodes' agents, with this node's certificate and for two seconds: a
    manager all of them, a worker itself and the managers. Nothing is changed. Ends with 1 if a
    check fails. `dlsched doctor` checks the rest of the host.

    \b
    Examples:
      dlsched cluster doctor
      dlsched cluster doctor --json | jq '.[] | select(.state != "ok")'
    """
    show(ctx, output, _findings(config))


def _findings(config: Path | None) -> Iterator[Finding]:
    from dlsched.cluster.swarm.doctor import ClusterDoctor
    from dlsched.daemon.cluster_agent import certificates_of
    from dlsched.daemon.cluster_wiring import engine_of

    try:
        settings = options.settings(config)
    except SettingsError as error:
        yield from unusable(error)
        return
    engine = engine_of(settings)
    try:
        yield from ClusterDoctor(
            settings, engine, engine.host, lambda: certificates_of(settings, engine.host)
        ).findings()
    finally:
        engine.close()
