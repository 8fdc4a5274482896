"""The command `cluster replay`, which asks a policy about recorded rounds of the controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlsched.cli import journals, options
from dlsched.cli.exits import FAILURE
from dlsched.cli.output import one_line, print_json, print_text, say
from dlsched.cluster.naming import host_names
from dlsched.model.errors import NoJournal

if TYPE_CHECKING:
    from dlsched.cluster.journal import RoundReader
    from dlsched.simulation.cluster.replay import ClusterReplay, Difference

_HEAD = f"{'ROW':>6}  {'TIME':<24}  {'JOB':<20}  {'DONE':<16}  {'WOULD':<16}  WHY"


@click.command(short_help="Ask a policy again about recorded rounds.")
@journals.optional
@click.option("--policy", "-p", metavar="NAME", help="Another policy than the one that decided.")
@click.option("--from", "first", metavar="WHEN", help="First round, by row or time.")
@click.option("--to", "last", metavar="WHEN", help="Last round, by row or time.")
@options.output
@options.config
def replay(
    journal: Path | None,
    policy: str | None,
    first: str | None,
    last: str | None,
    output: str,
    config: Path | None,
) -> None:
    """Ask a policy again about what this host's controller has decided, and show where it decides
    otherwise.

    Without --policy it is the recorded policy, with the memory that it had: each decision must be
    reproduced, and the command ends with 1 if one is not. Another policy begins without memory. How
    nodes and jobs would have gone on is not in a journal.

    JOURNAL is a file of rounds (default: that of the controller on this host). --from and --to are
    times, or numbers of rows. DONE and WOULD are where a job is placed, or `> NODE` where it moves.

    \b
    Examples:
      dlsched cluster replay
      dlsched cluster replay --policy spread --from 2026-11-21T14:30 --json
    """
    from dlsched.cluster.journal import FILE_NAME, RoundReader
    from dlsched.daemon.cluster import journal_file
    from dlsched.simulation.cluster.replay import ClusterReplay

    place = journal or journal_file(options.settings(config).state_dir)
    path = journals.file(place, FILE_NAME)
    again = ClusterReplay(policy)
    within = _range(first, "--from"), _range(last, "--to")
    with RoundReader(path) as reader:
        rows = _rows(reader, again, within)
        if output == "json":
            found = {"rows": [asdict(row) for row in rows], "summary": _summary(again)}
        else:
            _show_table(rows, again)
        problem = reader.problem
    asked = again.rounds or again.unasked
    if problem is not None and not asked:
        raise NoJournal(problem)
    if output == "json":
        print_json(found)
    for why, times in again.unasked.items():
        say(f"error: {times} rounds could not be asked about: {why}")
    if problem is not None:
        say(f"error: {problem}; only what could be read is shown")
    elif not asked:
        say(f"error: {path}: no round in that range")
    if problem is not None or again.unasked or not again.rounds:
        raise SystemExit(FAILURE)
    if policy is None and again.same < again.rounds:
        _say_versions(again)
        raise SystemExit(FAILURE)


def _range(when: str | None, option: str) -> int | str | None:
    """A row's number, or a time as it is recorded."""
    found = None if when is None else journals.moment(when, option)
    return found if isinstance(found, int | None) else found.astimezone(UTC).isoformat()[:19]


def _rows(
    reader: RoundReader, again: ClusterReplay, within: tuple[int | str | None, int | str | None]
) -> Iterator[Difference]:
    """What differs, with the nodes' host names."""
    for recorded in reader.rounds(*within):
        names = host_names(recorded.hosts)
        for row in again.take(recorded):
            yield replace(row, done=_by_host(row.done, names), would=_by_host(row.would, names))


def _by_host(action: str, names: Mapping[str, str]) -> str:
    """The action with its node as people know it."""
    node = action.rpartition(" ")[2]
    return action.removesuffix(node) + names.get(node, node)


def _show_table(rows: Iterator[Difference], again: ClusterReplay) -> None:
    head = False
    for row in rows:
        if not head:
            print_text(_HEAD)
            head = True
        print_text(
            one_line(
                f"{row.row:>6}  {row.wall_time:<24}  {row.job:<20}  {row.done:<16}"
                f"  {row.would:<16}  {row.why}".rstrip()
            )
        )
    if not again.rounds:
        return
    what = "reproduced" if again.policy is None else f"decided the same by {again.policy}"
    failed = f"; the policy failed {again.failures} times" if again.failures else ""
    line = f"{again.rounds} rounds, {again.acted} with a placement or a move: {again.same} {what}"
    print_text(one_line(line + failed))


def _summary(again: ClusterReplay) -> dict[str, object]:
    return {
        "policy": again.policy,
        "rounds": again.rounds,
        "acted": again.acted,
        "same": again.same,
        "failures": again.failures,
    }


def _say_versions(again: ClusterReplay) -> None:
    from dlsched import __version__

    others = sorted(again.versions - {__version__})
    if others:
        say(f"decided by dlsched {', '.join(others)}, asked again by {__version__}")
