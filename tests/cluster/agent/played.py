"""The containers of one node, and what its runtime does with them: no engine is there."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dlsched.cluster.agent.ports import Lost
from dlsched.control.ledger.desired import Desired
from dlsched.estimate.learning import TOTAL_STEPS
from dlsched.model.facts import ContainerFact, ContainerState, Sample
from dlsched.model.leaving import Leaving, LeavingPhase
from dlsched.model.spec import Checkpoint, JobSpec, Limits

STEPS_PER_S = 1
TOTAL = 2000
FILE = "/ckpt/last"
"""Of a checkpoint in shared storage."""


@dataclass
class Container:
    source: str
    step: int
    running: bool = True
    aside: bool = False
    reports: int = 0

    def samples(self, now_s: float) -> tuple[Sample, ...]:
        """An evaluation a second since it was started."""
        metrics = (("accuracy", 0.5), (TOTAL_STEPS, float(TOTAL)))
        count = min(self.reports, 9)
        return tuple(
            Sample(now_s - ago, self.step - ago * STEPS_PER_S, metrics)
            for ago in reversed(range(count))
        )


@dataclass
class PlayedEngine:
    """The containers of one node."""

    containers: dict[str, Container] = field(default_factory=dict)
    started_from: list[int] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    total_steps: int = TOTAL
    saves: bool = True
    breaks: bool = False
    """Whether new containers fail immediately."""
    reports: bool = True
    """Whether jobs report their steps."""
    removes: bool = True
    """Whether containers end when they are to be removed; else they are still in their grace."""
    refuses: str = ""
    """Why no container can be made."""
    exits: dict[str, int | None] = field(default_factory=dict)
    """Exit codes; None: the job could not be started."""
    storage: dict[str, int] = field(default_factory=dict)
    """What this node shows of shared storage: the step by file."""
    volumes: dict[str, int] = field(default_factory=dict)
    """What the volume has that was filled from an archive, by its path: the step."""
    ended_with_it: set[str] = field(default_factory=set)
    """Jobs whose containers ended as the engine was killed."""

    def fall(self) -> None:
        """It is killed, and started again."""
        for job, one in self.containers.items():
            if one.running:
                one.running = False
                self.ended_with_it.add(job)

    def start(self, job: str, source: str, step: int) -> None:
        self.started_from.append(step)
        self.containers[job] = Container(source, step)

    def steps(self) -> None:
        for job, one in list(self.containers.items()):
            if one.running:
                one.step += STEPS_PER_S
                one.reports += int(self.reports)
                if one.step >= self.total_steps or self.breaks:
                    del self.containers[job]
                    self.exits[job] = 1 if self.breaks else 0


class PlayedNode:
    """The port NodeJobs of one agent; a new agent has a new one."""

    def __init__(self, engine: PlayedEngine) -> None:
        self._engine = engine
        self._leaving: dict[str, Leaving] = {}
        self._archives: dict[str, Path] = {}
        self._shared: set[str] = set()
        self.brought: dict[str, Path] = {}
        self.expected: dict[str, tuple[int, str, int]] = {}

    def keep_away(self, jobs: Mapping[str, Path], lost: Lost) -> None:
        for job, one in self._engine.containers.items():
            archive = jobs.get(job) or lost(job, one.source)
            if archive is not None and one.aside:
                self._leaving[job] = Leaving(LeavingPhase.AWAY)
                self._archives[job] = archive

    def is_aside(self, job: str) -> bool:
        one = self._engine.containers.get(job)
        return one is not None and one.aside

    def found(self) -> None:
        """What the first cycle does with containers that are set aside."""
        for job, one in self._engine.containers.items():
            if one.aside and job not in self._leaving:
                self._start_again(one)

    def _start_again(self, one: Container) -> None:
        one.running, one.aside, one.reports = True, False, 0
        self._engine.started_from.append(one.step)

    def hides(self, job: str) -> bool:
        """Whether its container does not stand for it."""
        leaving = self._leaving.get(job)
        return leaving is not None and leaving.phase is LeavingPhase.AWAY

    def leave(
        self, job: str, checkpoint: Checkpoint, archive: Path, most_bytes: int, limits: Limits
    ) -> None:
        assert checkpoint.path == "/ckpt" and most_bytes > 0
        if job not in self._leaving:
            self._leaving[job] = Leaving(LeavingPhase.SAVING)
            self._archives[job] = archive
            self._shared |= {job} if checkpoint.shared else set()

    def leaving(self, job: str) -> Leaving | None:
        return self._leaving.get(job)

    def give_back(self, job: str) -> None:
        if self._leaving.pop(job, None) is None:
            return
        self._archives.pop(job).unlink(missing_ok=True)
        one = self._engine.containers.get(job)
        if one is not None and one.aside:
            self._start_again(one)

    def clear(self, job: str, *, keeps: bool) -> None:
        if not keeps or not self.has_volume(job):
            self.brought.pop(job, None)
            self.expected.pop(job, None)
        if self._leaving.pop(job, None) is not None:
            self._archives.pop(job).unlink(missing_ok=True)
            one = self._engine.containers.get(job)
            if one is not None and one.aside:
                del self._engine.containers[job]

    def has_volume(self, job: str) -> bool:
        return job in self.brought

    def bring(self, job: str, epoch: int, archive: Path, source: str) -> None:
        assert epoch > 1 and source
        self.brought[job] = archive

    def expect(self, job: str, epoch: int, file: str, size_bytes: int, source: str) -> None:
        assert epoch > 1 and source
        if self.expected.get(job, (0, "", 0))[0] < epoch:
            self.expected[job] = (epoch, file, size_bytes)

    def ended_with_engine(self, job: str) -> bool:
        return job in self._engine.ended_with_it

    def start_again(self, job: str) -> None:
        self._engine.ended_with_it.discard(job)
        self._start_again(self._engine.containers[job])

    def cycle(self, desired: Desired) -> None:
        """One cycle of the node's own controller and runtime."""
        for job, leaving in list(self._leaving.items()):
            self._leave_on(job, leaving)
        there = self._engine.containers
        for job, one in list(there.items()):
            if (
                self._engine.removes
                and job not in desired.specs
                and not one.aside
                and desired.spares(fact(job, one)) is None
            ):
                del there[job]
        for job in self._engine.exits.keys() - desired.specs.keys():
            del self._engine.exits[job]
        for job in desired.specs:
            if job not in there and job not in self._engine.exits:
                self._start(job, desired.sources[job], desired.specs[job])

    def _start(self, job: str, source: str, spec: JobSpec) -> None:
        storage, archive = self._engine.storage, self.brought.get(job)
        _, file, size_bytes = self.expected.get(job, (0, "", 0))
        if file and _size(storage.get(file, 0)) != size_bytes:
            self._engine.exits[job] = None  # its start fails for good
            return
        if self._engine.refuses:
            self._engine.exits[job] = None
            return
        assert spec.checkpoint is not None
        step = storage.get(FILE, 0) if spec.checkpoint.shared else 0
        if archive is not None:
            volumes, name = self._engine.volumes, str(archive)
            step = volumes[name] if name in volumes else int(archive.read_text())
            volumes[name] = step
        self._engine.start(job, source, step)

    def _leave_on(self, job: str, leaving: Leaving) -> None:
        one = self._engine.containers.get(job)
        if leaving.phase is not LeavingPhase.SAVING:
            return
        if one is None:
            self._leaving[job] = Leaving(LeavingPhase.ENDED)
        elif not self._engine.saves:
            self._leaving[job] = Leaving(LeavingPhase.REFUSED, why="it saved nothing")
        elif not one.aside:
            self._engine.acknowledged[job] = one.step
            if job in self.brought:
                self._engine.volumes[str(self.brought[job])] = one.step
            if job in self._shared:
                self._engine.storage[FILE] = one.step
            one.running, one.aside = False, True
        elif job in self._shared:
            self._leaving[job] = Leaving(LeavingPhase.AWAY, one.step, "", _size(one.step), FILE)
        else:
            self._archives[job].write_text(str(one.step))
            data = self._archives[job].read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            self._leaving[job] = Leaving(LeavingPhase.AWAY, one.step, digest, len(data))


def _size(step: int) -> int:
    """Of the file with that step in shared storage."""
    return len(str(step)) if step else 0


def fact(job: str, one: Container) -> ContainerFact:
    state = ContainerState.RUNNING
    return ContainerFact(job, f"{job}-id", state, "image", "digest", source=one.source)
