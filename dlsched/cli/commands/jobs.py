"""Commands on job files: check, schema, submit."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlsched.cli.commands import options
from dlsched.cli.output import print_json, print_text, say
from dlsched.model.errors import DaemonUnavailable, DlschedError, Problem, Refused, SpecError

if TYPE_CHECKING:
    from dlsched.config.metrics.resolving import Presets
    from dlsched.config.settings import Settings
    from dlsched.model.spec import JobSpec

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
_STDIN = Path("-")


@click.command(short_help="Check job files, and show every problem.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=_FILE_OR_STDIN)
@options.output
@options.config
@click.pass_context
def check(ctx: click.Context, files: tuple[Path, ...], output: str, config: Path | None) -> None:
    """Check job files and show every problem as FILE:LINE:COLUMN: path: what. FILE - is standard
    input.

    Ends with 0 if every file is right, with 2 if one is not. No daemon is asked.

    \b
    Examples:
      dlsched check face-unlock.yaml
      generate-job | dlsched check -
      dlsched check jobs/*.yaml --json
    """
    presets = options.presets(config)
    checked = [(file, *_checked(file, presets)) for file in files]
    if output == "json":
        print_json([_as_json(*one) for one in checked])
    else:
        for file, spec, problems in checked:
            if spec is not None:
                print_text(f"{_name(file)}: ok, job {spec.name}")
            for problem in problems:
                say(str(problem))
    if any(problems for _, _, problems in checked):
        ctx.exit(2)


@click.command(short_help="Print the JSON Schema of job files, or of the status.")
@click.argument("what", type=click.Choice(["job", "status"]), default="job")
def schema(what: str) -> None:
    """Print a JSON Schema: of job files (the default), for an editor's completion; or of the status
    that `ps --json` and `why --json` print, and of what `/v1/stream` sends, for programs that read
    it.

    \b
    Examples:
      dlsched schema > dlsched-job.schema.json
      dlsched schema status > dlsched-status.schema.json
    """
    if what == "status":
        from dlsched.api.json_schema import status_schema

        print_json(status_schema())
        return
    from dlsched.config.job import json_schema

    print_json(json_schema())


@click.command(short_help="Check a job file, and put it into the watch folder.")
@click.argument("file", type=_FILE)
@click.option("--start", is_flag=True, help="Also start a job that was stopped or has ended.")
@click.option(
    "--watch",
    metavar="DIR",
    type=options.FOLDER,
    help="The folder (default: the running daemon's, else that of the settings).",
)
@click.option("--cluster", is_flag=True, help="Submit it to the cluster, on a manager.")
@options.asking
def submit(
    file: Path,
    start: bool,
    watch: Path | None,
    cluster: bool,
    config: Path | None,
    run_dir: Path | None,
) -> None:
    """Check a job file and put it into the watch folder, whole or not at all.

    A file of the same name is replaced, and the job changes while it runs where that is possible.
    If the folder has a subfolder of your name that you own, the file goes there.

    With --cluster the folder is that of the setting cluster.watch, on a manager of the cluster. A
    name that another file or manager has, an env_file, and a file that is too long are refused.

    \b
    Examples:
      dlsched submit face-unlock.yaml
      dlsched submit --start face-unlock.yaml
      dlsched submit --cluster resnet.yaml
    """
    from dlsched.config.inbox.submit import own_folder
    from dlsched.config.inbox.submit import submit as put
    from dlsched.config.metrics.loading import load_presets

    if cluster and start:
        raise click.UsageError("a job of the cluster starts by itself: --start is for one host")
    flags = {"cluster.watch" if cluster else "watch": watch, "run_dir": run_dir}
    settings = options.settings(config, flags)
    if cluster:
        _submit_to_cluster(file, settings)
        return
    running = _running(settings) if watch is None else settings.watch
    _status_of(running)
    folder = own_folder(running)
    presets = load_presets(settings.presets)
    spec = put(_read(file), file.name, folder, presets=presets)
    print_text(str(folder / file.name))
    if start:
        _start(spec.name, settings)


def _submit_to_cluster(file: Path, settings: Settings) -> None:
    from dlsched.cluster.core.carried import unmovable_across
    from dlsched.cluster.submitted import submit_file
    from dlsched.config.metrics.loading import load_presets
    from dlsched.daemon import cluster_wiring

    folder, presets = settings.cluster.watch, load_presets(settings.presets)
    with cluster_wiring.opened_manager(settings) as (manager, store):
        if os.geteuid() not in (0, _status_of(folder).st_uid):
            raise DlschedError(
                f"{folder}: only root and the folder's owner may submit jobs to it: run this "
                "command as root"
            )
        spec, silent = submit_file(_read(file), file.name, folder, store, manager, presets)
    print_text(str(folder / file.name))
    if silent:
        say(f"{file.name}: submitted, but not compared with the cluster's jobs: {silent}")
    if (why := unmovable_across(spec)) is not None:
        say(f"{file.name}: the job stays on its first node: {why}")


def _status_of(folder: Path) -> os.stat_result:
    try:
        return folder.stat()
    except FileNotFoundError:
        raise DlschedError(f"{folder} does not exist: mkdir -p {folder}") from None


def _running(settings: Settings) -> Path:
    """The running daemon's folder; without a daemon that of the settings."""
    with suppress(DaemonUnavailable):
        return Path(str(options.daemon_of(settings).about()["watch"]))
    return settings.watch


def _start(job: str, settings: Settings) -> None:
    """Through the daemon, immediately; without one, in the records for its next start."""
    from dlsched.store.jobs import ask_start, ended_records

    try:
        options.daemon_of(settings).start(job)
    except DaemonUnavailable:
        ask_start(ended_records(settings.state_dir), job)
    except Refused as error:
        if error.status != 404:  # a job that the daemon does not know yet starts by itself
            raise


def _checked(file: Path, presets: Presets) -> tuple[JobSpec | None, tuple[Problem, ...]]:
    """The job or its problems."""
    from dlsched.config.job import env_file_reader, parse_spec

    try:
        spec = parse_spec(_read(file), _name(file), env_file_reader(file.parent), presets=presets)
    except SpecError as error:
        return None, error.problems
    return spec, ()


def _read(file: Path) -> str:
    from dlsched.config.text import SIZE_MAX_BYTES, read_text, utf8_text

    if file != _STDIN:
        return read_text(file, SpecError)
    if sys.stdin is None:  # the shell's <&-
        raise SpecError((Problem(_name(file), 0, 0, "", "standard input is closed"),))
    try:
        content = sys.stdin.buffer.read(SIZE_MAX_BYTES + 1)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise SpecError((Problem(_name(file), 0, 0, "", what),)) from error
    return utf8_text(content, _name(file), SpecError)


def _name(file: Path) -> str:
    return "<stdin>" if file == _STDIN else str(file)


def _as_json(file: Path, spec: JobSpec | None, problems: tuple[Problem, ...]) -> dict[str, Any]:
    from dlsched.api.codec import as_json

    return {
        "file": _name(file),
        "job": None if spec is None else spec.name,
        "problems": [as_json(problem) for problem in problems],
    }
