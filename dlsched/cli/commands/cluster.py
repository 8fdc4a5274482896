"""The commands of `dlsched cluster`: several hosts as one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli.commands import options
from dlsched.cli.commands.doctor import show, unusable
from dlsched.cli.output import print_json, say
from dlsched.cli.pages.layout import Page
from dlsched.cluster.core.records import Request, Wanted
from dlsched.model.errors import DlschedError, SettingsError

if TYPE_CHECKING:
    from dlsched.api.cluster_schema import ClusterStatus, JobRow, QueueRow
    from dlsched.cluster.store import ClusterStore, Member
    from dlsched.runtime.doctor.finding import Finding


@click.command(short_help="Check what keeps the cluster from working.")
@options.output
@options.config
@click.pass_context
def doctor(ctx: click.Context, output: str, config: Path | None) -> None:
    """Check this host's part in the cluster, and show what to do: the swarm, its managers, the
    certificate, and on a manager the controller.

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


@click.group(short_help="Run jobs on several hosts: on the managers of a Docker Swarm.")
def cluster() -> None:
    """Run jobs on several hosts, which are nodes of one Docker Swarm.

    Each node runs `dlsched run` with the setting cluster.enabled. Each manager of the swarm runs
    `dlsched cluster run`, too; of these controllers the one on the leading manager acts.

    \b
    Examples:
      dlsched cluster status
      dlsched cluster why resnet
      dlsched cluster drain gpu-2
    """


cluster.add_command(doctor)


@cluster.command(short_help="Run the controller on a manager, in the foreground.")
@options.config
@click.option("--policy", metavar="NAME", help="The policy that places and moves jobs.")
@click.option("--watch", metavar="DIR", type=options.FOLDER, help="Folder of job files to submit.")
@click.option(
    "--state-dir", metavar="DIR", type=options.FOLDER, help="Folder of the controller's lock."
)
@click.option(
    "--run-dir",
    metavar="DIR",
    type=options.FOLDER,
    help="The controller writes its status file into DIR-cluster.",
)
@click.option(
    "--instance",
    metavar="NAME",
    help="Jobs of the swarm with this instance name are this controller's.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Log format on stderr.")
def run(
    config: Path | None,
    policy: str | None,
    watch: Path | None,
    log_format: str | None,
    **flags: Any,
) -> None:
    """Run the cluster's controller on this manager, in the foreground until SIGTERM or Ctrl-C.

    It submits the job files of its watch folder to the cluster, whether it leads or not. While its
    manager leads the swarm, it also chooses a node for each job and moves few of them. It touches
    no container itself: the nodes' agents do. When it ends, all jobs run on.

    \b
    Examples:
      dlsched cluster run
      dlsched cluster run --policy spread --watch ./jobs
    """
    given = {"cluster.policy": policy, "cluster.watch": watch, "log.format": log_format}
    settings = options.settings(config, {**flags, **given})
    from dlsched.daemon import cluster as controller
    from dlsched.daemon.cluster_wiring import connect

    raise SystemExit(controller.run(settings, connect))


@cluster.command(short_help="Show the cluster's nodes, its jobs, and what waits.")
@options.output
@options.asking
def status(output: str, config: Path | None, run_dir: Path | None) -> None:
    """Show the cluster's nodes, its jobs and the queue, as the controller on this host last saw
    them. On a manager that does not lead it says which one does.

    ENDS IN is the forecast until the last job of the node is done. The queue says for each job why
    it waits.

    \b
    Examples:
      dlsched cluster status
      dlsched cluster status --json | jq '.jobs[] | select(.state != "running") | .name'
    """
    found = _status(config, run_dir)
    if output == "json":
        from dlsched.api.codec import as_json

        print_json(as_json(found))
        return
    from dlsched.cli.pages.cluster import show_cluster

    show_cluster(found, Page())


@cluster.command(short_help="Explain on which node a job is, and why.")
@click.argument("job")
@options.output
@options.asking
def why(job: str, output: str, config: Path | None, run_dir: Path | None) -> None:
    """Show where a job is, why it is there or waits, and what happened to it since the controller
    began: of each move what was expected and what came of it, and which other nodes were refused.

    \b
    Examples:
      dlsched cluster why resnet
      dlsched cluster why resnet --json
    """
    found = _status(config, run_dir)
    rows: tuple[JobRow | QueueRow, ...] = (*found.jobs, *found.queue)
    row = next((one for one in rows if one.name == job), None)
    if row is None:
        raise DlschedError(f"{job}: no job of the cluster{_elsewhere(found)}")
    if output == "json":
        from dlsched.api.codec import as_json

        print_json(as_json(row))
        return
    from dlsched.cli.pages.cluster import show_job

    show_job(row, found, Page())


@cluster.command(short_help="Move a node's jobs away, and place no other there.")
@click.argument("node")
@options.config
def drain(node: str, config: Path | None) -> None:
    """Move a node's jobs away, one after the other, and place no other there. NODE is the host's
    name or the node's id. A job that cannot be moved runs on to its end.

    \b
    Example:
      dlsched cluster drain gpu-2
    """
    with _store(config) as store:
        name = _node(node, store.nodes())
        store.drain(name)
    say(f"{node}: its jobs move away; `dlsched cluster undrain {node}` lets it take jobs again")


@cluster.command(short_help="Let a drained node take jobs again.")
@click.argument("node")
@options.config
def undrain(node: str, config: Path | None) -> None:
    """Let a drained node take jobs again. NODE is the host's name or the node's id.

    \b
    Example:
      dlsched cluster undrain gpu-2
    """
    with _store(config) as store:
        name = _node(node, store.nodes())
        store.drain(name, on=False)
    say(f"{node}: takes jobs again")


@cluster.command(short_help="Move a job to a node.")
@click.argument("job")
@click.argument("node")
@options.config
def move(job: str, node: str, config: Path | None) -> None:
    """Ask for a job to be moved to a node, whatever it costs. It saves a checkpoint first, and the
    node must have room for it. A move that cannot begin within a minute is given up, or within ten
    where the image has to be pulled. NODE is the host's name or the node's id.

    \b
    Example:
      dlsched cluster move resnet gpu-3
    """
    with _store(config) as store:
        if job not in store.records():
            raise DlschedError(f"{job}: no job of the cluster that has a node")
        store.ask(Request(Wanted.MOVE, job, _node(node, store.nodes())))
    say(f"{job}: the move is asked for; `dlsched cluster why {job}` shows its result")


@cluster.command(short_help="Place and move nothing until `resume`.")
@options.config
def pause(config: Path | None) -> None:
    """Place and move nothing until `dlsched cluster resume`. Moves that are under way come to their
    end, and jobs whose file is removed end.

    \b
    Example:
      dlsched cluster pause
    """
    with _store(config) as store:
        store.ask(Request(Wanted.PAUSE))
    say("paused: `dlsched cluster resume` ends the pause")


@cluster.command(short_help="Place and move jobs again.")
@options.config
def resume(config: Path | None) -> None:
    """Place and move jobs again after a pause.

    \b
    Example:
      dlsched cluster resume
    """
    with _store(config) as store:
        store.done(Request(Wanted.PAUSE))
    say("jobs are placed and moved again")


@cluster.command(short_help="Give up a node that is switched off; its jobs start elsewhere.")
@click.argument("node")
@click.option(
    "--i-know-it-is-off",
    "is_off",
    is_flag=True,
    help="The host is switched off, or its containers are ended.",
)
@options.config
def forget(node: str, is_off: bool, config: Path | None) -> None:
    """Give up a node that is off: its jobs start elsewhere, from the beginning where only that node
    had their checkpoint. NODE is the host's name or the node's id.

    The cluster cannot see whether a node that does not answer still runs its containers. If it
    does, a job runs twice until the node is back and ends its own. A node that answers is not
    forgotten.

    \b
    Example:
      dlsched cluster forget gpu-2 --i-know-it-is-off
    """
    if not is_off:
        raise click.UsageError(
            f"make sure that {node} is switched off, then say so with --i-know-it-is-off: "
            "if its containers still run, its jobs run twice"
        )
    with _store(config) as store:
        members = store.nodes()
        left = any(node in (one.record.on, one.record.source) for one in store.records().values())
        name = node if left else _node(node, members)
        if name in members and members[name].up:
            raise DlschedError(f"{node} is not off: it answers")
        store.ask(Request(Wanted.FORGET, name))
    say(f"{node}: given up; its jobs start on other nodes, as `dlsched cluster status` shows")


def _status(config: Path | None, run_dir: Path | None) -> ClusterStatus:
    from dlsched.cluster.status_file import read_status

    return read_status(options.run_dir_of(config, run_dir))


def _elsewhere(found: ClusterStatus) -> str:
    if found.leader == found.manager:
        return "; `dlsched cluster status` lists them"
    leader = f"manager {found.leader}" if found.leader else "the leading manager"
    return f" is known here: ask on {leader}"


@contextmanager
def _store(config: Path | None) -> Iterator[ClusterStore]:
    """The cluster's store. Its errors become those of commands."""
    from dlsched.cluster.store import StoreError
    from dlsched.daemon.cluster_wiring import in_one_line, opened_store

    try:
        with opened_store(options.settings(config)) as store:
            yield store
    except StoreError as error:
        raise in_one_line(error) from error


def _node(asked: str, members: Mapping[str, Member]) -> str:
    """The name of the node of that name, or on the host of that name."""
    if asked in members:
        return asked
    found = [name for name, one in members.items() if one.host == asked]
    if len(found) == 1:
        return found[0]
    if found:
        raise DlschedError(f"{asked}: several nodes have that host's name: {', '.join(found)}")
    known = ", ".join(sorted(one.host or name for name, one in members.items())) or "none"
    raise DlschedError(f"{asked}: no node of the cluster, which has: {known}")
