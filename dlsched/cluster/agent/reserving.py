"""Room that this node keeps for a job that still runs elsewhere, or is to start here: its image is
pulled meanwhile, and what can never come is refused in the node's report."""

from __future__ import annotations

from dataclasses import replace

from dlsched.cluster.agent.assignments import Assignment, Assignments, Course, followed
from dlsched.cluster.agent.given_jobs import GivenJobs
from dlsched.cluster.agent.ports import NodeImages, NodeJobs
from dlsched.cluster.core.following import LEFT, REFUSED_S, RESERVED_S
from dlsched.cluster.core.records import Order, Phase, Verb

KEEPS = "it keeps what an earlier run of {0} wrote: docker volume ls -f label=dlsched.job={0}"


class Reserving:
    """The steps of such jobs; only for the loop's thread."""

    def __init__(
        self, held: Assignments, given: GivenJobs, node: NodeJobs, images: NodeImages
    ) -> None:
        self._held, self._given, self._node, self._images = held, given, node, images

    def step(self, own: Assignment, course: Course, now_s: float, *, is_local: bool) -> None:
        """Pull its image. `is_local`: the node has got a job of its own of that name."""
        spec = self._given.spec_of(own)
        if is_local or now_s > course.since_s + RESERVED_S:
            self._lapse(own, now_s)
        elif self._node.has_volume(own.job):
            self._fail(own, KEEPS.format(own.job), now_s)
        elif spec is not None and course.has_image != spec.container.image:
            problem = self._images.fetch(spec.container)
            course.problem = ""
            if problem == "":
                course.has_image = spec.container.image
            elif problem is None:
                progress = self._images.progress(spec.container)
                course.problem = f"pulling its image: {progress or 'looking for it'}"
            else:
                self._fail(own, problem, now_s)

    def failed(self, own: Assignment, course: Course, now_s: float) -> None:
        """No room could be made for it: it may be asked for again after a while."""
        if now_s > course.since_s + REFUSED_S:
            self._lapse(own, now_s)

    def refuse(self, order: Order, own: Assignment | None, why: str, now_s: float) -> None:
        """Report why that order is never followed: the job starts elsewhere, or stays there."""
        if own is not None and (own.phase not in LEFT or own.epoch >= order.epoch):
            return
        fence = replace(order, verb=Verb.CLEAR)
        refusal = replace(followed(own, fence, Phase.FENCED), why=why.partition("\n")[0])
        if order.verb is Verb.PREPARE:
            self._held.write(replace(refusal, phase=Phase.FAILED, confirmed=False), now_s)
        elif order.verb is Verb.ARRIVE and order.source is None:
            self._held.write(refusal, now_s)

    def _fail(self, own: Assignment, why: str, now_s: float) -> None:
        self._held.fail(replace(own, confirmed=False), why, now_s)  # it was never here

    def _lapse(self, own: Assignment, now_s: float) -> None:
        """Keep no room any more. Orders of earlier epochs stay refused, this epoch's is not."""
        if own.epoch == 1:
            self._held.forget(own)
        else:
            fence = Assignment(own.job, own.epoch - 1, Phase.FENCED)
            self._held.write(fence, now_s)
