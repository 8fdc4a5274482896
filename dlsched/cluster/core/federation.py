"""Which queued jobs go to another shard: power of two choices, by forecast delays.

For each job with a long delay in its own shard, two other shards are sampled, and the one with the
lesser delay is compared with its own (Mitzenmacher 2001: two samples bring most of what asking all
would bring, and no shard draws all jobs at the same time). Running jobs never move here. The core
has no randomness, so the sample follows from the job's name and the round.

A delay is the wait for a node, and what sharing cores with others adds to the job's shortest time,
both by `shards`; what was handed over since a summary was made counts as queued. As jobs with small
floors hardly ever wait, a shard without idle cores holds those that arrive for one round (`holds`),
so that they are compared before they start.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlsched.cluster.core.shards import (
    ENDS_S,
    Ask,
    ShardSummary,
    crowding_s,
    fits,
    has_beside,
    wait_s,
)

ROUND_S = 30.0
HAND_OVER_S = 10.0
"""After a decision: until then the job may be in no queue."""
HOLD_S = ROUND_S + HAND_OVER_S
"""So that a job that is held sees one round for certain."""

_NEVER_S = 1e9


@dataclass(frozen=True, slots=True)
class FederationRule:
    """What a hand-over must gain, and how many there are."""

    margin_s: float = 60.0
    """Least gain in seconds: a summary may be as old as a round, and a hand-over takes part of
    another."""
    margin_ratio: float = 0.25
    """Least gain as a part of the delay in the own shard: forecasts err by about so much."""
    closed_after_s: float = 90.0
    """A summary that is older counts as none: the shard missed three rounds."""
    rest_s: float = 300.0
    """A job is not considered for so long after a hand-over: until its new shard has counted it."""
    hops_max: int = 3
    """Hand-overs of one job. Each one adds the margins once more, so a fourth could never gain."""
    out_max: int = 64
    in_max: int = 64
    """From and to one shard in a round. A hand-over takes three writes, so both together stay below
    13 writes a second of the 20 that a shard's store has to spare."""
    holding: bool = True
    """Whether a shard without idle cores holds jobs that arrive."""
    considered_max: int = 128
    """Jobs of one queue in a round, so that a long queue does not make it slow."""

    def gains(self, own_s: float, other_s: float, hops: int) -> bool:
        """Whether the other delay is clearly less."""
        own_s = min(own_s, _NEVER_S)
        return own_s - other_s > (self.margin_s + self.margin_ratio * own_s) * (1 + hops)


RULE = FederationRule()


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits for a node of its shard and could wait elsewhere."""

    name: str
    ask: Ask
    ahead_cores: float = 0.0
    """Needed by the jobs before it."""
    parallel_cores: float = 1.0
    """The most that it can use."""
    shortest_s: float = 0.0
    """How long it takes, as far as is known, if it has so many cores all the time."""
    hops: int = 0
    """Hand-overs so far."""
    been: frozenset[str] = frozenset()
    """The shards that have handed it over: it does not go back there."""
    came_at_s: float = -math.inf
    stays: str | None = None
    """Why it cannot go to another shard, such as a label that only nodes here have; None: it
    can."""


class HandOver(NamedTuple):
    """A queued job is to wait in another shard."""

    job: str
    source: str
    target: str
    ask: Ask
    parallel_cores: float
    at_s: float
    own_s: float
    """Forecast delay in the source."""
    other_s: float
    """Forecast delay in the target."""


@dataclass(frozen=True, slots=True)
class FederationMemory:
    """Hand-overs that some summary does not contain yet."""

    recent: tuple[HandOver, ...] = ()


@dataclass(frozen=True, slots=True)
class FederationDecision:
    hand_overs: tuple[HandOver, ...] = ()
    memory: FederationMemory = field(default_factory=FederationMemory)


def decide(
    round_number: int,
    now_s: float,
    summaries: Mapping[str, ShardSummary],
    queues: Mapping[str, Sequence[QueuedJob]],
    memory: FederationMemory | None = None,
    rule: FederationRule = RULE,
) -> FederationDecision:
    """The hand-overs of one round. `queues` has the jobs by shard, in the order of its queue."""
    usable = {
        name: summaries[name] for name in sorted(summaries) if _is_open(summaries[name], rule)
    }
    books = _Books(now_s, usable, memory or FederationMemory())
    found: list[HandOver] = []
    # Another shard goes first in each round, so that none always gets the best places.
    names = [name for name in usable if queues.get(name)]
    shift = round_number % len(names) if names else 0
    for source in names[shift:] + names[:shift]:
        found += _from_shard(source, round_number, queues[source], books, rule)
    return FederationDecision(tuple(found), FederationMemory((*books.recent, *found)))


def holds(summary: ShardSummary, job: QueuedJob, rule: FederationRule = RULE) -> bool:
    """Whether a shard lets this job wait `HOLD_S` for the federation before it gives it a node. Not
    to be done while the federation does not answer."""
    delay_s = crowding_s(summary, job.shortest_s)
    return rule.holding and _may_go(job, math.inf, rule) and rule.gains(delay_s, 0.0, job.hops)


def considered(
    summary: ShardSummary, queue: Iterable[QueuedJob], rule: FederationRule = RULE
) -> list[QueuedJob]:
    """The first jobs of a shard's own queue, in its order, whose delay may be long enough: all that
    a federation needs of the queue."""
    soon = sum(
        cores
        for ends_s, cores in zip(ENDS_S, summary.ends_cores, strict=False)
        if ends_s <= rule.margin_s
    )
    found = (
        one
        for one in queue
        if one.ahead_cores + one.ask.cores > soon
        or not has_beside(summary, one.ask)
        or crowding_s(summary, one.shortest_s) > rule.margin_s
    )
    return list(itertools.islice(found, rule.considered_max))


def sample(job: str, round_number: int, count: int) -> tuple[int, int]:
    """Two different numbers below the count, which must be at least 2; others in another round."""
    digest = hashlib.blake2b(f"{round_number}:{job}".encode(), digest_size=16).digest()
    first = int.from_bytes(digest[:8], "big") % count
    second = int.from_bytes(digest[8:], "big") % (count - 1)
    return first, second + (second >= first)


class _Books:
    """What each shard has promised beyond its summary."""

    def __init__(
        self, now_s: float, summaries: Mapping[str, ShardSummary], memory: FederationMemory
    ) -> None:
        self.now_s = now_s
        self.summaries = summaries
        self.others = {name: [one for one in summaries if one != name] for name in summaries}
        self.arrivals = dict.fromkeys(summaries, 0)
        """Of this round."""
        self._promised = dict.fromkeys(summaries, (0.0, 0.0))
        """Cores that they need, and the most that they can use."""
        self.recent = tuple(one for one in memory.recent if self._is_new(one))
        for one in self.recent:
            self.promise(one.target, one.ask.cores, one.parallel_cores)

    def promise(self, target: str, cores: float, parallel_cores: float) -> None:
        floors, demand = self._promised[target]
        self._promised[target] = floors + cores, demand + parallel_cores

    def delay_s(self, shard: str, job: QueuedJob) -> float:
        """Of a job that would come to this shard now."""
        summary = self.summaries[shard]
        floors, demand = self._promised[shard]
        ahead = summary.queue_cores + floors
        waits_s = wait_s(summary, job.ask, ahead, summary.queue_length > 0)
        return waits_s + crowding_s(summary, job.shortest_s, demand + job.parallel_cores)

    def _is_new(self, one: HandOver) -> bool:
        summary = self.summaries.get(one.target)
        return summary is not None and one.at_s >= self.now_s - summary.age_s - HAND_OVER_S


def _from_shard(
    source: str, round_number: int, queue: Sequence[QueuedJob], books: _Books, rule: FederationRule
) -> list[HandOver]:
    own = books.summaries[source]
    others = books.others[source]
    found: list[HandOver] = []
    gone = gone_demand = 0.0
    for job in queue[: rule.considered_max]:
        if len(found) >= rule.out_max:
            break
        if not _may_go(job, books.now_s, rule):
            continue
        ahead = max(job.ahead_cores - gone, 0.0)
        own_s = wait_s(own, job.ask, ahead, own.queue_length > 0)
        own_s += crowding_s(own, job.shortest_s, -gone_demand)
        if not rule.gains(own_s, 0.0, job.hops):
            continue
        choices = [
            (books.delay_s(name, job), name)
            for name in _two(job.name, round_number, others)
            if name not in job.been
            and books.arrivals[name] < rule.in_max
            and fits(books.summaries[name], job.ask)
        ]
        if not choices:
            continue
        # Of two that are equal the one that was sampled first, so that no name draws more jobs.
        other_s, target = min(choices, key=lambda choice: choice[0])
        if rule.gains(own_s, other_s, job.hops):
            found.append(
                HandOver(
                    job.name, source, target, job.ask, job.parallel_cores, books.now_s,
                    own_s, other_s,
                )
            )  # fmt: skip
            books.promise(target, job.ask.cores, job.parallel_cores)
            books.arrivals[target] += 1
            gone += job.ask.cores
            gone_demand += job.parallel_cores
    return found


def _two(job: str, round_number: int, others: Sequence[str]) -> Sequence[str]:
    if len(others) <= 2:
        return others
    return [others[index] for index in sample(job, round_number, len(others))]


def _may_go(job: QueuedJob, now_s: float, rule: FederationRule) -> bool:
    rests = now_s - job.came_at_s < rule.rest_s
    return job.stays is None and job.hops < rule.hops_max and not rests


def _is_open(summary: ShardSummary, rule: FederationRule) -> bool:
    return 0 <= summary.age_s <= rule.closed_after_s
