"""Whether anything of a job may still run where it was: until then it starts nowhere else."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dlsched.cluster.core.following import RUNNING
from dlsched.cluster.core.records import Phase, Record, is_fenced
from dlsched.cluster.core.transit import Held

RUNS = (*RUNNING, Phase.ARRIVING)
"""Phases in which a node has, or makes, a container of the job that is not set aside."""


def may_run(
    record: Record, held: Held, members: Mapping[str, bool], gone: Collection[str]
) -> str | None:
    """Why a job whose record has ended may still run; None: it does not. `members`: whether their
    engine is up; `gone`: nodes on which nothing of it runs any more, though they do not answer."""
    for node, one in sorted(held.holdings.items()):
        if one.phase in (*RUNS, Phase.FAILED):
            return f"it is still being ended on {node}"
    owner = record.on
    if record.exit_code is not None or record.off or owner in gone:
        return None
    if owner in held.answered:
        fenced = is_fenced(held.holdings.get(owner), record.epoch)
        return None if fenced else f"it is still being ended on {owner}"
    if members.get(owner):
        return f"{owner} does not answer, and may still run it: is dlsched running there?"
    what = "is down" if owner in members else "has left the swarm"
    return (
        f"{owner} {what}, and may still run it; if it is off: "
        f"dlsched cluster forget {owner} --i-know-it-is-off"
    )
