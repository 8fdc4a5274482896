"""Whether anything of a job may still run where it was: until then it starts nowhere else."""

from __future__ import annotations

from collections.abc import Collection

from dlsched.cluster.core.following import RUNNING
from dlsched.cluster.core.records import Phase, Record
from dlsched.cluster.core.transit import Held

RUNS = (*RUNNING, Phase.ARRIVING)
"""Phases in which a node has, or makes, a container of the job that is not set aside."""


def may_run(
    record: Record, held: Held, members: Collection[str], gone: Collection[str]
) -> str | None:
    """Why a job whose record has ended may still run; None: it does not. `gone`: nodes on which
    nothing of it runs any more, though they do not answer."""
    for node, one in sorted(held.holdings.items()):
        if one.phase in (*RUNS, Phase.FAILED):
            return f"it is still being ended on {node}"
    owner = record.on
    if record.exit_code is None and owner in members and owner not in (*held.answered, *gone):
        return f"{owner} does not answer, and may still run it"
    return None
