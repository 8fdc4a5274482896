"""Approves moves to other GPUs: only those that lose no work and have room at their destination.
Covers moves by admission and by a policy. A move that is not approved gets a note."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.control.gpus.placement import Holder, PlacementOptions, fitting, given_back, rooms
from dlsched.control.gpus.rebalance import unmovable
from dlsched.control.ledger.state import State
from dlsched.model.decision import Decision
from dlsched.model.state import JobState, JobView, Snapshot


@dataclass(frozen=True, slots=True)
class Moving:
    """The approved moves, and by job why another move is not made."""

    moves: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    """By job, UUIDs of its new GPUs, and the reason."""
    notes: Mapping[str, str] = field(default_factory=dict)


def moving(state: State, decision: Decision, options: PlacementOptions) -> Moving:
    """At most one move at a time: admission's, already weighed, before the policy's, by name."""
    snapshot = state.snapshot
    moves, notes = dict(list(state.moves.items())[:1]), {}
    jobs = {job.name: job for job in snapshot.jobs}
    begun = [Holder(spec, state.placements.get(spec.name, ())) for spec in state.starts]
    for name, gpus in sorted(decision.gpus.items()):
        job = jobs.get(name)
        if job is None or name in moves or set(gpus) == set(job.gpus):
            continue
        others = [*moves, *(one.name for one in snapshot.jobs if one.state is JobState.MOVING)]
        why = _refusal(snapshot, job, gpus, options, begun)
        if why is None and others:
            why = f"{others[0]} is being moved"
        if why is None:
            moves[name] = (gpus, decision.why.get(name, "decided by the policy"))
        else:
            notes[name] = f"not moved: {why}"
    return Moving(moves, notes)


def _refusal(
    snapshot: Snapshot,
    job: JobView,
    gpus: tuple[str, ...],
    options: PlacementOptions,
    begun: Sequence[Holder],
) -> str | None:
    spec = job.spec
    if not job.runs or job.operation is not None:
        return job.reason or f"it is {job.state}"
    if job.adopted:
        return "the container is adopted, so dlsched may not stop it"
    if not options.move:
        return "moves are switched off (gpus.move)"
    if (why := unmovable(spec)) is not None:
        return why
    if len(set(gpus)) != len(gpus) or len(gpus) != spec.container.gpus:
        return f"the job needs {spec.container.gpus} GPUs, decided were {', '.join(gpus) or 'none'}"
    holding = [one for one in snapshot.jobs if one.state.holds]
    held = [Holder(one.spec, (*one.gpus, *one.gpus_kept)) for one in holding]
    left = rooms(snapshot.node, [*held, *begun], options)
    for uuid in gpus:
        if uuid not in left:
            return f"there is no GPU {uuid}"
        room = given_back(left[uuid], spec) if uuid in job.gpus else left[uuid]
        if not fitting(spec, [room]):
            return f"no room on GPU {uuid}" + (f": {room.closed}" if room.closed else "")
    return None
