"""How long a job may run on a node that no manager reaches, when another node may have it, and
whether anything of it may still run: until then it starts nowhere else.

Both sides count for themselves, by clocks that never go back: the controller from the last report
that came, the node's agent from the last one that came by what the next request says. So the agent
never counts from later than the controller, and no clock is compared with another host's. An order
to start the job counts, too, as it follows a report.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from dlsched.cluster.core.following import RUNNING
from dlsched.cluster.core.records import Phase, Record, is_fenced
from dlsched.cluster.core.transit import Held
from dlsched.model.spec import JobSpec

LEASE_S = 90.0
"""An agent ends leased jobs after this time without contact: nine of the controller's rounds, so
that neither a new leader nor a restart of the agent ends them."""

UNKNOWN_ENDS_S = 7200.0
"""Of a record that does not say: a job file may ask for an hour to save itself, and one to end."""

MARGIN_S = 80.0
"""Beside what a job may take to save itself and to end: for the cycles of an agent, SIGKILL where a
job does not end, an order that is late, and a controller that asks for reports although it no
longer leads."""


def is_leased(spec: JobSpec, *, confirmed: bool) -> bool:
    """Whether another node may get the job while this one is cut off: it has arrived, and is not
    `confirmed`, or it is to start elsewhere."""
    return not confirmed or spec.failover == "restart"


def leased(record: Record, spec: JobSpec) -> Record:
    """The record of a job that runs by that specification; the same one where nothing differs."""
    ends_s, failover = _terms(spec)
    if (record.digest, record.ends_s, record.failover) == (spec.digest, ends_s, failover):
        return record  # each round asks it of every job
    return replace(record, digest=spec.digest, ends_s=ends_s, failover=failover)


def weakened(record: Record, spec: JobSpec) -> Record:
    """The record of a job that runs by another specification than that, or by that one already: its
    node has not said which. Only what both allow counts. The same one where nothing differs."""
    ends_s, failover = _terms(spec)
    ends_s = max(record.ends_s, ends_s) if record.ends_s else 0
    failover = record.failover and failover
    if (record.ends_s, record.failover) == (ends_s, failover):
        return record
    return replace(record, ends_s=ends_s, failover=failover)


def _terms(spec: JobSpec) -> tuple[int, bool]:
    """`ends_s` and `failover` of a record."""
    saves_s = spec.checkpoint.timeout_s if spec.checkpoint is not None else 0.0
    return max(math.ceil(saves_s + spec.stop.grace_s), 1), spec.failover == "restart"


def over_s(record: Record) -> float:
    """Time since a node's last answer after which a leased job has ended there. Not so where the
    node's agent is dead, too, and its containers run on."""
    return LEASE_S + (record.ends_s or UNKNOWN_ENDS_S) + MARGIN_S


class Absent(NamedTuple):
    """Nodes that are not there, as far as one job is concerned."""

    gone: frozenset[str]
    """Nothing of it runs there any more."""
    off: Mapping[str, str]
    """They do not come back with it, and why."""


_NONE = Absent(frozenset(), {})


def absent_for(
    record: Record, down_s: Mapping[str, float], forgotten: Collection[str], *, paused: bool
) -> Absent:
    """Which nodes are absent for that job, by the file that it runs by, whatever is desired now.
    `down_s`: nodes that the store calls down, with the time since their last answer, which counts
    only together; `forgotten`: those that a person declared off. Nothing starts elsewhere while it
    is paused."""
    if not down_s and not forgotten:
        return _NONE
    off = dict.fromkeys(forgotten, "the job's node was declared off")
    over = {node for node, silent_s in down_s.items() if silent_s > over_s(record)}
    if record.failover and not paused:
        off = {**dict.fromkeys(over, "the job's node is down, and the lease has run out"), **off}
    return Absent(frozenset({*over, *forgotten}), off)


RUNS = (*RUNNING, Phase.ARRIVING)
"""Phases in which a node has, or makes, a container of the job that is not set aside."""


def may_run(
    record: Record, held: Held, members: Mapping[str, bool], gone: Collection[str]
) -> str | None:
    """Why a job whose record has ended may still run; None: it does not. `members`: whether their
    engine is up; `gone`: nodes on which nothing of it runs any more, though they do not answer."""
    for node, one in sorted(held.holdings.items()):
        if one.phase in (*RUNS, Phase.FAILED):
            return f"the job is still being ended on {node}"
    owner = record.on
    if record.exit_code is not None or record.off or owner in gone:
        return None
    if owner in held.answered:
        fenced = is_fenced(held.holdings.get(owner), record.epoch)
        return None if fenced else f"the job is still being ended on {owner}"
    if members.get(owner):
        return f"{owner} does not answer, and may still run the job: is dlsched running there?"
    what = "is down" if owner in members else "has left the swarm"
    return (
        f"{owner} {what}, and may still run the job; if {owner} is off: `dlsched cluster "
        f"forget {owner} --i-know-it-is-off`"
    )
