"""What one round of the cluster's controller read and did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dlsched.cluster.core.decider import ClusterAnswer
from dlsched.cluster.core.ledger import ClusterFacts
from dlsched.cluster.core.records import Record, Request
from dlsched.cluster.core.snapshot import ClusterSnapshot
from dlsched.cluster.store import Member

PAUSE_S = 10.0
"""Between rounds in which nothing is under way."""


@dataclass(slots=True)
class RoundReport:
    """What one round read and did."""

    snapshot: ClusterSnapshot | None = None
    """None: the store did not answer, or another controller leads."""
    members: Mapping[str, Member] = field(default_factory=dict)
    facts: ClusterFacts | None = None
    """What the snapshot was made of."""
    records: Mapping[str, Record] = field(default_factory=dict)
    """As they are after the round."""
    answer: ClusterAnswer = field(default_factory=ClusterAnswer)
    written: list[Record] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Moves that were given up, by job, and why."""
    paused: bool = False
    forgotten: frozenset[str] = frozenset()
    """Nodes that a person declared off."""
    waits: dict[str, str] = field(default_factory=dict)
    """Desired jobs that start nowhere yet, and why."""
    requests: dict[Request, str] = field(default_factory=dict)
    """Requests that wait, and what for."""
    done: dict[Request, str] = field(default_factory=dict)
    """Requests that this round has removed, and what came of them."""
    alarms: list[str] = field(default_factory=list)
    next_s: float = PAUSE_S

    def changes(self) -> Iterator[tuple[Record, Record | None]]:
        """Each record that was written, and the one before it."""
        before = dict(self.facts.records) if self.facts else {}
        for record in self.written:
            yield record, before.get(record.job)
            before[record.job] = record

    @property
    def down(self) -> list[str]:
        """Members whose engine the store calls down."""
        return [name for name, one in self.members.items() if not one.up]
