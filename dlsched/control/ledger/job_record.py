"""One job's memory in the ledger, and what is read from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dlsched.control.admission import rank_s
from dlsched.control.ledger.desired import Wish
from dlsched.control.ledger.lifecycle import Standing
from dlsched.control.ledger.measures import Measures
from dlsched.model.actions import Remove
from dlsched.model.facts import Begun, ContainerFact
from dlsched.model.spec import ContainerSpec, JobSpec, Limits
from dlsched.model.state import Ended, JobState, JobView, Progress, Tiers

_RUNS_AGAIN = frozenset({JobState.RUNNING, JobState.PAUSED, JobState.RESTARTING})


@dataclass(slots=True)
class JobRecord:
    """One job's memory."""

    spec: JobSpec
    order: int
    arrived_s: float
    state: JobState | None = None
    runs_since_s: float = 0.0
    """When it last became RUNNING."""
    desired: Limits = field(default_factory=Limits)
    measures: Measures = field(default_factory=Measures)
    forgiven: Begun | None = None
    """A failure from before its file was dropped (again): it does not count."""
    refusal: str | None = None
    """Why its last start was not even begun."""
    retry_at_s: float = 0.0
    retry_s: float = 0.0
    folded: JobSpec | None = None
    """The spec that its last fact was folded under."""
    view: JobView | None = None
    """As last told."""

    @property
    def rank(self) -> tuple[float, int]:
        """Its place in the queue: equal ones as they came."""
        return rank_s(self.spec.weight, self.arrived_s), self.order


def changes_of(name: str, was: JobSpec, now: JobSpec) -> list[str]:
    """What a policy has to know at once of a changed file, in a few words each."""
    parts = (
        ("target", was.target != now.target),
        ("bounds", was.bounds != now.bounds),
        ("weight", was.weight != now.weight),
    )
    return [f"{name}: its {part} changed" for part, changed in parts if changed]


def without(specs: Mapping[str, JobSpec], names: Collection[str]) -> Mapping[str, JobSpec]:
    return {name: spec for name, spec in specs.items() if name not in names} if names else specs


def is_lifted(wish: Wish, place: Standing | None, word: Ended) -> bool:
    spec = wish.specs.get(word.name)
    if spec is None:
        return wish.settled and word.name not in wish.claimed
    runs_again = place is not None and place.state in _RUNS_AGAIN and word.kind != "stopped"
    return spec.digest != word.digest or runs_again


def unknown_spec(fact: ContainerFact) -> JobSpec:
    """What is known of a job whose file is gone: its name, and how it wants to be ended."""
    return JobSpec(name=fact.job, container=ContainerSpec(image=""), stop=fact.stop)


def removal(fact: ContainerFact, spec: JobSpec | None, why: str) -> Remove:
    return Remove(
        job=fact.job,
        container_id=fact.container_id,
        stop=spec.stop if spec else fact.stop,
        lift=Limits(spec.bounds.ceiling_cores) if spec else None,
        why=why,
    )


def ending(record: JobRecord, place: Standing, fact: ContainerFact | None) -> Ended:
    return Ended(
        name=record.spec.name,
        digest=record.spec.digest,
        kind="finished" if place.state is JobState.FINISHED else "failed",
        detail=place.reason or "",
        exit_code=fact.exit_code if fact else None,
        attained_core_s=record.measures.attained_core_s,
    )


def view_of(
    record: JobRecord,
    place: Standing,
    fact: ContainerFact | None,
    *,
    progress: Progress,
    blind: str | None,
    gpus: tuple[str, ...],
    idle_class: bool,
    tiers: Tiers,
) -> JobView:
    """All that is known of a job now."""
    measures = record.measures
    promised = fact is not None or place.state is JobState.STARTING
    return JobView(
        spec=record.spec,
        state=place.state,
        reason=place.reason,
        adopted=fact is not None and fact.adopted is not None,
        blind=blind,
        container_id=fact.container_id if fact else None,
        gpus=gpus,
        gpus_kept=fact.gpus_kept if fact else (),
        gpu_access=fact.gpu_access if fact else None,
        gpu_enforced=fact.gpu_enforced if fact else (),
        gpu_lost=fact.gpu_lost if fact else None,
        desired=record.desired,
        actual=measures.actual if promised else Limits(),
        cpu_shares=fact.cpu_shares if fact else None,
        cpu_idle=fact is not None and fact.cpu_idle is True,
        can_idle=fact is not None and fact.cpu_idle is not None and idle_class,
        burst_cores=fact.burst_cores if fact else None,
        usage=measures.usage,
        progress=progress,
        attained_core_s=measures.attained_core_s,
        started_at_s=measures.started_at_s,
        changed_at_s=measures.changed_at_s,
        starts=measures.starts,
        tiers=tiers,
    )
