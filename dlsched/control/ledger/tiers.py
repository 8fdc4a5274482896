"""Which tier of its accuracy target a job has reached: a fact of the job, whatever the policy.

Owns what counts as an evaluation and as reached, and what of it calls for a durable word. It must
not keep that word, nor tell anybody: what is to be told is returned. Part of the ledger's state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from dlsched.estimate.evaluations import evaluations, reaches
from dlsched.model.facts import CheckpointAck, ContainerFact, Sample
from dlsched.model.spec import AccuracyTarget, JobSpec
from dlsched.model.state import Delivered, Reached, Tiers

_NONE = Tiers()


def in_words(metric: str, reached: Reached, tier: str, asked: float) -> str:
    """The evaluation that reached a tier: `accuracy 0.93 at step 500 (deliver 0.9)`."""
    step = "" if reached.step is None else f" at step {reached.step}"
    return f"{metric} {reached.value:.4g}{step} ({tier} {asked:g})"


@dataclass(frozen=True, slots=True)
class Climb:
    """One container's way to one target, as far as its evaluations tell."""

    container_id: str
    """`ContainerFact.life`: the way goes on where the job is moved."""
    target: AccuracyTarget
    tiers: Tiers = _NONE
    checkpoint: CheckpointAck | None = None
    """The last one that it acknowledged."""
    starts: int | None = None
    """Which start of the container the rows were counted in."""
    latest_step: int | None = None
    delivers: int = 0
    """How many evaluations in a row reach the first tier."""
    finishes: int = 0

    def is_for(self, container_id: str | None, target: AccuracyTarget) -> bool:
        """Whether it is that container's (None: whichever) way to that target.

        A deadline may change: it moves no tier.
        """
        mine = (self.target.metric, self.target.deliver, self.target.finish)
        same = mine == (target.metric, target.deliver, target.finish)
        return same and container_id in (None, self.container_id)


def climbed(climb: Climb, sample: Sample, in_a_row: int) -> Climb:
    """After one more report. A tier is reached by so many evaluations in a row, and then for good.

    A step that goes back begins a new attempt: a new row, but a delivery stands.
    """
    if sample.step is not None:
        if climb.latest_step is not None and sample.step < climb.latest_step:
            climb = replace(climb, delivers=0, finishes=0)
        climb = replace(climb, latest_step=sample.step)
    target = climb.target
    for value in evaluations(sample, target.metric):
        reached = Reached(sample.received_s, value, sample.step)
        delivers = climb.delivers + 1 if reaches(target, target.deliver, value) else 0
        finishes = climb.finishes + 1 if reaches(target, target.finish, value) else 0
        tiers = Tiers(
            climb.tiers.delivered or (reached if delivers >= in_a_row else None),
            climb.tiers.finished or (reached if finishes >= in_a_row else None),
        )
        climb = replace(climb, delivers=delivers, finishes=finishes, tiers=tiers)
    return climb


def observed(climb: Climb, fact: ContainerFact, in_a_row: int) -> Climb:
    """After what one observation of its container brought; a new start is a new attempt."""
    if climb.starts != fact.starts:
        climb = replace(climb, starts=fact.starts, latest_step=None, delivers=0, finishes=0)
    for report in fact.reports:
        if report.checkpoint is not None:
            climb = replace(climb, checkpoint=report.checkpoint)
        if report.sample is not None:
            climb = climbed(climb, report.sample, in_a_row)
    return climb


class Climbs:
    """Every job's climb, and the durable words of deliveries as they should be."""

    def __init__(self, words: Mapping[str, Delivered]) -> None:
        """`words` are what an earlier agent kept: what they tell is known, and not told again."""
        self._words = dict(words)
        self._climbs: dict[str, Climb] = {}
        self._higher: set[str] = set()
        """Jobs that reached a tier since `deliveries` was asked."""
        self._doubted = set(self._words)
        """Jobs whose word may no longer hold."""

    def observe(self, spec: JobSpec, fact: ContainerFact | None, in_a_row: int) -> None:
        """Take in what is known of a job now; None: it has no container at this moment."""
        name, target, climb = spec.name, spec.target, self._climbs.get(spec.name)
        container_id = fact.life if fact is not None else None
        if not isinstance(target, AccuracyTarget):
            if climb is not None:
                self.forget(name)
            return
        known = climb is not None and climb.container_id == (container_id or climb.container_id)
        if climb is None or not known or climb.target is not target:
            climb = self._begun(name, container_id, target)
            if climb is None:
                return
        if fact is not None and (fact.reports or climb.starts != fact.starts):
            before, climb = climb, observed(climb, fact, in_a_row)
            if climb.tiers != before.tiers:
                self._higher.add(name)
        self._climbs[name] = climb

    def tiers(self, name: str) -> Tiers:
        """What that job has reached."""
        climb = self._climbs.get(name)
        return climb.tiers if climb is not None else _NONE

    def forget(self, name: str) -> None:
        """The job is gone, or has no such target any more."""
        self._climbs.pop(name, None)
        self._doubted.add(name)

    def deliveries(self) -> tuple[Delivered, ...]:
        """Words that are new, or say more than the last time; each is returned once."""
        new = []
        for name in sorted(self._higher):
            climb, word = self._climbs.get(name), self._words.get(name)
            if climb is None or climb.tiers.delivered is None:
                continue
            if word is None or not _way(word).is_for(climb.container_id, climb.target):
                word = _word(name, climb)
            self._words[name] = replace(word, tiers=climb.tiers)
            new.append(self._words[name])
        self._higher.clear()
        return tuple(new)

    def voided(
        self, specs: Collection[str], present: Collection[str], *, settled: bool
    ) -> tuple[str, ...]:
        """Words that no longer hold: another container, another target, or the job is gone.

        A job is judged when its file is read (it is in `specs`), and gone when it is not `present`
        although the folder is `settled`. Each is returned once.
        """
        gone = []
        for name in sorted(self._doubted):
            if name not in self._words:
                self._doubted.discard(name)
            elif name in specs:
                self._doubted.discard(name)
                if self.tiers(name).delivered is None:
                    gone.append(name)
            elif settled and name not in present:
                self._doubted.discard(name)
                gone.append(name)
        for name in gone:
            del self._words[name]
        return tuple(gone)

    def _begun(self, name: str, container_id: str | None, target: AccuracyTarget) -> Climb | None:
        """The climb so far, if it still is one and the same; else what the word tells, or anew."""
        climb, word = self._climbs.get(name), self._words.get(name)
        for known in (climb, _way(word) if word is not None else None):
            if known is not None and known.is_for(container_id, target):
                return replace(known, target=target)
        self.forget(name)
        return None if container_id is None else Climb(container_id, target)


def _way(word: Delivered) -> Climb:
    target = AccuracyTarget(word.metric, word.deliver, word.finish)
    return Climb(word.container_id, target, word.tiers, word.checkpoint)


def _word(name: str, climb: Climb) -> Delivered:
    target = climb.target
    return Delivered(
        name=name,
        container_id=climb.container_id,
        metric=target.metric,
        deliver=target.deliver,
        finish=target.finish,
        tiers=climb.tiers,
        checkpoint=climb.checkpoint,
    )
