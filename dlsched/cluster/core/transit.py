"""Moves between nodes: from a job's record and what agents hold of it to the next acts.

The table below is the whole rule. It has no memory but `waited_s`: the next controller reaches the
same acts from the store and the agents alone. A write comes before its acts. The phase on the left
is the present owner's; `-` stands for none or a lower epoch.

    record             agents                        -> write                 orders
    -----------------  ----------------------------     --------------------  ----------------
    placed on A e      A -, never started               -                     arrive A e
                       A off                            ended                 -
                       A saving e                       -                     give_back A e
                       A away e, or - and started       returning on A, e + 1 -
                       A ended e, or fenced e           ended                 -
                       A runs or ended e + n            placed on A, e + n    -
                       A fenced e + n                   placed on A, e + n+1  -
                       another node has less than e     -                     clear it
    leaving A to B e   A running e, B prepared e        -                     leave A e
                       A off                            ended                 -
                       A away e, B prepared e           moving on B, e + 1    -
                       A away e, without a checkpoint   returning on A, e + 1 -
                       A ended e                        placed on A e         -
                       A refused e, B not prepared      placed on A e         -
                       A -                              returning on A, e + 1 -
                       A silent                         -                     -
    moving on B e      B - or prepared                  -                     arrive B e from A
                       B running e, step >= saved       placed on B e         -
                       B ended e, exit code 0           placed on B e         -
                       B failed or ended e, or away     undoing               -
                       B silent or slow for too long    undoing               -
    undoing on B e     B fenced at e, or gone           returning on A, e + 1 -
                       B any other                      -                     clear B e
    returning on A e   A less than e                    -                     give_back A e
                       A off                            ended                 -
                       A running or ended e             placed on A e         -
    ended e            a node has it                    -                     clear it
                       A -, no exit code                -                     clear A e
                       A fenced e, no exit code         ended, nothing awaited -

A node is gone when a person declared it off, or when it is down and the lease of its jobs has run
out (see `leases`), so that its agent has ended them. It is off for a job if it does not come back
with it: a person declared that, or it is gone and the job is to start elsewhere. What has ended so
is placed again, and so is a job that its node could not start: it has ended without an exit code,
or its agent has fenced it. A node that knows a job's new placement by a higher epoch (e + n) has
kept that from before the store lost the job's records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from dlsched.cluster.core.following import RUNNING
from dlsched.cluster.core.records import (
    LIKELY_EPOCH_MAX,
    Holding,
    Order,
    Phase,
    Record,
    RecordState,
    Saved,
    Verb,
    end_job,
    is_fenced,
)

_WAITS_FOR_OWNER = (RecordState.PLACED, RecordState.LEAVING, RecordState.RETURNING)
"""While its owner is silent, nothing else can go on with the job."""


class Held(NamedTuple):
    """What the nodes hold of one job."""

    answered: Collection[str]
    """All nodes that answered. The others are silent."""
    holdings: Mapping[str, Holding]
    """By node that holds something of it."""


ARRIVAL_S = 180.0
"""From a move's record, or the last bytes of its checkpoint, until its container runs on the
target."""
REPORT_S = 900.0
"""From then until the first report from there: evaluations may be rare."""
LEAST_BYTES_PER_S = 1 << 20
"""Bytes that come after the checkpoint should have been there at this rate do not count: else a
target could keep the job for as long as it reports a few."""
LONGEST_S = 86_400.0
"""However large its source says that the checkpoint is."""


def fetch_s(saved: Saved) -> float:
    """How long bytes of that checkpoint count, from the record."""
    return min(ARRIVAL_S + saved.size_bytes / LEAST_BYTES_PER_S, LONGEST_S)


@dataclass(frozen=True, slots=True)
class Acts:
    """What to do next: a record to write, after which the table is asked again; or orders."""

    write: Record | None = None
    orders: tuple[Order, ...] = ()
    failed: str = ""
    """Why the move under way is given up."""


_NOTHING = Acts()


def begin_move(record: Record, target: str, held: Held) -> Acts:
    """The first acts of a move: room and the image on the target, then the record."""
    there = held.holdings.get(target)
    if is_preparing(record, there) and not (there and there.why):
        return Acts(replace(record, state=RecordState.LEAVING, target=target))
    return Acts(orders=(Order(Verb.PREPARE, target, record.job, record.epoch),))


def is_preparing(record: Record, there: Holding | None) -> bool:
    """Whether the target of a move keeps room for it; until it has the image, it says why not."""
    return _is(there, record.epoch, Phase.PREPARED)


def next_acts(
    record: Record,
    held: Held,
    waited_s: float = 0.0,
    gone: Collection[str] = (),
    off: Mapping[str, str] = MappingProxyType({}),
) -> Acts:
    """The row of the table. `waited_s`: how long the record has been as it is, and no bytes of a
    checkpoint have come; `off`: why, by node."""
    if record.on in off and record.state in _WAITS_FOR_OWNER:
        return Acts(end_job(record, off[record.on], off=True))
    return _ROWS[record.state](_Case(record, held, waited_s, gone))


@dataclass(frozen=True, slots=True)
class _Case:
    record: Record
    held: Held
    waited_s: float
    gone: Collection[str]

    @property
    def owner(self) -> Holding | None:
        return self.held.holdings.get(self.record.on)

    @property
    def answers(self) -> bool:
        """Whether the owner has answered."""
        return self.record.on in self.held.answered

    @property
    def has_lost(self) -> bool:
        """Whether the owner holds nothing of it any more."""
        return self.answers and self.owner is None

    def order(self, verb: Verb, node: str | None, epoch: int | None = None) -> Order:
        record = self.record
        assert node is not None
        return Order(verb, node, record.job, record.epoch if epoch is None else epoch)


def _placed(case: _Case) -> Acts:
    record, own = case.record, case.owner
    if _is(own, record.epoch, Phase.RUNNING) and len(case.held.holdings) == 1:
        return _NOTHING
    orders = _clear_others(case)
    if record.epoch == record.first and own is not None and own.epoch > record.epoch:
        return _caught_up(record, own)
    if _is(own, record.epoch, Phase.ENDED, Phase.FENCED):
        assert own is not None
        state = RecordState.ENDED
        return Acts(replace(record, state=state, exit_code=own.exit_code, why=own.why))
    if _is(own, record.epoch, Phase.AWAY) or (case.has_lost and record.epoch != record.first):
        return Acts(_given_back(record))
    if _is(own, record.epoch, Phase.SAVING):
        orders = (*orders, case.order(Verb.GIVE_BACK, record.on))
    elif case.answers and _before(own, record.epoch) and record.epoch == record.first:
        orders = (*orders, case.order(Verb.ARRIVE, record.on))
    return Acts(orders=orders)


def _caught_up(record: Record, own: Holding) -> Acts:
    """The placement with an epoch that its node can follow, or has."""
    epoch = own.epoch if own.phase in (*RUNNING, Phase.ENDED) else own.epoch + 1
    if epoch > LIKELY_EPOCH_MAX or own.phase is Phase.AWAY:
        return _NOTHING
    return Acts(replace(record, epoch=epoch, first=epoch))


def _leaving(case: _Case) -> Acts:
    record, own = case.record, case.owner
    if case.has_lost:
        lost = f"{record.on} no longer has the job's file, so the move ended; the job stays there"
        return Acts(_given_back(record), failed=lost)
    if own is None:
        return Acts()
    stays = replace(record, state=RecordState.PLACED, target=None)
    if _is(own, record.epoch, Phase.ENDED):
        return Acts(stays)
    if _is(own, record.epoch, Phase.REFUSED):
        return Acts(stays, failed=own.why or "the job did not save a checkpoint in time")
    assert record.target is not None
    if not _is(case.held.holdings.get(record.target), record.epoch, Phase.PREPARED):
        return Acts(stays, failed=f"{record.target} no longer reserves room for the job")
    if _is(own, record.epoch, Phase.AWAY) and own.saved is None:
        return Acts(_given_back(record), failed="the job ended without a checkpoint")
    if _is(own, record.epoch, Phase.AWAY):
        return Acts(
            replace(
                record,
                state=RecordState.MOVING,
                on=record.target,
                epoch=record.epoch + 1,
                source=record.on,
                target=None,
                saved=own.saved,
            )
        )
    if own.phase is not Phase.RUNNING:
        return Acts()
    return Acts(orders=(replace(case.order(Verb.LEAVE, record.on), target=record.target),))


def _moving(case: _Case) -> Acts:
    record, own = case.record, case.owner
    epoch, saved = record.epoch, record.saved
    arrived = replace(
        record, state=RecordState.PLACED, source=None, saved=None, moves=record.moves + 1
    )
    undone = replace(record, state=RecordState.UNDOING)
    if not case.answers:
        late = case.waited_s > ARRIVAL_S
        return Acts(undone, failed=f"{record.on} is silent") if late else Acts()
    if _before(own, epoch) or _is(own, epoch, Phase.PREPARED):
        if case.waited_s > ARRIVAL_S:
            return Acts(undone, failed=f"{record.on} does not take the job")
        order = Order(Verb.ARRIVE, record.on, record.job, epoch, record.source, saved)
        return Acts(orders=(order,))
    assert own is not None
    if _is(own, epoch, Phase.ENDED) and own.exit_code == 0:
        return Acts(arrived)
    if own.phase is Phase.RUNNING:
        if own.step is not None and own.step >= (saved.step if saved else 0):
            return Acts(arrived)
        late = case.waited_s > REPORT_S
    else:
        late = own.phase is not Phase.ARRIVING or case.waited_s > ARRIVAL_S
    return Acts(undone, failed=own.why or f"{own.phase} on {record.on}") if late else Acts()


def _undoing(case: _Case) -> Acts:
    record, own = case.record, case.owner
    if is_fenced(own, record.epoch) or record.on in case.gone:
        assert record.source is not None
        return Acts(
            replace(
                record,
                state=RecordState.RETURNING,
                on=record.source,
                source=record.on,
                epoch=record.epoch + 1,
            )
        )
    return Acts(orders=(replace(case.order(Verb.CLEAR, record.on), keeps=False),))


def _returning(case: _Case) -> Acts:
    record, own = case.record, case.owner
    if own is None and not case.answers:
        return Acts()
    if _before(own, record.epoch):
        return Acts(orders=(case.order(Verb.GIVE_BACK, record.on),))
    return Acts(replace(record, state=RecordState.PLACED, source=None, saved=None))


def _ended(case: _Case) -> Acts:
    """One that ended by itself stays where it did, with its output, until its file is removed. Of
    any other its node keeps a fence: an order to start it may still be under way."""
    record, own = case.record, case.owner
    orders = _clear_others(case)
    if record.exit_code is not None:
        return Acts(orders=orders)
    if is_fenced(own, record.epoch):
        return Acts(None if record.off else replace(record, off=True), orders)
    if not case.answers:
        return Acts(orders=orders)
    epoch = record.epoch if own is None else max(own.epoch, record.epoch)
    return Acts(orders=(*orders, case.order(Verb.CLEAR, record.on, epoch)))


_ROWS: dict[RecordState, Callable[[_Case], Acts]] = {
    RecordState.PLACED: _placed,
    RecordState.LEAVING: _leaving,
    RecordState.MOVING: _moving,
    RecordState.UNDOING: _undoing,
    RecordState.RETURNING: _returning,
    RecordState.ENDED: _ended,
}


def _given_back(record: Record) -> Record:
    """It is to go on where it is. A new epoch: a late order of this one must not bring it back once
    another node owns it."""
    state, epoch = RecordState.RETURNING, record.epoch + 1
    return replace(record, state=state, source=record.on, target=None, epoch=epoch)


def _clear_others(case: _Case) -> tuple[Order, ...]:
    """Orders to remove what other nodes still hold of the job from earlier epochs; of one that has
    not ended by itself, from all. What the job has written stays where no move has carried it on:
    of an earlier placement, and once it has ended."""
    record = case.record
    ended = record.state is RecordState.ENDED
    withdrawn = ended and record.exit_code is None
    return tuple(
        replace(case.order(Verb.CLEAR, node, one.epoch), keeps=ended or one.epoch < record.first)
        for node, one in sorted(case.held.holdings.items())
        if node != record.on
        and one.phase is not Phase.FENCED
        # Room that is kept for the next move has the present epoch, and lapses by itself.
        and (one.epoch < record.epoch or withdrawn)
    )


def _is(own: Holding | None, epoch: int, *phases: Phase) -> bool:
    return own is not None and own.epoch == epoch and own.phase in phases


def _before(own: Holding | None, epoch: int) -> bool:
    """Whether an agent that answered has not begun with this epoch."""
    return own is None or own.epoch < epoch
