"""What is true of a simulated cluster at one time: what its invariants are checked by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from dlsched.cluster.core.records import Record, Saved
from dlsched.simulation.cluster.network import HeldState, SimulatedAgents
from dlsched.simulation.node.training import Training


@dataclass(frozen=True, slots=True)
class Moment:
    now_s: float
    records: Mapping[str, Record]
    """The store's, by job."""
    running: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    """Nodes on which a container of it runs, by job."""
    held: Mapping[str, Mapping[str, HeldState]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Epoch and phase of each job in the files of an agent, by node."""
    cut_off: Collection[str] = ()
    """Nodes that run, but that no message reaches."""
    heard_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """When the last answer of a node came to the controller."""
    steps: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How far a training that runs is, by job; the least of several."""
    stored: Mapping[str, Saved] = field(default_factory=lambda: MappingProxyType({}))
    """Checkpoints in storage that every node has, by job."""
    keeps: Callable[[str, str, int], Saved | None] = lambda *_: None
    """Node, job, epoch: the checkpoint that the node has set aside."""


def moment_of(records: Mapping[str, Record], cluster: SimulatedAgents) -> Moment:
    running: dict[str, list[str]] = {}
    steps: dict[str, int] = {}
    for name, node in cluster.nodes.items():
        for job, runs in node.runtime.present().items():
            if runs:
                running.setdefault(job, []).append(name)
                load = node.loads[job]
                if isinstance(load, Training):
                    steps[job] = min(load.step, steps.get(job, load.step))

    def keeps(node: str, job: str, epoch: int) -> Saved | None:
        kept = cluster.agents[node].keeps(job, epoch)
        return kept.saved if kept else None

    return Moment(
        cluster.now_s,
        records,
        running,
        {
            name: {job: (own.epoch, own.phase) for job, own in agent.held.items()}
            for name, agent in cluster.agents.items()
        },
        [name for name in cluster.nodes if cluster.is_cut_off(name)],
        dict(cluster.heard_s),
        steps,
        {job: kept.saved for job, kept in cluster.storage.items()},
        keeps,
    )
