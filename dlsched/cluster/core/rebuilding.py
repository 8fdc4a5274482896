"""Records from what the nodes hold, when the store has lost them.

A new swarm, as after the loss of all managers, has no records, while the nodes run on with what
they own. The node with the highest epoch of a job owns it. Managers submit their files one after
the other, so this is done for each job that is desired and has no record. A node that lies can so
claim a new job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlsched.cluster.core.job_memory import DesiredJob
from dlsched.cluster.core.leases import RUNS, leased
from dlsched.cluster.core.ledger import ClusterFacts
from dlsched.cluster.core.records import Holding, Phase, Record, RecordState

_OWNS = (*RUNS, Phase.AWAY, Phase.ENDED)
"""Phases of the node that a record named as the owner."""


def holds(one: Holding) -> bool:
    """Whether a record may be lost that names its node as the owner."""
    return one.phase in _OWNS


def lost(facts: ClusterFacts) -> dict[str, dict[str, Holding]]:
    """What nodes hold of desired jobs whose records the store has lost, by job and node."""
    missing = facts.desired.keys() - facts.records.keys()
    if not missing:
        return {}
    holdings = facts.holdings()
    return {
        job: holdings[job]
        for job in sorted(missing & holdings.keys())
        if any(map(holds, holdings[job].values()))
    }


def rebuilt(job: str, desired: DesiredJob, holdings: Mapping[str, Holding]) -> Record:
    """The record of a job from what each node holds of it. `holdings`: by node, at least one."""
    record = _rebuilt(job, holdings)
    owner = holdings.get(record.on)
    known = owner is not None and owner.file == desired.version
    return leased(record, desired.spec) if known else record


def _rebuilt(job: str, holdings: Mapping[str, Holding]) -> Record:
    """Without what its node runs it by."""
    epoch = max(one.epoch for one in holdings.values())
    latest = {node: one for node, one in sorted(holdings.items()) if one.epoch == epoch}
    owner = next((node for node, one in latest.items() if one.phase in _OWNS), None)
    left = _left(holdings, epoch)
    if owner and left:
        state, saved = RecordState.MOVING, holdings[left].saved
        return Record(job, state, owner, epoch, source=left, saved=saved)
    if owner:
        return Record(job, RecordState.PLACED, owner, epoch, first=epoch)
    if left:
        return Record(job, RecordState.UNDOING, min(latest), epoch, source=left)
    # The next placement has a higher epoch than all that the nodes know.
    why = "the job's record was lost, and no node has the job"
    return Record(job, RecordState.ENDED, min(latest), epoch, why=why)


def held_twice(facts: ClusterFacts) -> Iterator[str]:
    """Jobs that a node runs which is not the owner, at an epoch that the record does not know: no
    order to end it can be right. Such a node was silent while records were rebuilt, or lies."""
    for node, report in sorted(facts.reports.items()):
        for one in report.holdings:
            record = facts.records.get(one.job)
            if record is None or record.state is not RecordState.PLACED or record.on == node:
                continue
            if one.phase in RUNS and one.epoch >= record.epoch:
                yield (
                    f"{one.job}: {node} runs the job at epoch {one.epoch}, the job's record names "
                    f"{record.on} "
                    f"at epoch {record.epoch}: remove the job's file to end both"
                )


def _left(holdings: Mapping[str, Holding], epoch: int) -> str | None:
    """The node that has set the job aside for the owner of that epoch."""
    away = [
        (one.epoch, node)
        for node, one in holdings.items()
        if one.phase is Phase.AWAY and one.epoch < epoch
    ]
    return max(away)[1] if away else None
