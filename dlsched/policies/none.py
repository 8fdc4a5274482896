"""The policy `none`: observe only."""

from __future__ import annotations

from typing import ClassVar

from dlsched.model.decision import Decision, PolicyMemory, PolicyTraits
from dlsched.model.spec import Limits
from dlsched.model.state import JobView, Snapshot
from dlsched.policies.protocol import NoParameters


class NonePolicy:
    """Plain Docker: no ceilings, the kernel divides; jobs are still measured and shown.

    The baseline of every comparison. A job from a file keeps the ceiling in its file. An adopted
    container keeps the limits that its owner gives it: none is changed, and what an earlier policy
    changed is given back.
    """

    Parameters: ClassVar[type[NoParameters]] = NoParameters
    Memory: ClassVar[None] = None
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        heeds_progress=False, observes_only=True, divides_gpus=False
    )

    def __init__(self, parameters: NoParameters) -> None:
        self.parameters = parameters

    def decide(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Decision:
        return Decision(
            limits={job.name: Limits() for job in snapshot.running},
            why={job.name: _why(job) for job in snapshot.running},
        )


def _why(job: JobView) -> str:
    if job.adopted and job.altered:
        return (
            "observed only: the container gets back the limits that it had before dlsched changed "
            "them"
        )
    if job.adopted:
        return "observed only: the container has the limits that its owner gave it"
    return "plain Docker: dlsched sets no limit"
