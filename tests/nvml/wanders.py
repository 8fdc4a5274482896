"""A policy that moves every job from GPU to GPU: for what must hold in the middle of a move."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.state import Snapshot


@dataclass(frozen=True, slots=True)
class WandersParameters:
    """How long it stays."""

    stay_s: float = 4.0


class Wanders:
    """Every job goes to another GPU as soon as it has reported and stayed for a while."""

    Parameters = WandersParameters
    Memory = PolicyMemory
    traits = PolicyTraits(heeds_progress=False)

    def __init__(self, parameters: WandersParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: object) -> Decision:
        """To the first that it is not on."""
        gpus: dict[str, tuple[str, ...]] = {}
        for job in snapshot.running:
            began_s, told_s = job.started_at_s or 0.0, job.progress.as_of_s or 0.0
            if told_s > began_s and snapshot.now_s >= began_s + self.parameters.stay_s:
                others = (gpu.uuid for gpu in snapshot.node.gpus if gpu.uuid not in job.gpus)
                gpus[job.name] = tuple(others)[:1]
        return Decision(limits={}, why=dict.fromkeys(gpus, "it wanders"), gpus=gpus)
