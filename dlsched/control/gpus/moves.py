"""Approves moves to other GPUs: only those that lose no work and have room at their destination.
Covers moves by admission and by a policy. A move that is not approved gets a note."""

from __future__ import annotations

from collections.abc import Sequence

from dlsched.control.gpus.placement import Holder, PlacementOptions, fitting, given_back, rooms
from dlsched.control.gpus.rebalance import Wanted, unmovable
from dlsched.control.ledger.updated import State
from dlsched.model.decision import Decision
from dlsched.model.state import JobState, JobView, Snapshot


def moving(
    state: State, decision: Decision, options: PlacementOptions
) -> tuple[Wanted | None, dict[str, str]]:
    """The approved move, and by job why another one is not made. At most one at a time: that of
    admission, already weighed, before those of the policy, by name."""
    snapshot, move, notes = state.snapshot, state.move, dict[str, str]()
    jobs = {job.name: job for job in snapshot.jobs}
    begun = [Holder(spec, state.placements.get(spec.name, ())) for spec in state.starts]
    leaving = [] if move is None else [move.job]
    leaving += [job.name for job in snapshot.jobs if job.state is JobState.MOVING]
    for name, gpus in sorted(decision.gpus.items()):
        job = jobs.get(name)
        if job is None or set(gpus) == set(job.gpus) or (move is not None and move.job == name):
            continue
        why = _refusal(snapshot, job, gpus, options, begun)
        if why is None and leaving:
            why = f"{leaving[0]} is being moved"
        if why is None:
            move = Wanted(name, gpus, decision.why.get(name, "decided by the policy"))
            leaving = [name]
        else:
            notes[name] = f"not moved: {why}"
    return move, notes


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
