"""GPU assignments that no container shows yet: GPUs of a job about to start, the other GPUs of a
moving job, and those reserved for a waiting job. Part of the ledger's state, and only a cache.
`placement`, `admission` and `rebalance` decide."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from dlsched.control.gpus.holders import Held, HolderTracker
from dlsched.control.gpus.placement import Holder, PlacementOptions
from dlsched.control.gpus.queue import GpuQueue, Turn
from dlsched.control.gpus.rebalance import (
    APART_S,
    Movable,
    Wanted,
    off_lost_gpu,
    pause_s,
    to_make_room,
    unmovable,
)
from dlsched.model.actions import Move, Outcome
from dlsched.model.alarms import Alarm, AlarmKey
from dlsched.model.facts import ContainerFact, GpuFact, Observation
from dlsched.model.forecast import Forecast
from dlsched.model.spec import JobSpec
from dlsched.model.state import GpuView, JobState, NodeView


@dataclass(frozen=True, slots=True)
class Member:
    """One job, as far as its GPUs are concerned."""

    spec: JobSpec
    state: JobState
    fact: ContainerFact | None = None
    resume_s: float | None = None
    """Time from its start to its first report; None: not observed."""
    used_bytes: int | None = None
    """GPU memory in use, summed over its GPUs; None: unread."""


@dataclass(slots=True)
class Assignments:
    """GPU assignments over all jobs."""

    _placed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the new GPUs, by job that starts or moves."""
    _kept: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _moved_at_s: dict[str, float] = field(default_factory=dict)
    _holders_of: HolderTracker = field(default_factory=HolderTracker)

    def views(
        self,
        observed: Observation,
        facts: Mapping[str, ContainerFact],
        specs: Mapping[str, JobSpec],
        options: PlacementOptions,
        idle_after_s: float | None,
    ) -> tuple[GpuView, ...]:
        """The node's GPUs, with their holders and their use by processes outside our jobs. `facts`:
        each job's container; `specs`: of the jobs; `idle_after_s`: see `GpuHolder.idle_over_s`."""
        node, away = observed.node, observed.gpus_away
        held = self._holders_of.update(observed, facts, specs, idle_after_s)
        ours = {one.container_id for one in facts.values()}
        return tuple(
            _view(gpu, ours, options.reserved, away, held[gpu.uuid])
            for gpu in (node.gpus if node is not None else ())
        )

    def settle(self, members: Mapping[str, Member]) -> None:
        """Drop assignments that containers show by now, and those of jobs that are gone."""
        self._placed = {
            job: gpus
            for job, gpus in self._placed.items()
            if (one := members.get(job)) is not None
            and one.state.holds
            and (one.fact is None or one.state is JobState.MOVING)
        }
        for job in self._moved_at_s.keys() - members.keys():
            del self._moved_at_s[job]

    def of(self, job: str, fact: ContainerFact | None) -> tuple[str, ...]:
        """UUIDs of the GPUs that a job is on, or will start on."""
        return self._placed.get(job, ()) if fact is None else fact.gpus

    def queue(
        self,
        node: NodeView,
        members: Mapping[str, Member],
        options: PlacementOptions,
        outlook: Callable[[str], Forecast],
        now_s: float,
    ) -> GpuQueue:
        """The GPU queue of one admission pass, with all current holders."""
        return GpuQueue(node, self._holders(members), options, self._kept, outlook, now_s)

    def take(self, verdicts: Mapping[str, Turn]) -> None:
        self._kept = {job: verdict.kept for job, verdict in verdicts.items() if verdict.kept}

    def start(self, job: str, fact: ContainerFact | None, verdict: Turn | None) -> tuple[str, ...]:
        """UUIDs of the GPUs that a job starts on; an existing container keeps its own."""
        if fact is not None:
            return fact.gpus
        if verdict is not None and verdict.gpus:
            self._placed[job] = verdict.gpus
        return self._placed.get(job, ())

    def applied(self, outcome: Outcome, now_s: float) -> None:
        """Record a move's time, so that it is not soon repeated, and its new GPUs once begun."""
        move = outcome.action
        if not isinstance(move, Move) or outcome.status == "withheld":
            return
        self._moved_at_s[move.job] = now_s
        if outcome.status == "begun":
            self._placed[move.job] = move.start.gpus

    def alarms(
        self, node: NodeView, members: Mapping[str, Member], options: PlacementOptions
    ) -> list[Alarm]:
        """An alarm for every job whose GPU cannot be used, with the reason and the consequence."""
        alarms = []
        bad = _gpu_problems(node, members.values())
        for job, one in sorted(members.items()) if bad else ():
            found = [bad[uuid] for uuid in one.fact.gpus if uuid in bad] if one.fact else []
            if not found or not one.state.holds:
                continue
            stays = "the job is not moved"
            if options.on_loss == "move":
                why = unmovable(one.spec)
                stays = (
                    "the job moves when another GPU has room"
                    if why is None
                    else f"the job stays: {why}"
                )
            text = f"{job}: {', '.join(found)}; {stays}"
            alarms.append(Alarm(job, AlarmKey.GPU_LOST_BY_JOB, text))
        return alarms

    def wanted(
        self,
        node: NodeView,
        members: Mapping[str, Member],
        options: PlacementOptions,
        queue: GpuQueue | None,
        verdicts: Mapping[str, Turn],
        now_s: float,
    ) -> Wanted | None:
        """The one move that pays off now; None: there is none, or another move is running."""
        bad = _gpu_problems(node, members.values()) if options.on_loss == "move" else {}
        waiting = [
            (members[job].spec, verdict)
            for job, verdict in verdicts.items()
            if verdict.kept and options.move
        ]
        lost = options.on_loss == "move" and any(
            _problem_of(one, bad) is not None for one in members.values()
        )
        if not (waiting or lost) or any(one.state is JobState.MOVING for one in members.values()):
            return None
        queue = queue or GpuQueue(node, self._holders(members), options)
        movable = [
            Movable(
                one.spec,
                one.fact.gpus,
                pause_s(one.spec, one.resume_s),
                _problem_of(one, bad),
                (one.used_bytes or 0) // len(one.fact.gpus),
            )
            for job, one in sorted(members.items())
            if one.fact is not None and self._may_move(job, one, one.fact, now_s)
        ]
        wanted = off_lost_gpu(movable, queue.left, options) if lost else None
        if wanted is not None:
            return wanted
        sound = [one for one in movable if one.problem is None]
        return to_make_room(waiting, sound, queue.left, options)

    def _may_move(self, job: str, one: Member, fact: ContainerFact, now_s: float) -> bool:
        moved_at_s = self._moved_at_s.get(job)
        return (
            one.state is JobState.RUNNING
            and fact.operation is None
            and fact.adopted is None
            and bool(fact.gpus)
            and (moved_at_s is None or now_s - moved_at_s >= APART_S)
            and unmovable(one.spec) is None
        )

    def _holders(self, members: Mapping[str, Member]) -> list[Holder]:
        held = ((one, self._held(job, one)) for job, one in members.items() if one.state.holds)
        return [Holder(one.spec, gpus) for one, gpus in held if gpus]

    def _held(self, job: str, one: Member) -> tuple[str, ...]:
        """UUIDs that no other job may use: during a move, the old ones and the new."""
        placed, fact = self._placed.get(job, ()), one.fact
        if fact is None:
            return placed
        return tuple(dict.fromkeys((*fact.gpus, *fact.gpus_kept, *placed)))


def _view(
    gpu: GpuFact,
    ours: Collection[str],
    reserved: Collection[str],
    away: Mapping[str, tuple[str, ...]],
    held: Held,
) -> GpuView:
    foreign = [process for process in gpu.processes if process.container_id not in ours]
    return GpuView(
        fact=gpu,
        reserved=gpu.uuid in reserved or gpu.part_of in reserved,
        foreign_processes=len(foreign),
        foreign_memory_bytes=sum(process.memory_bytes or 0 for process in foreign),
        kept_for=tuple(job for job, gpus in sorted(away.items()) if gpu.uuid in gpus),
        holders=held.listed,
        holders_left_out=held.left_out,
    )


def _gpu_problems(node: NodeView, members: Iterable[Member]) -> dict[str, str]:
    """What is wrong with GPUs that jobs are on, in one line, by UUID."""
    if node.gpu_trouble is not None and not node.gpus:
        return {}  # no GPU can be read, which says nothing about any one of them
    bad = {
        gpu.uuid: f"GPU {gpu.fact.index}, on which it runs: {gpu.fact.trouble}"
        for gpu in node.gpus
        if gpu.fact.trouble is not None
    }
    there = {gpu.uuid for gpu in node.gpus}
    held = {uuid for one in members if one.fact is not None for uuid in one.fact.gpus}
    return bad | {uuid: f"GPU {uuid}, on which it runs, is gone" for uuid in held - there}


def _problem_of(one: Member, bad: Mapping[str, str]) -> str | None:
    if one.fact is None:
        return None
    return one.fact.gpu_lost or next((bad[uuid] for uuid in one.fact.gpus if uuid in bad), None)
