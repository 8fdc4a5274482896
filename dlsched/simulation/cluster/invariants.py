"""What must hold of a simulated cluster in every cycle, by its truth.

I1  At most one container of a job runs.
I2  A move loses no acknowledged step, and its source keeps the checkpoint until it has arrived.
I3  Every job has an owner or waits for one, and no order is sent before the record that calls for
    it is committed.
I4  A controller that dies, or that is there twice, changes no outcome: of the writes that know one
    version of a record one is committed, an epoch has one owner, and no agent goes back to an
    epoch before the one that it knows.
I5  Owners and epochs change only by a controller's write. An agent that is cut off starts nothing
    but what its last order named.
I6  A job that is withdrawn ends, whatever move is under way, and is not started again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.cluster.core.following import RUNNING
from dlsched.cluster.core.records import Order, Phase, Record, RecordState, Saved, Verb
from dlsched.cluster.store import Stored
from dlsched.simulation.cluster.network import HeldState, SimulatedAgents
from dlsched.simulation.node.training import Training


@dataclass(frozen=True, slots=True)
class Moment:
    now_s: float
    records: Mapping[str, Record]
    """The store's, by job."""
    running: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Nodes on which a container of it runs, by job."""
    held: Mapping[str, Mapping[str, HeldState]] = field(default_factory=dict)
    """Epoch and phase of each job in the files of an agent, by node."""
    cut_off: Collection[str] = ()
    """Nodes that run, but that no message reaches."""
    heard_s: Mapping[str, float] = field(default_factory=dict)
    """When the last answer of a node came to the controller."""
    steps: Mapping[str, int] = field(default_factory=dict)
    """How far a training that runs is, by job; the least of several."""
    stored: Mapping[str, Saved] = field(default_factory=dict)
    """Checkpoints in storage that every node has, by job."""
    keeps: Callable[[str, str, int], Saved | None] = lambda *_: None
    """Node, job, epoch: the checkpoint that the node has set aside."""


def moment_of(records: Mapping[str, Record], cluster: SimulatedAgents) -> Moment:
    running: dict[str, list[str]] = {}
    steps: dict[str, int] = {}
    for name, node in cluster.nodes.items():
        for job, runs in node.runtime.present().items():
            if runs:
                running.setdefault(job, []).append(name)
                load = node.loads[job]
                if isinstance(load, Training):
                    steps[job] = min(load.step, steps.get(job, load.step))

    def keeps(node: str, job: str, epoch: int) -> Saved | None:
        kept = cluster.agents[node].keeps(job, epoch)
        return kept.saved if kept else None

    return Moment(
        cluster.now_s,
        records,
        running,
        {
            name: {job: (own.epoch, own.phase) for job, own in agent.held.items()}
            for name, agent in cluster.agents.items()
        },
        [name for name in cluster.nodes if cluster.is_cut_off(name)],
        dict(cluster.heard_s),
        steps,
        {job: kept.saved for job, kept in cluster.storage.items()},
        keeps,
    )


STARTS_S = 60.0
"""How long a container of a withdrawn job may still start, from the first answer of its node after
the withdrawal was committed: some rounds, as orders come late and are lost."""


class BrokenInvariant(AssertionError):
    """The cluster did what it must never do."""


class Invariants:
    """Raises BrokenInvariant at the first violation."""

    def __init__(self) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        """The store has lost all records: there is nothing to compare with."""
        self._steps: dict[str, int] = {}
        """By job: the step that a completed move has carried, which is never lost again."""
        self._committed: dict[str, Stored] = {}
        """By controllers."""
        self._owners: dict[str, dict[int, str]] = {}
        """Of each epoch, by job."""
        self._withdrawn: dict[str, tuple[float, dict[str, float]]] = {}
        """Since when, and the first answer of each node since then, by job."""
        self._last: Moment | None = None

    # ------------------------------------------------------------------ what happens

    def committed(self, at_s: float, stored: Stored, version: int | None, *, wanted: bool) -> None:
        """A controller that knew `version` has written. `wanted`: whether the job is desired."""
        record, before = stored.record, self._committed.get(stored.record.job)
        job, known = record.job, before.version if before else None
        if version != known or (known is not None and stored.version <= known):
            what = f"was written over version {known} by one who knew {version}"
            self._broken("I4", at_s, job, record.on, what)
        if before is not None and record.epoch < before.record.epoch:
            what = f"goes back from epoch {before.record.epoch} to {record.epoch}"
            self._broken("I4", at_s, job, record.on, what)
        owner = self._owners.setdefault(job, {}).setdefault(record.epoch, record.on)
        if owner != record.on:
            what = f"has epoch {record.epoch}, which was {owner}'s"
            self._broken("I4", at_s, job, record.on, what)
        self._committed[job] = stored
        if record.state is RecordState.ENDED and not wanted:
            self._withdrawn.setdefault(job, (at_s, {}))
        elif wanted:
            self._withdrawn.pop(job, None)
        elif job in self._withdrawn:
            self._broken("I6", at_s, job, record.on, f"was withdrawn and is {record.state} again")

    def removed(self, at_s: float, record: Record) -> None:
        """A controller has removed this record."""
        if record.state is not RecordState.ENDED:
            self._broken("I3", at_s, record.job, record.on, f"loses its record, {record.state}")
        self._committed.pop(record.job, None)
        self._owners.pop(record.job, None)
        self._withdrawn.pop(record.job, None)

    def sent(self, at_s: float, order: Order, record: Record | None) -> None:
        """An order was sent while that was the job's record."""
        if record is None or not _CALLS_FOR[order.verb](record, order):
            self._broken(
                "I3", at_s, order.job, order.node, f"has {order.verb} {order.epoch} for {record}"
            )

    def followed(
        self, at_s: float, order: Order, before: HeldState | None, after: HeldState | None
    ) -> None:
        """An agent has got that order."""
        if before is None or before == after or order.epoch > before[0]:
            return
        epoch, phase = before
        if order.epoch < epoch:
            what = f"follows {order.verb} {order.epoch}, knows epoch {epoch}"
            self._broken("I4", at_s, order.job, order.node, what)
        elif phase is Phase.FENCED:
            what = f"follows {order.verb} {order.epoch} after it was removed"
            self._broken("I6", at_s, order.job, order.node, what)

    def decided(
        self,
        at_s: float,
        desired: Mapping[str, str],
        waiting: Collection[str],
        records: Mapping[str, Record],
    ) -> None:
        """A controller has done a whole round. `desired`: the digest of each job; `waiting`: those
        that stand in the queue, or whose record changed meanwhile."""
        for job, digest in desired.items():
            record = records.get(job)
            if (record is None or record.wants_place(digest)) and job not in waiting:
                self._broken("I3", at_s, job, "", "has no owner and does not wait for one")
        for job, record in records.items():
            if job not in desired and record.state is not RecordState.ENDED:
                self._broken("I6", at_s, job, record.on, f"is withdrawn and is {record.state}")

    # ------------------------------------------------------------------ what is

    def check(self, now: Moment) -> None:
        self._is_owned(now)
        for job, record in now.records.items():
            self._is_saved(job, record, now)
        self._has_writer(now)
        if self._last is not None:
            self._has_epochs(now, self._last)
            self._is_cut_off(now, self._last)
            self._is_withdrawn(now, self._last)
        self._last = now

    def _is_owned(self, now: Moment) -> None:
        for job, nodes in now.running.items():
            node, *others = nodes
            if others:
                self._broken("I1", now.now_s, job, node, f"runs on {', '.join(others)}, too")
            record = now.records.get(job)
            if record is None:
                self._broken("I3", now.now_s, job, node, "runs without a record")
            elif record.state is not RecordState.ENDED and record.on != node:
                self._broken("I3", now.now_s, job, node, f"runs, its record is {record}")

    def _is_saved(self, job: str, record: Record, now: Moment) -> None:
        shared = now.stored.get(job)
        if record.state in (RecordState.MOVING, RecordState.UNDOING):
            assert record.source is not None and record.saved is not None
            if (shared or now.keeps(record.source, job, record.epoch)) != record.saved:
                self._broken("I2", now.now_s, job, record.source, "is no longer kept")
            self._steps[job] = max(self._steps.get(job, 0), record.saved.step)
        if shared is not None:
            self._steps[job] = max(self._steps.get(job, 0), shared.step)
        step, saved = now.steps.get(job), self._steps.get(job, 0)
        if step is not None and step < saved:
            what = f"goes on from step {step}, {saved} was saved"
            self._broken("I2", now.now_s, job, now.running[job][0], what)

    def _has_writer(self, now: Moment) -> None:
        for job in now.records.keys() | self._committed.keys():
            record, committed = now.records.get(job), self._committed.get(job)
            if record != (committed.record if committed else None):
                node = record.on if record else ""
                self._broken("I5", now.now_s, job, node, f"has a record of no controller: {record}")

    def _has_epochs(self, now: Moment, last: Moment) -> None:
        for node, jobs in now.held.items():
            before = last.held.get(node, {})
            for job, (epoch, _) in jobs.items():
                if job in before and epoch < before[job][0]:
                    what = f"goes back from epoch {before[job][0]} to {epoch}"
                    self._broken("I4", now.now_s, job, node, what)

    def _is_cut_off(self, now: Moment, last: Moment) -> None:
        for node in set(now.cut_off) & set(last.cut_off):
            before = last.held.get(node, {})
            for job, held in now.held.get(node, {}).items():
                epoch, phase = held
                was = before.get(job)
                if was is None or epoch != was[0]:
                    what = f"is at epoch {epoch} without an order, was {was}"
                    self._broken("I5", now.now_s, job, node, what)
                elif phase is not was[1] and was[1] not in _MAY_START.get(phase, Phase):
                    self._broken("I5", now.now_s, job, node, f"is {phase}, was {was[1]}")
            for job, nodes in now.running.items():
                named = before.get(job)
                starts = node in nodes and node not in last.running.get(job, ())
                if starts and (named is None or named[1] not in _NAMED):
                    self._broken(
                        "I5", now.now_s, job, node, f"starts without an order, was {named}"
                    )

    def _is_withdrawn(self, now: Moment, last: Moment) -> None:
        for job, (since_s, answered_s) in self._withdrawn.items():
            for node, heard_s in now.heard_s.items():
                if heard_s > since_s:
                    answered_s.setdefault(node, heard_s)
            for node in now.running.get(job, ()):
                until_s = answered_s.get(node, now.now_s) + STARTS_S
                if node not in last.running.get(job, ()) and now.now_s > until_s:
                    what = f"starts, was withdrawn at {since_s:g} s"
                    self._broken("I6", now.now_s, job, node, what)

    def _broken(self, rule: str, at_s: float, job: str, node: str, what: str) -> None:
        where = f" on {node}" if node else ""
        raise BrokenInvariant(f"{rule} at {at_s:g} s: {job}{where} {what}")


_NAMED = (*RUNNING, Phase.ARRIVING)
_MAY_START: Mapping[Phase, Collection[Phase]] = {
    **dict.fromkeys(RUNNING, _NAMED),
    Phase.ARRIVING: (),
}
"""From which phases a job comes into this one without an order; into any other, from all."""


def _prepares(record: Record, order: Order) -> bool:
    return record.state is RecordState.PLACED and record.epoch == order.epoch


def _owns(*states: RecordState) -> Callable[[Record, Order], bool]:
    return lambda record, order: (
        record.state in states and (record.on, record.epoch) == (order.node, order.epoch)
    )


def _arrives(record: Record, order: Order) -> bool:
    owns = _owns(RecordState.PLACED, RecordState.MOVING)(record, order)
    return owns and (record.source, record.saved) == (order.source, order.saved)


def _clears(record: Record, order: Order) -> bool:
    if record.state is RecordState.ENDED and record.exit_code is None:
        return True
    if record.on != order.node:
        return order.epoch < record.epoch
    return _owns(RecordState.UNDOING)(record, order)


_CALLS_FOR: Mapping[Verb, Callable[[Record, Order], bool]] = {
    Verb.PREPARE: _prepares,
    Verb.ARRIVE: _arrives,
    Verb.LEAVE: _owns(RecordState.LEAVING),
    Verb.GIVE_BACK: _owns(RecordState.PLACED, RecordState.RETURNING),
    Verb.CLEAR: _clears,
}
"""Whether a record calls for an order, by its verb."""
