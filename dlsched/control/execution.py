"""Executes a plan in its order; independent changes of limits run as a batch."""

from __future__ import annotations

from collections.abc import Sequence

from dlsched.control.ceilings import CeilingBudget, applied_ceilings
from dlsched.control.ledger.state import State
from dlsched.control.ports import Runtime
from dlsched.model.actions import Action, Outcome, Resize
from dlsched.model.decision import Answer


def execute(
    actions: Sequence[Action], state: State, answer: Answer, runtime: Runtime
) -> tuple[Outcome, ...]:
    """One outcome for each action. Growth that does not fit beside applied ceilings is withheld.
    While the runtime is held, all are withheld, and reported only in cycles with a decision."""
    if (why := runtime.held) is not None:
        reported = actions if answer.decision is not None else ()
        return tuple(Outcome(action, "withheld", why) for action in reported)
    snapshot = state.snapshot
    ceilings = CeilingBudget(
        applied_ceilings(snapshot),
        snapshot.node.capacity_cores,
        reserves=answer.rules.reserves,
    )
    outcomes: list[Outcome] = []
    while len(outcomes) < len(actions):
        rest = actions[len(outcomes) :]
        batch = ceilings.next_batch(rest)
        if not batch:
            outcomes.append(Outcome(rest[0], "withheld", ceilings.why_not(rest[0]) or ""))
        for outcome in _apply(batch, runtime, snapshot.now_s):
            outcomes.append(outcome)
            ceilings.take(outcome)
    return tuple(outcomes)


def _apply(batch: Sequence[Action], runtime: Runtime, now_s: float) -> tuple[Outcome, ...]:
    changes = [action for action in batch if isinstance(action, Resize)]
    if len(changes) > 1:
        return runtime.apply_all(changes, now_s)
    return tuple(runtime.apply(action, now_s) for action in batch)
