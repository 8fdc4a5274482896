"""The ledger's record of one job, and values derived from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlsched.control.admission import rank_s
from dlsched.control.ledger.blindness import Condition
from dlsched.control.ledger.desired import Desired
from dlsched.control.ledger.lifecycle import Lifecycle
from dlsched.control.ledger.measures import Measures
from dlsched.control.ledger.memory import MemoryTracker
from dlsched.control.ledger.threads import ThreadTracker
from dlsched.model.actions import Remove
from dlsched.model.facts import Begun, ContainerFact
from dlsched.model.spec import ContainerSpec, JobSpec, Limits
from dlsched.model.state import Diverged, Ended, JobState, JobView, Progress, Tiers

_RUNS_AGAIN = frozenset({JobState.RUNNING, JobState.PAUSED, JobState.RESTARTING})


@dataclass(slots=True)
class JobRecord:
    spec: JobSpec
    order: int
    arrived_s: float
    state: JobState | None = None
    runs_since_s: float = 0.0
    """When it last became RUNNING."""
    desired: Limits = field(default_factory=Limits)
    measures: Measures = field(default_factory=Measures)
    memory: MemoryTracker = field(default_factory=MemoryTracker)
    threads: ThreadTracker = field(default_factory=ThreadTracker)
    forgiven: Begun | None = None
    """A failure that does not count: it is older than its file, which was added (again) since."""
    refusal: str | None = None
    """Why its last start could not even begin."""
    retry_at_s: float = 0.0
    retry_s: float = 0.0
    view: JobView | None = None
    """Its view in the last snapshot."""

    @property
    def rank(self) -> tuple[float, int]:
        """Its queue position; ties in order of arrival."""
        return rank_s(self.spec.weight, self.arrived_s), self.order


def changes_of(name: str, was: JobSpec, now: JobSpec) -> list[str]:
    """Changes of a job file that wake the policy, a few words each."""
    parts = (
        ("target", was.target != now.target),
        ("bounds", was.bounds != now.bounds),
        ("weight", was.weight != now.weight),
        ("background", was.background != now.background),
    )
    return [f"{name}: its {part} changed" for part, changed in parts if changed]


def is_lifted(desired: Desired, status: Lifecycle | None, ended: Ended) -> bool:
    """Whether the record of a job's end no longer counts. One of another digest is kept until its
    container is gone, which would be recorded as ended again."""
    spec = desired.specs.get(ended.name)
    if spec is None:
        return desired.settled and ended.name not in desired.claimed
    runs_again = status is not None and status.state in _RUNS_AGAIN and ended.kind != "stopped"
    leaves = status is not None and status.state is JobState.STOPPING
    return (spec.digest != ended.digest and not leaves) or runs_again


def unknown_spec(fact: ContainerFact) -> JobSpec:
    """A spec for a job whose file is gone: only its name, and how to stop it."""
    return JobSpec(name=fact.job, container=ContainerSpec(image=""), stop=fact.stop)


def removal(fact: ContainerFact, spec: JobSpec | None, why: str) -> Remove:
    return Remove(
        job=fact.job,
        container_id=fact.container_id,
        stop=spec.stop if spec else fact.stop,
        lift=Limits(spec.bounds.ceiling_cores) if spec else None,
        why=why,
    )


def ending(record: JobRecord, status: Lifecycle, fact: ContainerFact | None) -> Ended:
    return Ended(
        name=record.spec.name,
        digest=record.spec.digest,
        kind="finished" if status.state is JobState.FINISHED else "failed",
        detail=status.reason or "",
        exit_code=fact.exit_code if fact else None,
        attained_core_s=record.measures.attained_core_s,
    )


def view_of(
    record: JobRecord,
    status: Lifecycle,
    fact: ContainerFact | None,
    *,
    progress: Progress,
    condition: Condition,
    gpus: tuple[str, ...],
    idle_class: bool,
    tiers: Tiers,
    diverged: Diverged | None,
    max_failed_ratio: float,
) -> JobView:
    measures = record.measures
    promised = fact is not None or status.state is JobState.STARTING
    return JobView(
        spec=record.spec,
        state=status.state,
        reason=status.reason,
        operation=fact.operation if fact else None,
        adopted=fact is not None and fact.adopted is not None,
        blind=condition.blind,
        idle=condition.idle,
        container_id=fact.container_id if fact else None,
        gpus=gpus,
        gpus_kept=fact.gpus_kept if fact else (),
        gpu_access=fact.gpu_access if fact else None,
        gpu_enforced=fact.gpu_enforced if fact else (),
        gpu_lost=fact.gpu_lost if fact else None,
        desired=record.desired,
        actual=measures.actual if promised else Limits(),
        altered=fact is not None and fact.altered,
        cpu_shares=fact.cpu_shares if fact else None,
        cpu_idle=fact is not None and fact.cpu_idle is True,
        can_idle=fact is not None and fact.cpu_idle is not None and idle_class,
        burst_cores=fact.burst_cores if fact else None,
        usage=measures.usage,
        memory=record.memory.use,
        threads=record.threads.use,
        progress=progress,
        attained_core_s=measures.attained_core_s,
        started_at_s=measures.started_at_s,
        changed_at_s=measures.changed_at_s,
        starts=measures.starts,
        tiers=tiers,
        diverged=diverged,
        max_failed_ratio=max_failed_ratio,
    )
