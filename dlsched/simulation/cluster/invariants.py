"""What must hold at every moment of a simulated cluster, by its truth. A breach raises."""

from __future__ import annotations

from collections.abc import Mapping

from dlsched.cluster.core.records import Record, RecordState
from dlsched.simulation.cluster.network import SimulatedAgents
from dlsched.simulation.node.training import Training


class BrokenInvariant(AssertionError):
    """The cluster did what it must never do."""


class Invariants:
    """Checks I1 to I3: at most one container of a job runs, no saved step is lost, and nothing runs
    that no record says."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}
        """By job: the step that a completed move has carried, which is never lost again."""

    def check(self, records: Mapping[str, Record], cluster: SimulatedAgents) -> None:
        running: dict[str, list[str]] = {}
        for name, node in cluster.nodes.items():
            for job, runs in node.runtime.present().items():
                if runs:
                    running.setdefault(job, []).append(name)
        for job, nodes in running.items():
            if len(nodes) > 1:
                raise BrokenInvariant(f"I1 at {cluster.now_s:g} s: {job} runs on {nodes}")
            record = records.get(job)
            if record is None:
                raise BrokenInvariant(f"I3 at {cluster.now_s:g} s: {job} runs without a record")
            if record.state is not RecordState.ENDED and record.on != nodes[0]:
                raise BrokenInvariant(
                    f"I3 at {cluster.now_s:g} s: {job} runs on {nodes[0]}, is {record}"
                )
        for job, record in records.items():
            self._saved(job, record, cluster, running.get(job, []))

    def _saved(
        self, job: str, record: Record, cluster: SimulatedAgents, running: list[str]
    ) -> None:
        if record.state in (RecordState.MOVING, RecordState.UNDOING):
            assert record.source is not None and record.saved is not None
            shared = cluster.storage.get(job)
            kept = shared or cluster.agents[record.source].keeps(job, record.epoch)
            if kept is None or kept.saved != record.saved:
                raise BrokenInvariant(
                    f"I2 at {cluster.now_s:g} s: {record.source} no longer keeps {job}"
                )
            self._steps[job] = max(self._steps.get(job, 0), record.saved.step)
        if job in cluster.storage:
            self._steps[job] = max(self._steps.get(job, 0), cluster.storage[job].saved.step)
        for node in running:
            training = cluster.nodes[node].loads[job]
            if isinstance(training, Training) and training.step < self._steps.get(job, 0):
                raise BrokenInvariant(
                    f"I2 at {cluster.now_s:g} s: {job} goes on from step {training.step}, "
                    f"{self._steps[job]} was saved"
                )
