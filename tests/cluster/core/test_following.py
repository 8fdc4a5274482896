"""The rule by which agents follow orders, cell by cell."""

from __future__ import annotations

import pytest

from dlsched.cluster.core.following import next_phase
from dlsched.cluster.core.records import Order, Phase, Verb

EPOCH = 5
ARRIVES = dict.fromkeys(Phase, "none") | {Phase.PREPARED: "arriving"}
SAME: dict[Verb, dict[Phase, str]] = {
    Verb.PREPARE: dict.fromkeys(Phase, "none")
    | {Phase.PREPARED: "prepared", Phase.FAILED: "prepared"},
    Verb.ARRIVE: ARRIVES,
    Verb.LEAVE: dict.fromkeys(Phase, "none") | {Phase.RUNNING: "saving"},
    Verb.GIVE_BACK: dict.fromkeys(Phase, "none")
    | dict.fromkeys((Phase.SAVING, Phase.REFUSED), "running"),
    Verb.CLEAR: dict.fromkeys(Phase, "fenced") | {Phase.FENCED: "none"},
}
"""By an order of the epoch that is held."""
HIGHER: dict[Verb, dict[Phase, str]] = {
    **SAME,
    Verb.PREPARE: SAME[Verb.PREPARE] | {Phase.FENCED: "prepared"},
    # Where it runs its file has changed.
    Verb.ARRIVE: dict.fromkeys(Phase, "arriving")
    | dict.fromkeys((Phase.RUNNING, Phase.REFUSED), "running"),
    Verb.LEAVE: dict.fromkeys(Phase, "none"),
    Verb.GIVE_BACK: SAME[Verb.GIVE_BACK]
    | {Phase.AWAY: "running", Phase.RUNNING: "running", Phase.ENDED: "ended"},
    Verb.CLEAR: dict.fromkeys(Phase, "fenced"),
}
NOTHING = {
    Verb.PREPARE: "prepared",
    Verb.ARRIVE: "arriving",
    Verb.LEAVE: "none",
    Verb.GIVE_BACK: "running",
    Verb.CLEAR: "fenced",
}


def order(verb: Verb, epoch: int = EPOCH) -> Order:
    return Order(verb, "a", "resnet", epoch)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("verb", Verb)
def test_each_order_in_each_phase(verb: Verb, phase: Phase) -> None:
    held = (EPOCH, phase)
    assert str(next_phase(held, order(verb)) or "none") == SAME[verb][phase]
    assert str(next_phase(held, order(verb, EPOCH + 1)) or "none") == HIGHER[verb][phase]
    assert next_phase(held, order(verb, EPOCH - 1)) is None


def test_a_job_that_comes_from_another_node_takes_the_place_of_what_runs() -> None:
    came = Order(Verb.ARRIVE, "a", "resnet", EPOCH + 1, "b")
    assert next_phase((EPOCH, Phase.RUNNING), came) is Phase.ARRIVING


@pytest.mark.parametrize("verb", Verb)
def test_each_order_where_nothing_is_held(verb: Verb) -> None:
    assert str(next_phase(None, order(verb)) or "none") == NOTHING[verb]
