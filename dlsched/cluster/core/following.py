"""How a node's agent follows orders: from what it holds of a job and an order to the next phase.

An order comes late, twice, or from a controller that no longer leads. Its epoch decides.

    order       what is held of the job                     next phase
    ----------  ------------------------------------------  ----------
    any         a higher epoch                              refused
    any         fenced at this epoch or a higher one        none: it is done
    prepare     nothing, prepared, failed or fenced         prepared
    arrive      nothing, a lower epoch, prepared            arriving
    leave       running, this epoch                         saving
    give_back   saving or refused, this epoch or less       running
    give_back   away, a lower epoch                         running
    give_back   running or ended, a lower epoch             the same, in this epoch
    give_back   nothing: its file is lost                   running, if a container is there
    clear       anything, or nothing                        fenced
    any         any other                                   none

`none` changes nothing: the order was followed before, or what is under way shows in a report.
"""

from __future__ import annotations

from dlsched.cluster.core.records import Order, Phase, Verb

RESERVED_S = 600.0
"""How long room is kept."""
KEPT_S = 90_000.0
"""How long the epoch of a removed job is known: an hour longer than the controller's record."""
GRANTED_S = 600.0
"""How long a checkpoint may be fetched, from when its job was away."""
REFUSED_S = 60.0
"""How long a refusal to leave is reported, until the job can be asked again."""

RUNNING = (Phase.RUNNING, Phase.SAVING, Phase.REFUSED)
"""Phases in which its container runs."""
OCCUPIES = (*RUNNING, Phase.PREPARED, Phase.ARRIVING)
"""Phases in which it needs room."""
CLEARED = (Phase.FENCED, Phase.PREPARED, Phase.ARRIVING)
"""What an earlier stay left is removed, and must not start again meanwhile."""
LEFT = (Phase.FENCED, Phase.PREPARED, Phase.FAILED)
"""Phases in which the job is not the cluster's here: the node may have one of that name."""


def next_phase(held: tuple[int, Phase] | None, order: Order) -> Phase | None:
    """The phase by this order; None: nothing changes. `held`: epoch and phase of the job."""
    if held is None:
        return _FIRST.get(order.verb)
    epoch, phase = held
    if order.epoch < epoch or (phase is Phase.FENCED and order.epoch <= epoch):
        return None
    match order.verb:
        case Verb.PREPARE:
            free = phase in (Phase.PREPARED, Phase.FAILED, Phase.FENCED)
            return Phase.PREPARED if free else None
        case Verb.ARRIVE if order.source is None and phase in (Phase.RUNNING, Phase.REFUSED):
            return Phase.RUNNING if order.epoch > epoch else None  # its file has changed
        case Verb.ARRIVE:
            follows = order.epoch > epoch or phase is Phase.PREPARED
            return Phase.ARRIVING if follows else None
        case Verb.LEAVE:
            leaves = order.epoch == epoch and phase is Phase.RUNNING
            return Phase.SAVING if leaves else None
        case Verb.GIVE_BACK:
            # Once it is away at this epoch another node may own it by now.
            returns = order.epoch > epoch and phase is Phase.AWAY
            if order.epoch > epoch and phase in (Phase.RUNNING, Phase.ENDED):
                return phase
            stays = phase in (Phase.SAVING, Phase.REFUSED)
            return Phase.RUNNING if returns or stays else None
        case Verb.CLEAR:
            return Phase.FENCED


_FIRST = {
    Verb.PREPARE: Phase.PREPARED,
    Verb.ARRIVE: Phase.ARRIVING,
    Verb.GIVE_BACK: Phase.RUNNING,
    Verb.CLEAR: Phase.FENCED,
}
"""Where nothing is held of the job."""
